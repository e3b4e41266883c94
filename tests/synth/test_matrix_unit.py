"""Trial place and route of the matrix unit: MEM_W and MXM of `ulx3s-85f` on an ECP5-85F, grade 6.

    TIDEMILL_TRIAL=1 python -m pytest -m synth -s tests/synth/test_matrix_unit.py

prints the clock after placement and after routing, the cells and the slowest path. It takes a
quarter of an hour; without the variable it is skipped. Routed figures depend on the seed:
TIDEMILL_SEED=2 tries another one.
"""

import json
import os
import re

import pytest
from amaranth import Cat, Module, Signal, Value
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tidemill.chip import CHIPS
from tidemill_hdl.delay import Delay
from tidemill_hdl.mem_w import MemW
from tidemill_hdl.mxm import Mxm

#: MHz the matrix unit must reach by itself; what nextpnr is asked for lies above it.
FLOOR, TARGET = 110, 125
#: router2 ends sooner on a full part, but thinks less of the clock.
ROUTER = "router1"

pytestmark = [
    pytest.mark.synth,
    pytest.mark.xdist_group("synth"),
    pytest.mark.skipif(
        "TIDEMILL_TRIAL" not in os.environ, reason="a quarter of an hour: set TIDEMILL_TRIAL=1"
    ),
]


class MatrixUnit(wiring.Component):
    """MEM_W and MXM with the hops between them, every other port on a register.

    A shift register drives the inputs, so few pins are needed; the outputs are folded by XOR to
    one bit, four to one per cycle. Faults are left out.
    """

    def __init__(self, chip):
        self.chip = chip
        super().__init__({"shift_in": In(1), "shift_out": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.mem_w = mem_w = MemW(self.chip)
        m.submodules.mxm = mxm = Mxm(self.chip, primitives=True)
        m.submodules.hops = hops = Delay(mem_w.planes.shape(), self.chip.hop("MEM_W", "MXM"))
        m.d.comb += [hops.i.eq(mem_w.planes), mxm.planes.eq(hops.o)]

        inputs, outputs = [], []
        for unit in (mem_w, mxm):
            for path, member, value in unit.signature.flatten(unit):
                if path[0] not in ("planes", "fault"):
                    (inputs if member.flow is In else outputs).append(Value.cast(value))
        chain = Signal(sum(len(i) for i in inputs), reset_less=True)
        m.d.sync += chain.eq(Cat(self.shift_in, chain))
        m.d.comb += Cat(inputs).eq(chain)
        fold = Cat(outputs)
        while len(fold) > 1:
            quarter = Signal(-(-len(fold) // 4), name=f"fold_{len(fold)}", reset_less=True)
            m.d.sync += quarter.eq(Cat(fold[k : k + 4].xor() for k in range(0, len(fold), 4)))
            fold = quarter
        m.d.comb += self.shift_out.eq(fold)
        return m


def describe(path):
    """The slowest path of a report, a hop a line."""
    for step in path:
        place = step["to"] if "to" in step else step["from"]
        yield f"{step['delay']:6.2f} ns  {step['type']:8} {place['cell']}.{place['port']}"


def test_clock(synthesise, tool, tmp_path, monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    text = verilog.convert(MatrixUnit(CHIPS["ulx3s-85f"]), name="unit", emit_src=False)
    counts, _ = synthesise(text, "unit", tmp_path, purge=True)
    seed = os.environ.get("TIDEMILL_SEED", "1")
    tool(
        "nextpnr-ecp5",
        *("--85k", "--speed", "6", "--package", "CABGA381", "--json", "unit.json"),
        *("--freq", str(TARGET), "--seed", seed, "--router", ROUTER, "--timing-allow-fail"),
        *("--report", "report.json", "--log", "pnr.log"),
        folder=tmp_path,
    )
    report = json.loads((tmp_path / "report.json").read_text())
    (clock,) = report["fmax"].values()
    log = (tmp_path / "pnr.log").read_text()
    placed = re.search(r"Max frequency for clock .*: (\S+) MHz", log)
    assert placed
    print(f"\nseed {seed}: {placed[1]} MHz placed, {clock['achieved']:.1f} MHz routed", counts)
    (slowest,) = [p["path"] for p in report["critical_paths"] if p["from"] == p["to"]]
    print(*describe(slowest), sep="\n")
    assert clock["achieved"] >= FLOOR
