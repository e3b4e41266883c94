"""Address bases: what `isa.Base` adds to addresses of MEM_W and MEM_A, and the registers for it.

Timing rule: a base moves within three cycles of its pulse, which comes NOTIFY_CYCLES before the
segment; the token's bases follow five cycles after `token`.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tidemill import isa

__all__ = ["Bases", "BasesSignature", "ConfigSignature"]


class BasesSignature(wiring.Signature):
    """Address bases of one memory, one member per `isa.Base` other than ZERO; read in stage X."""

    def __init__(self, depth):
        bits = isa.base_bits(depth)
        super().__init__({b.name.lower(): Out(bits) for b in isa.Base if b != isa.Base.ZERO})


class ConfigSignature(wiring.Signature):
    """Configuration registers, constant during a run."""

    def __init__(self, chip):
        bits = isa.config_bits(chip)
        super().__init__(
            {c.name.lower(): Out(bits[c]) for c in isa.Config if c < isa.Config.SCALAR0}
        )


class Bases(wiring.Component):
    """Address bases as accumulators: no multiplier but the token's.

    Parameters
    ----------
    chip : Chip

    Members
    -------
    config : In(ConfigSignature(chip))
    clear : In(1)
        A run starts: position 0, layer 0.
    next_layer, next_position, first_layer : In(1)
        In cycle B - NOTIFY_CYCLES; the bases change within the next three cycles.
    token : In(16)
        Token being embedded; its bases follow five cycles later.
    w, a : Out(BasesSignature(...))
        Of MEM_W and MEM_A.
    next_row : Out(1)
        With `next_position`: n grows.
    """

    def __init__(self, chip):
        self._chip = chip
        super().__init__(
            {
                "config": In(ConfigSignature(chip)),
                "clear": In(1),
                "first_layer": In(1),
                "next_layer": In(1),
                "next_position": In(1),
                "token": In(16),
                "w": Out(BasesSignature(chip.mem_w_depth)),
                "a": Out(BasesSignature(chip.mem_a_depth)),
                "next_row": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        chip, config = self._chip, self.config

        lane = Signal(range(2 * chip.lanes))  # p mod lanes, in its low bits
        next_bank = Signal()
        k = Signal.like(self.w.pos)
        v = Signal.like(self.w.pos)
        m.d.comb += [
            next_bank.eq(self.next_position & lane[: chip.stream_bits].all()),
            self.next_row.eq(self.next_position & lane[: chip.lane_bits].all()),
        ]
        with m.If(self.next_position):
            m.d.sync += [lane.eq(lane + 1), self.a.pos.eq(self.a.pos + config.a_pos_stride)]
        with m.If(next_bank):
            m.d.sync += k.eq(k + config.k_stride)
        with m.If(self.next_row):
            m.d.sync += v.eq(v + config.v_stride)

        with m.If(self.next_layer):
            m.d.sync += [
                self.w.layer.eq(self.w.layer + config.w_layer_stride),
                self.a.layer.eq(self.a.layer + config.a_layer_stride),
            ]
        with m.If(self.first_layer | self.clear):
            m.d.sync += [self.w.layer.eq(0), self.a.layer.eq(0)]
        with m.If(self.clear):
            m.d.sync += [lane.eq(0), k.eq(0), v.eq(0), self.a.pos.eq(0)]
        m.d.sync += [self.w.pos.eq(self.w.layer + k), self.w.pos_v.eq(self.w.layer + v)]

        t0_row = Signal(16)
        t0_stride = Signal.like(config.emb_stride)
        t1_product = Signal.like(self.w.token)
        m.d.sync += [
            t0_row.eq(self.token >> chip.stream_bits),
            t0_stride.eq(config.emb_stride),
            t1_product.eq(t0_row * t0_stride),
            self.w.token.eq(t1_product),
            self.a.token.eq(self.token >> chip.lane_bits),
        ]
        return m
