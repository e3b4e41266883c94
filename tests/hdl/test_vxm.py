"""The VXM against a numpy twin with time-stamped files: every result, for any spacing of passes."""

import dataclasses
import functools

import numpy as np
import pytest
from amaranth.sim import Simulator

from tidemill import numerics
from tidemill.chip import Chip
from tidemill.isa import ASrc, BSrc, Func, Mask, Red, Template, Timing
from tidemill_hdl.vxm import Vxm
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


def pack(values, bits):
    """Vector to one integer, lane 0 lowest."""
    return sum((int(v) & (1 << bits) - 1) << bits * k for k, v in enumerate(values))


def unpack(word, lanes):
    """The same backwards for int16."""
    return np.array([((word >> 16 * k & 0xFFFF) ^ 0x8000) - 0x8000 for k in range(lanes)])


class Bench:
    """A VXM under simulation beside its twin; goes on from test to test."""

    def __init__(self, lanes):
        self.chip = Chip(
            name="test",
            lanes=lanes,
            weight_streams=1,
            mem_w_depth=16,
            mem_a_depth=16,
            act_depth=2,
            acc_depth=2,
            vocab=1000,
            context=256,
        )
        self.random = np.random.default_rng(lanes)
        self.twin = Twin(self.chip)
        self.dut = dut = Vxm(self.chip)
        self.stimuli = {}
        self.seen = []

        async def drive(ctx):
            ctx.set(dut.run.eps, EPS)
            while True:
                for signal, value in self.stimuli.pop(len(self.seen), ()):
                    ctx.set(signal, value)
                self.seen.append((ctx.get(dut.e_v.as_value()), ctx.get(dut.token)))
                await ctx.tick()

        self.simulator = Simulator(dut)
        self.simulator.add_clock(1e-6)
        self.simulator.add_testbench(drive, background=True)

        tables = {dut.lane_table: LANE_TABLE, dut.scalar_table: SCALAR_TABLE}
        self.host({port: table_words(table) for port, table in tables.items()})
        self.start(seed=0, scalars=[(1 << 15, 0)] * 8)

    def play(self, stimuli):
        """Set signals, cycle by cycle."""
        begin = len(self.seen)
        self.stimuli |= {begin + k: cycle for k, cycle in enumerate(stimuli)}
        while len(self.seen) < begin + len(stimuli):
            self.simulator.advance()

    def host(self, writes):
        """Write tables in parallel, one word of each per cycle."""
        stimuli = []
        for address in range(max(map(len, writes.values()))):
            cycle = []
            for port, words in writes.items():
                on = address < len(words)
                cycle += [(port.en, on), (port.we, on), (port.addr, address)]
                cycle += [(port.wdata, words[address])] if on else []
            stimuli.append(cycle)
        stimuli.append([(s, 0) for port in writes for s in (port.en, port.we)])
        self.play(stimuli)

    def start(self, seed=0, scalars=((1 << 15, 0),) * 8):
        """Start a run with these scalars ((mant, exp), eight of them)."""
        run = self.dut.run
        self.host({self.dut.scalar_init: [m | (e & 63) << 16 for m, e in scalars]})
        self.play([[(run.seed, seed), (run.start, 1)], [(run.start, 0)]])
        self.twin.start(seed, scalars, len(self.seen))

    def passes(self, *schedule, abort=None):
        """Run [(cycle, Pass)] and compare every result and the token register in every cycle.

        Returns the results. With `abort`, the cycle of an abort, nothing is compared.
        """
        templates = list(dict.fromkeys(p.t for _, p in schedule))
        assert len(templates) <= 32
        self.host({self.dut.template: [t.encode() for t in templates]})
        begin, i, run = len(self.seen), self.dut.i, self.dut.run
        by_cycle = dict(schedule)
        stimuli, expected, streams = [], {}, {}
        length = schedule[-1][0] + Timing.vxm_scalar(self.chip) + 1
        for k in range(length + 1):
            before = by_cycle.get(k - 1)
            given = before.streams if before else {}
            streams[k] = random_streams(self.chip, self.random) | given
        for k in range(length):
            p = by_cycle.get(k)
            cycle = [(i.valid, p is not None), (run.abort, k == abort)]
            for name, bits in STREAMS.items():
                cycle.append((getattr(self.dut, name).as_value(), pack(streams[k][name], bits)))
            if p:
                for name in FIELDS:
                    cycle.append((getattr(i, name), int(getattr(p, name))))
                cycle.append((i.tmpl, templates.index(p.t)))
                cycle += [(run.pos, p.pos), (run.vocab, p.vocab)]
                if abort is None:
                    expected[k] = self.twin.execute(begin + k, p, streams[k + 1])
            stimuli.append(cycle)
        self.play(stimuli)
        results = {
            k: unpack(self.seen[begin + k + Timing.VXM_RESULT][0], self.chip.lanes)
            for k in by_cycle
        }
        for k, y in expected.items():
            assert results[k].tolist() == y.tolist(), f"dispatch {k}: {by_cycle[k]}"
        if abort is None:
            for cycle in range(begin, len(self.seen)):
                token = self.twin.token.read(0, cycle)
                assert token in (None, self.seen[cycle][1]), f"cycle {cycle - begin}"
        return [results[k].tolist() for k in by_cycle]


