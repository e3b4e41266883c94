"""VXM alone: random templates at random spacings against `numerics`, files with times; latencies.

Results, T file, scalar and maximum file, token register: what a pass reads is what `isa.Timing`
says is there in the cycle of reading.
"""

from __future__ import annotations

import dataclasses

import cocotb
import numpy as np

from tidemill import numerics
from tidemill.isa import QUEUE_INDEX, QUEUES, ASrc, BSrc, Func, Mask, Red, Template, Timing
from tidemill_sim.benches.slice_base import Slice, instruction, pack, unpack

QUEUE = QUEUES[QUEUE_INDEX["VXM"]]
PASS = QUEUE.op("PASS")
LANE_TABLE = numerics.build_lane_table(8 / 32768, 8 / 32768)
SCALAR_TABLE = numerics.build_scalar_table()
EPS = 12345
STREAMS = {"e_acc": 32, "w_a": 16, "w_s": 16, "e_b": 8}
FIELDS = ("ta", "tb", "tc", "td", "first", "sx", "mx")


@dataclasses.dataclass(kw_only=True)
class Pass:
    """One pass: run state at t, and streams at t + 1 where they matter."""

    t: Template
    ta: int = 0
    tb: int = 0
    tc: int = 0
    td: int = 0
    first: int = 0
    sx: int = 0
    mx: int = 0
    pos: int = 0
    vocab: int = 0
    streams: dict = dataclasses.field(default_factory=dict)


class File:
    """Entries with the cycle from which each value reads."""

    def __init__(self, entries, initial):
        self.history = [[(-1, initial)] for _ in range(entries)]

    def write(self, index, value, when):
        """`value` reads from cycle `when` on."""
        self.history[index].append((when, value))

    def read(self, index, when):
        """What reads in cycle `when`."""
        return next(v for w, v in reversed(self.history[index]) if w <= when)


class Twin:
    """Passes in the order of dispatch; files that nobody wrote hold zeros."""

    def __init__(self, chip, seed, scalars):
        self.chip = chip
        self.t = File(chip.temp_depth, np.zeros(chip.lanes, np.int64))
        self.max = File(4, 0)
        self.scalar = File(8, (0, 0))
        self.token = File(1, None)
        self.counter = 0
        self.sum = self.run_max = self.run_arg = 0
        self.noise = numerics.lane_seeds(seed, chip.lanes)
        for k, value in enumerate(scalars):
            self.scalar.write(k, value, -1)

    def execute(self, cycle, p, streams):
        """Result of `p` dispatched in `cycle`; `streams` are those of the next cycle."""
        t, lanes = p.t, self.chip.lanes
        ab = cycle + Timing.VXM_AB
        mant, exp = self.scalar.read(p.sx, ab)
        zero = np.zeros(lanes, np.int64)
        if t.a == ASrc.NOISE:
            self.noise = numerics.xorshift32(self.noise)
            a = numerics.gumbel_code(self.noise)
        else:
            a = {
                ASrc.ACC: streams["e_acc"],
                ASrc.T: self.t.read(p.ta, ab),
                ASrc.WA: streams["w_a"],
                ASrc.WS: streams["w_s"],
                ASrc.BYTE: streams["e_b"] << 8,
            }[t.a]
        b = {
            BSrc.ONE: zero + numerics.ONE,
            BSrc.T: self.t.read(p.tb, ab),
            BSrc.WA: streams["w_a"],
            BSrc.WS: streams["w_s"],
            BSrc.SCALAR: zero + mant,
            BSrc.SELF: numerics.saturate(a, 16),
            BSrc.T4: numerics.QUAD * self.t.read(p.tb, ab),
            BSrc.WA4: numerics.QUAD * streams["w_a"],
        }[t.b]
        pre = numerics.preshift(a, t.shift + (exp if t.dyn else 0))
        if t.func == Func.NONE:
            c = self.t.read(p.tc, cycle + Timing.VXM_C) if t.c else 0
            y = numerics.compound(pre, b, c)
        else:
            top = self.max.read(p.mx, cycle + Timing.VXM_MAX_READ)
            index, frac = {
                Func.EXP: lambda: numerics.exp_address(pre, top),
                Func.SILU: lambda: numerics.silu_address(pre),
                Func.GUMBEL: lambda: numerics.gumbel_address(pre),
            }[t.func]()
            base, slope = LANE_TABLE[index].T
            y = numerics.compound(frac, slope, base)
        if p.first:
            self.counter = 0
        elif t.mask != Mask.NONE or t.red == Red.ARGMAX:
            self.counter += 1
        i = self.counter * lanes + np.arange(lanes)
        if t.mask in (Mask.POS_MIN, Mask.POS_ZERO):
            y = np.where(i > p.pos, numerics.MASKED if t.mask == Mask.POS_MIN else 0, y)
        elif t.mask == Mask.VOCAB_MIN:
            y = np.where(i >= p.vocab, numerics.MASKED, y)
        if t.wt:
            self.t.write(p.td, y, cycle + Timing.VXM_T)
        self.reduce(cycle, p, y, pre * b, i)
        return y

    def reduce(self, cycle, p, y, products, i):
        """What `p` leaves in the files; `i`: element indices."""
        red = p.t.red
        if red in (Red.SUM, Red.SUMSQ):
            total = int((y if red == Red.SUM else products).sum())
            self.sum = total if p.first else self.sum + total
            if red == Red.SUM:
                mant, exp = numerics.recip(SCALAR_TABLE, self.sum)
            else:
                mant, exp = numerics.rsqrt(SCALAR_TABLE, self.sum + EPS)
            # 6 bits signed, as the file holds it
            value = mant, (exp + 32) % 64 - 32
            self.scalar.write(p.sx, value, cycle + Timing.vxm_scalar(self.chip))
        elif red == Red.MAX:
            self.run_max = int(max(y.max(), -32768 if p.first else self.run_max))
            self.max.write(p.mx, self.run_max, cycle + Timing.vxm_max(self.chip))
        elif red == Red.ARGMAX and (p.first or y.max() > self.run_arg):
            self.run_arg = int(y.max())
            self.token.write(0, int(i[y.argmax()]), cycle + Timing.vxm_max(self.chip))


