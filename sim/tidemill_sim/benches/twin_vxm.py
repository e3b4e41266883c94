"""What the VXM computes, pass by pass: `numerics`, `isa.Timing`, and files with times.

The benches of the Amaranth component and of its Verilog compare with this twin.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tidemill import numerics
from tidemill.isa import ASrc, BSrc, Func, Mask, Red, Template, Timing

__all__ = [
    "EPS",
    "FIELDS",
    "LANE_TABLE",
    "SCALAR_TABLE",
    "STREAMS",
    "Pass",
    "Twin",
    "random_schedule",
    "random_streams",
    "table_words",
]

LANE_TABLE = numerics.build_lane_table(8 / 32768, 8 / 32768)
SCALAR_TABLE = numerics.build_scalar_table()
EPS = 12345
#: Bits of an element of every stream.
STREAMS = {"e_acc": 32, "w_a": 16, "w_s": 16, "e_b": 8}
#: Fields of an instruction that a `Pass` has under the same name.
FIELDS = ("ta", "tb", "tc", "td", "first", "sx", "mx")


@dataclasses.dataclass(kw_only=True)
class Pass:
    """One pass with what it meets: run state at t; streams at t + 1, random if not given."""

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
    e_acc: list | None = None
    w_a: list | None = None

    @property
    def streams(self):
        """The streams that are given."""
        given = {"e_acc": self.e_acc, "w_a": self.w_a}
        return {name: np.array(v) for name, v in given.items() if v is not None}


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

    def __init__(self, chip):
        self.chip = chip
        self.t = File(chip.temp_depth, np.zeros(chip.lanes, np.int64))
        self.max = File(4, 0)
        self.scalar = File(8, (0, 0))
        self.token = File(1, None)
        self.counter = 0
        self.sum = self.run_max = self.run_arg = None

    def start(self, seed, scalars, when):
        """A run begins; `scalars`, eight (mant, exp), read from cycle `when` on."""
        self.noise = numerics.lane_seeds(seed, self.chip.lanes)
        for k, value in enumerate(scalars):
            self.scalar.write(k, value, when)

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
            assert abs(self.sum) < 1 << 40
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


def table_words(table):
    """Host words of a table of (base, slope)."""
    return [(int(b) & 0xFFFF) | (int(v) & 0xFFFF) << 16 for b, v in table]


def random_streams(chip, rng):
    """Vectors of all magnitudes, one cycle of every stream."""
    return {
        name: rng.integers(-(1 << bits - 1), 1 << bits - 1, chip.lanes)
        >> rng.integers(0, bits, chip.lanes)
        for name, bits in STREAMS.items()
    }


def random_schedule(chip, rng, count):
    """[(cycle, Pass)] of `count` passes: random templates, fields and spacings."""
    templates = []
    for _ in range(32):
        red = Red(int(rng.integers(5)))
        square = red == Red.SUMSQ
        templates.append(
            Template(
                a=ASrc(int(rng.integers(1 if square else 0, 6))),
                b=BSrc.SELF if square else BSrc(rng.choice(BSrc)),
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
    for k in range(count):
        fields = {f: int(rng.integers(chip.temp_depth)) for f in ("ta", "tb", "tc", "td")}
        p = Pass(
            t=templates[k % 32 if k < 32 else rng.integers(32)],
            **fields,
            # every running register starts once
            first=int(k < 32 or rng.random() < 0.2),
            sx=int(rng.integers(8)),
            mx=int(rng.integers(4)),
            pos=int(rng.integers(min(chip.context, 4 * chip.lanes))),
            vocab=int(rng.integers(4 * chip.lanes)),
        )
        schedule.append((cycle, p))
        cycle += int(rng.choice([1, 1, 1, 2, 3, 9]))
    return schedule
