"""VXM alone: random templates at random spacings against `numerics`, files with times; latencies.

Results, T file, scalar and maximum file, token register: what a pass reads is what `isa.Timing`
says is there in the cycle of reading.
"""

from __future__ import annotations

import cocotb
import numpy as np

from tidemill.isa import QUEUE_INDEX, QUEUES, ASrc, BSrc, Func, Mask, Red, Template, Timing
from tidemill_sim.benches.slice_base import Slice, instruction, pack, unpack
from tidemill_sim.benches.twin_vxm import (
    EPS,
    FIELDS,
    LANE_TABLE,
    SCALAR_TABLE,
    STREAMS,
    Pass,
    Twin,
    random_schedule,
    random_streams,
    table_words,
)

QUEUE = QUEUES[QUEUE_INDEX["VXM"]]
PASS = QUEUE.op("PASS")


async def begin(dut):
    """A slice with its tables loaded."""
    s = await Slice(dut).start()
    await s.host_write("lane_table", list(enumerate(table_words(LANE_TABLE))))
    await s.host_write("scalar_table", list(enumerate(table_words(SCALAR_TABLE))))
    return s


async def start(s, seed, scalars):
    """Begin a run; T and the maximum file read as zeros afterwards, as in a new `Twin`."""
    chip = s.chip
    await s.host_write("scalar_init", [(k, m | (e & 63) << 16) for k, (m, e) in enumerate(scalars)])
    await s.play([{"run__seed": seed, "run__start": 1, "run__eps": EPS}, {"run__start": 0}], ())
    zero = {name: 0 for name in STREAMS}
    clear = Template(a=ASrc.WA, wt=True, red=Red.MAX)
    await s.host_write("template", [(0, clear.encode())])
    plan = [
        {**instruction("i", QUEUE, "PASS", tmpl=0, td=k, mx=k % 4, first=1), **zero}
        for k in range(chip.temp_depth)
    ]
    plan += [instruction("i", QUEUE, None)] + [{}] * Timing.vxm_scalar(chip)
    await s.play(plan, ())
    twin = Twin(chip)
    twin.start(seed, scalars, -1)
    return twin


async def check(s, twin, schedule, rng):
    """Play [(cycle, Pass)]: every result, and the token register in every cycle."""
    chip = s.chip
    templates = list(dict.fromkeys(p.t for _, p in schedule))
    assert len(templates) <= 32
    await s.host_write("template", [(k, t.encode()) for k, t in enumerate(templates)])
    at = dict(schedule)
    length = schedule[-1][0] + Timing.vxm_scalar(chip) + 1
    plan, want = [], {}
    before = None
    for k in range(length):
        streams = random_streams(chip, rng)
        if before:
            streams |= before.streams
            want[k - 1] = twin.execute(k - 1, before, streams)
        cycle = {name: pack(streams[name], bits) for name, bits in STREAMS.items()}
        before = at.get(k)
        if before:
            fields = {n: getattr(before, n) for n in FIELDS}
            cycle |= instruction("i", QUEUE, "PASS", tmpl=templates.index(before.t), **fields)
            cycle |= {"run__pos": before.pos, "run__vocab": before.vocab}
        else:
            cycle |= {"i__valid": 0}
        plan.append(cycle)
    seen = await s.play(plan, ["e_v", "w_v", "token"])
    for k, y in want.items():
        for port in ("e_v", "w_v"):
            word = seen[port][k + PASS.d_func(chip)]
            assert word is not None, f"{port} is undefined for the pass of cycle {k}: {at[k]}"
            assert unpack(word, 16, chip.lanes) == y.tolist(), f"{port}, dispatch {k}: {at[k]}"
    for k in range(length):
        token = twin.token.read(0, k)
        assert token is None or seen["token"][k] == token, f"token, cycle {k}"
    return len(want)


@cocotb.test()
async def random_passes(dut):
    """Random templates, fields and spacings."""
    s = await begin(dut)
    chip = s.chip
    for seed in range(2):
        rng = np.random.default_rng((chip.lanes, seed))
        scalars = [(int(rng.integers(1 << 16)), int(rng.integers(-32, 32))) for _ in range(8)]
        twin = await start(s, int(rng.integers(1 << 32)), scalars)
        schedule = random_schedule(chip, rng, 500)
        assert await check(s, twin, schedule, rng) == 500


