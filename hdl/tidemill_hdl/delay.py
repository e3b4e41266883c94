"""Stream-register hops.

Timing rule: `o` in cycle t is `i` of cycle t - cycles.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Delay"]


class Delay(wiring.Component):
    """A chain of registers without reset: the way of a stream between two slices.

    A stream moves every cycle; there is no enable. Before `cycles` cycles have passed, `o` is 0.

    Parameters
    ----------
    shape : shape-like
        Shape of the value that moves.
    cycles : int
        Number of registers; 0 is a wire.

    Members
    -------
    i : In(shape)
        Value that enters, every cycle.
    o : Out(shape)
        Value that entered `cycles` cycles ago.
    """

    def __init__(self, shape, cycles):
        if not isinstance(cycles, int) or cycles < 0:
            raise ValueError(f"Delay cycles must be a non-negative integer, not {cycles!r}")
        self.shape = shape
        self.cycles = cycles
        super().__init__({"i": In(shape), "o": Out(shape)})

    def elaborate(self, platform):
        m = Module()

        at = self.i
        for k in range(1, self.cycles + 1):
            hop = Signal(self.shape, name=f"hop_{k}", reset_less=True)
            m.d.sync += hop.eq(at)
            at = hop
        m.d.comb += self.o.eq(at)

        return m
