"""An instruction queue alone: random legal programs against the contract; the cycle of a pulse.

The model is `twin_queue`.
"""

import random

import cocotb

from tidemill import isa
from tidemill_hdl.queue import NOTIFY_CYCLES
from tidemill_sim.benches.slice_base import Slice
from tidemill_sim.benches.twin_queue import SYNC, TIDES, encode, model, random_words

BASES = {"layer": 3, "pos": 11, "pos_v": 7, "token": 1}


def queue_of(s):
    """Which queue this is: its ports tell."""
    return isa.QUEUES[isa.QUEUE_INDEX["MXM.C" if "issue__ni" in s.ports else "MEMA.R"]]


async def load(s, queue, segments):
    """Words and START entries of up to three segments, and the tide columns."""
    at, starts, words = 0, [], []
    for segment in segments:
        starts.append(at)
        words += [encode(queue, s.chip, *word) for word in segment]
        at = len(words)
    q = queue.index
    await s.host_write("starts", [(q << 2 | k, v) for k, v in enumerate(starts)])
    # what belongs to another queue is not for this one
    await s.host_write("starts", [((q + 1) << 2 | k, 9) for k in range(3)])
    await s.host_write("words", [(q << 16 | k, w) for k, w in enumerate(words)])
    await s.host_write("words", [((q + 1) << 16 | k, 0) for k in range(4)])
    for k, value in enumerate(TIDES):
        for dest, v in ((q, value), (q + 1, 99)):
            cycle = {"tide__valid": 1, "tide__queue": dest, "tide__column": k, "tide__value": v}
            await s.play([cycle], ())
    await s.play([{"tide__valid": 0}], ())
    if "bases__layer" in s.ports:
        await s.play([{f"bases__{name}": v for name, v in BASES.items()}], ())


async def play(s, queue, lengths, flush_at=None):
    """Segments of these lengths, back to back; issues and faults by cycle, 0: first dispatch."""
    begins = [sum(lengths[:k]) for k in range(len(lengths) + 1)]
    names = [n for n, w in queue.layout(s.chip) if w]
    plan = []
    for cycle in range(-NOTIFY_CYCLES, begins[-1] + 3):
        ahead = cycle + NOTIFY_CYCLES
        begin = ahead in begins[:-1]
        plan.append(
            {
                "notify": int(begin),
                "segment": begins.index(ahead) % 3 if begin else 3,
                "check": int(ahead in begins[1:]),
                "flush": int(cycle == flush_at),
            }
        )
    seen = await s.play(plan, ["issue__valid", "fault__kind", *(f"issue__{n}" for n in names)])
    issues, faults = {}, {}
    for k, valid in enumerate(seen["issue__valid"]):
        assert valid is not None, f"issue.valid is undefined in cycle {k - NOTIFY_CYCLES}"
        if valid:
            issues[k - NOTIFY_CYCLES] = {n: seen[f"issue__{n}"][k] for n in names}
        if seen["fault__kind"][k]:
            faults[k - NOTIFY_CYCLES] = seen["fault__kind"][k]
    return issues, faults


@cocotb.test()
async def random_programs(dut):
    """Three segments, back to back, several times."""
    s = await Slice(dut).start()
    queue = queue_of(s)
    rng = random.Random(queue.name)
    names = [n for n, w in queue.layout(s.chip) if w]
    total = 0
    for _ in range(12):
        segments, lengths, expected, too_far, at = [], [], {}, {}, 0
        for _ in range(3):
            words = random_words(queue, s.chip, rng, rng.choice([1, 6, 18]))
            issues, sync = model(queue, s.chip, words)
            for t, fields in issues.items():
                if "base" in fields:
                    base = {isa.Base[n.upper()]: v for n, v in BASES.items()}.get(fields["base"], 0)
                    fields["addr"] += base
                    if fields["addr"] >= s.chip.mem_a_depth:
                        too_far[at + t] = isa.Fault.ADDRESS
                    fields["addr"] %= 1 << queue.fields[0].bits(s.chip)
                expected[at + t] = {n: fields[n] for n in names}
            segments.append(words)
            lengths.append(sync + 1 + isa.PARK_CYCLES + rng.choice([0, 0, 5]))
            at += lengths[-1]
        await load(s, queue, segments)
        issues, faults = await play(s, queue, lengths)
        assert issues == expected
        assert faults == too_far
        total += len(issues)
    assert total > 200


def op(**fields):
    """An OP of one cycle."""
    return (isa.Kind.OP, 0, {"ni": 1, **fields})


@cocotb.test()
async def latency(dut):
    """One pulse of `notify`, one instruction: NOTIFY_CYCLES later, for one cycle."""
    s = await Slice(dut).start()
    queue = queue_of(s)
    await load(s, queue, [[op(), SYNC]])
    plan = [{"notify": 0}] * 5 + [{"notify": 1, "segment": 0}, {"notify": 0}] + [{}] * 12
    seen = (await s.play(plan, ["issue__valid"]))["issue__valid"]
    assert [t - 5 for t, v in enumerate(seen) if v] == [NOTIFY_CYCLES]


@cocotb.test()
async def underrun_and_flush(dut):
    """A queue that parks a cycle late says so in the cycle laid down; a flush stops it at once."""
    s = await Slice(dut).start()
    queue = queue_of(s)
    words = [op()] * 5 + [SYNC]
    await load(s, queue, [words] * 3)
    length = len(words) + isa.PARK_CYCLES
    issues, faults = await play(s, queue, [length] * 2)
    assert faults == {}
    assert list(issues) == [*range(5), *range(length, length + 5)]
    length -= 1
    _, faults = await play(s, queue, [length] * 2)
    late = length - isa.PARK_CYCLES
    assert faults == {late: isa.Fault.UNDERRUN, length + late: isa.Fault.UNDERRUN}
    for at in (-3, 0, 1, 3):
        issues, faults = await play(s, queue, [12], flush_at=at)
        assert list(issues) == list(range(max(at, 0)))
        assert faults == {}


@cocotb.test()
async def reserved_codes(dut):
    """A reserved control code faults in its cycle and parks the queue."""
    s = await Slice(dut).start()
    queue = queue_of(s)
    for code in (1, 2, 3):
        await load(s, queue, [[op(), (isa.Kind.CTRL, 0, {"code": code}), op(), SYNC]])
        issues, faults = await play(s, queue, [12])
        assert faults == {1: isa.Fault.ILLEGAL}
        assert list(issues) == [0]
