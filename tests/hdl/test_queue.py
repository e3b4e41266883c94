"""One instruction queue against a model of the contract (architecture.md, Control)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from support.simulate import simulate
from tidemill import isa
from tidemill.chip import CHIPS
from tidemill_hdl.queue import NOTIFY_CYCLES, InstructionQueue
from tidemill_sim.benches.twin_queue import SYNC, TIDES, encode, model, random_words

CHIP = replace(CHIPS["tiny"], queue_depth=64)


def run_segments(queue, segments, bases=None, flush_at=None, extra=0):
    """Play [(words, length)] one after another; issues and faults by cycle, cycle 0 = first B."""
    dut = InstructionQueue(queue, CHIP)
    names = [n for n, w in queue.layout(CHIP) if w]
    issues, faults = {}, {}
    begins = [0]
    for _, length in segments:
        begins.append(begins[-1] + length)

    async def bench(ctx):
        async def write(port, addr, value):
            ctx.set(port.en, 1)
            ctx.set(port.we, 1)
            ctx.set(port.addr, addr)
            ctx.set(port.wdata, value)
            await ctx.tick()
            ctx.set(port.en, 0)

        at = 0
        for k, (words, _) in enumerate(segments):
            await write(dut.starts, queue.index << 2 | k % 3, at)
            await write(dut.starts, (queue.index + 1) << 2 | k % 3, 7)
            for kind, wait, f in words:
                await write(dut.words, queue.index << 16 | at, encode(queue, CHIP, kind, wait, f))
                at += 1
        await write(dut.words, (queue.index + 1) << 16, 0)
        for column, value in enumerate(TIDES):
            for q in (queue.index, queue.index + 1):
                ctx.set(dut.tide.valid, 1)
                ctx.set(dut.tide.queue, q)
                ctx.set(dut.tide.column, column)
                ctx.set(dut.tide.value, value if q == queue.index else 99)
                await ctx.tick()
        ctx.set(dut.tide.valid, 0)
        for base in isa.Base if bases is not None else ():
            if base:
                ctx.set(getattr(dut.bases, base.name.lower()), bases[base])
        for cycle in range(-NOTIFY_CYCLES, begins[-1] + 3 + extra):
            ahead = cycle + NOTIFY_CYCLES
            ctx.set(dut.notify, ahead in begins[:-1])
            ctx.set(dut.check, ahead in begins[1:])
            ctx.set(dut.segment, begins.index(ahead) % 3 if ahead in begins[:-1] else 3)
            ctx.set(dut.flush, cycle == flush_at)
            if ctx.get(dut.issue.valid):
                issues[cycle] = {n: ctx.get(getattr(dut.issue, n)) for n in names}
            if kind := ctx.get(dut.fault.kind):
                faults[cycle] = isa.Fault(kind)
            await ctx.tick()

    simulate(dut, bench)
    return issues, faults


BASES = [0, 3, 100, 57, 1000]


@pytest.mark.parametrize("queue", isa.QUEUES, ids=lambda q: q.name)
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_back_to_back(queue, seed):
    rng = random.Random(f"{queue.name} {seed}")
    bases = BASES if "base" in dict(queue.layout(CHIP)) else None
    segments, expected, at = [], {}, 0
    for _ in range(3):
        words = random_words(queue, CHIP, rng, rng.choice([1, 6, 18]))
        issues, sync = model(queue, CHIP, words)
        for t, payload in issues.items():
            if bases is not None:
                payload["addr"] += bases[payload["base"]]
            expected[at + t] = payload
        length = sync + 1 + isa.PARK_CYCLES + rng.choice([0, 0, 5])
        segments.append((words, length))
        at += length
    issues, faults = run_segments(queue, segments, bases)
    if bases is not None:
        depth = {"MEM_W": CHIP.mem_w_depth, "MEM_A": CHIP.mem_a_depth}[queue.slice]
        too_far = {t for t, payload in expected.items() if payload["addr"] >= depth}
        bits = queue.fields[0].bits(CHIP)
        for payload in expected.values():
            payload["addr"] %= 1 << bits
        assert faults == dict.fromkeys(too_far, isa.Fault.ADDRESS)
    else:
        assert faults == {}
    assert issues == {
        t: {n: payload[n] for n in issues.get(t, payload)} for t, payload in expected.items()
    }


MXM = isa.QUEUES[isa.QUEUE_INDEX["MXM.C"]]
SXM = isa.QUEUES[isa.QUEUE_INDEX["SXM"]]


def sxm(wait=0):
    return (isa.Kind.OP, wait, {"src": 0, "op": 0})


def test_a_word_takes_one_cycle():
    issues, faults = run_segments(SXM, [([sxm()] * 20 + [SYNC], 24)] * 2)
    assert list(issues) == [*range(20), *range(24, 44)]
    assert faults == {}


def test_interval_0_is_the_duration():
    op = (isa.Kind.OP, 0, {"abc": 1, "acc": 2, "ni": 4, "fresh": 1, "op": 0})
    again = (isa.Kind.REPEAT, 0, {"count": 3, "interval": 0, "stride": 0})
    issues, _ = run_segments(MXM, [([op, again, op, SYNC], 30)])
    assert list(issues) == [0, 4, 8, 12, 16]
    assert [issues[t]["acc"] for t in issues] == [2, 3, 4, 5, 2]
    assert all(issues[t]["fresh"] for t in issues)


@pytest.mark.parametrize(("count", "cycles"), [(0, 1), (1, 1), (2, 2), (4, 11)])
def test_nop_idles_at_least_once(count, cycles):
    nop = (isa.Kind.NOP, 0, {"tide": 1, "count": count})
    issues, _ = run_segments(SXM, [([sxm(), nop, sxm(), SYNC], 30)])
    assert list(issues) == [0, 1 + cycles]


def test_underrun_when_not_parked_in_time():
    """SYNC one cycle late: the fault has the cycle in which the queue should have been parked."""
    words = [sxm()] * 5 + [SYNC]
    issues, faults = run_segments(SXM, [(words, 9)] * 2)
    assert faults == {}
    issues, faults = run_segments(SXM, [(words, 8)] * 2)
    late = 8 - isa.PARK_CYCLES
    assert faults == {late: isa.Fault.UNDERRUN, 8 + late: isa.Fault.UNDERRUN}
    assert list(issues) == [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]


def test_underrun_cuts_the_segment_short():
    long = [sxm()] * 30 + [SYNC]
    issues, faults = run_segments(SXM, [(long, 10), ([sxm(), SYNC], 9)])
    assert faults == {10 - isa.PARK_CYCLES: isa.Fault.UNDERRUN}
    assert 10 in issues
    assert 11 not in issues


@pytest.mark.parametrize("code", [1, 2, 3, 200])
def test_reserved_control_codes_fault_and_park(code):
    words = [sxm(), (isa.Kind.CTRL, 0, {"code": code}), sxm(), SYNC]
    issues, faults = run_segments(SXM, [(words, 12)])
    assert faults == {1: isa.Fault.ILLEGAL}
    assert list(issues) == [0]


def test_unknown_base_faults():
    queue = isa.QUEUES[isa.QUEUE_INDEX["MEMA.R"]]
    words = [(isa.Kind.OP, 0, {"addr": 1, "base": 5}), SYNC]
    _, faults = run_segments(queue, [(words, 12)], BASES)
    assert faults == {0: isa.Fault.ILLEGAL}


@pytest.mark.parametrize("at", [-3, 0, 1, 4])
def test_flush_stops_at_once(at):
    issues, faults = run_segments(SXM, [([sxm()] * 20 + [SYNC], 23)], flush_at=at)
    assert list(issues) == list(range(max(at, 0)))
    assert faults == {}
