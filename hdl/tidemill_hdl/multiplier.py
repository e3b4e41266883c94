"""Signed multiplier with the three registers of an ECP5 DSP.

    t      t + 1           t + 2              t + 3
    a, b   input register  pipeline register  p (output register)

Timing rule: p in cycle t + 3 is a * b of cycle t; one product per cycle.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Multiplier", "mult18x18d"]


def mult18x18d(a, b, p):
    """An ECP5 MULT18X18D with its input, pipeline and output registers in use, as an `Instance`.

    For arrays of multipliers: an `Instance` adds no Verilog module of its own. `a` and `b` are
    signed, at most 18 bits, `p` as wide as both together. Pins that are not used stay open: the
    shift pins have no way to a constant, and the router gives up on some.
    """
    wide = [(name, Value.cast(v)) for name, v in (("A", a), ("B", b))]
    pins = {}
    for name, v in wide:
        # sign extension: the pins are single bits
        bits = [v[min(k, len(v) - 1)] for k in range(18)]
        pins |= {f"i_{name}{k}": bit for k, bit in enumerate(bits)}
    pins |= {f"o_P{k}": bit for k, bit in enumerate(Value.cast(p))}
    registers = {}
    for stage in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT"):
        registers |= {
            f"p_REG_{stage}_CLK": "CLK0",
            f"p_REG_{stage}_CE": "CE0",
            f"p_REG_{stage}_RST": "RST0",
        }
    return Instance(
        "MULT18X18D",
        **registers,
        p_GSR="DISABLED",
        i_CLK0=ClockSignal(),
        i_CE0=1,
        i_RST0=0,
        i_SIGNEDA=1,
        i_SIGNEDB=1,
        i_SOURCEA=0,
        i_SOURCEB=0,
        **pins,
    )


class Multiplier(wiring.Component):
    """One multiplier, every cycle.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the signed operands, 1 to 18.
    primitives : bool
        Instance of an ECP5 MULT18X18D instead of plain logic, which Verilator cannot simulate.
        Synthesis makes a MULT18X18D of the plain form too, with its registers outside.

    Members
    -------
    a, b : In
        Operands.
    p : Out
        Product of the operands three cycles ago.
    """

    #: Cycles from operands to product.
    latency = 3

    def __init__(self, a_width, b_width, *, primitives=False):
        for width in (a_width, b_width):
            if not 1 <= width <= 18:
                raise ValueError(f"Multiplier width must be from 1 to 18, not {width}")
        self.primitives = primitives
        super().__init__(
            {
                "a": In(signed(a_width)),
                "b": In(signed(b_width)),
                "p": Out(signed(a_width + b_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()

        if self.primitives:
            m.submodules.mult = mult18x18d(self.a, self.b, self.p)
            return m

        s1_a = Signal.like(self.a, reset_less=True)
        s1_b = Signal.like(self.b, reset_less=True)
        s2_p = Signal.like(self.p, reset_less=True)
        s3_p = Signal.like(self.p, reset_less=True)
        m.d.sync += [s1_a.eq(self.a), s1_b.eq(self.b), s2_p.eq(s1_a * s1_b), s3_p.eq(s2_p)]
        m.d.comb += self.p.eq(s3_p)

        return m
