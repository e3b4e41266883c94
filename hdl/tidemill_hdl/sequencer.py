"""Sequencer: tokens, layers and positions, hence the cycle at which every queue begins a segment.

    front: counts segment lengths -> notify, bases (B-5) -> delay line -> Run, token, counters (B)

Timing rule: B is the dispatch cycle of a segment's first word, E the first cycle after a segment;
the next segment has B = E. The front runs NOTIFY_CYCLES + 1 cycles ahead of dispatch. `event`
stands in the cycle E of a position.
"""

from itertools import pairwise

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import bits_for

from tidemill import isa
from tidemill_hdl.bases import Bases, BasesSignature, ConfigSignature
from tidemill_hdl.layouts import FaultSignature, RunSignature
from tidemill_hdl.queue import NOTIFY_CYCLES
from tidemill_hdl.tide import TideSignature

__all__ = ["START_CYCLES", "EventSignature", "Sequencer"]

#: Idle cycles between `start` and the front's first segment: slices take their initial state.
START_CYCLES = 8

_EVENT = data.StructLayout(
    {
        "embed": 1,  # a position begins
        "first": 1,  # ... the first of the run
        "end": 1,  # a position ends
        "generated": 1,  # ... its token comes from HEAD
        "finish": 1,  # ... and the run ends with it
    }
)


class EventSignature(wiring.Signature):
    """What a position leaves behind, in its cycle E; `cycles` counts the chip's own clock."""

    def __init__(self):
        super().__init__(
            {"valid": Out(1), "token": Out(16), "generated": Out(1), "cycles": Out(24)}
        )