@cocotb.test()
async def rounding_and_saturation(dut):
    """Operands around every rounding and every bound, at fixed shifts; products of the largest."""
    s = await begin(dut)
    rng = np.random.default_rng(1)
    twin = await start(s, 0, [(1 << 15, 0)] * 8)
    passes = []
    for shift in (-3, 0, 1, 2, 3, 5, 8, 13, 14, 16, 31, 40):
        d = min(max(shift, 0), 31)
        edges = [0, 1, -1, (1 << 31) - 1, -(1 << 31), 1 << 30]
        for top in ((1 << 17) - 1, (1 << 17) - 2, 1 - (1 << 17), 32767, 32768, -32767, -32768):
            edges += [(top << d) + off for off in (-1, 0, 1, 1 << d >> 1, (1 << d >> 1) - 1)]
        edges = np.array([min(max(e, -(1 << 31)), (1 << 31) - 1) for e in edges])
        edges = np.concatenate([edges, np.zeros(-len(edges) % s.chip.lanes, np.int64)])
        # half of A shows 18 bits, all of A saturates to 16
        for b in (BSrc.SCALAR, BSrc.ONE):
            t = Template(a=ASrc.ACC, b=b, shift=shift)
            passes += [Pass(t=t, e_acc=v) for v in edges.reshape(-1, s.chip.lanes)]
    ends = [32767, -32767, 181, -181, 256, 255, 128]
    for x in ends:
        for y in ends:
            streams = {"e_acc": [x] * s.chip.lanes, "w_a": [y] * s.chip.lanes}
            passes.append(Pass(t=Template(a=ASrc.ACC, b=BSrc.WA), **streams))
    assert await check(s, twin, list(enumerate(passes)), rng) == len(passes)


@cocotb.test()
async def masks(dut):
    """Every boundary within three vectors; the counter goes on from pass to pass."""
    s = await begin(dut)
    rng = np.random.default_rng(2)
    twin = await start(s, 0, [(1 << 15, 0)] * 8)
    passes = []
    for mask in (Mask.POS_MIN, Mask.POS_ZERO, Mask.VOCAB_MIN):
        for limit in range(min(3 * s.chip.lanes + 2, s.chip.context)):
            for k in range(3):
                fields = {"pos": limit, "vocab": limit}
                passes.append(Pass(t=Template(a=ASrc.WA, mask=mask), first=int(k == 0), **fields))
                passes.append(Pass(t=Template(a=ASrc.WA), **fields))
    await check(s, twin, list(enumerate(passes)), rng)


@cocotb.test()
async def noise(dut):
    """Codes of every lane for three seeds, one of which would make a state of zero."""
    s = await begin(dut)
    rng = np.random.default_rng(3)
    for seed in (0, 0x9E3779B9, 0xDEADBEEF):
        twin = await start(s, seed, [(1 << 15, 0)] * 8)
        codes = [Pass(t=Template(a=ASrc.NOISE)), Pass(t=Template(a=ASrc.NOISE, func=Func.GUMBEL))]
        await check(s, twin, list(enumerate(codes * 40)), rng)


def same(chip, value):
    """A vector of equal elements."""
    return pack([value] * chip.lanes, 16)


async def pulse(s, setup, probe, cycles=60, at=30):
    """Play a writer in cycle `at`, the probe in all others; e_v, by cycle of the probe's dispatch.

    setup, probe: {input: value} of one cycle, the streams that belong to it included.
    """
    plan = []
    for t in range(cycles):
        plan.append(dict(setup if t == at else probe))
    # streams are sampled one cycle after the dispatch
    streams = [{n: c.pop(n) for n in STREAMS if n in c} for c in plan]
    for t in range(1, cycles):
        plan[t] |= streams[t - 1]
    seen = (await s.play([*plan, *[{}] * 20], ["e_v"]))["e_v"]
    d = PASS.d_func(s.chip)
    return [seen[t + d] for t in range(cycles)]


