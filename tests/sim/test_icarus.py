"""Four-state simulation of a whole run: what is undefined at power-up must not reach a port.

The Verilog has lost all its initial values, so registers without reset and memories start as X; the
host writes what the program defines. Two-state simulators hide a missing reset, this one does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cocotb_tools import runner

from tidemill.isa import HOST_READ_LATENCY, Space
from tidemill_hdl.verilog import generate
from tidemill_sim.engine import Machine
from tidemill_sim.rtl import RtlEngine, RunRequest, SimulatorError

pytestmark = [pytest.mark.rtl, pytest.mark.icarus, pytest.mark.slow]

BENCH = Path(__file__).parents[2] / "sim/tidemill_sim/benches/bench.sv"

#: Watches the ports beside the bench: control always, data when its valid bit is set, host_rdata
#: while the chip runs. Says so in a file and ends the simulation.
WATCH = """
module watch;
  integer log, seen = 0;
  reg [1023:0] path;
  initial begin
    if (!$value$plusargs("watch=%s", path)) $fatal(1, "no +watch");
    log = $fopen(path, "w");
  end
  task undefined(input [127:0] port);
    begin
      $fdisplay(log, "X %0s %0d", port, bench.now);
      $fclose(log);
      $finish;
    end
  endtask
  always @(negedge bench.clk) if (bench.run != 0) begin
    seen = seen + 1;
    if (bench.dut.busy === 1) begin
      if (^bench.dut.host_rdata === 1'bx) undefined("host_rdata");
    end
    if (^bench.dut.busy === 1'bx) undefined("busy");
    if (^bench.dut.done === 1'bx) undefined("done");
    if (^bench.dut.token_valid === 1'bx) undefined("token_valid");
    if (^bench.dut.fifo_valid === 1'bx) undefined("fifo_valid");
    if (^bench.dut.chip_id === 1'bx) undefined("chip_id");
    if (^bench.dut.fault === 1'bx) undefined("fault");
    if (bench.dut.fault) begin
      if (^bench.dut.fault_kind === 1'bx) undefined("fault_kind");
      if (^bench.dut.fault_queue === 1'bx) undefined("fault_queue");
      if (^bench.dut.fault_cycle === 1'bx) undefined("fault_cycle");
    end
    if (bench.dut.token_valid) begin
      if (^bench.dut.token === 1'bx) undefined("token");
      if (^bench.dut.token_generated === 1'bx) undefined("token_generated");
      if (^bench.dut.token_cycles === 1'bx) undefined("token_cycles");
    end
    if (bench.dut.fifo_valid && ^bench.dut.fifo_data === 1'bx) undefined("fifo_data");
  end
  always @(posedge bench.finished) begin
    $fdisplay(log, "watched %0d", seen);
    $fclose(log);
  end
endmodule
"""


@dataclass
class Built:
    """The bench under Icarus, in the place of a build of Verilator."""

    folder: Path

    def run(self, work: Path, plusargs: list[str], env: dict[str, str]) -> Path:
        return runner.get_runner("icarus").test(
            test_module="tidemill_sim.benches.run",
            hdl_toplevel="bench",
            hdl_toplevel_lang="verilog",
            build_dir=self.folder,
            test_dir=work,
            results_xml=str(work / "results.xml"),
            plusargs=[*plusargs, f"+watch={self.folder / 'watch.log'}"],
            extra_env=env,
            log_file=self.folder / "sim.log",
        )


class IcarusEngine(RtlEngine):
    """The same scripts, bench and judgement as the `rtl` engine, another simulator."""

    def __init__(self, chip, folder: Path, **more):
        super().__init__(chip, **more)
        self.folder = folder

    def build(self, *, waves: bool = False, random_start: bool = False):
        # An `always @*` of yosys waits for a change: a reset that is 1 from the very beginning
        # passes it by, and without initial values nothing else starts it.
        early, late = "reg rst = 1;", "reg rst = 0; initial #1 rst = 1;"
        bench = BENCH.read_text()
        assert bench.count(early) == 1
        sources = {
            "bench.sv": bench.replace(early, late),
            "watch.v": WATCH,
            "tidemill.v": self.verilog,
        }
        for name, text in sources.items():
            (self.folder / name).write_text(text)
        runner.get_runner("icarus").build(
            sources=[self.folder / name for name in sources],
            hdl_toplevel="bench",
            build_dir=self.folder,
            build_args=["-s", "watch", f"-DHOST_READ_LATENCY={HOST_READ_LATENCY}"],
            timescale=("1ns", "1ps"),
            always=True,
            log_file=self.folder / "build.log",
        )
        return Built(self.folder)

    @property
    def watched(self) -> list[str]:
        """What the watch wrote."""
        return (self.folder / "watch.log").read_text().split()


def boot(program):
    """Boot writes, and something in every row of MEM_W that the program leaves alone.

    Attention multiplies rows of positions to come, which nobody wrote, by weights of exactly 0.
    That is 0 for the chip and X for a four-state simulator. MEM_A stays undefined where it is not
    used.
    """
    rng = np.random.default_rng(1)
    streams = program.chip.weight_streams
    for row in np.flatnonzero(~program.mem_w_used).tolist():
        for bank in range(streams):
            yield Space.MEM_W, row * streams + bank, int(rng.integers(1 << 32))
    yield from program.boot_writes()


def test_nothing_undefined_reaches_a_port(
    icarus, passed, small_program, without_initial_values, differences, tmp_path
):
    text = without_initial_values(generate(small_program.chip))
    engine = IcarusEngine(small_program.chip, tmp_path, verilog=text)
    runs = [([1, 5, 9], 3, 0.0, 0), ([30, 2], 2, 1.5, 0xDEADBEEF)]
    requests = [RunRequest(small_program.run_writes(*run)) for run in runs]
    results = engine.run(boot(small_program), requests, dump=True)
    machine = Machine(small_program, check=True)
    for run, result in zip(runs, results, strict=True):
        assert differences(machine, machine.run(*run), result) == []
    word, cycles = engine.watched
    assert word == "watched"
    assert int(cycles) > sum(t.cycles for r in results for t in r.tokens)


def test_the_watch_sees_an_undefined_port(icarus, small_program, without_initial_values, tmp_path):
    """A word of the prompt that nobody wrote: the token of its position is X."""
    text = without_initial_values(generate(small_program.chip))
    engine = IcarusEngine(small_program.chip, tmp_path, verilog=text)
    writes = [w for w in small_program.run_writes([1, 5, 9], 1) if w[:2] != (9, 1)]
    with pytest.raises((SystemExit, SimulatorError)):
        engine.run(boot(small_program), [RunRequest(writes)])
    assert engine.watched[:2] == ["X", "token"]
