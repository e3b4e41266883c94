# amaranth: UnusedElaboratable=no
"""The UART's Verilog against cocotbext-uart, and what is refused."""

from __future__ import annotations

import re

import pytest
from amaranth import Module
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from support.cocotb_runs import Bench
from tidemill_hdl.uart import Receiver, Transmitter, baud_divisor

#: The least, an odd one, and that of 25 MHz and 1 Mbaud.
DIVISORS = (4, 5, 25)


class Uarts(wiring.Component):
    """A receiver and a transmitter for each divisor; `i_`: the transmitter's side."""

    PORTS = {
        "rx": In(1, init=1), "o_data": Out(8), "o_valid": Out(1), "error": Out(1),
        "bit": Out(1), "strobe": Out(1),
        "i_data": In(8), "i_valid": In(1), "i_ready": Out(1), "tx": Out(1),
        "i_bit": Out(1), "i_strobe": Out(1),
    }  # fmt: skip

    def __init__(self):
        ports = {f"{name}_{d}": port for d in DIVISORS for name, port in self.PORTS.items()}
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        for d in DIVISORS:
            m.submodules[f"receiver_{d}"] = receiver = Receiver(d)
            m.submodules[f"transmitter_{d}"] = transmitter = Transmitter(d)
            for name, port in self.PORTS.items():
                unit = transmitter if name.startswith("i_") or name == "tx" else receiver
                inner = getattr(unit, name.removeprefix("i_").removeprefix("o_"))
                outer = getattr(self, f"{name}_{d}")
                m.d.comb += inner.eq(outer) if port.flow is In else outer.eq(inner)
        return m


@pytest.fixture(scope="module")
def text() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMARANTH_USE_YOSYS", "builtin")
        return verilog.convert(Uarts(), name="uarts", emit_src=False)


def test_uart_against_cocotbext_uart(simulator, text, passed, tmp_path):
    ports = ["clk", "rst", *(f"{name}_{d}" for d in DIVISORS for name in Uarts.PORTS)]
    bench = Bench(text, "uarts", ports, tmp_path, simulator)
    divisors = " ".join(map(str, DIVISORS))
    passed(bench.run("support.uart_bench", "", {"DIVISORS": divisors}), tests=7 * len(DIVISORS))


@pytest.mark.parametrize("unit", [Receiver, Transmitter])
@pytest.mark.parametrize("divisor", [3, 0, -4, 4.0, None])
def test_short_bits_are_refused(unit, divisor):
    text = f"UART divisor must be a whole number of at least 4, not {divisor!r}"
    with pytest.raises(ValueError, match=re.escape(text)):
        unit(divisor)


def test_divisor_of_a_clock():
    assert baud_divisor(12_000_000, 3_000_000) == 4
    assert baud_divisor(25_000_000, 1_000_000) == 25
    assert baud_divisor(60_000_000, 115_200) == 521
    assert baud_divisor(100_000_000, 3_000_301) == 33  # 1 % away


def test_rates_that_a_clock_cannot_make_are_refused():
    with pytest.raises(
        ValueError,
        match=r"^baud 4000000 is too fast for a clock of 12000000 Hz: "
        r"a bit would last 3 cycles and needs 4; at most 3000000 baud is possible$",
    ):
        baud_divisor(12_000_000, 4_000_000)
    with pytest.raises(
        ValueError,
        match=r"^baud 3000000 cannot be made from a clock of 25000000 "
        r"Hz: 8 cycles a bit give 3125000, 4\.17% away; at most 1% is possible$",
    ):
        baud_divisor(25_000_000, 3_000_000)
