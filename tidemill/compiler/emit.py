"""Schedule to instruction words.

Runs merged into REPEAT, gaps into waits and NOPs, n into the tide table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import isa
from tidemill.chip import Chip
from tidemill.compiler.schedule import Schedule, Slot
from tidemill.isa import QUEUES, Ctrl, Kind, Queue

__all__ = ["EmitError", "TideColumns", "emit_segment", "encode_control", "encode_op"]

Times = NDArray[np.int64]


class EmitError(ValueError):
    """A schedule that the instruction words cannot express; names the queue and the limit."""


def encode_op(
    queue: Queue, chip: Chip, mnemonic: str, fields: dict[str, int], wait: int = 0
) -> int:
    """Word of an OP. Raises `EmitError` when a field is unknown or does not fit its width."""
    values = {"op": queue.op(mnemonic).code, **fields}
    word = at = 0
    for name, width in queue.layout(chip):
        value = int(values.pop(name, 0))
        if not 0 <= value < 1 << width:
            raise EmitError(f"{queue.name} {mnemonic}: {name}={value} does not fit {width} bits")
        word |= value << at
        at += width
    if values:
        raise EmitError(f"{queue.name} {mnemonic}: no field named {next(iter(values))}")
    return _word(queue, chip, Kind.OP, word, wait)


def encode_control(
    queue: Queue,
    chip: Chip,
    kind: Kind,
    count: int = 0,
    *,
    tide: bool = False,
    interval: int = 0,
    stride: int = 0,
    wait: int = 0,
) -> int:
    """Word of a NOP or REPEAT."""
    values = {"tide": int(tide), "count": count, "interval": interval, "stride": stride}
    word = at = 0
    for name, width in isa.CONTROL_LAYOUT:
        value = values[name]
        low = -(1 << (width - 1)) if name == "stride" else 0
        high = 1 << (width - 1 if name == "stride" else width)
        if not low <= value < high:
            raise EmitError(f"{queue.name} {kind.name}: {name}={value} does not fit {width} bits")
        word |= (value & ((1 << width) - 1)) << at
        at += width
    return _word(queue, chip, kind, word, wait)


def _word(queue: Queue, chip: Chip, kind: Kind, payload: int, wait: int) -> int:
    bits = queue.payload_bits(chip)
    return payload | wait << bits | int(kind) << (bits + isa.WAIT_BITS)


class TideColumns:
    """Columns of the tide table, one set per queue; equal functions of n share a column."""

    def __init__(self, sizes: int):
        self.sizes = sizes
        self.columns: dict[int, list[Times]] = {}

    def column(self, dest: int, values: Times) -> int:
        """Column of destination `dest` that holds `values` (one per n)."""
        known = self.columns.setdefault(dest, [])
        for i, v in enumerate(known):
            if (v == values).all():
                return i
        if len(known) == isa.TIDE_COLUMNS:
            raise EmitError(
                f"{QUEUES[dest].name} needs more than {isa.TIDE_COLUMNS} n-dependent counts"
            )
        known.append(values.copy())
        return len(known) - 1

    def rows(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """The table: for every n the words (destination, column, value), sequencer first."""
        words = [
            (dest, c, values)
            for dest, columns in sorted(self.columns.items(), reverse=True)
            for c, values in enumerate(columns)
        ]
        return tuple(tuple((d, c, int(v[n])) for d, c, v in words) for n in range(self.sizes))


@dataclass
class _Run:
    """Issues of one instruction; `start` and `count` may depend on n."""

    start: Times
    slot: Slot
    fields: dict[str, int]
    count: int | Times
    interval: int
    stride: int

    def end(self, sizes: int) -> Times:
        return self.start + Slot(
            self.slot.queue, 0, "", {}, self.count, self.interval, 0, self.slot.duration
        ).occupancy(sizes)


def _merge(queue: Queue, chip: Chip, runs: Iterable[_Run]) -> list[_Run]:
    """Join neighbours that one REPEAT can express."""
    step = queue.fields[0].name
    top = 1 << queue.fields[0].bits(chip)
    out: list[_Run] = []
    for run in runs:
        prev = out[-1] if out else None
        if prev and _joinable(queue, prev, run, step, top):
            gap = run.start - prev.start
            if prev.count == 1:
                prev.interval = int(gap[0])
                prev.stride = _step(prev, run, step, top)
            prev.count += run.count
        else:
            out.append(run)
    return out


def _step(prev: _Run, run: _Run, step: str, top: int) -> int:
    delta = (run.fields[step] - prev.fields[step]) % top
    return delta - top if delta > top // 2 else delta


def _joinable(queue: Queue, prev: _Run, run: _Run, step: str, top: int) -> bool:
    if not isinstance(prev.count, int) or not isinstance(run.count, int):
        return False
    if run.slot.mnemonic != prev.slot.mnemonic or run.slot.duration != prev.slot.duration:
        return False
    if queue.name == "MXM.C" or queue.name == "VXM":
        if queue.name == "VXM" and run.fields.get("first"):
            return False
        if queue.name == "MXM.C":
            return _joinable_mac(prev, run)
        same = {k: v for k, v in prev.fields.items() if k != "first"} == {
            k: v for k, v in run.fields.items() if k != "first"
        }
        if not same:
            return False
    elif {k: v for k, v in prev.fields.items() if k != step} != {
        k: v for k, v in run.fields.items() if k != step
    }:
        return False
    gap = run.start - prev.start
    if (gap != gap[0]).any():
        return False
    if prev.count == 1:
        interval = int(gap[0])
        stride = 0 if queue.name == "VXM" else _step(prev, run, step, top)
        if stride not in range(-(1 << (isa.STRIDE_BITS - 1)), 1 << (isa.STRIDE_BITS - 1)):
            return False
    else:
        interval, stride = prev.interval, prev.stride
        if int(gap[0]) != interval * prev.count:
            return False
        if (
            queue.name != "VXM"
            and (prev.fields[step] + stride * prev.count - run.fields[step]) % top
        ):
            return False
    if not 0 < interval < 1 << isa.INTERVAL_BITS:
        return False
    if run.count > 1 and (run.interval != interval or run.stride != stride):
        return False
    return prev.count + run.count - 1 < 1 << isa.COUNT_BITS


def _joinable_mac(prev: _Run, run: _Run) -> bool:
    """ROWS runs whose groups follow one another back to back."""
    if prev.slot.mnemonic != "ROWS":
        return False
    same = {k: v for k, v in prev.fields.items() if k != "acc"} == {
        k: v for k, v in run.fields.items() if k != "acc"
    }
    d = prev.slot.duration
    gap = run.start - prev.start
    return bool(
        same
        and (gap == d * prev.count).all()
        and run.fields["acc"] == prev.fields["acc"] + prev.count
        and (prev.count == 1 or prev.interval == d)
        and (run.count == 1 or run.interval == d)
        and prev.count + run.count - 1 < 1 << isa.COUNT_BITS
    )


def emit_segment(chip: Chip, schedule: Schedule, tide: TideColumns | None) -> list[list[int]]:
    """Words of every queue for one segment, SYNC last. `tide` is None for a segment without n."""
    sizes = len(schedule.length)
    runs: dict[str, list[_Run]] = {q.name: [] for q in QUEUES}
    for op in schedule.ops:
        for s in op.slots:
            runs[s.queue].append(
                _Run(op.start + s.offset, s, dict(s.fields), s.count, s.interval, s.stride)
            )
    words: list[list[int]] = []
    for queue in QUEUES:
        items = sorted(runs[queue.name], key=lambda r: (int(r.start[-1]), int(r.start[0])))
        words.append(_emit_queue(chip, queue, _merge(queue, chip, items), tide, sizes))
    return words


def _emit_queue(
    chip: Chip, queue: Queue, runs: list[_Run], tide: TideColumns | None, sizes: int
) -> list[int]:
    out: list[int] = []

    def control(kind: Kind, value: int | Times, **kw: Any) -> None:
        if isinstance(value, int):
            out.append(encode_control(queue, chip, kind, value, **kw))
            return
        if tide is None:
            raise EmitError(f"{queue.name}: a count depends on n in a segment without a tide table")
        out.append(
            encode_control(queue, chip, kind, tide.column(queue.index, value), tide=True, **kw)
        )

    def idle(gap: Times, wait_at: int | None) -> None:
        """Idle for `gap` cycles: in the wait field of word `wait_at` if it fits, else by NOPs."""
        if (gap != gap[0]).any():
            control(Kind.NOP, gap)
            return
        left = int(gap[0])
        if wait_at is not None and left:
            part = min(left, (1 << isa.WAIT_BITS) - 1)
            if left <= part:
                out[wait_at] |= part << queue.payload_bits(chip)
                return
        while left:
            part = min(left, (1 << isa.COUNT_BITS) - 1)
            control(Kind.NOP, part)
            left -= part

    at = np.zeros(sizes, np.int64)
    last: int | None = None
    for run in runs:
        idle(run.start - at, last)
        out.append(encode_op(queue, chip, run.slot.mnemonic, run.fields))
        if not isinstance(run.count, int) or run.count > 1:
            interval = (
                0 if run.interval == run.slot.duration and queue.name == "MXM.C" else run.interval
            )
            more = run.count - 1
            if isinstance(more, int) and more >= 1 << isa.COUNT_BITS:
                raise EmitError(
                    f"{queue.name}: a burst of {run.count} does not fit {isa.COUNT_BITS} bits"
                )
            control(Kind.REPEAT, more, interval=interval, stride=run.stride)
        last = len(out) - 1
        at = run.end(sizes)
    out.append(_word(queue, chip, Kind.CTRL, int(Ctrl.SYNC), 0))
    return out
