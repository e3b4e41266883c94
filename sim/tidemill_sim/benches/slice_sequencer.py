"""Sequencer alone: segments, events and bases of runs at their cycles, by the contract; abort.

The bench stands in for tide table, prompt buffer and token register with values that do not change.
"""

import cocotb

from tidemill import isa
from tidemill.isa import Config, Seg
from tidemill_hdl.queue import NOTIFY_CYCLES
from tidemill_hdl.sequencer import START_CYCLES
from tidemill_sim.benches.slice_base import Slice

EMBED, LAYER, HEAD = isa.TOKEN_CYCLES + 1 + 4, 20, 9
STRIDES = {
    Config.W_LAYER_STRIDE: 100,
    Config.K_STRIDE: 3,
    Config.V_STRIDE: 7,
    Config.EMB_STRIDE: 5,
    Config.A_LAYER_STRIDE: 11,
    Config.A_POS_STRIDE: 2,
}
PROMPT_TOKEN, HEAD_TOKEN = 13, 38
BASES = [f"{m}__{b}" for m in "wa" for b in ("layer", "pos", "pos_v", "token")]
WATCH = [
    "notify",
    "segment",
    "check",
    "tide_load",
    "run__pos",
    "run__pos_lane",
    "event__valid",
    "event__token",
    "event__generated",
    "event__cycles",
    "busy",
    "done",
    "cycle",
    "fault__kind",
    *BASES,
]


def contract(chip, layers, prompt, max_tokens, eos):
    """(segments [(cycle, Seg, position, layer)], events [(cycle, token, generated, cycles)])."""
    t, segments, events, generated = 0, [], [], 0
    for p in range(chip.context):
        begin = t
        segments.append((t, Seg.EMBED, p, 0))
        t += EMBED
        for layer in range(layers):
            segments.append((t, Seg.LAYER, p, layer))
            t += LAYER
        head = p + 1 >= prompt
        if head:
            segments.append((t, Seg.HEAD, p, 0))
            t += HEAD
        generated += head
        token = HEAD_TOKEN if head else PROMPT_TOKEN
        events.append((t, token, int(head), t - begin))
        if (head and token == eos) or generated == max_tokens:
            break
    return segments, events


async def play(s, *, layers=2, prompt=3, max_tokens=100, eos=0xFFFF, abort_at=None, cycles=None):
    """One run; what was seen by cycle of the run, cycle 0: the first `tide_load`."""
    if cycles is None:
        _, events = contract(s.chip, layers, prompt, max_tokens, eos)
        cycles = events[-1][0] + START_CYCLES + NOTIFY_CYCLES + 12
    values = STRIDES | {
        Config.LAYERS: layers,
        Config.TIDE_ROW: 1,
        Config.EMBED_LENGTH: EMBED,
        Config.HEAD_LENGTH: HEAD,
        Config.EOS: eos,
        Config.PROMPT_LENGTH: prompt,
        Config.MAX_TOKENS: max_tokens,
    }
    first = {f"config__{r.name.lower()}": v for r, v in values.items()}
    first |= {"tide__valid": 1, "tide__queue": isa.TIDE_SEQUENCER, "tide__column": 0}
    first |= {"tide__value": LAYER, "prompt_data": PROMPT_TOKEN, "head_token": HEAD_TOKEN}
    plan = [first, {"start": 1}, {"start": 0}] + [{} for _ in range(cycles)]
    if abort_at is not None:
        # `start` to cycle 0 as this very slice has shown it without an abort
        at = abort_at + 1 + s.zero
        plan[at], plan[at + 1] = {"abort": 1}, {"abort": 0}
    seen = await s.play(plan, WATCH)
    loads = [t for t, v in enumerate(seen["tide_load"]) if v]
    if loads:
        s.zero = loads[0] - 1
    return seen, loads[0] if loads else None


