"""Small programs, each for one part of the chip, and which lane each of their results belongs to.

Operands differ from lane to lane and stream to stream, so that a result in the wrong place is
wrong; where a sum mixes lanes, all but one of them are zero. What is right, the numpy engine says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics
from tidemill.chip import Chip
from tidemill.isa import ASrc, BSrc, Func, Red, Space, Template
from tidemill.program import Program
from tidemill.selftest.listing import Listing

__all__ = ["Check", "Trial", "trials"]

#: Cycles between steps that wait for one another; longer than every latency and reduction.
STEP = 64
#: Vectors of one run of a table.
VECTORS = 64
PASS_WA = Template(a=ASrc.WA)


@dataclass(frozen=True)
class Check:
    """A row of MEM_A, or of all banks of MEM_W, and what its elements say about.

    names: of each element, None for one that says nothing.
    """

    space: Space
    row: int
    names: Sequence[str | None]


@dataclass(frozen=True)
class Trial:
    """A program, the prompt to run it with (one token is generated), and its results.

    token: what the token says about, if anything.
    """

    part: str
    program: Program
    checks: tuple[Check, ...]
    prompt: tuple[int, ...] = (0,)
    token: str | None = None


def trials(chip: Chip) -> Iterator[Trial]:
    """Every trial of a chip, part by part."""
    yield from _mxm(chip)
    yield from _tables(chip)
    yield from _products(chip)
    yield from _reductions(chip)
    yield from _sxm(chip)
    yield from _gather(chip)
    yield from _append(chip)


def _lanes(chip: Chip, space: Space, row: int) -> Check:
    return Check(space, row, [f"lane {n}" for n in range(chip.lanes)])


# MXM ---------------------------------------------------------------------------------------------


def _mxm(chip: Chip) -> Iterator[Trial]:
    """Each multiplier alone: walking weight bits, walking activation bits, both large."""
    lanes, streams = chip.lanes, chip.weight_streams
    most = min(lanes, chip.act_depth, chip.acc_groups, chip.queue_depth // 4, chip.mem_a_depth // 4)
    lane, stream = np.arange(lanes), np.arange(streams)[:, None]
    rounds = [(200 + lane % 50, 1 << (r + lane + stream) % 8) for r in range(8)]
    signs = 1 - 2 * ((lane + stream) % 2)
    rounds += [(np.where((b := (r + lane) % 16) < 15, 1 << b, -32767), signs) for r in range(16)]
    rounds += [(32767 - 7 * lane, (127 - stream - lane % 16) * sign) for sign in (1, -1)]
    for first in range(0, lanes, most):
        count = min(most, lanes - first)
        slots = -(-count // chip.subs)
        listing = Listing(chip)
        ready = listing.to_mxm(0, 0, count)
        sums = listing.multiply(ready + STEP, 0, count)
        for k in range(2):  # template k: shifts by 0 and 8
            passes = listing.drain(sums + STEP * k, slots)
            listing.at(passes, "VXM", "PASS", slots, tmpl=k, first=1)
            listing.from_vxm(passes, count + k * slots, slots)
        shifts = (Template(a=ASrc.ACC), Template(a=ASrc.ACC, shift=8))
        elements = [
            f"stream {e % streams}, lane {first + e // streams}" if e // streams < count else None
            for e in range(slots * lanes)
        ]
        checks = tuple(
            Check(Space.MEM_A, count + k * slots + slot, elements[slot * lanes :][:lanes])
            for k in range(2)
            for slot in range(slots)
        )
        for values, weights in rounds:
            mem_w = np.zeros((count, streams, lanes), np.int64)
            mem_a = np.zeros((count, lanes), np.int64)
            for k in range(count):
                mem_a[k, first + k] = values[first + k]
                mem_w[k, :, first + k] = weights[:, first + k]
            program = listing.program(shifts, mem_w=mem_w.astype(np.int8), mem_a=mem_a)
            yield Trial("MXM", program, checks)


# VXM ---------------------------------------------------------------------------------------------


def _tables(chip: Chip) -> Iterator[Trial]:
    """Both ends of every chord of every table, in every lane."""
    functions: tuple[tuple[Func, NDArray[Any], Callable[..., Any]], ...] = (
        (Func.EXP, np.arange(-(1 << 14), 0), lambda x: numerics.exp_address(x, 0)),
        (Func.GUMBEL, np.arange(1 << 14), numerics.gumbel_address),
        (Func.SILU, np.arange(-32767, 32768), numerics.silu_address),
    )
    count = min(VECTORS, chip.mem_a_depth // 4)
    for func, domain, address in functions:
        index = address(domain)[0]
        ends = np.flatnonzero(np.diff(index, prepend=-1, append=-1))
        values = domain[np.union1d(ends[:-1], ends[1:] - 1)]
        listing = Listing(chip)
        zero = listing.to_vxm(0, 0)  # the maximum of EXP
        listing.at(zero, "VXM", "PASS", tmpl=0, first=1, mx=0)
        passes = listing.to_vxm(STEP, 1, count)
        listing.at(passes, "VXM", "PASS", count, tmpl=1, mx=0)
        listing.from_vxm(passes, 1 + count, count)
        templates = (Template(a=ASrc.WA, red=Red.MAX), Template(a=ASrc.WA, func=func))
        checks = tuple(_lanes(chip, Space.MEM_A, 1 + count + k) for k in range(count))
        for first in range(0, len(values), count):
            place = first + np.arange(count)[:, None] + 3 * np.arange(chip.lanes)
            mem_a = np.vstack([np.zeros(chip.lanes, np.int64), values[place % len(values)]])
            yield Trial(f"VXM {func.name.lower()}", listing.program(templates, mem_a=mem_a), checks)


def _products(chip: Chip) -> Iterator[Trial]:
    """A times B plus C, with every source of B that is a vector."""
    half = min(chip.temp_depth // 2, chip.queue_depth // 8)
    rng = np.random.default_rng(0x71DE)
    loads = PASS_WA, Template(a=ASrc.WA, wt=True)
    for source in (BSrc.T, BSrc.T4, BSrc.WA, BSrc.WA4, BSrc.SELF):
        listing = Listing(chip)
        passes = listing.to_vxm(0, 0, 2 * half)
        for k in range(2 * half):
            listing.at(passes + k, "VXM", "PASS", tmpl=1, td=k)
        passes = listing.to_vxm(STEP + 2 * half, 2 * half, half)
        for k in range(half):
            listing.at(passes + k, "VXM", "PASS", tmpl=2, tb=k, tc=half + k)
        listing.from_vxm(passes, 3 * half, half)
        templates = (*loads, Template(a=ASrc.WA, b=source, c=True))
        checks = tuple(_lanes(chip, Space.MEM_A, 3 * half + k) for k in range(half))
        for _ in range(3):
            mem_a = rng.integers(-32767, 32768, (3 * half, chip.lanes))
            yield Trial("VXM products", listing.program(templates, mem_a=mem_a), checks)


def _reductions(chip: Chip) -> Iterator[Trial]:
    """Sums, sums of squares and maxima with one lane that is not zero; what they come to."""
    lanes = chip.lanes
    most = max(1, min(lanes, 4, chip.queue_depth // 8))
    value = 1000 + 37 * np.arange(lanes)
    uses = {
        Red.SUM: Template(a=ASrc.WA, b=BSrc.SCALAR, shift=-8, dyn=True),
        Red.SUMSQ: Template(a=ASrc.WA, b=BSrc.SCALAR, shift=-8, dyn=True),
        Red.MAX: Template(a=ASrc.WA, func=Func.EXP),
    }
    for red, use in uses.items():
        source = BSrc.SELF if red == Red.SUMSQ else BSrc.ONE
        templates = (Template(a=ASrc.WA, b=source, red=red), use)
        for first in range(0, lanes, most):
            count = min(most, lanes - first)
            listing = Listing(chip)
            for k in range(count):
                passes = listing.to_vxm(2 * STEP * k, k)
                listing.at(passes, "VXM", "PASS", tmpl=0, first=1, sx=k, mx=k)
                passes = listing.to_vxm(2 * STEP * k + STEP, count)
                listing.at(passes, "VXM", "PASS", tmpl=1, sx=k, mx=k)
                listing.from_vxm(passes, count + 1 + k)
            mem_a = np.zeros((count + 1, lanes), np.int64)
            mem_a[np.arange(count), first + np.arange(count)] = value[first : first + count]
            mem_a[count] = -500 if red == Red.MAX else 30000
            checks = tuple(
                Check(Space.MEM_A, count + 1 + k, [f"lane {first + k}"] * lanes)
                for k in range(count)
            )
            part = f"VXM {red.name.lower()}"
            yield Trial(part, listing.program(templates, mem_a=mem_a), checks)
    listing = Listing(chip)
    listing.at(listing.to_vxm(0, 0), "VXM", "PASS", tmpl=0, first=1)
    argmax = (Template(a=ASrc.WA, red=Red.ARGMAX),)
    for lane in range(min(lanes, chip.vocab)):
        mem_a = np.zeros((1, lanes), np.int64)
        mem_a[0, lane] = value[lane]
        program = listing.program(argmax, mem_a=mem_a)
        yield Trial("VXM argmax", program, (), token=f"lane {lane}")


# Moves -------------------------------------------------------------------------------------------


def _sxm(chip: Chip) -> Iterator[Trial]:
    """Each move, from both of its streams; BCAST from every lane."""
    moves = ("SWAP", "DUPE", "DUPO", "BCAST")
    templates = (Template(a=ASrc.WS), PASS_WA)
    listing = Listing(chip)
    checks = []
    for k, mnemonic in enumerate(moves):
        for src in range(2):
            cycle, out = STEP * (2 * k + src), 2 * len(moves) + 2 * k + src
            if src:
                listing.at(cycle, "MEMA.R", "READ", addr=2 * k + src)
            else:
                cycle = listing.to_vxm(cycle, 2 * k + src)
                listing.at(cycle, "VXM", "PASS", tmpl=1)
            passes = listing.through_sxm(cycle, mnemonic, src)
            listing.at(passes, "VXM", "PASS", tmpl=0)
            listing.from_vxm(passes, out)
            stream = "W_a" if src else "E_v"
            names = [f"{mnemonic} from {stream}, lane {n}" for n in range(chip.lanes)]
            checks.append(Check(Space.MEM_A, out, names))
    rng = np.random.default_rng(0x5A)
    data = rng.integers(-32767, 32768, (2 * len(moves), chip.lanes))
    for lane in range(min(chip.lanes, chip.vocab)):
        mem_a = ~data if lane % 2 else data
        yield Trial("SXM", listing.program(templates, mem_a=mem_a), tuple(checks), (lane,))


def _gather(chip: Chip) -> Iterator[Trial]:
    """Rows of every bank onto the byte stream."""
    rng = np.random.default_rng(0xB)
    rows = 4
    mem_w = rng.integers(-128, 128, (rows, chip.weight_streams, chip.lanes)).astype(np.int8)
    listing = Listing(chip)
    for row in range(rows):
        passes = listing.gather(STEP * row, row)
        listing.at(passes, "VXM", "PASS", tmpl=0)
        listing.from_vxm(passes, row)
    program = listing.program((Template(a=ASrc.BYTE),), mem_w=mem_w)
    for bank in range(min(chip.weight_streams, chip.vocab)):
        names = [f"bank {bank}, lane {n}" for n in range(chip.lanes)]
        checks = tuple(Check(Space.MEM_A, row, names) for row in range(rows))
        yield Trial("MEM_W gather", program, checks, (bank,))


def _append(chip: Chip) -> Iterator[Trial]:
    """WRITE into every bank and SCATTER into every lane; the other elements stay as they are."""
    rng = np.random.default_rng(0xA)
    rows = 1 + min(chip.subs, chip.mem_w_depth - 1)
    listing = Listing(chip)
    for row in range(rows):
        passes = listing.to_vxm(STEP * row, row)
        listing.at(passes, "VXM", "PASS", tmpl=0)
        listing.to_mem_w(passes, "SCATTER" if row else "WRITE", row, max(row - 1, 0))
    names = [
        f"bank {bank}, lane {n}" for bank in range(chip.weight_streams) for n in range(chip.lanes)
    ]
    checks = tuple(Check(Space.MEM_W, row, names) for row in range(rows))
    for length in range(1, min(chip.lanes, chip.context) + 1):
        mem_a = rng.integers(-32767, 32768, (rows, chip.lanes))
        mem_w = rng.integers(-128, 128, (rows, chip.weight_streams, chip.lanes)).astype(np.int8)
        program = listing.program((PASS_WA,), mem_w=mem_w, mem_a=mem_a)
        yield Trial("MEM_W append", program, checks, (0,) * length)
