"""List scheduler over exact resource tables, for every n at once.

An `Op` is one or more instructions of different queues at fixed offsets (a rigid chain through the
streams), each issued once or in a burst whose count may depend on n. Storage cells (files, memory
rows) give the dependences. Scheduling has two steps:

1. at a reference n, ops take their earliest free place in the order they were created, filling
holes
   that earlier ops left: this fixes the order of every queue;
2. for every n, the longest path through dependences and queue orders gives the exact cycles; arrays
   over n run through it, so one pass serves them all.

Times count from the start of the segment; arrays have one element per n, n = 1 first.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Op", "Region", "Schedule", "Scheduler", "Slot"]


class OrderError(Exception):
    """Queue orders taken at the reference n are impossible at another n."""


Times = NDArray[np.int64]
NEVER = np.int64(-(1 << 40))


@dataclass
class Slot:
    """One queue's part of an op: an instruction issued `count` times, `interval` cycles apart.

    `stride` steps the instruction's first field from issue to issue; `duration` is the cycles one
    issue occupies the queue.
    """

    queue: str
    offset: int
    mnemonic: str
    fields: dict[str, int]
    count: int | Times = 1
    interval: int = 1
    stride: int = 0
    duration: int = 1

    def occupancy(self, size: int) -> Times:
        """Cycles the burst holds its queue, for every n."""
        count = np.broadcast_to(np.asarray(self.count, np.int64), (size,))
        busy = (count - 1) * self.interval + self.duration
        if isinstance(self.count, int):
            return busy
        return np.maximum(busy, self.duration + 1)  # the REPEAT word takes a cycle even for none


@dataclass
class _Access:
    op: Op
    time: int  # relative to the op: cycle read, or first cycle the write is visible
    since: int  # smallest n - 1 for which the access happens


@dataclass
class _Cell:
    writes: list[_Access] = field(default_factory=list)
    reads: list[_Access] = field(default_factory=list)


class Region:
    """A run of storage cells of one file or memory; element i of an access touches cell i."""

    def __init__(self, cells: Sequence[Hashable]):
        self.cells = tuple(cells)

    def __getitem__(self, i: int | slice) -> Region:
        cells = self.cells[i] if isinstance(i, slice) else (self.cells[i],)
        return Region(cells)

    def __len__(self) -> int:
        return len(self.cells)


@dataclass
class Op:
    """A scheduled unit. `start` is filled by the scheduler: cycle of offset 0, for every n."""

    name: str
    kind: str
    slots: list[Slot]
    preds: dict[int, Times] = field(default_factory=dict)
    index: int = -1
    last_visible: Times = field(default_factory=lambda: np.zeros(0, np.int64))
    start: Times = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class Schedule:
    """Ops with their cycles and the length of the segment, for every n."""

    ops: list[Op]
    length: Times


class Scheduler:
    """Collects the ops of one segment and places them.

    sizes: number of values of n; reference: the n used to fix queue orders.
    """

    def __init__(self, sizes: int = 1, reference: int = 1):
        self.sizes = sizes
        self.reference = reference - 1
        self.ops: list[Op] = []
        self._cells: dict[Hashable, _Cell] = {}

    # Building ----------------------------------------------------------------------------------

    def op(self, name: str, kind: str, slots: list[Slot], earliest: int = 0) -> Op:
        """Add an op. Every slot dispatches at cycle 0 or later.

        `earliest` bounds offset 0 further.
        """
        op = Op(name, kind, slots, index=len(self.ops))
        first = max([earliest, *(-s.offset for s in slots)])
        op.preds[-1] = np.full(self.sizes, first, np.int64)
        op.last_visible = np.zeros(self.sizes, np.int64)
        self.ops.append(op)
        return op

    def _accesses(
        self, op: Op, region: Region, time: int, count: int | Times, interval: int
    ) -> list[tuple[Hashable, _Access]]:
        if isinstance(count, int):
            return [
                (region.cells[i % len(region)], _Access(op, time + i * interval, 0))
                for i in range(count)
            ]
        top = int(count[-1])
        since = np.searchsorted(count, np.arange(top), side="right")
        return [
            (region.cells[i % len(region)], _Access(op, time + i * interval, int(since[i])))
            for i in range(top)
        ]

    def read(
        self, op: Op, region: Region, time: int, count: int | Times = 1, interval: int = 1
    ) -> None:
        """`op` samples element i of `region` in its cycle time + i*interval."""
        for key, access in self._accesses(op, region, time, count, interval):
            cell = self._cells.setdefault(key, _Cell())
            for w in cell.writes:
                self._edge(w.op, op, w.time - access.time, max(w.since, access.since))
            cell.reads.append(access)

    def write(
        self,
        op: Op,
        region: Region,
        time: int,
        count: int | Times = 1,
        interval: int = 1,
        clear: int = 1,
    ) -> None:
        """`op` makes element i visible in its cycle time + i*interval.

        `clear`: cycles by which a new value must trail the last read of the old one (1 for a file,
        2 for
        an SRAM, where reading and writing an address in one cycle collides).
        """
        for key, access in self._accesses(op, region, time, count, interval):
            cell = self._cells.setdefault(key, _Cell())
            for r in cell.reads:
                if r.op is not op:
                    self._edge(r.op, op, r.time + clear - access.time, max(r.since, access.since))
            for w in cell.writes:
                if w.op is not op:
                    self._edge(w.op, op, w.time + 1 - access.time, max(w.since, access.since))
            if access.since == 0:
                cell.reads = [r for r in cell.reads if r.op is op]
                cell.writes = [w for w in cell.writes if w.op is op]
            cell.writes.append(access)
            last = op.last_visible[access.since :]
            np.maximum(last, access.time, out=last)

    def _edge(self, pred: Op, succ: Op, lag: int, since: int) -> None:
        if pred is succ:
            return
        edge = succ.preds.get(pred.index)
        if edge is None:
            edge = succ.preds[pred.index] = np.full(self.sizes, NEVER)
        tail = edge[since:]
        np.maximum(tail, lag, out=tail)

    # Placing -----------------------------------------------------------------------------------

    def schedule(self, parked: int) -> Schedule:
        """Fix queue orders at the reference n, then the cycles of every n.

        `parked`: cycles every queue must idle before the segment ends.
        """
        try:
            self._time()
        except OrderError:
            # every lag and every occupancy grows with n: orders of the largest n serve them all
            self.reference = self.sizes - 1
            self._time()
        length = np.zeros(self.sizes, np.int64)
        for op in self.ops:
            np.maximum(length, op.start + op.last_visible, out=length)
            for s in op.slots:
                np.maximum(
                    length, op.start + s.offset + s.occupancy(self.sizes) + 1 + parked, out=length
                )
        return Schedule(self.ops, length)

    def _time(self) -> None:
        edges = self._queue_edges(self._place())
        gaps: dict[tuple[int, int], int] = {}
        while True:
            self._relax(edges, gaps)
            fixed = self._uneven_gaps(edges, gaps)
            if not fixed:
                break
            gaps.update(fixed)

    def _place(self) -> dict[str, list[tuple[int, int, Op, Slot]]]:
        n = self.reference
        taken: dict[str, list[tuple[int, int]]] = {}
        orders: dict[str, list[tuple[int, int, Op, Slot]]] = {}
        start = np.zeros(len(self.ops), np.int64)
        for op in self.ops:
            # an edge that is not active at the reference binds the order all the same
            t = max(
                int(lag[n] if lag[n] > NEVER else lag.max()) + (int(start[p]) if p >= 0 else 0)
                for p, lag in op.preds.items()
            )
            spans = [
                (taken.setdefault(s.queue, []), s.offset, int(s.occupancy(self.sizes)[n]))
                for s in op.slots
            ]
            moved = True
            while moved:
                moved = False
                for busy, offset, size in spans:
                    later = _first_free(busy, t + offset, size) - offset
                    if later > t:
                        t, moved = later, True
            start[op.index] = t
            for s, (busy, offset, size) in zip(op.slots, spans, strict=True):
                bisect.insort(busy, (t + offset, t + offset + size))
                orders.setdefault(s.queue, []).append((t + offset, len(orders), op, s))
        for items in orders.values():
            items.sort(key=lambda item: item[0])
        self._placed = start
        return orders

    def _queue_edges(
        self, orders: dict[str, list[tuple[int, int, Op, Slot]]]
    ) -> list[tuple[Op, Slot, Op, Slot]]:
        return [(a[2], a[3], b[2], b[3]) for items in orders.values() for a, b in pairwise(items)]

    def _relax(
        self, edges: list[tuple[Op, Slot, Op, Slot]], gaps: dict[tuple[int, int], int]
    ) -> None:
        """Longest path. Ops are visited in reference order until nothing moves."""
        incoming: list[list[tuple[int, Any]]] = [list(op.preds.items()) for op in self.ops]
        for a, sa, b, sb in edges:
            lag = sa.offset + sa.occupancy(self.sizes) - sb.offset + gaps.get((id(sa), id(sb)), 0)
            incoming[b.index].append((a.index, lag))
        order = sorted(range(len(self.ops)), key=lambda i: (self._placed[i], i))
        start = np.zeros((len(self.ops), self.sizes), np.int64)
        for _ in range(len(self.ops) + 2):
            moved = False
            for i in order:
                t = start[i]
                for p, lag in incoming[i]:
                    t = np.maximum(t, lag if p < 0 else start[p] + lag)
                if (t != start[i]).any():
                    start[i] = t
                    moved = True
            if not moved:
                break
        else:
            raise OrderError
        for i, op in enumerate(self.ops):
            op.start = start[i]

    def _uneven_gaps(
        self, edges: list[tuple[Op, Slot, Op, Slot]], gaps: dict[tuple[int, int], int]
    ) -> dict[tuple[int, int], int]:
        """Gaps that vary with n need at least one cycle.

        A NOP that reads the tide table cannot take none.
        """
        fixed = {}
        for a, sa, b, sb in edges:
            key = (id(sa), id(sb))
            gap = b.start + sb.offset - (a.start + sa.offset + sa.occupancy(self.sizes))
            if key not in gaps and gap.min() == 0 and gap.max() > 0:
                fixed[key] = 1
        return fixed


def _first_free(busy: list[tuple[int, int]], t: int, size: int) -> int:
    """Earliest cycle >= t at which `size` cycles are free."""
    i = max(0, bisect.bisect_right(busy, (t, 1 << 60)) - 1)
    for begin, end in busy[i:]:
        if end <= t:
            continue
        if begin >= t + size:
            break
        t = end
    return t