def check(s, seen, zero, **run):
    """Compare everything a run without abort has shown with the contract."""
    segments, events = contract(s.chip, **run)
    end = zero + events[-1][0]

    def column(name):
        return seen[name]

    begins = [
        (t - zero + NOTIFY_CYCLES, Seg(column("segment")[t]))
        for t in range(end - NOTIFY_CYCLES + 1)
        if column("notify")[t]
    ]
    # an end of sequence is known only when the next position has been notified
    begins = [b for b in begins if b[0] < events[-1][0]]
    ends = sorted({t for t, *_ in segments[1:]} | {events[-1][0]})
    assert begins == [(t, seg) for t, seg, _, _ in segments]
    assert [t - zero + NOTIFY_CYCLES for t, v in enumerate(column("check")) if v] == ends
    found = [
        (t - zero, *(column(f"event__{n}")[t] for n in ("token", "generated", "cycles")))
        for t, v in enumerate(column("event__valid"))
        if v
    ]
    assert found == events
    assert [t for t, v in enumerate(column("done")) if v] == [end]
    # `start` is in cycle 1 of the play
    assert column("busy") == [int(1 < t <= end) for t in range(len(column("busy")))]
    token = PROMPT_TOKEN
    for t, seg, p, layer in segments:
        at = zero + t
        assert column("cycle")[at] == t
        assert column("run__pos")[at] == p
        assert column("run__pos_lane")[at] == p % s.chip.lanes
        w = 100 * layer
        assert column("w__layer")[at] == w
        assert column("w__pos")[at] == w + 3 * (p // s.chip.weight_streams)
        assert column("w__pos_v")[at] == w + 7 * (p // s.chip.lanes)
        assert column("a__layer")[at] == 11 * layer
        assert column("a__pos")[at] == 2 * p
        if seg is Seg.EMBED:
            token = PROMPT_TOKEN if p == 0 else events[p - 1][1]
            at += isa.TOKEN_CYCLES
            assert column("w__token")[at] == token // s.chip.weight_streams * 5
            assert column("a__token")[at] == token // s.chip.lanes
    assert not any(column("fault__kind"))


@cocotb.test()
async def runs(dut):
    """Whole context, no layers, a token limit, an end-of-sequence token; one after the other."""
    s = await Slice(dut).start()
    for run in (
        {"layers": 2, "prompt": 3, "max_tokens": 100, "eos": 0xFFFF},
        {"layers": 0, "prompt": 1, "max_tokens": 100, "eos": 0xFFFF},
        {"layers": 3, "prompt": 4, "max_tokens": 2, "eos": 0xFFFF},
        {"layers": 1, "prompt": 2, "max_tokens": 9, "eos": HEAD_TOKEN},
        {"layers": 1, "prompt": s.chip.context, "max_tokens": 9, "eos": PROMPT_TOKEN},
    ):
        check(s, *await play(s, **run), **run)


@cocotb.test()
async def latency(dut):
    """One pulse of `start`: the first dispatch cycle, and `notify` before it."""
    s = await Slice(dut).start()
    seen, zero = await play(s, cycles=60)
    notify = seen["notify"].index(1)
    assert zero - notify == NOTIFY_CYCLES
    assert notify - 1 == START_CYCLES + 1
    await s.play([{"abort": 1}, {"abort": 0}], ())


@cocotb.test()
async def abort_and_again(dut):
    """No segment and no event from an abort on; the next run is as any other."""
    s = await Slice(dut).start()
    run = {"layers": 2, "prompt": 3, "max_tokens": 2, "eos": 0xFFFF}
    await play(s, **run)
    for at in (1, 8, EMBED - 6, EMBED + 3, EMBED + 2 * LAYER, EMBED + 2 * LAYER + 5):
        seen, zero = await play(s, **run, abort_at=at, cycles=200)
        stop = seen["busy"].index(1) + sum(seen["busy"]) - 1
        assert stop - zero == at
        assert not any(seen["notify"][stop + 1 :]), f"abort in cycle {at}"
        assert not any(seen["event__valid"][stop:])
        assert not any(seen["done"])
        check(s, *await play(s, **run), **run)


@cocotb.test()
async def impossible_runs(dut):
    """An empty prompt, one beyond the context, no tokens: a fault, and nothing runs."""
    s = await Slice(dut).start()
    for wrong in ({"prompt": 0}, {"prompt": s.chip.context + 1}, {"max_tokens": 0}):
        seen, zero = await play(s, **wrong, cycles=60)
        assert zero is None
        assert [k for k in seen["fault__kind"] if k] == [isa.Fault.ILLEGAL]
        assert not any(seen["busy"])
        assert not any(seen["notify"])
