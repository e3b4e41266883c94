"""The board: a chip, its host link, four LEDs, and the reset that no pin gives.

Timing rule: the chip leaves reset RESET_CYCLES cycles after the clock is there (with a PLL: after
`locked`); until then block RAM may read as zeros on an iCE40.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from tidemill_hdl.link import Link
from tidemill_hdl.top import Tidemill
from tidemill_hdl.uart import baud_divisor

__all__ = ["RESET_CYCLES", "BoardTop"]

#: Cycles in reset after power-up.
RESET_CYCLES = 64


class BoardTop(wiring.Component):
    """A chip on a board. It makes its own clock domain, `sync`.

    Parameters
    ----------
    chip : Chip
    clock_hz : int
        Frequency of the chip, behind the PLL if there is one. Goes into the reply to ID.
    baud : int
        Rate of the UART; ValueError unless `clock_hz` makes it to 1 % with 4 cycles a bit or more.
    build_id : int
        64 bits that the reply to ID returns.
    pll : Component, optional
        Members `i` (the board's clock), `o` (the chip's), `locked`.
    primitives : bool
        As for `Tidemill`.

    Members
    -------
    clk : In(1)
        The board's oscillator.
    uart_rx : In(1), uart_tx : Out(1)
        From and to the host.
    led : Out(4)
        Busy; fault; tokens come; blinks about once a second while the clock runs.
    """

    def __init__(self, chip, clock_hz, baud, build_id=0, pll=None, primitives=False):
        self._chip = chip
        self._clock_hz = clock_hz
        self._pll = pll
        self._primitives = primitives
        self._divisor = baud_divisor(clock_hz, baud)
        self._identity = (
            int(chip.hash, 16).to_bytes(8, "little")
            + clock_hz.to_bytes(4, "little")
            + build_id.to_bytes(8, "little")
        )
        super().__init__(
            {
                "clk": In(1),
                "uart_rx": In(1, init=1),
                "uart_tx": Out(1, init=1),
                "led": Out(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.domains.power = power = ClockDomain(reset_less=True)
        m.domains.sync = sync = ClockDomain()
        m.submodules.chip = chip = Tidemill(self._chip, self._primitives)
        m.submodules.link = link = Link(self._divisor, self._identity)

        locked = Signal()
        if self._pll is None:
            m.d.comb += [power.clk.eq(self.clk), locked.eq(1)]
        else:
            m.submodules.pll = pll = self._pll
            m.submodules.locked = FFSynchronizer(pll.locked, locked, o_domain="power")
            m.d.comb += [pll.i.eq(self.clk), power.clk.eq(pll.o)]
        for name, port in link.signature.members.items():
            if name in chip.signature.members:
                here, there = getattr(link, name), getattr(chip, name)
                m.d.comb += there.eq(here) if port.flow is Out else here.eq(there)

        held = Signal(range(RESET_CYCLES + 1))
        up = Signal()
        with m.If(~locked):
            m.d.power += [held.eq(0), up.eq(0)]
        with m.Elif(~up):
            m.d.power += [held.eq(held + 1), up.eq(held == RESET_CYCLES - 1)]

        flash = Signal()
        with m.If(chip.token_valid):
            m.d.sync += flash.eq(1)
        with m.Elif(link.tick):
            m.d.sync += flash.eq(0)
        alive = link.cycles[self._clock_hz.bit_length() - 2]
        m.d.comb += [
            sync.clk.eq(power.clk),
            sync.rst.eq(~up),
            link.rx.eq(self.uart_rx),
            self.uart_tx.eq(link.tx),
            self.led.eq(Cat(chip.busy, chip.fault, flash, alive)),
        ]
        return m
