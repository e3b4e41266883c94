"""Copies of a register stay copies: yosys merges registers that it can prove equal."""

import pytest
from amaranth import Cat, Module, Signal
from amaranth.back import verilog

from tidemill_hdl.reduce import spread

pytestmark = [pytest.mark.synth, pytest.mark.xdist_group("synth")]


@pytest.mark.parametrize(("copies", "registers"), [(1, 1 + 1 + 1), (2, 1 + 1 + 2), (8, 2 + 4 + 8)])
def test_copies_stay(synthesise, tmp_path, monkeypatch, copies, registers):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    m = Module()
    value, far = Signal(5), Signal(5 * copies)
    m.d.comb += far.eq(Cat(spread(m, "value", value, 1, 3, copies)))
    text = verilog.convert(m, name="copies", ports=[value, far], emit_src=False)
    counts, _ = synthesise(text, "copies", tmp_path)
    assert counts["TRELLIS_FF"] == 5 * registers
