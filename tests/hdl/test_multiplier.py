# amaranth: UnusedElaboratable=no
"""Multiplier and stream-register hops."""

import random
import re

import pytest
from amaranth.back import verilog
from amaranth.hdl import ClockDomain, Module, signed

from support.simulate import simulate
from tidemill_hdl.delay import Delay
from tidemill_hdl.multiplier import Multiplier


def run(dut, bench):
    m = Module()
    m.domains.sync = ClockDomain()
    m.submodules.dut = dut
    simulate(m, bench)


@pytest.mark.parametrize(("a_width", "b_width"), [(16, 8), (18, 18), (1, 5)])
def test_products(a_width, b_width):
    rng = random.Random(a_width)
    a_ends = (-(1 << a_width - 1), (1 << a_width - 1) - 1, -1, 0)
    b_ends = (-(1 << b_width - 1), (1 << b_width - 1) - 1, -1, 1)
    pairs = [(a, b) for a in a_ends for b in b_ends]
    pairs += [
        (rng.randint(a_ends[0], a_ends[1]), rng.randint(b_ends[0], b_ends[1])) for _ in range(50)
    ]
    dut = Multiplier(a_width, b_width)
    products = []

    async def bench(ctx):
        for a, b in pairs + [(0, 0)] * dut.latency:
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            products.append(ctx.get(dut.p))
            await ctx.tick()

    run(dut, bench)
    assert products[dut.latency :] == [a * b for a, b in pairs]


def test_primitive_uses_its_three_registers():
    text = verilog.convert(Multiplier(16, 8, primitives=True), name="mult", emit_src=False)
    for stage in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT"):
        assert f'.REG_{stage}_CLK("CLK0")' in text
    # operands are sign-extended to the 18 pins
    for pin in ("A15(a[15])", "A16(a[15])", "A17(a[15])", "B7(b[7])", "B17(b[7])"):
        assert f".{pin}" in text
    nets = dict(re.findall(r"\.P(\d+)\((\S+)", text))
    joined = " , ".join(nets[str(k)] for k in reversed(range(24)))
    assert f"assign p = {{ {joined}  }};" in text
    assert ".SIGNEDA(1'h1)" in text
    assert ".SIGNEDB(1'h1)" in text
    assert "always" not in text


@pytest.mark.parametrize("width", [0, 19])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match=rf"must be from 1 to 18, not {width}"):
        Multiplier(width, 8)


@pytest.mark.parametrize("cycles", [0, 1, 3])
def test_delay(cycles):
    dut = Delay(signed(8), cycles)
    values = [-128, 127, 5, -1, 0, 9]
    seen = []

    async def bench(ctx):
        for value in values + [0] * cycles:
            ctx.set(dut.i, value)
            await ctx.delay(1e-9)
            seen.append(ctx.get(dut.o))
            await ctx.tick()

    run(dut, bench)
    assert seen == [0] * cycles + values


def test_delay_refuses_to_go_back():
    with pytest.raises(ValueError, match="non-negative integer, not -1"):
        Delay(8, -1)