@cocotb.test()
async def latencies(dut):
    """Every number of `isa.Timing` from signals.

    Streams to result by a pulse on the stream; T, maximum, scalar by the first pass that reads the
    pulse as written; C by the last write that an earlier pass still reads.
    """
    s = await begin(dut)
    chip = s.chip
    await start(s, 0, [(1 << 15, 0)] * 8)
    t_pass = Template(a=ASrc.WA)
    t_write = Template(a=ASrc.WA, wt=True)
    t_read = Template(a=ASrc.T)
    t_add = Template(a=ASrc.WA, c=True)
    t_max = Template(a=ASrc.WA, red=Red.MAX)
    t_exp = Template(a=ASrc.WA, func=Func.EXP)
    t_sum = Template(a=ASrc.WA, red=Red.SUM)
    t_scale = Template(a=ASrc.WA, b=BSrc.SCALAR)
    t_argmax = Template(a=ASrc.WA, red=Red.ARGMAX)
    all_of_them = (t_pass, t_write, t_read, t_add, t_max, t_exp, t_sum, t_scale, t_argmax)
    await s.host_write("template", [(k, t.encode()) for k, t in enumerate(all_of_them)])
    index = {id(t): k for k, t in enumerate(all_of_them)}

    def word(t, w_a=0, **fields):
        zero = dict.fromkeys(FIELDS, 0)
        cycle = instruction("i", QUEUE, "PASS", tmpl=index[id(t)], **(zero | fields))
        return {**cycle, "w_a": same(chip, w_a)}

    # a pulse on the stream, every cycle a pass: from the stream's cycle to the result, and VXM_AB
    plan = [{**word(t_pass), "w_a": 0}] * 20 + [{"w_a": same(chip, 9)}, {"w_a": 0}] + [{}] * 20
    seen = (await s.play(plan, ["e_v"]))["e_v"]
    assert [t - 20 for t, v in enumerate(seen) if v] == [Timing.VXM_RESULT - Timing.VXM_AB]
    # one pass in the middle of nothing, the stream always on: from the dispatch to the result
    off = instruction("i", QUEUE, None)
    plan = [{**word(t_pass), "w_a": 0}] + [{**off, "w_a": 0}] * 30
    await s.play(plan, ())
    for gap in range(4):
        plan = [off] * 4 + [word(t_pass)] + [off] * 24
        plan[4 + gap] = {**plan[4 + gap], "w_a": same(chip, 9)}
        plan[5 + gap] = {**plan[5 + gap], "w_a": 0}
        if gap:
            plan[4] = {**plan[4], "w_a": 0}
        seen = (await s.play(plan, ["e_v"]))["e_v"]
        assert (seen[4 + PASS.d_func(chip)] == same(chip, 9)) == (gap == Timing.VXM_AB), gap
    assert PASS.d_func(chip) == Timing.VXM_RESULT

    # T: written once, read by a pass in every other cycle
    got = await pulse(s, word(t_write, 7, td=3), word(t_read, ta=3))
    first = next(t for t in range(31, 60) if got[t] == same(chip, 7))
    assert first + Timing.VXM_AB - 30 == Timing.VXM_T
    assert all(got[t] == 0 for t in range(31, first))

    # C: T[4] holds 5 since long ago; the write of 6 and passes of 0 + C around it
    await s.play([word(t_write, 5, td=4), {**off, "w_a": same(chip, 5)}, *[{}] * 20], ())
    got = await pulse(s, word(t_write, 6, td=4), word(t_add, tc=4), at=30)
    first = next(t for t in range(60) if t != 30 and got[t] == same(chip, 6))
    assert first + Timing.VXM_C - 30 == Timing.VXM_T
    assert all(got[t] == same(chip, 5) for t in range(first) if t != 30)

    # maximum: exp of 0 is the last entry for a maximum of 0 and the first for 32767
    await s.play([word(t_max, 0, mx=2, first=1), {**off, "w_a": 0}, *[{}] * 20], ())
    got = await pulse(s, word(t_max, 32767, mx=2, first=1), word(t_exp, mx=2))
    first = next(t for t in range(31, 60) if got[t] != got[0])
    assert first + Timing.VXM_MAX_READ - 30 == Timing.vxm_max(chip)

    # scalar: 1/sum
    await s.play([word(t_sum, 1, sx=6, first=1), {**off, "w_a": same(chip, 1)}, *[{}] * 40], ())
    got = await pulse(s, word(t_sum, 3, sx=6, first=1), word(t_scale, 256, sx=6))
    first = next(t for t in range(31, 60) if got[t] != got[0])
    assert first + Timing.VXM_AB - 30 == Timing.vxm_scalar(chip)

    # token: the register changes from element 0 to a lane of the second vector
    plan = [word(t_argmax, 5, first=1), {**off, "w_a": same(chip, 5)}, *[{}] * 40]
    plan += [word(t_argmax), {**off, "w_a": same(chip, 8)}, *[{}] * 40]
    seen = (await s.play(plan, ["token"]))["token"]
    assert [seen.index(chip.lanes) - 42, seen[-1]] == [Timing.vxm_max(chip), chip.lanes]


@cocotb.test()
async def abort(dut):
    """A pass that an abort meets writes nothing, whatever the cycle; one that is done stays."""
    s = await begin(dut)
    chip = s.chip
    await start(s, 0, [(1 << 15, 0)] * 8)
    write, read = Template(a=ASrc.WA, wt=True), Template(a=ASrc.T)
    await s.host_write("template", [(0, write.encode()), (1, read.encode())])
    base = dict.fromkeys(FIELDS, 0)
    off = instruction("i", QUEUE, None)
    for cycle in range(1, Timing.VXM_T + 2):
        on = instruction("i", QUEUE, "PASS", tmpl=0, **(base | {"td": 1}))
        plan = [{**on, "w_a": same(chip, 1)}, off, *[{}] * 20]
        plan += [{**on, "w_a": same(chip, 2)}, *[dict(off) for _ in range(20)]]
        plan[22 + cycle] |= {"run__abort": 1}
        plan[23 + cycle] |= {"run__abort": 0}
        plan += [instruction("i", QUEUE, "PASS", tmpl=1, **(base | {"ta": 1})), off]
        plan += [{}] * Timing.VXM_RESULT
        seen = (await s.play(plan, ["e_v"]))["e_v"]
        want = 2 if cycle >= Timing.VXM_RESULT else 1
        assert seen[43 + Timing.VXM_RESULT] == same(chip, want), f"abort in cycle {cycle}"
