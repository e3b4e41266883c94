"""One instruction queue against a model of the contract (architecture.md, Control)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from tidemill import isa
from tidemill.chip import CHIPS
from tidemill_hdl.queue import NOTIFY_CYCLES, InstructionQueue

CHIP = replace(CHIPS["tiny"], queue_depth=64)
PAYLOAD_FIRST = {q.name: q.fields[0].name for q in isa.QUEUES}


def pack(layout, values):
    word = at = 0
    for name, width in layout:
        word |= (values.get(name, 0) & ((1 << width) - 1)) << at
        at += width
    return word


def encode(queue, kind, wait=0, **values):
    bits = queue.payload_bits(CHIP)
    layout = queue.layout(CHIP) if kind == isa.Kind.OP else isa.CONTROL_LAYOUT
    payload = values["code"] if kind == isa.Kind.CTRL else pack(layout, values)
    return payload | wait << bits | int(kind) << (bits + isa.WAIT_BITS)


def model(queue, words, tides, bases=None):
    """(issues {cycle: payload}, cycle of SYNC) of a segment that starts in cycle 0."""
    widths = dict(queue.layout(CHIP))
    issues, t, last, dur = {}, 0, None, 1
    for kind, wait, f in words:
        count = tides[f["count"]] if f.get("tide") else f.get("count", 0)
        if kind == isa.Kind.OP:
            last, dur = dict(f), f.get("ni", 1)
            issues[t] = dict(last)
            t += dur + wait
        elif kind == isa.Kind.NOP:
            t += max(1, count)
        elif kind == isa.Kind.REPEAT:
            interval = f["interval"] or dur
            u = t - dur
            for k in range(1, count + 1):
                if queue.name == "MXM.C":
                    step = {"acc": 1} if last["op"] == 0 else {"abc": 1}
                    last["fresh"] = last["fresh"] if last["op"] == 0 else 0
                else:
                    step = {PAYLOAD_FIRST[queue.name]: f["stride"]}
                for name, by in step.items():
                    last[name] = (last[name] + by) % (1 << widths[name])
                last.update({"first": 0} if "first" in last else {})
                issues[u + k * interval] = dict(last)
            t = (u + count * interval + dur if count else t + 1) + wait
        else:
            for payload in issues.values():
                if "base" in payload:
                    payload["addr"] += bases[payload["base"]]
            return issues, t
    raise AssertionError("no SYNC")


def random_program(queue, rng, size, tides, bases):
    """A legal program: (kind, wait, fields) per word, SYNC last."""
    words, chain, dur = [], False, 1
    while len(words) < size:
        kind = rng.choice([isa.Kind.OP] * 3 + [isa.Kind.NOP] + [isa.Kind.REPEAT] * (3 * chain))
        wait = rng.choice([0, 0, 0, 1, 2, rng.randrange(10)])
        tide = rng.random() < 0.3
        count = rng.randrange(len(tides)) if tide else rng.choice([0, 1, 2, 3, 7])
        if kind == isa.Kind.OP:
            f = {n: rng.randrange(1 << w) for n, w in queue.layout(CHIP) if w}
            if queue.name == "SXM":
                f["op"] %= 4
            if "ni" in f:
                f["ni"] = dur = rng.choice([1, 1, 2, 3, 9])
            if "base" in f:
                f["base"] %= len(bases)
            words.append((kind, wait, f))
        elif kind == isa.Kind.NOP:
            words.append((kind, 0, {"tide": tide, "count": count}))
        else:
            interval = rng.choice([0, dur, dur + 1, dur + 5])
            stride = rng.randrange(-32, 32)
            words.append(
                (kind, wait, {"tide": tide, "count": count, "interval": interval, "stride": stride})
            )
            # what a REPEAT does after one that re-issued nothing is not laid down
            wait += 0 if count and not tide else 1
        chain = kind != isa.Kind.NOP and wait == 0
    return [*words, (isa.Kind.CTRL, 0, {"code": 0})]


def run_segments(queue, segments, tides, bases=None, flush_at=None, extra=0):
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
                await write(dut.words, queue.index << 16 | at, encode(queue, kind, wait, **f))
                at += 1
        await write(dut.words, (queue.index + 1) << 16, 0)
        for column, value in enumerate(tides):
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

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return issues, faults


TIDES = [0, 1, 2, 3, 11]
BASES = [0, 3, 100, 57, 1000]


@pytest.mark.parametrize("queue", isa.QUEUES, ids=lambda q: q.name)
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_back_to_back(queue, seed):
    rng = random.Random(f"{queue.name} {seed}")
    bases = BASES if "base" in dict(queue.layout(CHIP)) else None
    segments, expected, at = [], {}, 0
    for _ in range(3):
        words = random_program(queue, rng, rng.choice([1, 6, 18]), TIDES, BASES)
        issues, sync = model(queue, words, TIDES, bases)
        expected.update({at + t: payload for t, payload in issues.items()})
        length = sync + 1 + isa.PARK_CYCLES + rng.choice([0, 0, 5])
        segments.append((words, length))
        at += length
    issues, faults = run_segments(queue, segments, TIDES, bases)
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
SYNC = (isa.Kind.CTRL, 0, {"code": 0})


def sxm(wait=0):
    return (isa.Kind.OP, wait, {"src": 0, "op": 0})


def test_a_word_takes_one_cycle():
    issues, faults = run_segments(SXM, [([sxm()] * 20 + [SYNC], 24)] * 2, TIDES)
    assert list(issues) == [*range(20), *range(24, 44)]
    assert faults == {}


def test_interval_0_is_the_duration():
    op = (isa.Kind.OP, 0, {"abc": 1, "acc": 2, "ni": 4, "fresh": 1, "op": 0})
    again = (isa.Kind.REPEAT, 0, {"count": 3, "interval": 0, "stride": 0})
    issues, _ = run_segments(MXM, [([op, again, op, SYNC], 30)], TIDES)
    assert list(issues) == [0, 4, 8, 12, 16]
    assert [issues[t]["acc"] for t in issues] == [2, 3, 4, 5, 2]
    assert all(issues[t]["fresh"] for t in issues)


@pytest.mark.parametrize(("count", "cycles"), [(0, 1), (1, 1), (2, 2), (4, 11)])
def test_nop_idles_at_least_once(count, cycles):
    nop = (isa.Kind.NOP, 0, {"tide": 1, "count": count})
    issues, _ = run_segments(SXM, [([sxm(), nop, sxm(), SYNC], 30)], TIDES)
    assert list(issues) == [0, 1 + cycles]


def test_underrun_when_not_parked_in_time():
    """SYNC one cycle late: the fault has the cycle in which the queue should have been parked."""
    words = [sxm()] * 5 + [SYNC]
    issues, faults = run_segments(SXM, [(words, 9)] * 2, TIDES)
    assert faults == {}
    issues, faults = run_segments(SXM, [(words, 8)] * 2, TIDES)
    late = 8 - isa.PARK_CYCLES
    assert faults == {late: isa.Fault.UNDERRUN, 8 + late: isa.Fault.UNDERRUN}
    assert list(issues) == [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]


def test_underrun_cuts_the_segment_short():
    long = [sxm()] * 30 + [SYNC]
    issues, faults = run_segments(SXM, [(long, 10), ([sxm(), SYNC], 9)], TIDES)
    assert faults == {10 - isa.PARK_CYCLES: isa.Fault.UNDERRUN}
    assert 10 in issues
    assert 11 not in issues


@pytest.mark.parametrize("code", [1, 2, 3, 200])
def test_reserved_control_codes_fault_and_park(code):
    words = [sxm(), (isa.Kind.CTRL, 0, {"code": code}), sxm(), SYNC]
    issues, faults = run_segments(SXM, [(words, 12)], TIDES)
    assert faults == {1: isa.Fault.ILLEGAL}
    assert list(issues) == [0]


def test_unknown_base_faults():
    queue = isa.QUEUES[isa.QUEUE_INDEX["MEMA.R"]]
    words = [(isa.Kind.OP, 0, {"addr": 1, "base": 5}), SYNC]
    _, faults = run_segments(queue, [(words, 12)], TIDES, BASES)
    assert faults == {0: isa.Fault.ILLEGAL}


@pytest.mark.parametrize("at", [-3, 0, 1, 4])
def test_flush_stops_at_once(at):
    issues, faults = run_segments(SXM, [([sxm()] * 20 + [SYNC], 23)], TIDES, flush_at=at)
    assert list(issues) == list(range(max(at, 0)))
    assert faults == {}
