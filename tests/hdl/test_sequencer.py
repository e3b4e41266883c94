"""Sequencer and tide table with tiny lengths against a model of the contract."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from support.simulate import simulate
from tidemill import isa
from tidemill.chip import CHIPS
from tidemill_hdl.bases import ConfigSignature
from tidemill_hdl.host import PromptBuffer
from tidemill_hdl.layouts import HostSignature, RunSignature
from tidemill_hdl.queue import NOTIFY_CYCLES
from tidemill_hdl.sequencer import EventSignature, Sequencer
from tidemill_hdl.tide import Tide, TideSignature

CHIP = replace(CHIPS["tiny"], context=12, tide_depth=64)
EMBED, HEAD = isa.TOKEN_CYCLES + 3 + 4, 9


class Dut(wiring.Component):
    """Sequencer with its tide table and prompt buffer."""

    def __init__(self):
        self.sequencer = Sequencer(CHIP)
        super().__init__(
            {
                "config": In(ConfigSignature(CHIP)),
                "words": In(HostSignature()),
                "prompt": In(HostSignature()),
                "tide": Out(TideSignature()),
                "run": Out(RunSignature(CHIP)),
                "event": Out(EventSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequencer = s = self.sequencer
        m.submodules.table = tide = Tide(CHIP)
        m.submodules.buffer = prompt = PromptBuffer(CHIP)
        connect(m, flipped(self.config), s.config)
        connect(m, flipped(self.words), tide.words)
        connect(m, flipped(self.prompt), prompt.words)
        connect(m, s.run, flipped(self.run))
        connect(m, s.event, flipped(self.event))
        connect(m, tide.bus, s.tide)
        for name in self.tide.signature.members:
            m.d.comb += getattr(self.tide, name).eq(getattr(tide.bus, name))
        m.d.comb += [
            tide.row.eq(self.config.tide_row),
            tide.clear.eq(s.tide_clear),
            tide.step.eq(s.tide_step),
            tide.load.eq(s.tide_load),
            tide.flush.eq(s.flush),
            prompt.addr.eq(s.prompt_addr),
            s.prompt_data.eq(prompt.data),
        ]
        return m


@dataclass
class Run:
    """One run and what was seen of it; cycles count from the first dispatch cycle."""

    prompt: list[int]
    head_tokens: list[int]  # what the token register holds in the last cycle of each HEAD
    layers: int = 3
    lengths: list[int] = field(default_factory=lambda: [7, 20, 5])  # LAYER, one per n
    max_tokens: int = 100
    eos: int = 0xFFFF
    abort: int | None = None
    begins: list = field(default_factory=list)  # (B, segment)
    events: list = field(default_factory=list)  # (E, token, generated, cycles)
    bases: dict = field(default_factory=dict)  # B -> bases
    positions: dict = field(default_factory=dict)  # cycle -> run.pos
    done: int | None = None
    tide: list = field(default_factory=list)  # (cycle, column, value) of queue 2
    faults: list = field(default_factory=list)


STRIDES = {
    "w_layer_stride": 100,
    "k_stride": 3,
    "v_stride": 7,
    "emb_stride": 5,
    "a_layer_stride": 11,
    "a_pos_stride": 2,
}


def play(runs):
    dut = Dut()
    s = dut.sequencer

    async def bench(ctx):
        async def write(port, addr, value):
            for name, v in (("en", 1), ("we", 1), ("addr", addr), ("wdata", value)):
                ctx.set(getattr(port, name), v)
            await ctx.tick()
            ctx.set(port.en, 0)

        for run in runs:
            values = STRIDES | {
                "layers": run.layers,
                "tide_row": 3,
                "embed_length": EMBED,
                "head_length": HEAD,
                "eos": run.eos,
                "prompt_length": len(run.prompt),
                "max_tokens": run.max_tokens,
            }
            for name, value in values.items():
                ctx.set(getattr(dut.config, name), value)
            for k, length in enumerate(run.lengths):
                for j, (q, col, v) in enumerate([(2, 5, 50 + k), (2, 6, k), (15, 0, length)]):
                    await write(dut.words, 3 * k + j, v | col << 20 | q << 25)
            for k, token in enumerate(run.prompt):
                await write(dut.prompt, k, token)
            ctx.set(s.start, 1)
            await ctx.tick()
            ctx.set(s.start, 0)
            heads = iter(run.head_tokens)
            first = None  # clock of cycle 0
            clock, idle, since = 0, 0, 0
            while idle < 3:
                cycle = None if first is None else clock - first
                ctx.set(s.abort, cycle is not None and cycle == run.abort)
                if ctx.get(s.notify):
                    if first is None:
                        first = clock + NOTIFY_CYCLES
                        cycle = -NOTIFY_CYCLES
                    run.begins.append((cycle + NOTIFY_CYCLES, isa.Seg(ctx.get(s.segment))))
                if cycle is not None:
                    if any(b == cycle + 1 for b, _ in run.begins):
                        run.bases[cycle + 1] = {
                            f"{n}.{b}": ctx.get(getattr(getattr(s, n), b))
                            for n in "wa"
                            for b in ("layer", "pos", "pos_v")
                        }
                    if any(b == cycle - isa.TOKEN_CYCLES + 1 for b, g in run.begins if g == 0):
                        run.bases[cycle - isa.TOKEN_CYCLES + 1] |= {
                            f"{n}.token": ctx.get(getattr(s, n).token) for n in "wa"
                        }
                    run.positions[cycle] = ctx.get(dut.run.pos)
                    if ctx.get(dut.tide.valid) and ctx.get(dut.tide.queue) == 2:
                        run.tide.append((cycle, ctx.get(dut.tide.column), ctx.get(dut.tide.value)))
                    # the token register has the token only in the very last moment
                    if ctx.get(s.event.valid) and ctx.get(s.event.generated):
                        ctx.set(s.head_token, next(heads))
                    else:
                        ctx.set(s.head_token, 999)
                    if ctx.get(s.event.valid):
                        e = s.event
                        run.events.append(
                            (cycle, *(ctx.get(v) for v in (e.token, e.generated, e.cycles)))
                        )
                    if ctx.get(s.done):
                        run.done = cycle
                if kind := ctx.get(s.fault.kind):
                    run.faults.append(kind)
                since += 1
                idle = 0 if ctx.get(s.busy) else idle + 1
                await ctx.tick()
                clock += 1

    simulate(dut, bench)
    return runs


def expect(run):
    """(segments, events) by the contract."""
    t, p, generated, segments, events = 0, 0, 0, [], []
    heads = iter(run.head_tokens)
    while True:
        n = p // CHIP.lanes
        begin = t
        segments.append((t, isa.Seg.EMBED))
        t += EMBED
        for _ in range(run.layers):
            segments.append((t, isa.Seg.LAYER))
            t += run.lengths[n]
        head = p + 1 >= len(run.prompt)
        if head:
            segments.append((t, isa.Seg.HEAD))
            t += HEAD
        token = next(heads) if head else run.prompt[p + 1]
        generated += head
        events.append((t, token, int(head), t - begin))
        if (head and token == run.eos) or generated == run.max_tokens or p + 1 == CHIP.context:
            return segments, events
        p += 1


def check(run):
    segments, events = expect(run)
    assert run.events == events
    assert run.done == events[-1][0]
    assert [b for b in run.begins if b[0] < run.done] == segments
    p, layer = -1, 0
    tokens = [run.prompt[0], *(e[1] for e in events)]
    for begin, seg in segments:
        p += seg == isa.Seg.EMBED
        layer = layer + 1 if seg == isa.Seg.LAYER else -1
        at = max(layer, 0)
        w, bases = 100 * at, run.bases[begin]
        assert bases["w.layer"] == w
        assert bases["w.pos"] == w + 3 * (p // CHIP.weight_streams)
        assert bases["w.pos_v"] == w + 7 * (p // CHIP.lanes)
        assert bases["a.layer"] == 11 * at
        assert bases["a.pos"] == 2 * p
        assert bases["a.pos_v"] == 0
        if seg == isa.Seg.EMBED:
            assert bases["w.token"] == tokens[p] // CHIP.weight_streams * 5
            assert bases["a.token"] == tokens[p] // CHIP.lanes
            assert [x for x in run.tide if begin <= x[0] < begin + EMBED] == [
                (begin + isa.TOKEN_CYCLES + k, 5 + k, v)
                for k, v in enumerate([50 + p // CHIP.lanes, p // CHIP.lanes])
            ]
            assert run.positions[begin] == p
            assert run.positions.get(begin - 1, p) == max(p - 1, 0) or begin == 0


def test_whole_context():
    [run] = play([Run([5, 6, 7], list(range(100, 110)))])
    check(run)
    assert len(run.events) == CHIP.context


def test_prompt_as_long_as_the_context():
    [run] = play([Run(list(range(12)), [77])])
    check(run)
    assert [e[2] for e in run.events] == [0] * 11 + [1]


@pytest.mark.parametrize("lengths", [[4, 5, 6], [6, 4, 4], [4, 4, 31]])
@pytest.mark.parametrize("layers", [0, 1, 2, 5])
def test_short_layers(lengths, layers):
    [run] = play([Run([9, 8], list(range(11)), layers=layers, lengths=lengths)])
    check(run)


def test_max_tokens():
    [run] = play([Run([1, 2, 3, 4], [50, 51, 52, 53], max_tokens=3)])
    check(run)
    assert len(run.events) == 6


def test_eos_stops_after_its_position():
    [run] = play([Run([1, 2, 17, 4], [50, 17, 52], eos=17)])
    check(run)
    assert [e[1] for e in run.events] == [2, 17, 4, 50, 17]


def test_runs_follow_each_other():
    runs = [
        Run([3], [5, 6, 0], eos=0),
        Run([3, 500], [5, 6, 7, 8], max_tokens=4, lengths=[11, 4, 4]),
        Run([3], [5, 6], max_tokens=2, layers=1),
    ]
    for run in play(runs):
        check(run)


@pytest.mark.parametrize("at", [0, 3, 8, 11, 40, 44, 47, 50])
def test_abort_and_run_again(at):
    first, second = play([Run([3], list(range(12)), abort=at), Run([4, 5], [9, 9], max_tokens=2)])
    assert max(first.positions) == at + 3
    assert all(e[0] < at for e in first.events)
    assert first.done is None
    check(second)


@pytest.mark.parametrize("bad", [{"prompt": []}, {"prompt": [1] * 13}, {"max_tokens": 0}])
def test_impossible_run_is_refused(bad):
    bad, good = play([replace(Run([1], [2]), **bad), Run([1], [2], max_tokens=1)])
    assert bad.faults == [isa.Fault.ILLEGAL]
    assert bad.begins == []
    assert good.faults == []
    check(good)
