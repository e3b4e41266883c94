"""Scalar unit of the VXM: 1/x and 1/sqrt(x + EPS) of the running sum, and the scalar file.

Timing rule: a sum visible in cycle u (stage 0) is written to the scalar file at the end of cycle
u + 8 and reads from u + 9 on. One sum per cycle. The functions are `numerics.recip` and `rsqrt`.

    u    + EPS (sum of squares)
    u+1  which bytes are not zero, leading zeros of each
    u+2  shift by bytes
    u+3  shift by bits
    u+4  table address
    u+5  table data, multiplier inputs
    u+8  product; add the base, clip
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .layouts import HostSignature
from .multiplier import Multiplier
from .reduce import pipe

__all__ = ["SUM_BITS", "ScalarFile", "ScalarWrite", "VxmScalar"]

#: Running sums; functions take 0 <= x < 2**40, a negative x counts as 1 as zero does.
SUM_BITS = 41
#: mant * 2**-16 * 2**-exp
SCALAR = data.StructLayout({"mant": 16, "exp": signed(6)})


class ScalarWrite(wiring.Signature):
    """A write to the scalar file."""

    def __init__(self):
        super().__init__({"en": Out(1), "sx": Out(3), "data": Out(SCALAR)})


class ScalarFile(wiring.Component):
    """Eight scalars: what was written since the start of the run, else the initial values.

    Members
    -------
    init : `In(HostSignature())`
        Host writes of initial values, while idle.
    start : `In(1)`
        Every entry takes its initial value.
    i : `In(ScalarWrite())`
        A write.
    sx, mant, exp : `In(3)`, `Out(16)`, `Out(signed(6))`
        Combinational read port.
    """

    def __init__(self):
        super().__init__(
            {
                "init": In(HostSignature()),
                "start": In(1),
                "i": In(ScalarWrite()),
                "sx": In(3),
                "mant": Out(16),
                "exp": Out(signed(6)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.initial = initial = Memory(shape=SCALAR, depth=8, init=[])
        m.submodules.file = file = Memory(shape=SCALAR, depth=8, init=[])
        host = initial.write_port()
        init_read = initial.read_port(domain="comb")
        write = file.write_port()
        read = file.read_port(domain="comb")
        # LUT RAM cannot be filled in one cycle: these entries are newer than the initial values
        written = Signal(8)
        entry = Signal(SCALAR)

        m.d.comb += [
            host.en.eq(self.init.en & self.init.we),
            host.addr.eq(self.init.addr),
            host.data.as_value().eq(self.init.wdata),
            init_read.addr.eq(self.sx),
            write.en.eq(self.i.en),
            write.addr.eq(self.i.sx),
            write.data.eq(self.i.data),
            read.addr.eq(self.sx),
            entry.eq(Mux(written.bit_select(self.sx, 1), read.data, init_read.data)),
            self.mant.eq(entry.mant),
            self.exp.eq(entry.exp),
        ]

        with m.If(self.start):
            m.d.sync += written.eq(0)
        with m.Elif(self.i.en):
            m.d.sync += written.bit_select(self.i.sx, 1).eq(1)
        return m


class VxmScalar(wiring.Component):
    """Reciprocal and reciprocal square root of a stream of sums.

    Members
    -------
    valid, square, sx, sum : `In`
        A sum, whether it is one of squares, the scalar file entry for it; `eps` with them.
    o : `Out(ScalarWrite())`
        Write to the scalar file, 8 cycles after `valid`.
    abort : `In(1)`
        Forget everything in flight.
    table : `In(HostSignature())`
        Host writes to the table, while nothing is in flight.
    """

    def __init__(self, primitives=False):
        self._primitives = primitives
        super().__init__(
            {
                "valid": In(1),
                "square": In(1),
                "sx": In(3),
                "sum": In(signed(SUM_BITS)),
                "eps": In(32),
                "abort": In(1),
                "o": Out(ScalarWrite()),
                "table": In(HostSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Memory(shape=32, depth=512, init=[], attrs={"no_rw_check": 1})
        m.submodules.multiplier = multiplier = Multiplier(17, 17, primitives=self._primitives)
        host = table.write_port()
        lookup = table.read_port()

        m.d.comb += [
            host.en.eq(self.table.en & self.table.we),
            host.addr.eq(self.table.addr),
            host.data.eq(self.table.wdata),
        ]
        valid = pipe(m, "valid", self.valid, 1, 8, clear=self.abort)
        sx = pipe(m, "sx", self.sx, 1, 8)
        square = pipe(m, "square", self.square, 1, 4)

        s4_norm, s4_top = self._normalise(m)
        exp = Signal(6, name="s4_exp")
        frac = pipe(m, "frac", s4_norm[:16], 5, 5)
        with m.If(square[4]):
            # value / 4**exp lies in [1, 2) or [2, 4): tables 1 and 2
            m.d.comb += [
                exp.eq(s4_top >> 1),
                lookup.addr.eq(Cat(s4_norm[16:], ~s4_top[0], s4_top[0])),
            ]
        with m.Else():
            m.d.comb += [exp.eq(s4_top), lookup.addr.eq(s4_norm[16:])]
        exp = pipe(m, "exp", exp, 5, 8)
        base = pipe(m, "base", lookup.data[:16], 6, 8)
        m.d.comb += [
            multiplier.a.eq(Cat(frac[5], 0).as_signed()),
            multiplier.b.eq(lookup.data[16:].as_signed()),
        ]

        s8_value = Signal(34)
        m.d.comb += [
            s8_value.eq(multiplier.p + Cat(C(1 << 15, 16), base[8])),
            self.o.en.eq(valid[8]),
            self.o.sx.eq(sx[8]),
            self.o.data.mant.eq(Mux(s8_value[32], 0xFFFF, s8_value[16:32])),
            self.o.data.exp.eq(exp[8]),
        ]
        return m

    def _normalise(self, m):
        """Stages 0 to 3: the 23 bits after the leading one, and its position (visible in 4)."""
        s1_x = Signal(signed(SUM_BITS + 1), reset_less=True)
        m.d.sync += s1_x.eq(self.sum + Mux(self.square, self.eps, 0))

        s2_x = Signal(40, reset_less=True)
        s2_some = Signal(5, reset_less=True)
        s2_zeros = [Signal(3, name=f"s2_zeros_{k}", reset_less=True) for k in range(5)]
        m.d.sync += s2_x.eq(s1_x)
        for k, s2_zeros_k in enumerate(s2_zeros):
            s1_byte = Signal(8, name=f"s1_byte_{k}")
            m.d.comb += s1_byte.eq(s1_x[8 * k : 8 * k + 8])
            m.d.sync += s2_some[k].eq(s1_byte.any() & ~s1_x[-1])
            for bit in range(8):
                with m.If(s1_byte[bit]):
                    m.d.sync += s2_zeros_k.eq(7 - bit)

        # Nothing set, or negative: 1.
        s3_x = Signal(40, reset_less=True)
        s3_byte = Signal(3, reset_less=True)
        s3_zeros = Signal(3, reset_less=True)
        m.d.sync += [s3_x.eq(1 << 32), s3_byte.eq(0), s3_zeros.eq(7)]
        for k in range(5):
            with m.If(s2_some[k]):
                m.d.sync += [
                    s3_x.eq(s2_x[: 8 * k + 8] << (32 - 8 * k)),
                    s3_byte.eq(k),
                    s3_zeros.eq(s2_zeros[k]),
                ]

        s4_norm = Signal(23, reset_less=True)
        s4_top = Signal(6, reset_less=True)
        m.d.sync += [
            s4_norm.eq((s3_x << s3_zeros)[16:39]),
            s4_top.eq(Cat(~s3_zeros, s3_byte)),
        ]
        return s4_norm, s4_top
