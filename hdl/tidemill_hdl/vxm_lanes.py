"""Compound pipelines of the VXM, all lanes in one component: shift, table or multiply, add, mask.

Timing rule: stage k is cycle t + k of the pass dispatched at t; a control port `s{k}_...` belongs
to the pass in stage k. Operands are sampled in stage 1, addend C in stage 8; the result is on `e_v`
in stage 11 and in T from stage 12 on. One pass per cycle. Arithmetic is that of `numerics`.

    1  select A and B            5  table address
    2  coarse shift              6  table data, multiplier inputs; 7, 8 multiplier
    3  fine shift, round, sat18  9  round, add
    4  less the maximum          10 sat16, mask
"""

import functools
import operator

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
from .reduce import copy, pipe, saturate
from .vxm_reduce import TERM_BITS

__all__ = ["VxmLanes"]

#: Lanes that share the registers of their control.
COPY_LANES = 4


class VxmLanes(wiring.Component):
    """Datapath of the VXM without its control.

    Members
    -------
    e_acc, e_b, w_a, w_s : `In`
        Streams, stage 1.
    noise : `In(ArrayLayout(14, lanes))`
        Gumbel codes, stage 1.
    e_v, results : `Out(vector(chip))`, `Out(signed(16)).array(lanes)`
        Results, stage 11, in two registers: for streams and T, and for reductions.
    terms : `Out(vector(chip, 34))`
        Products or results, stage 11: what sums add up.
    table : `In(HostSignature())`
        Host writes to the table of every lane, while nothing is in flight.
    s0_a, s0_b, s0_ta, s0_tb, s1_mant : `In`
        Operand selection: `isa.ASrc`, `isa.BSrc`, T entries, scalar mantissa.
    s1_shift, s4_func, s4_top, s7_c, s7_tc : `In`
        Right shift of A, `isa.Func`, maximum for EXP, whether and which T entry is added.
    s9_zero, s9_product, s10_mask : `In`
        Masked lanes read as 0 instead of -32767; terms are products; lanes to mask.
    s10_write, s10_td : `In`
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
                "results": Out(signed(16)).array(chip.lanes),
                "terms": Out(vector(chip, TERM_BITS)),
                "table": In(HostSignature()),
                "s0_a": In(3),
                "s0_b": In(3),
                "s0_ta": In(t_bits),
                "s0_tb": In(t_bits),
                "s1_mant": In(16),
                "s1_shift": In(5),
                "s4_func": In(2),
                "s4_top": In(signed(16)),
                "s7_c": In(1),
                "s7_tc": In(t_bits),
                "s10_mask": In(chip.lanes),
                "s9_zero": In(1),
                "s9_product": In(1),
                "s10_write": In(1),
                "s10_td": In(t_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._chip.lanes
        for group in range(0, lanes, COPY_LANES):
            c = self._control(m, group)
            members = range(group, min(group + COPY_LANES, lanes))
            t_a, t_b, t_c = self._temps(m, group, members, c)
            for k, lane in enumerate(members):
                self._lane(m, lane, c, t_a[k], t_b[k], t_c[k])
        return m

    def _control(self, m, group):
        """Registers of the control of a group of lanes, by name."""
        control = {
            **{f"s1_a_{a.name.lower()}": self.s0_a == a for a in ASrc},
            **{f"s1_b_{b.name.lower()}": self.s0_b == b for b in BSrc},
            "s1_ta": self.s0_ta,
            "s1_tb": self.s0_tb,
            "s2_shift": self.s1_shift,
            **{f"s5_{f.name.lower()}": self.s4_func == f for f in Func},
            "s8_c": self.s7_c,
            "s8_tc": self.s7_tc,
            "s10_zero": self.s9_zero,
            "s10_product": self.s9_product,
            "s11_write": self.s10_write,
            "s11_td": self.s10_td,
        }
        c = {
            name: copy(m, f"{name}_{group}", value, self._primitives)
            for name, value in control.items()
        }
        c["s2_self"] = copy(m, f"s2_self_{group}", c["s1_b_self"], self._primitives)
        c["s6_table"] = copy(m, f"s6_table_{group}", ~c["s5_none"], self._primitives)
        c["s8_table"] = pipe(m, f"table_{group}", c["s6_table"], 7, 8)[8]
        return c

    def _temps(self, m, group, members, c):
        """T of a group of lanes: what A, B and C read."""
        m.submodules[f"temps_{group}"] = temps = Memory(
            shape=data.ArrayLayout(signed(16), len(members)),
            depth=self._chip.temp_depth,
            init=[],
        )
        a, b, addend = (temps.read_port(domain="comb") for _ in range(3))
        write = temps.write_port()
        m.d.comb += [
            a.addr.eq(c["s1_ta"]),
            b.addr.eq(c["s1_tb"]),
            addend.addr.eq(c["s8_tc"]),
            write.en.eq(c["s11_write"]),
            write.addr.eq(c["s11_td"]),
        ]
        m.d.comb += [write.data[k].eq(self.e_v[lane]) for k, lane in enumerate(members)]
        return a.data, b.data, addend.data

    def _lane(self, m, lane, c, t_a, t_b, t_c):
        """One lane: its stages in order."""
        s2_a, s2_b = self._operands(m, lane, c, t_a, t_b)
        s4_pre, s3_b = self._preshift(m, lane, c, s2_a, s2_b)
        b = pipe(m, f"b_{lane}", s3_b, 4, 6)
        pre = pipe(m, f"pre_{lane}", s4_pre, 5, 6)

        lookup = self._table(m, lane)
        s6_frac = self._address(m, lane, c, s4_pre, pre[5], lookup.addr)
        base = pipe(m, f"base_{lane}", lookup.data[:16].as_signed(), 7, 8)
        slope = lookup.data[16:].as_signed()
        s6_x = Signal(signed(18), name=f"s6_x_{lane}")
        s6_y = Signal(signed(18), name=f"s6_y_{lane}")
        m.d.comb += [
            s6_x.eq(Mux(c["s6_table"], slope, pre[6])),
            s6_y.eq(Mux(c["s6_table"], Cat(C(0, 8), s6_frac), b[6])),
        ]
        s9_product = self._multiply(m, lane, s6_x, s6_y)

        s9_add = Signal(signed(16), name=f"s9_add_{lane}", reset_less=True)
        m.d.sync += s9_add.eq(Mux(c["s8_table"], base[8], Mux(c["s8_c"], t_c, 0)))
        self._result(m, lane, c, s9_product, s9_add)

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

    def _operands(self, m, lane, c, t_a, t_b):
        """Stage 1: A (32 bits) and B (18 bits, 0 for SELF)."""
        s2_a = Signal(signed(32), name=f"s2_a_{lane}", reset_less=True)
        s2_b = Signal(signed(18), name=f"s2_b_{lane}", reset_less=True)
        w_a, w_s, noise = self.w_a[lane], self.w_s[lane], self.noise[lane]
        byte = Cat(C(0, 8), self.e_b[lane]).as_signed()

        def choose(name, width, sources):
            return functools.reduce(
                operator.or_, (v & c[f"s1_{name}_{s}"].replicate(width) for s, v in sources.items())
            )

        a = {"acc": self.e_acc[lane], "t": t_a, "wa": w_a, "ws": w_s, "byte": byte, "noise": noise}
        b = {"one": numerics.ONE, "t": t_b, "wa": w_a, "ws": w_s, "scalar": self.s1_mant}
        m.d.sync += [s2_a.eq(choose("a", 32, a)), s2_b.eq(choose("b", 18, b))]
        return s2_a, s2_b

    def _preshift(self, m, lane, c, s2_a, s2_b):
        """Stages 2, 3: A shifted right, rounded, saturated to 18 bits (visible in 4); B (in 3)."""
        s3_b = Signal(signed(18), name=f"s3_b_{lane}", reset_less=True)
        # one bit more at the bottom: the last one shifted out
        s3_x = Signal(signed(33), name=f"s3_x_{lane}", reset_less=True)
        s3_fine = Signal(2, name=f"s3_fine_{lane}", reset_less=True)
        m.d.sync += [
            s3_b.eq(s2_b | saturate(m, f"s2_self_{lane}", s2_a, 16, on=c["s2_self"])),
            s3_x.eq(Cat(0, s2_a).as_signed() >> Cat(C(0, 2), c["s2_shift"][2:])),
            s3_fine.eq(c["s2_shift"][:2]),
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

    def _address(self, m, lane, c, s4_pre, s5_pre, s5_address):
        """Stages 4 and 5: table address; upper 8 bits of the fraction (the lower are 0), in 6."""
        s5_diff = Signal(signed(19), name=f"s5_diff_{lane}", reset_less=True)
        s5_exp = Signal(14, name=f"s5_exp_{lane}")
        s5_gumbel = Signal(14, name=f"s5_gumbel_{lane}")
        s5_silu = Signal(16, name=f"s5_silu_{lane}")
        s6_frac = Signal(8, name=f"s6_frac_{lane}", reset_less=True)
        is_exp, is_gumbel, is_silu = c["s5_exp"], c["s5_gumbel"], c["s5_silu"]
        # -2**14..-1 are the codes whose upper bits are all ones
        in_range = is_exp & s5_diff[14:].all()
        above = is_exp & ~s5_diff[-1]
        start = Mux(is_gumbel, numerics.GUMBEL_BASE, Mux(is_silu, numerics.SILU_BASE, 0))
        m.d.comb += [
            s5_exp.eq((s5_diff & in_range.replicate(14)) | above.replicate(14)),
            s5_gumbel.eq(s5_pre & is_gumbel.replicate(14)),
            s5_silu.eq(saturate(m, f"s5_silu_{lane}", s5_pre, 16, on=is_silu) ^ (is_silu << 15)),
            s5_address.eq(start | s5_exp[7:] | s5_gumbel[7:] | s5_silu[8:]),
        ]
        m.d.sync += [
            s5_diff.eq(s4_pre - self.s4_top),
            s6_frac.eq(Cat(0, s5_exp[:7] | s5_gumbel[:7]) | s5_silu[:8]),
        ]
        return s6_frac

    def _multiply(self, m, lane, s6_x, s6_y):
        """Stages 6 to 8: the product, visible in 9; its first registers are the inputs."""
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

    def _result(self, m, lane, c, s9_product, s9_add):
        """Stages 9 and 10: round, add, saturate, mask."""
        # One chain: the carry out of its lowest bit rounds the product.
        s10_sum = Signal(signed(19), name=f"s10_sum_{lane}", reset_less=True)
        s10_product = Signal(signed(TERM_BITS), name=f"s10_product_{lane}", reset_less=True)
        s10_result = Signal(signed(16), name=f"s10_result_{lane}")
        rounded = Cat(1, s9_product[16:]).as_signed() + Cat(s9_product[15], s9_add).as_signed()
        keep = ~self.s10_mask[lane]
        low = Mux(keep | c["s10_zero"], 0, numerics.MASKED)
        m.d.sync += [s10_sum.eq(rounded >> 1), s10_product.eq(s9_product)]
        m.d.comb += s10_result.eq(low | saturate(m, f"s10_sat_{lane}", s10_sum, 16, on=keep))
        m.d.sync += [
            self.e_v[lane].eq(s10_result),
            self.terms[lane].eq(Mux(c["s10_product"], s10_product, s10_result)),
        ]
        s11_result = copy(m, f"s11_result_{lane}", s10_result, self._primitives)
        m.d.comb += self.results[lane].eq(s11_result)
