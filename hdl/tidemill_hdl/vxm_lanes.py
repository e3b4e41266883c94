"""Compound pipelines of the VXM, all lanes in one component: shift, table or multiply, add, mask.

Timing rule: stage k is cycle t + k of the pass dispatched at t; a control port `s{k}_...` belongs
to the pass in stage k. Operands are sampled in stage 1, addend C in stage 8; the result is on `e_v`
in stage 11 and in T from stage 12 on. One pass per cycle. Arithmetic is that of `numerics`.

    1  select A and B            5  table data, multiplier operands
    2  coarse shift              6..8  multiplier
    3  fine shift, round, sat18  9  round, add
    4  table address             10 sat16, mask
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from tidemill import numerics
from tidemill.isa import ASrc, BSrc, Func

from .layouts import HostSignature, byte_vector, vector
from .multiplier import mult18x18d
from .noise import CODE_BITS
from .reduce import pipe, saturate
from .regfile import RegFile
from .vxm_reduce import TERM_BITS

__all__ = ["VxmLanes"]


class VxmLanes(wiring.Component):
    """Datapath of the VXM without its control.

    Members
    -------
    e_acc, e_b, w_a, w_s : `In`
        Streams, stage 1.
    noise : `In(ArrayLayout(14, lanes))`
        Gumbel codes, stage 1.
    e_v : `Out(vector(chip))`
        Results, stage 11.
    terms : `Out(vector(chip, 35))`
        Products or results, stage 11: what sums add up.
    table : `In(HostSignature())`
        Host writes to the table of every lane, while nothing is in flight.
    s1_a, s1_b, s1_ta, s1_tb, s1_mant : `In`
        Operand selection: `isa.ASrc`, `isa.BSrc`, T entries, scalar mantissa.
    s2_shift, s4_func, s4_top, s8_c, s8_tc : `In`
        Right shift of A, `isa.Func`, maximum for EXP, whether and which T entry is added.
    s10_mask, s10_zero, s10_product : `In`
        Lanes to mask, with 0 instead of -32767; terms are products.
    s11_write, s11_td : `In`
        Write the result to T.
    """

    def __init__(self, chip, primitives=False):
        self._chip = chip
        self._primitives = primitives
        t_bits = exact_log2(chip.temp_depth)
        super().__init__(
            {
                "e_acc": In(vector(chip, 32)),
                "e_b": In(byte_vector(chip)),
                "w_a": In(vector(chip)),
                "w_s": In(vector(chip)),
                "noise": In(data.ArrayLayout(CODE_BITS, chip.lanes)),
                "e_v": Out(vector(chip)),
                "terms": Out(vector(chip, TERM_BITS)),
                "table": In(HostSignature()),
                "s1_a": In(3),
                "s1_b": In(3),
                "s1_ta": In(t_bits),
                "s1_tb": In(t_bits),
                "s1_mant": In(16),
                "s2_shift": In(5),
                "s4_func": In(2),
                "s4_top": In(signed(16)),
                "s8_c": In(1),
                "s8_tc": In(t_bits),
                "s10_mask": In(chip.lanes),
                "s10_zero": In(1),
                "s10_product": In(1),
                "s11_write": In(1),
                "s11_td": In(t_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.temps = temps = RegFile(
            self._chip.temp_depth, vector(self._chip), reads=3, family=self._chip.family
        )
        t_a, t_b, t_c = temps.r_data

        m.d.comb += [
            temps.r_addr[0].eq(self.s1_ta),
            temps.r_addr[1].eq(self.s1_tb),
            temps.r_addr[2].eq(self.s8_tc),
            temps.w_en.eq(self.s11_write),
            temps.w_addr.eq(self.s11_td),
            temps.w_data.eq(self.e_v),
        ]

        s1_self = Signal()
        s4_is = {f: Signal(name=f"s4_is_{f.name.lower()}") for f in Func}
        m.d.comb += [signal.eq(self.s4_func == f) for f, signal in s4_is.items()]
        m.d.comb += s1_self.eq(self.s1_b == BSrc.SELF)
        is_self = pipe(m, "self", s1_self, 2, 2)
        is_table = pipe(m, "table", ~s4_is[Func.NONE], 5, 8)
        for lane in range(self._chip.lanes):
            s2_a, s2_b = self._operands(m, lane, t_a[lane], t_b[lane])
            s4_pre, s3_b = self._preshift(m, lane, s2_a, s2_b, is_self[2])
            b = pipe(m, f"b_{lane}", s3_b, 4, 5)
            pre = pipe(m, f"pre_{lane}", s4_pre, 5, 5)

            lookup = self._table(m, lane)
            s5_frac = self._address(m, lane, s4_pre, s4_is, lookup.addr)
            base = pipe(m, f"base_{lane}", lookup.data[:16].as_signed(), 6, 8)
            slope = lookup.data[16:].as_signed()
            s6_x = Signal(signed(18), name=f"s6_x_{lane}", reset_less=True)
            s6_y = Signal(signed(18), name=f"s6_y_{lane}", reset_less=True)
            m.d.sync += [
                s6_x.eq(Mux(is_table[5], slope, pre[5])),
                s6_y.eq(Mux(is_table[5], Cat(C(0, 8), s5_frac), b[5])),
            ]
            s9_product = self._multiply(m, lane, s6_x, s6_y)

            s9_add = Signal(signed(16), name=f"s9_add_{lane}", reset_less=True)
            m.d.sync += s9_add.eq(Mux(is_table[8], base[8], Mux(self.s8_c, t_c[lane], 0)))
            self._result(m, lane, s9_product, s9_add)
        return m

    def _table(self, m, lane):
        """Read port of the lane's table.

        One memory with a port per lane would read better, but yosys 0.70 runs out of memory
        (`memory_libmap`) on its way to the same block RAMs.
        """
        m.submodules[f"table_{lane}"] = table = Memory(
            shape=32, depth=512, init=[], attrs={"no_rw_check": 1}
        )
        host = table.write_port()
        m.d.comb += [
            host.en.eq(self.table.en & self.table.we),
            host.addr.eq(self.table.addr),
            host.data.eq(self.table.wdata),
        ]
        return table.read_port()

    def _operands(self, m, lane, t_a, t_b):
        """Stage 1: A (32 bits) and B (18 bits, 0 for SELF)."""
        s2_a = Signal(signed(32), name=f"s2_a_{lane}", reset_less=True)
        s2_b = Signal(signed(18), name=f"s2_b_{lane}", reset_less=True)
        with m.Switch(self.s1_a):
            with m.Case(ASrc.ACC):
                m.d.sync += s2_a.eq(self.e_acc[lane])
            with m.Case(ASrc.T):
                m.d.sync += s2_a.eq(t_a)
            with m.Case(ASrc.WA):
                m.d.sync += s2_a.eq(self.w_a[lane])
            with m.Case(ASrc.WS):
                m.d.sync += s2_a.eq(self.w_s[lane])
            with m.Case(ASrc.BYTE):
                m.d.sync += s2_a.eq(self.e_b[lane] << 8)
            with m.Default():
                m.d.sync += s2_a.eq(self.noise[lane])
        with m.Switch(self.s1_b):
            with m.Case(BSrc.T):
                m.d.sync += s2_b.eq(t_b)
            with m.Case(BSrc.WA):
                m.d.sync += s2_b.eq(self.w_a[lane])
            with m.Case(BSrc.WS):
                m.d.sync += s2_b.eq(self.w_s[lane])
            with m.Case(BSrc.SCALAR):
                m.d.sync += s2_b.eq(self.s1_mant)
            with m.Case(BSrc.SELF):
                m.d.sync += s2_b.eq(0)
            with m.Case(BSrc.T4):
                m.d.sync += s2_b.eq(t_b << 2)
            with m.Case(BSrc.WA4):
                m.d.sync += s2_b.eq(self.w_a[lane] << 2)
            with m.Default():
                m.d.sync += s2_b.eq(numerics.ONE)
        return s2_a, s2_b

    def _preshift(self, m, lane, s2_a, s2_b, s2_self):
        """Stages 2, 3: A shifted right, rounded, saturated to 18 bits (visible in 4); B (in 3)."""
        s3_b = Signal(signed(18), name=f"s3_b_{lane}", reset_less=True)
        # one bit more at the bottom: the last one shifted out
        s3_x = Signal(signed(33), name=f"s3_x_{lane}", reset_less=True)
        s3_fine = Signal(2, name=f"s3_fine_{lane}", reset_less=True)
        m.d.sync += [
            s3_b.eq(s2_b | saturate(m, f"s2_self_{lane}", s2_a, 16, on=s2_self)),
            s3_x.eq(Cat(0, s2_a).as_signed() >> Cat(C(0, 2), self.s2_shift[2:])),
            s3_fine.eq(self.s2_shift[:2]),
        ]

        s3_y = Signal(19, name=f"s3_y_{lane}")
        s3_sum = Signal(signed(19), name=f"s3_sum_{lane}")
        s3_guard = Signal(14, name=f"s3_guard_{lane}")
        s3_over = Signal(name=f"s3_over_{lane}")
        s3_lowest = Signal(name=f"s3_lowest_{lane}")
        s4_pre = Signal(signed(18), name=f"s4_pre_{lane}", reset_less=True)
        sign = s3_x[-1]
        keep = Cat(s3_fine == 0, s3_fine < 2, s3_fine < 3)
        m.d.comb += [
            s3_y.eq(s3_x >> s3_fine),
            s3_sum.eq(s3_y[1:].as_signed() + s3_y[0]),
            # bits above the 18 that differ from the sign; the lowest three may be shifted away
            s3_guard.eq(s3_x[18:32] ^ sign.replicate(14)),
            s3_over.eq(s3_guard[3:].any() | (s3_guard[:3] & keep).any() | (~sign & s3_sum[17])),
            s3_lowest.eq(sign & ~s3_y[:18].any()),
        ]
        m.d.sync += s4_pre.eq(
            Mux(
                s3_over,
                Cat(1, (~sign).replicate(16), sign),
                Cat(s3_sum[0] | s3_lowest, s3_sum[1:18]),
            )
        )
        return s4_pre, s3_b

    def _address(self, m, lane, s4_pre, s4_is, s4_address):
        """Stage 4: table address; upper 8 bits of the fraction (the lower are 0), visible in 5."""
        s4_diff = Signal(signed(19), name=f"s4_diff_{lane}")
        s4_exp = Signal(14, name=f"s4_exp_{lane}")
        s4_gumbel = Signal(14, name=f"s4_gumbel_{lane}")
        s4_silu = Signal(16, name=f"s4_silu_{lane}")
        s5_frac = Signal(8, name=f"s5_frac_{lane}", reset_less=True)
        is_exp, is_gumbel, is_silu = (s4_is[f] for f in (Func.EXP, Func.GUMBEL, Func.SILU))
        # -2**14..-1 are the codes whose upper bits are all ones
        in_range = is_exp & s4_diff[14:].all()
        above = is_exp & ~s4_diff[-1]
        base = Mux(is_gumbel, numerics.GUMBEL_BASE, Mux(is_silu, numerics.SILU_BASE, 0))
        m.d.comb += [
            s4_diff.eq(s4_pre - self.s4_top),
            s4_exp.eq((s4_diff & in_range.replicate(14)) | above.replicate(14)),
            s4_gumbel.eq(s4_pre & is_gumbel.replicate(14)),
            s4_silu.eq(saturate(m, f"s4_silu_{lane}", s4_pre, 16, on=is_silu) ^ (is_silu << 15)),
            s4_address.eq(base | s4_exp[7:] | s4_gumbel[7:] | s4_silu[8:]),
        ]
        m.d.sync += s5_frac.eq(Cat(0, s4_exp[:7] | s4_gumbel[:7]) | s4_silu[:8])
        return s5_frac

    def _multiply(self, m, lane, s6_x, s6_y):
        """Stages 6 to 8: the product, visible in 9."""
        if self._primitives:
            s9_product = Signal(signed(36), name=f"s9_product_{lane}")
            m.submodules[f"multiplier_{lane}"] = mult18x18d(s6_x, s6_y, s9_product)
            return s9_product[:TERM_BITS].as_signed()
        s7_x = Signal(signed(18), name=f"s7_x_{lane}", reset_less=True)
        s7_y = Signal(signed(18), name=f"s7_y_{lane}", reset_less=True)
        m.d.sync += [s7_x.eq(s6_x), s7_y.eq(s6_y)]
        s7_product = Signal(signed(TERM_BITS), name=f"s7_product_{lane}")
        m.d.comb += s7_product.eq(s7_x * s7_y)
        return pipe(m, f"product_{lane}", s7_product, 8, 9)[9]

    def _result(self, m, lane, s9_product, s9_add):
        """Stages 9 and 10: round, add, saturate, mask."""
        # One chain: the carry out of its lowest bit rounds the product.
        s10_sum = Signal(signed(20), name=f"s10_sum_{lane}", reset_less=True)
        s10_product = Signal(signed(TERM_BITS), name=f"s10_product_{lane}", reset_less=True)
        s10_result = Signal(signed(16), name=f"s10_result_{lane}")
        rounded = Cat(1, s9_product[16:]).as_signed() + Cat(s9_product[15], s9_add).as_signed()
        keep = ~self.s10_mask[lane]
        low = Mux(keep | self.s10_zero, 0, numerics.MASKED)
        m.d.sync += [s10_sum.eq(rounded >> 1), s10_product.eq(s9_product)]
        m.d.comb += s10_result.eq(low | saturate(m, f"s10_sat_{lane}", s10_sum, 16, on=keep))
        m.d.sync += [
            self.e_v[lane].eq(s10_result),
            self.terms[lane].eq(Mux(self.s10_product, s10_product, s10_result)),
        ]
