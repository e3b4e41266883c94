"""Every slice alone: its emitted Verilog against numpy, the same vectors in Verilator and Icarus.

The benches are `tidemill_sim.benches.slice_*`; they measure latencies by pulses on the signals. A
simulator that dies, or that runs no test, is red.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import pytest
from amaranth.back import verilog
from amaranth.hdl import Value
from amaranth.lib.wiring import Out
from cocotb_tools import runner

from support.cocotb_runs import Verilator
from tidemill.chip import Chip
from tidemill.isa import QUEUE_INDEX, QUEUES
from tidemill_hdl.host import FaultRegister, HostDecode, TokenFifo
from tidemill_hdl.mem_a import MemA
from tidemill_hdl.mem_w import MemW
from tidemill_hdl.mxm import Mxm
from tidemill_hdl.queue import InstructionQueue
from tidemill_hdl.sequencer import Sequencer
from tidemill_hdl.sxm import Sxm
from tidemill_hdl.vxm import Vxm
from tidemill_sim.benches import slice_faults
from tidemill_sim.benches.slice_base import describe

# The builds are shared, so one process of a parallel run takes them all.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slices")]

#: lanes x weight streams
SIZES = ((4, 2), (1, 1))
TIMESCALE = ("1ns", "1ps")


def small(lanes: int, streams: int) -> Chip:
    return Chip(
        name="slices",
        lanes=lanes,
        weight_streams=streams,
        mem_w_depth=24,
        mem_a_depth=24,
        act_depth=8,
        acc_depth=4,
        queue_depth=64,
        tide_depth=64,
        context=12,
        vocab=64,
    )


def queue(name: str, chip: Chip) -> InstructionQueue:
    return InstructionQueue(QUEUES[QUEUE_INDEX[name]], chip)


#: Module name -> (bench module, component)
SLICES = {
    "mem_w": ("slice_mem_w", MemW),
    "mem_a": ("slice_mem_a", MemA),
    "mxm": ("slice_mxm", Mxm),
    "vxm": ("slice_vxm", Vxm),
    "sxm": ("slice_sxm", Sxm),
    "queue_mxm": ("slice_queue", functools.partial(queue, "MXM.C")),
    "queue_mem": ("slice_queue", functools.partial(queue, "MEMA.R")),
    "sequencer": ("slice_sequencer", Sequencer),
    "host": ("slice_host", HostDecode),
    "fifo": ("slice_fifo", TokenFifo),
    "faults": ("slice_faults", lambda chip: FaultRegister(slice_faults.QUEUES, slice_faults.LAGS)),
}


def emit(folder: Path, chip: Chip) -> Path:
    """Verilog of every slice, a top with all their ports, and what the benches must know."""
    ports, texts, tops, instances = {}, [], [], []
    for name, (_, make) in SLICES.items():
        component = make(chip)
        ports[name] = {
            "__".join(map(str, path)): (
                "out" if member.flow is Out else "in",
                len(Value.cast(value)),
            )
            for path, member, value in component.signature.flatten(component)
        }
        texts.append(verilog.convert(component, name=name, emit_src=False))
        used = {n: (way, w) for n, (way, w) in ports[name].items() if w}
        tops += [f"{way}put [{w - 1}:0] {name}__{n}" for n, (way, w) in used.items()]
        pins = "".join(f", .{n}({name}__{n})" for n in used)
        instances.append(f"  {name} i_{name} (.clk(clk), .rst(rst){pins});\n")
    top = ",\n  ".join(["input clk", "input rst", *tops])
    source = folder / "slices.v"
    source.write_text(
        f"module slices (\n  {top}\n);\n{''.join(instances)}endmodule\n" + "".join(texts)
    )
    describe(folder / "slices.json", chip, ports)
    return source


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def run(request, simulator, tmp_path_factory):
    """Run the bench of one slice; returns the results file, as the runner does."""
    folder = tmp_path_factory.mktemp(f"slices_{simulator}")
    sources, arguments = [emit(folder, small(*request.param))], []
    sim = runner.get_runner(simulator)
    if simulator == "verilator":
        sim = Verilator()
        arguments = ["--x-initial", "unique", "-Wno-lint"]
        control = folder / "ports.vlt"
        control.write_text('`verilator_config\npublic_flat_rw -module "slices" -var "*"\n')
        sources.insert(0, control)
    sim.build(
        sources=sources,
        hdl_toplevel="slices",
        build_dir=folder / "build",
        build_args=arguments,
        timescale=TIMESCALE,
        always=True,
        log_file=folder / "build.log",
    )

    def test(name: str) -> Path:
        return sim.test(
            hdl_toplevel="slices",
            test_module=f"tidemill_sim.benches.{SLICES[name][0]}",
            build_dir=folder / "build",
            test_dir=folder,
            results_xml=str(folder / f"{name}.xml"),
            extra_env={"TIDEMILL_SLICES": str(folder / "slices.json"), "TIDEMILL_SLICE": name},
            timescale=TIMESCALE,
            log_file=folder / f"{name}.log",
        )

    return test


def count_tests(module: str) -> int:
    """Number of cocotb tests of a bench module, counted in its text."""
    text = Path(importlib.import_module(f"tidemill_sim.benches.{module}").__file__).read_text()
    return text.count("\n@cocotb.test(")


@pytest.mark.parametrize("name", SLICES)
def test_slice(name, run, passed):
    passed(run(name), tests=count_tests(SLICES[name][0]))
