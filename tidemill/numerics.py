"""Arithmetic of the machine, to the bit. The simulator runs these; the RTL is checked against them.

Arrays are numpy int64 unless said otherwise, so nothing wraps by accident; every function states
the range of its result. `docs/numerics.md` derives the formats and their errors.

Rounding is one rule everywhere: half up, `floor(x + 1/2)`. Saturation is symmetric.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EXP_BASE",
    "GUMBEL_BASE",
    "MASKED",
    "ONE",
    "QUAD",
    "SILU_BASE",
    "build_lane_table",
    "build_scalar_table",
    "compound",
    "exp_address",
    "gumbel_address",
    "gumbel_code",
    "lane_seeds",
    "preshift",
    "recip",
    "round_shift",
    "rsqrt",
    "saturate",
    "silu_address",
    "to_byte",
    "xorshift32",
]

Ints = NDArray[np.signedinteger[Any]]

#: B operand of the VXM that multiplies by one: the product is shifted right by 16.
ONE = 1 << 16
#: Factor of the B operands T4 and WA4: an int16 then spans -2..2 in 18 bits.
QUAD = 4
#: What a masked lane reads as before a maximum.
MASKED = -32767

#: Where each function starts in the 512-entry lane table. Each entry is (base, slope), both int16.
EXP_BASE, GUMBEL_BASE, SILU_BASE = 0, 128, 256


def round_shift(x: Ints, s: Ints | int) -> Ints:
    """floor(x / 2**s + 1/2) for s >= 0."""
    x = np.asarray(x, np.int64)
    s = np.asarray(s, np.int64)
    half = np.where(s > 0, np.int64(1) << np.maximum(s - 1, 0), 0)
    return (x + half) >> s


def saturate(x: Ints, bits: int) -> Ints:
    """Clamp to +-(2**(bits-1) - 1)."""
    top = (1 << (bits - 1)) - 1
    return np.clip(x, -top, top)


def preshift(a: Ints, s: Ints | int) -> Ints:
    """VXM operand A (int32) >> s, rounded, saturated to 18 bits; s is clamped to 0..31."""
    return saturate(round_shift(a, np.clip(s, 0, 31)), 18)


def compound(pre: Ints, b: Ints | int, c: Ints | int = 0) -> Ints:
    """sat16(round(pre * b / 2**16) + c): VXM after its pre-shift; `pre`, `b` are 18-bit signed."""
    return saturate(round_shift(np.asarray(pre, np.int64) * b, 16) + c, 16)


def to_byte(y: Ints) -> Ints:
    """int16 -> int8 at the MEM_W write port: sat8(round(y / 256))."""
    return saturate(round_shift(y, 8), 8)


# Lane table: piecewise linear, y = sat16(base + round(slope * frac / 2**16)) ---------------------


def exp_address(pre: Ints, top: Ints | int) -> tuple[Ints, Ints]:
    """Index and 16-bit fraction of 2**(d/1024), d = pre - top clamped to -2**14..-1."""
    u = np.clip(np.asarray(pre, np.int64) - top, -(1 << 14), -1) + (1 << 14)
    return EXP_BASE + (u >> 7), (u & 127) << 9


def silu_address(pre: Ints) -> tuple[Ints, Ints]:
    """Index and fraction of silu; the operand is saturated to int16."""
    u = saturate(pre, 16) + (1 << 15)
    return SILU_BASE + (u >> 8), (u & 255) << 8


def gumbel_address(pre: Ints) -> tuple[Ints, Ints]:
    """Index and fraction of a 14-bit random code (octave 4 bits, mantissa 10 bits)."""
    u = np.asarray(pre, np.int64) & 0x3FFF
    return GUMBEL_BASE + (u >> 7), (u & 127) << 9


def _segments(f, knots: NDArray[np.floating], scale: float) -> NDArray[np.int64]:
    """(base, slope) pairs of the chords of `f` between neighbouring knots."""
    y = np.clip(np.round(f(knots) * scale), -32767, 32767).astype(np.int64)
    return np.stack([y[:-1], np.clip(np.diff(y), -32767, 32767)], axis=1)


def build_lane_table(silu_in: float, silu_out: float) -> NDArray[np.int64]:
    """The 512 x (base, slope) lane table.

    silu_in: value of one step of silu's int16 operand; silu_out: value of one step of its result.
    exp: 2**(d/1024) with 32767 for 1.0, d from -16384 to 0 in 128 chords.
    gumbel: -ln(-ln(1 - x)) with 2048 for 1.0, x = 2**-(octave+1) * (1 + mantissa/1024), 8 chords
    an octave.
    silu: v / (1 + e**-v) over the whole int16 range in 256 chords.
    """
    exp = _segments(lambda d: np.exp2(d / 1024), np.arange(129) * 128.0 - 16384, 32767)

    def gumbel(x):
        x = np.minimum(x, 1 - 2.0**-24)
        return -np.log(-np.log1p(-x))

    octaves = [
        _segments(gumbel, 2.0 ** -(o + 1) * (1 + np.arange(9) / 8), 2048.0) for o in range(16)
    ]

    def silu(v):
        v = v * silu_in
        return v / (1 + np.exp(-v))

    s = _segments(silu, np.arange(257) * 256.0 - 32768, 1 / silu_out)
    return np.concatenate([exp, *octaves, s])


# Scalar functions: value = mant * 2**-16 * 2**-exp, mant in 2**15..2**16-1 ------------------------


def build_scalar_table() -> NDArray[np.int64]:
    """512 x (base, slope): 1/x on [1,2) at 0, 1/sqrt(x) on [1,2) at 128 and on [2,4) at 256."""

    def chords(f, knots):
        y = np.minimum(np.round(f(knots) * 65536), 65535).astype(np.int64)
        return np.stack([y[:-1], np.diff(y)], axis=1)

    unit = np.arange(129) / 128
    rows = [
        chords(lambda x: 1 / x, 1 + unit),
        chords(lambda x: x**-0.5, 1 + unit),
        chords(lambda x: x**-0.5, 2 * (1 + unit)),
        np.zeros((128, 2), np.int64),
    ]
    return np.concatenate(rows)


def _scalar(table: Ints, q: int, kind: int) -> tuple[int, int]:
    top = q.bit_length() - 1
    norm = (q << 40 >> top) & ((1 << 40) - 1)  # 40 fraction bits after the leading one
    index = kind + (norm >> 33)
    frac = (norm >> 17) & 0xFFFF
    base, slope = (int(v) for v in table[index])
    return min(base + ((slope * frac + (1 << 15)) >> 16), 65535), top


def recip(table: Ints, q: int) -> tuple[int, int]:
    """(mant, exp) of 1/q for 1 <= q < 2**40; q = 0 counts as 1."""
    return _scalar(table, max(int(q), 1), 0)


def rsqrt(table: Ints, q: int) -> tuple[int, int]:
    """(mant, exp) of 1/sqrt(q) for 1 <= q < 2**40; q = 0 counts as 1.

    q = f * 4**exp with f in [1,4): an odd position of the leading one reads the [2,4) half.
    """
    q = max(int(q), 1)
    odd = (q.bit_length() - 1) & 1
    mant, top = _scalar(table, q, 256 if odd else 128)
    return mant, top >> 1


# Noise ------------------------------------------------------------------------------------------


def lane_seeds(seed: int, lanes: int) -> NDArray[np.uint32]:
    """State of every lane at the start of a run: seed ^ 0x9E3779B9 * (lane + 1), with 0 made 1."""
    golden = (np.arange(1, lanes + 1, dtype=np.uint64) * 0x9E3779B9) & 0xFFFFFFFF
    state = (np.uint64(seed & 0xFFFFFFFF) ^ golden).astype(np.uint32)
    return np.where(state == 0, np.uint32(1), state)


def xorshift32(state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """One step of xorshift32 (13, 17, 5), Marsaglia, J. of Statistical Software 8(14), 2003."""
    s = state ^ (state << np.uint32(13))
    s = s ^ (s >> np.uint32(17))
    return s ^ (s << np.uint32(5))


def gumbel_code(state: NDArray[np.uint32]) -> Ints:
    """14-bit code of a state.

    Octave: leading zeros of its top 16 bits (at most 15); mantissa: its low 10 bits.
    """
    high = (state >> np.uint32(16)).astype(np.int64)
    octave = np.full(high.shape, 15, np.int64)
    for k in range(15):
        octave = np.where((high >> (15 - k) == 1), k, octave)
    return octave << 10 | (state & np.uint32(0x3FF)).astype(np.int64)