def words(table):
    """Host words of a table of (base, slope)."""
    return [(k, (int(b) & 0xFFFF) | (int(v) & 0xFFFF) << 16) for k, (b, v) in enumerate(table)]


async def begin(dut):
    """A slice with its tables loaded."""
    s = await Slice(dut).start()
    await s.host_write("lane_table", words(LANE_TABLE))
    await s.host_write("scalar_table", words(SCALAR_TABLE))
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
    return Twin(chip, seed, scalars)


def random_streams(chip, rng):
    """Vectors of all magnitudes."""
    return {
        name: rng.integers(-(1 << bits - 1), 1 << bits - 1, chip.lanes)
        >> rng.integers(0, bits, chip.lanes)
        for name, bits in STREAMS.items()
    }


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
            streams |= {n: np.array(v) for n, v in before.streams.items()}
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
        templates = []
        for _ in range(32):
            red = Red(int(rng.integers(5)))
            square = red == Red.SUMSQ
            templates.append(
                Template(
                    a=ASrc(int(rng.integers(1 if square else 0, 6))),
                    b=BSrc.SELF if square else BSrc(int(rng.integers(8))),
                    c=bool(rng.integers(2)),
                    shift=0 if square else int(rng.integers(0, 20)),
                    dyn=not square and bool(rng.random() < 0.3),
                    func=Func.NONE if square else Func(int(rng.choice([0, 0, 1, 2, 3]))),
                    mask=Mask(int(rng.integers(4))),
                    red=red,
                    wt=bool(rng.integers(2)),
                )
            )
        schedule, cycle = [], 0
        for k in range(500):
            fields = {f: int(rng.integers(chip.temp_depth)) for f in ("ta", "tb", "tc", "td")}
            p = Pass(
                t=templates[k % 32 if k < 32 else rng.integers(32)],
                **fields,
                # every running register starts once
                first=int(k < 32 or rng.random() < 0.2),
                sx=int(rng.integers(8)),
                mx=int(rng.integers(4)),
                pos=int(rng.integers(chip.context)),
                vocab=int(rng.integers(4 * chip.lanes)),
            )
            schedule.append((cycle, p))
            cycle += int(rng.choice([1, 1, 1, 2, 3, 9]))
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
            passes += [Pass(t=t, streams={"e_acc": v}) for v in edges.reshape(-1, s.chip.lanes)]
    ends = [32767, -32767, 181, -181, 256, 255, 128]
    for x in ends:
        for y in ends:
            streams = {"e_acc": [x] * s.chip.lanes, "w_a": [y] * s.chip.lanes}
            passes.append(Pass(t=Template(a=ASrc.ACC, b=BSrc.WA), streams=streams))
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