class Sequencer(wiring.Component):
    """Segments, run state, token events.

    Parameters
    ----------
    chip : Chip

    Members
    -------
    config : In(ConfigSignature(chip))
    start, abort : In(1)
        Pulses. `start` while busy is ignored.
    prompt_addr, prompt_data : Out, In(16)
        Prompt buffer; data one cycle after the address.
    head_token : In(16)
        Token register of the VXM, taken in the cycle E of HEAD.
    tide : In(TideSignature())
        Brings the LAYER length.
    tide_clear, tide_step, tide_load : Out(1)
        See `Tide`.
    notify, segment, check, flush : Out
        See `InstructionQueue`.
    w, a : Out(BasesSignature(...))
    run : Out(RunSignature(chip))
    event : Out(EventSignature())
    busy, done : Out(1)
        `busy` from the cycle after `start` to the cycle of `done`, a pulse with the last event.
    cycle : Out(32)
        0 in the first dispatch cycle of the run.
    fault : Out(FaultSignature())
        ILLEGAL: a start with PROMPT_LENGTH 0 or beyond the context, or MAX_TOKENS 0; nothing runs.
    """

    def __init__(self, chip):
        self._chip = chip
        super().__init__(
            {
                "config": In(ConfigSignature(chip)),
                "start": In(1),
                "abort": In(1),
                "prompt_addr": Out(range(chip.context)),
                "prompt_data": In(16),
                "head_token": In(16),
                "tide": In(TideSignature()),
                "tide_clear": Out(1),
                "tide_step": Out(1),
                "tide_load": Out(1),
                "notify": Out(1),
                "segment": Out(2),
                "check": Out(1),
                "flush": Out(1),
                "w": Out(BasesSignature(chip.mem_w_depth)),
                "a": Out(BasesSignature(chip.mem_a_depth)),
                "run": Out(RunSignature(chip)),
                "event": Out(EventSignature()),
                "busy": Out(1),
                "done": Out(1),
                "cycle": Out(32),
                "fault": Out(FaultSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bases = self._bases = bases = Bases(self._chip)

        connect(m, flipped(self.config), bases.config)
        connect(m, bases.w, flipped(self.w))
        connect(m, bases.a, flipped(self.a))

        self._begin = Signal()  # a legal start
        self._n = Signal(_EVENT)  # in cycle B - NOTIFY_CYCLES
        self._front(m)
        self._dispatch(m)
        self._start_stop(m)
        return m

    def _front(self, m):
        """Decide which segment comes next, NOTIFY_CYCLES + 1 cycles before it is dispatched."""
        config = self.config
        position_bits = bits_for(self._chip.context)
        wait = Signal(range(START_CYCLES + 1))
        active = Signal()
        seg = Signal(isa.Seg)
        layer = Signal(12)  # layers begun at this position
        position = Signal(position_bits, init=1)  # p + 1
        generated = Signal(16, init=1)  # HEADs of the run, with this position's
        elapsed = Signal(isa.TIDE_VALUE_BITS)  # cycles of this segment, with this one
        layer_length = Signal(isa.TIDE_VALUE_BITS)
        length = Signal(isa.TIDE_VALUE_BITS)

        at = self.tide.valid & (self.tide.queue == isa.TIDE_SEQUENCER) & (self.tide.column == 0)
        with m.If(at):
            m.d.sync += layer_length.eq(self.tide.value)
        with m.Switch(seg):
            with m.Case(isa.Seg.EMBED):
                m.d.comb += length.eq(config.embed_length)
            with m.Case(isa.Seg.LAYER):
                m.d.comb += length.eq(layer_length)
            with m.Case(isa.Seg.HEAD):
                m.d.comb += length.eq(config.head_length)

        begin = Signal()
        over = Signal()
        head = Signal()
        layer_next = Signal()
        head_next = Signal()
        finish = Signal()
        m.d.comb += [
            begin.eq(wait == 1),
            over.eq(active & (elapsed == length)),
            head.eq(position >= config.prompt_length),
            layer_next.eq((seg != isa.Seg.HEAD) & (layer != config.layers)),
            head_next.eq((seg != isa.Seg.HEAD) & ~layer_next & head),
            finish.eq((position == self._chip.context) | (head & (generated == config.max_tokens))),
        ]

        n, bases = self._n, self._bases
        m.d.sync += [
            n.eq(0),
            self.notify.eq(0),
            self.check.eq(over),
            bases.next_layer.eq(0),
            bases.first_layer.eq(0),
            bases.next_position.eq(0),
            elapsed.eq(elapsed + 1),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.If(begin | over):
            m.d.sync += [elapsed.eq(1), self.notify.eq(1), self.segment.eq(isa.Seg.EMBED)]
        with m.If(begin):
            m.d.sync += [active.eq(1), n.embed.eq(1), n.first.eq(1)]
            m.d.sync += [seg.eq(isa.Seg.EMBED), layer.eq(0), position.eq(1), generated.eq(1)]
        with m.Elif(over & layer_next):
            m.d.sync += [seg.eq(isa.Seg.LAYER), self.segment.eq(isa.Seg.LAYER), layer.eq(layer + 1)]
            m.d.sync += [bases.next_layer.eq(layer != 0), bases.first_layer.eq(layer == 0)]
        with m.Elif(over & head_next):
            m.d.sync += [seg.eq(isa.Seg.HEAD), self.segment.eq(isa.Seg.HEAD)]
            m.d.sync += bases.first_layer.eq(1)
        with m.Elif(over):
            m.d.sync += [n.end.eq(1), n.generated.eq(head), n.finish.eq(finish)]
            with m.If(finish):
                m.d.sync += [active.eq(0), self.notify.eq(0)]
            with m.Else():
                m.d.sync += [n.embed.eq(1), bases.next_position.eq(1), bases.first_layer.eq(1)]
                m.d.sync += [seg.eq(isa.Seg.EMBED), layer.eq(0), position.eq(position + 1)]
                m.d.sync += generated.eq(generated + head)

        with m.If(self._begin):
            m.d.sync += wait.eq(START_CYCLES)
        with m.If(self.flush):
            m.d.sync += [wait.eq(0), active.eq(0), n.eq(0)]
            m.d.sync += [self.notify.eq(0), self.check.eq(0)]
        m.d.comb += [
            bases.clear.eq(self._begin),
            self.tide_clear.eq(self._begin),
            self.tide_step.eq(bases.next_row),
        ]

    def _dispatch(self, m):
        """Delay what the front decided to the cycle B or E it is about."""
        line = [self._n] + [Signal(_EVENT, name=f"n{i}") for i in range(1, NOTIFY_CYCLES + 1)]
        for a, b in pairwise(line):
            m.d.sync += b.eq(a)
            with m.If(self.flush):
                m.d.sync += b.eq(0)
        before, now = line[-2:]  # cycles B - 1 and B

        next_position = Signal.like(self.run.pos)
        cycles = Signal(24)
        token = Signal(16)
        m.d.sync += [cycles.eq(cycles + 1), self.cycle.eq(self.cycle + 1)]
        m.d.comb += [
            self.prompt_addr.eq(next_position),
            self._bases.token.eq(token),
            self.tide_load.eq(now.embed & ~self.flush),
            self.run.pos_lane.eq(self.run.pos),
            self.run.pos_bank.eq(self.run.pos),
            self.run.token_lane.eq(token),
            self.run.token_bank.eq(token),
            self.run.vocab.eq(self.config.vocab),
            self.run.eps.eq(self.config.eps),
            self.run.seed.eq(self.config.seed),
            self.run.start.eq(self._begin),
            self.run.abort.eq(self.abort),
        ]
        with m.If(before.embed):
            m.d.sync += [self.run.pos.eq(next_position), next_position.eq(next_position + 1)]
        with m.If(before.embed & before.first):
            m.d.sync += self.cycle.eq(0)
        with m.If(now.embed):
            m.d.sync += [cycles.eq(1), token.eq(self.event.token)]
        with m.If(self._begin):
            m.d.sync += next_position.eq(0)

        eos = Signal()
        m.d.comb += [
            self.event.valid.eq(now.end & ~self.abort),
            self.event.token.eq(Mux(now.generated, self.head_token, self.prompt_data)),
            self.event.generated.eq(now.generated),
            self.event.cycles.eq(cycles),
            eos.eq(now.generated & (self.head_token == self.config.eos) & ~self.config.eos.all()),
            self.done.eq(self.event.valid & (now.finish | eos)),
            self.flush.eq(self.abort | self.done),
        ]

    def _start_stop(self, m):
        """`start`, `busy` and the end."""
        config = self.config
        pulse = Signal()
        legal = Signal()
        m.d.comb += [
            pulse.eq(self.start & ~self.busy & ~self.abort),
            legal.eq(
                (config.prompt_length != 0)
                & (config.prompt_length <= self._chip.context)
                & (config.max_tokens != 0)
            ),
            self._begin.eq(pulse & legal),
        ]
        with m.If(pulse):  # the cycle of a refused start is 0; a run counts anew when it begins
            m.d.sync += self.cycle.eq(0)
        m.d.sync += self.fault.kind.eq(Mux(pulse & ~legal, isa.Fault.ILLEGAL, isa.Fault.NONE))
        with m.If(self._begin):
            m.d.sync += self.busy.eq(1)
        with m.Elif(self.flush):
            m.d.sync += self.busy.eq(0)
