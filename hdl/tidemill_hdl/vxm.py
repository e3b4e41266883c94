"""VXM: one template-driven pass per cycle over all lanes; scalar and maximum file, token register.

Timing rule: a pass visible at `i` in cycle t samples its operands in t + 1 and its addend in t + 8;
its result is on `e_v` and `w_v` in t + 11 and in T from t + 12 on (`isa.Timing`). The table of
stages is in `docs/architecture.md`. Nothing stalls; only valid bits are reset, and cleared by
`run.abort`.

The element counter restarts at 0 with `first` and advances by one, before it is used, with every
later pass that masks or takes an arg-maximum.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from tidemill.isa import QUEUE_INDEX, QUEUES, ASrc, Mask, Red, Template

from .layouts import HostSignature, IssueSignature, RunSignature, byte_vector, vector
from .noise import Noise
from .reduce import pipe
from .regfile import RegFile
from .vxm_lanes import VxmLanes
from .vxm_reduce import INDEX_BITS, VxmReduce
from .vxm_scalar import ScalarFile, VxmScalar

__all__ = ["Vxm"]

TEMPLATE = data.StructLayout(
    {name: signed(width) if name == "shift" else width for name, width in Template.LAYOUT}
)


class Vxm(wiring.Component):
    """The VXM slice.

    Members
    -------
    i : `In(IssueSignature(VXM, chip))`
        A pass, in its dispatch cycle t.
    run : `In(RunSignature(chip))`
        `pos`, `vocab` are sampled at t; `eps` at t + 12 + tree_latency.
    e_acc, e_b, w_a, w_s : `In`
        Streams, sampled at t + 1.
    e_v, w_v : `Out(vector(chip))`
        The result, at t + 11; one register drives both.
    token : `Out(16)`
        Index of the running arg-maximum, from t + 12 + tree_latency on.
    lane_table, scalar_table, template, scalar_init : `In(HostSignature())`
        Host writes, while idle. `scalar_init`: entry of the scalar file at the start of a run.
    """

    def __init__(self, chip, primitives=False):
        self._chip = chip
        self._primitives = primitives
        super().__init__(
            {
                "i": In(IssueSignature(QUEUES[QUEUE_INDEX["VXM"]], chip)),
                "run": In(RunSignature(chip)),
                "e_acc": In(vector(chip, 32)),
                "e_b": In(byte_vector(chip)),
                "w_a": In(vector(chip)),
                "w_s": In(vector(chip)),
                "e_v": Out(vector(chip)),
                "w_v": Out(vector(chip)),
                "token": Out(16),
                "lane_table": In(HostSignature()),
                "scalar_table": In(HostSignature()),
                "template": In(HostSignature()),
                "scalar_init": In(HostSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.lanes = lanes = VxmLanes(self._chip, self._primitives)
        m.submodules.noise = noise = Noise(self._chip)
        m.submodules.reduce = reduce = VxmReduce(self._chip)
        m.submodules.scalar = scalar = VxmScalar(self._primitives)
        m.submodules.scalar_file = file = ScalarFile()
        m.submodules.templates = templates = RegFile(32, TEMPLATE, family=self._chip.family)

        connect(m, flipped(self.lane_table), lanes.table)
        connect(m, flipped(self.scalar_table), scalar.table)
        connect(m, flipped(self.scalar_init), file.init)
        connect(m, scalar.o, file.i)
        s0 = templates.r_data[0]
        m.d.comb += [
            templates.w_en.eq(self.template.en & self.template.we),
            templates.w_addr.eq(self.template.addr),
            templates.w_data.as_value().eq(self.template.wdata),
            templates.r_addr[0].eq(self.i.tmpl),
        ]
        for name in ("e_acc", "e_b", "w_a", "w_s"):
            m.d.comb += getattr(lanes, name).eq(getattr(self, name))
        m.d.comb += [
            self.e_v.eq(lanes.e_v),
            self.w_v.eq(lanes.e_v),
            self.token.eq(reduce.token),
            reduce.results.eq(lanes.e_v),
            reduce.terms.eq(lanes.terms),
            reduce.abort.eq(self.run.abort),
            scalar.valid.eq(reduce.sum_valid),
            scalar.square.eq(reduce.sum_square),
            scalar.sx.eq(reduce.sum_sx),
            scalar.sum.eq(reduce.sum),
            scalar.eps.eq(self.run.eps),
            scalar.abort.eq(self.run.abort),
            file.start.eq(self.run.start),
            noise.start.eq(self.run.start),
            noise.seed.eq(self.run.seed),
            noise.step.eq(self.i.valid & (s0.a == ASrc.NOISE)),
            lanes.noise.eq(noise.code),
        ]

        abort = self.run.abort
        valid = pipe(m, "valid", self.i.valid, 1, 11, clear=abort)
        wt = pipe(m, "wt", s0.wt, 1, 11)
        red = pipe(m, "red", s0.red, 1, 11)
        first = pipe(m, "first", self.i.first, 1, 11)
        mx = pipe(m, "mx", self.i.mx, 1, 11)
        sx = pipe(m, "sx", self.i.sx, 1, 11)
        func = pipe(m, "func", s0.func, 1, 4)
        td = pipe(m, "td", self.i.td, 1, 11)
        s1_counter = self._mask(m, s0, lanes)
        counter = pipe(m, "counter", s1_counter, 2, 11)
        m.d.comb += [
            lanes.s1_a.eq(pipe(m, "a", s0.a, 1, 1)[1]),
            lanes.s1_b.eq(pipe(m, "b", s0.b, 1, 1)[1]),
            lanes.s1_ta.eq(pipe(m, "ta", self.i.ta, 1, 1)[1]),
            lanes.s1_tb.eq(pipe(m, "tb", self.i.tb, 1, 1)[1]),
            file.sx.eq(sx[1]),
            lanes.s1_mant.eq(file.mant),
            lanes.s2_shift.eq(self._shift(m, s0, file.exp)),
            reduce.s3_mx.eq(mx[3]),
            lanes.s4_func.eq(func[4]),
            lanes.s4_top.eq(reduce.s4_max),
            lanes.s8_c.eq(pipe(m, "c", s0.c, 1, 8)[8]),
            lanes.s8_tc.eq(pipe(m, "tc", self.i.tc, 1, 8)[8]),
            lanes.s10_product.eq(red[10] == Red.SUMSQ),
            lanes.s11_write.eq(valid[11] & wt[11]),
            lanes.s11_td.eq(td[11]),
            reduce.s11_valid.eq(valid[11]),
            reduce.s11_red.eq(red[11]),
            reduce.s11_first.eq(first[11]),
            reduce.s11_mx.eq(mx[11]),
            reduce.s11_sx.eq(sx[11]),
            reduce.s11_counter.eq(counter[11]),
        ]
        return m

    def _mask(self, m, s0, lanes):
        """Element counter (visible in stage 1) and the masked lanes of stage 10."""
        lane_bits = self._chip.lane_bits
        s1_counter = Signal(INDEX_BITS - lane_bits, reset_less=True)
        with m.If(self.i.valid):
            with m.If(self.i.first):
                m.d.sync += s1_counter.eq(0)
            with m.Elif((s0.mask != Mask.NONE) | (s0.red == Red.ARGMAX)):
                m.d.sync += s1_counter.eq(s1_counter + 1)

        # Elements beyond this one are masked; -1 for an empty vocabulary.
        s1_last = Signal(signed(18), reset_less=True)
        s2_beyond = Signal(reset_less=True)
        s2_at = Signal(reset_less=True)
        mask = pipe(m, "mask", s0.mask, 1, 9)
        with m.If(s0.mask == Mask.VOCAB_MIN):
            m.d.sync += s1_last.eq(self.run.vocab - 1)
        with m.Else():
            m.d.sync += s1_last.eq(self.run.pos)
        m.d.sync += [
            s2_beyond.eq(s1_counter > s1_last >> lane_bits),
            s2_at.eq(s1_counter == s1_last >> lane_bits),
        ]
        beyond = pipe(m, "beyond", s2_beyond, 3, 9)
        at = pipe(m, "at", s2_at, 3, 9)
        last = pipe(m, "last", s1_last[:lane_bits], 2, 9)
        s10_mask = Signal(self._chip.lanes, reset_less=True)
        s10_zero = Signal(reset_less=True)
        m.d.sync += s10_zero.eq(mask[9] == Mask.POS_ZERO)
        for lane in range(self._chip.lanes):
            m.d.sync += s10_mask[lane].eq(
                (mask[9] != Mask.NONE) & (beyond[9] | (at[9] & (lane > last[9])))
            )
        m.d.comb += [lanes.s10_mask.eq(s10_mask), lanes.s10_zero.eq(s10_zero)]
        return s1_counter

    def _shift(self, m, s0, s1_exp):
        """Clamped right shift of operand A, visible in stage 2."""
        shift = pipe(m, "shift", s0.shift, 1, 1)
        dyn = pipe(m, "dyn", s0.dyn, 1, 1)
        s1_amount = Signal(signed(8))
        s2_shift = Signal(5, reset_less=True)

        m.d.comb += s1_amount.eq(shift[1] + Mux(dyn[1], s1_exp, 0))
        with m.If(s1_amount < 0):
            m.d.sync += s2_shift.eq(0)
        with m.Elif(s1_amount > 31):
            m.d.sync += s2_shift.eq(31)
        with m.Else():
            m.d.sync += s2_shift.eq(s1_amount)
        return s2_shift