bench = functools.cache(Bench)
LANES = pytest.mark.parametrize("lanes", [1, 4, 8])
ACC = Template(a=ASrc.ACC)


def back_to_back(passes):
    return list(enumerate(passes))


@LANES
@pytest.mark.parametrize("a", ASrc)
def test_operands(lanes, a):
    """Every A with every B, with and without C, and written to T."""
    b = bench(lanes)
    shifts = (0, 3, 16)
    templates = [
        Template(a=a, b=other, c=c, shift=shifts[(other + c) % 3], wt=True)
        for other in BSrc
        for c in (False, True)
    ]
    r = b.random
    b.start(
        seed=int(r.integers(1 << 32)), scalars=[(int(m), 0) for m in r.integers(1 << 16, size=8)]
    )
    b.passes(
        *back_to_back(
            Pass(
                t=t,
                ta=int(r.integers(16)),
                tb=int(r.integers(16)),
                tc=int(r.integers(16)),
                td=int(r.integers(16)),
                sx=int(r.integers(8)),
            )
            for t in templates * 3
        )
    )


@LANES
def test_shifts(lanes):
    """Clamped shift amounts, and operands where the 18 bits end."""
    b = bench(lanes)
    exps = [-32, -31, -5, 0, 1, 7, 19, 31]
    b.start(scalars=[(1 << 15, e) for e in exps])
    edges = [0, 1, -1, 2**31 - 1, -(2**31)]
    for s in (0, 1, 2, 3, 4, 5, 13, 14):
        for top in (2**17 - 1, 2**17 - 2, -(2**17), -(2**17) + 1):
            edges += [(top << s) + d for d in (-1, 0, 1, (1 << s) // 2)]
    edges = [min(max(e, -(2**31)), 2**31 - 1) for e in edges] + [0] * (-len(edges) % lanes)
    vectors = [edges[k : k + lanes] for k in range(0, len(edges), lanes)]
    fixed = [Template(a=ASrc.ACC, b=BSrc.SCALAR, shift=s) for s in (-64, -1, *range(6), 12, 13, 14)]
    fixed += [Template(a=ASrc.ACC, b=BSrc.SCALAR, shift=s) for s in (15, 16, 30, 31, 32, 63)]
    passes = [
        Pass(t=t, e_acc=v)
        for k, t in enumerate(fixed)
        for v in vectors[k % 4 :: max(1, 32 // lanes // 4)]
    ]
    # B = 32768 halves, so that all 18 bits of the shifted operand show
    b.passes(*back_to_back(passes))
    moved = [Template(a=ASrc.ACC, b=BSrc.SCALAR, dyn=True, shift=s) for s in (-64, -7, 0, 12, 63)]
    b.passes(
        *back_to_back(
            Pass(t=t, sx=k, e_acc=v) for t in moved for k in range(8) for v in vectors[:2]
        )
    )


@LANES
def test_functions(lanes):
    b = bench(lanes)
    b.start(seed=0xDEADBEEF)
    top = [
        Pass(t=Template(a=ASrc.WA, red=Red.MAX), first=True, mx=k, w_a=[w] * lanes)
        for k, w in enumerate((0, 32767, -32767, 1234))
    ]
    drain = Timing.vxm_max(b.chip)
    b.passes(*back_to_back(top), (len(top) + drain, Pass(t=ACC)))
    edges = [0, -1, 1, 2**17, -(2**17), 32767, 32768, -32767, -32768, -32769, 1 << 14, -(1 << 14)]
    edges += [-(1 << 14) - 1, -(1 << 14) + 1, 1234, 1235, 1234 - (1 << 14), 1233 - (1 << 14)]
    for func in (Func.EXP, Func.SILU, Func.GUMBEL):
        t = Template(a=ASrc.ACC, func=func)
        passes = [Pass(t=t, mx=k % 4, e_acc=[e] * lanes) for e in edges for k in range(4)]
        for k in range(60):
            passes.append(Pass(t=t, mx=k % 4, e_acc=b.random.integers(-(2**17), 2**17, lanes)))
            passes.append(Pass(t=t, mx=k % 4, e_acc=b.random.integers(-32768, 32768, lanes)))
            passes.append(Pass(t=Template(a=ASrc.NOISE, func=Func.GUMBEL)))
        b.passes(*back_to_back(passes))


@LANES
@pytest.mark.parametrize("mask", [Mask.POS_MIN, Mask.POS_ZERO, Mask.VOCAB_MIN])
def test_masks(lanes, mask):
    """Every boundary within three vectors; the first pass resets the counter, a repeat goes on."""
    b = bench(lanes)
    masked = Template(a=ASrc.ACC, mask=mask)
    passes = []
    for limit in range(3 * lanes + 2):
        for k in range(3):
            passes.append(Pass(t=masked, first=k == 0, pos=limit, vocab=limit))
            # neither masked nor an arg-maximum: the counter stands
            passes.append(Pass(t=ACC, pos=limit, vocab=limit))
    passes += [Pass(t=ACC, first=True), Pass(t=masked, pos=lanes, vocab=lanes)]
    passes += [Pass(t=masked, pos=255, vocab=1000, first=k == 0) for k in range(5)]
    passes += [Pass(t=masked, pos=0, vocab=65536)]
    b.passes(*back_to_back(passes))


@LANES
def test_reductions(lanes):
    """Sums, maxima and arg-maxima interleaved, with ties, negatives and restarts."""
    b = bench(lanes)
    b.start()
    r = b.random
    kinds = [
        Template(a=ASrc.WA, b=BSrc.SELF, red=Red.SUMSQ),
        Template(a=ASrc.WA, red=Red.SUM),
        Template(a=ASrc.WA, red=Red.MAX),
        Template(a=ASrc.WA, red=Red.ARGMAX),
        Template(a=ASrc.WA, red=Red.ARGMAX, mask=Mask.VOCAB_MIN),
        Template(a=ASrc.WA, b=BSrc.SCALAR, dyn=True, shift=8, func=Func.NONE),
        Template(a=ASrc.ACC, shift=14, func=Func.EXP),
    ]
    passes = [Pass(t=t, first=True, w_a=[-32768] * lanes) for t in kinds]
    for _ in range(250):
        spread = int(r.choice([1, 3, 100, 32767]))
        offset = int(r.choice([0, -32767 + spread, -5, 32767 - spread]))
        wa = np.clip(r.integers(-spread, spread + 1, lanes) + offset, -32768, 32767)
        passes.append(
            Pass(
                t=kinds[r.integers(len(kinds))],
                first=bool(r.random() < 0.15),
                sx=int(r.integers(2)),
                mx=int(r.integers(2)),
                vocab=int(r.integers(4 * lanes)),
                w_a=wa,
            )
        )
    b.passes(*back_to_back(passes))


@LANES
def test_latencies(lanes):
    """The numbers of `Timing` by one pulse each, and the old value one cycle before."""
    b = bench(lanes)
    b.start()
    chip = b.chip
    ones, old = [1111] * lanes, [7] * lanes
    put = Template(a=ASrc.WA, wt=True)
    read_a, read_b = Template(a=ASrc.T), Template(a=ASrc.WA, b=BSrc.T)
    read_c = Template(a=ASrc.ACC, c=True)
    unit, nothing = [256] * lanes, [0] * lanes

    def seen(t, latency, before, after, setup, pulse):
        """`t` dispatched around `latency` cycles after `pulse` reads `before`, then `after`."""
        start = 50
        got = b.passes(
            (0, setup),
            (start, pulse),
            (start + latency - 1, dataclasses.replace(t)),
            (start + latency, dataclasses.replace(t)),
        )
        assert got[2:] == [before, after]

    ab, c = Timing.VXM_T - Timing.VXM_AB, Timing.VXM_T - Timing.VXM_C
    setup, pulse = Pass(t=put, td=3, w_a=old), Pass(t=put, td=3, w_a=ones)
    seen(Pass(t=read_a, ta=3), ab, old, ones, setup, pulse)
    # 256 * T / 65536 with T = 256 * 7 and 256 * 11
    setup, pulse = (Pass(t=put, td=4, w_a=[256 * k] * lanes) for k in (7, 11))
    seen(Pass(t=read_b, tb=4, w_a=unit), ab, [7] * lanes, [11] * lanes, setup, pulse)
    setup, pulse = Pass(t=put, td=5, w_a=old), Pass(t=put, td=5, w_a=ones)
    seen(Pass(t=read_c, tc=5, e_acc=nothing), c, old, ones, setup, pulse)

    # exp(0 - max) at -1 is the last entry, at -16384 the first
    top = Template(a=ASrc.WA, red=Red.MAX)
    exp = Pass(t=Template(a=ASrc.ACC, func=Func.EXP), mx=2, e_acc=nothing)
    setup, pulse = (Pass(t=top, first=True, mx=2, w_a=[w] * lanes) for w in (0, 32767))
    high, low = (
        int(
            numerics.saturate(LANE_TABLE[k][0] + numerics.round_shift(LANE_TABLE[k][1] * f, 16), 16)
        )
        for k, f in ((127, 127 << 9), (0, 0))
    )
    latency = Timing.vxm_max(chip) - Timing.VXM_MAX_READ
    seen(exp, latency, [high] * lanes, [low] * lanes, setup, pulse)

    # 1/sum: 2 * mantissa
    sums = Template(a=ASrc.WA, red=Red.SUM)
    read = Pass(t=Template(a=ASrc.WA, b=BSrc.SCALAR), sx=6, w_a=unit)
    setup, pulse = (Pass(t=sums, first=True, sx=6, w_a=[w] * lanes) for w in (1, 3))
    before, after = (
        int(numerics.round_shift(256 * numerics.recip(SCALAR_TABLE, w * lanes)[0], 16))
        for w in (1, 3)
    )
    assert before != after
    latency = Timing.vxm_scalar(chip) - Timing.VXM_AB
    seen(read, latency, [before] * lanes, [after] * lanes, setup, pulse)


@LANES
def test_random(lanes):
    """Random templates, fields and spacings."""
    b = bench(lanes)
    r = b.random
    scalars = zip(r.integers(1 << 16, size=8), r.integers(-32, 32, 8), strict=True)
    b.start(seed=int(r.integers(1 << 32)), scalars=[(int(m), int(e)) for m, e in scalars])
    b.passes(*random_schedule(b.chip, r, 300))


def test_start_and_abort():
    """An abort keeps T, files and token; a start brings scalars and noise back."""
    b = bench(4)
    b.start(seed=99, scalars=[(40000 + k, k) for k in range(8)])
    put, noise = Template(a=ASrc.WA, wt=True), Template(a=ASrc.NOISE)
    sums = Template(a=ASrc.WA, b=BSrc.SELF, red=Red.SUMSQ)
    argmax = Template(a=ASrc.WA, red=Red.ARGMAX)
    b.passes(*back_to_back([Pass(t=put, td=0, w_a=[5] * 4), Pass(t=noise)]))
    lost = [Pass(t=argmax, first=True), Pass(t=put, td=0, w_a=[6] * 4)]
    for cycle in range(2, Timing.VXM_RESULT + 1):
        b.passes(*back_to_back(lost), (40, Pass(t=ACC)), abort=cycle)
        b.passes((0, Pass(t=Template(a=ASrc.T), ta=0)))
    for cycle in range(1, Timing.vxm_scalar(b.chip) - 1):
        b.passes((0, Pass(t=sums, first=True)), (40, Pass(t=ACC)), abort=cycle)
        b.passes((0, Pass(t=Template(a=ASrc.ACC, b=BSrc.SCALAR, dyn=True))))
    b.start(seed=99, scalars=[(50000 + k, -k) for k in range(8)])
    read = Template(a=ASrc.ACC, b=BSrc.SCALAR, dyn=True, shift=8)
    b.passes(*back_to_back([Pass(t=read, sx=k) for k in range(8)] + [Pass(t=noise)] * 5))


@pytest.mark.slow
@pytest.mark.parametrize("func", [Func.SILU, Func.EXP])
def test_exhaustive(func):
    """Every 16-bit operand of a table function."""
    b = bench(16)
    b.passes(
        (0, Pass(t=Template(a=ASrc.WA, red=Red.MAX), first=True, w_a=[0] * 16)), (30, Pass(t=ACC))
    )
    t = Template(a=ASrc.WA, func=func)
    b.passes(*back_to_back(Pass(t=t, w_a=range(v, v + 16)) for v in range(-32768, 32768, 16)))
