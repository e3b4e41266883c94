"""Dataflow of one segment: which instruction takes which value, derived from cycles alone.

`trace_segment` expands the words of every queue, puts every driven stream value at its slice and
cycle, and finds for every sampled operand the value that passes in exactly that cycle. Files (T,
activation, accumulator, scalar, maximum) are followed write by write. What does not fit raises
`Hazard`: an empty stream, a sum read before it is complete, two accesses that collide, an address
outside its memory, a result that lands after the segment's end. The simulator runs the result; the
checker asks for all n.

It knows the program and the ISA table, nothing of the compiler. One file, although a long one: one
pass over a segment, in which every queue's handler shares the same streams and files.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import isa
from tidemill.isa import QUEUES, ASrc, Base, BSrc, Mask, Red, Seg, Timing
from tidemill.program import Program, ProgramError
from tidemill.timeline import Burst, expand_segment

__all__ = ["Event", "Hazard", "Macro", "Trace", "trace_segment"]


class Hazard(ProgramError):
    """A program that breaks a rule of the machine; the text names queue, segment and cycle."""


@dataclass
class Event:
    """One issue of a non-MAC instruction. `ins` are (buffer, index) pairs of its operands."""

    kind: str
    cycle: int
    fields: dict[str, int]
    index: int
    ins: dict[str, tuple[str, int]] = field(default_factory=dict)
    level: int = 0
    element: int = 0


@dataclass
class Macro:
    """One accumulator group's sum: rows of MEM_W (`row` + base) against activation versions."""

    group: int
    rows: NDArray[np.int64]
    bases: NDArray[np.int64]
    #: dispatch cycle of the READ of every row
    reads: NDArray[np.int64]
    acts: NDArray[np.int64]
    index: int
    level: int = 0


@dataclass
class Trace:
    """Events in an order in which every operand is computed before it is used.

    Buffer indices: values that were in a file when the segment began come first (T entries in `ev`,
    activation vectors in `act`, groups in `acc`, `scalar`, `max`), then one per event or macro.
    `final` gives, per file, the index of every entry at the end.
    """

    seg: Seg
    n: int
    length: int
    #: events and macros in an order in which every operand comes first
    events: list[Event | Macro]
    #: chains of passes whose results a reduction joins: (kind, destination, pass indices)
    reductions: list[tuple[Red, int, list[int]]]
    sizes: dict[str, int]
    final: dict[str, NDArray[np.int64]]
    #: MEM_A vector -> pass whose result it holds at the end
    mem_a_writes: dict[int, int]


_ORDER = {
    q: i
    for i, q in enumerate(("MEMA.R", "MEMW.R", "MXM.A", "SXM", "VXM", "MXM.L", "MEMA.W", "MEMW.W"))
}


class _Versions:
    """Entries of a file over time: which write an access in a given cycle sees."""

    def __init__(self, depth: int):
        self.history: list[list[tuple[int, int]]] = [[(-1, i)] for i in range(depth)]

    def write(self, entry: int, visible: int, index: int) -> None:
        bisect.insort(self.history[entry], (visible, index), key=lambda w: w[0])

    def at(self, entry: int, cycle: int) -> int:
        for visible, index in reversed(self.history[entry]):
            if visible <= cycle:
                return index
        raise AssertionError("every entry has a first value")

    def final(self) -> NDArray[np.int64]:
        return np.array([h[-1][1] for h in self.history], np.int64)


def trace_segment(program: Program, seg: Seg, n: int) -> Trace:
    """Dataflow of segment `seg` when attention reads n vectors.

    Raises `Hazard` or `ProgramError`.
    """
    return _Tracer(program, seg, n).run()


class _Tracer:
    def __init__(self, program: Program, seg: Seg, n: int):
        self.program, self.chip, self.seg, self.n = program, program.chip, seg, n
        self.bursts, self.length = expand_segment(program, seg, n)
        #: stream -> cycle visible at its driver -> buffer index
        self.streams: dict[str, dict[int, int]] = {
            s: {} for s in ("planes", "E_b", "E_acc", "E_v", "W_s", "W_a")
        }
        c = self.chip
        self.t = _Versions(c.temp_depth)
        self.act = _Versions(c.act_depth)
        self.acc = _Versions(c.acc_groups)
        self.scalar = _Versions(8)
        self.maximum = _Versions(4)
        self.count = {
            "ev": c.temp_depth,
            "act": c.act_depth,
            "acc": c.acc_groups,
            "scalar": 8,
            "max": 4,
        }
        self.count |= {"W_a": 0, "W_s": 0, "E_b": 0, "E_acc": 0}
        self.events: list[Event | Macro] = []
        self.drains: dict[int, list[int]] = {}
        self.used_slots: set[tuple[str, int]] = set()
        self.slots: dict[Red, int] = {}
        self.reductions: list[tuple[Red, int, list[int]]] = []
        self.mem_a: dict[int, list[tuple[int, int]]] = {}
        self.last = 0

    def fail(self, queue: str, cycle: int, text: str) -> Hazard:
        return Hazard(f"{queue}, {self.seg.name} cycle {cycle} (n = {self.n}): {text}")

    def new(self, buffer: str) -> int:
        self.count[buffer] += 1
        return self.count[buffer] - 1

    def sample(self, queue: str, stream: str, driver: str, at: str, cycle: int) -> int:
        index = self.streams[stream].get(cycle - self.chip.hop(driver, at))
        if index is None:
            raise self.fail(queue, cycle, f"samples {stream}, which carries nothing in that cycle")
        return index

    def drive(self, stream: str, cycle: int, index: int) -> None:
        self.streams[stream][cycle] = index

    def landed(self, queue: str, cycle: int, visible: int) -> None:
        if visible > self.length:
            raise self.fail(
                queue, cycle, f"result lands in cycle {visible}, the segment has {self.length}"
            )

    def run(self) -> Trace:
        self._planes()
        issues = [
            (b.start + i * b.interval, _ORDER[q], q, b, i)
            for q, bursts in self.bursts.items()
            if q in _ORDER
            for b in bursts
            for i in range(b.count)
            if not (q == "MEMW.R" and b.mnemonic == "READ")
        ]
        issues.sort(key=lambda x: (x[0], x[1]))
        # a sum is followed up once every load it may use has been seen, and before any later drain
        handlers = {
            "MEMA.R": self._mema_r,
            "MEMW.R": self._gather,
            "MXM.A": self._drain,
            "SXM": self._sxm,
            "VXM": self._vxm,
            "MXM.L": self._load,
            "MEMA.W": self._mema_w,
            "MEMW.W": self._memw_w,
        }
        self._chains: dict[Red, tuple[int, list[tuple[int, int]]]] = {}
        self._element = 0
        sums = iter(self._sums())
        pending = next(sums, None)
        stepped: dict[int, list[int]] = {}
        for cycle, _, q, b, i in issues:
            while pending is not None and pending[0] < cycle:
                self._macro(*pending[1:])
                pending = next(sums, None)
            if id(b) not in stepped:
                stepped[id(b)] = b.stepped(self.chip)
            fields = b.fields | {b.queue.fields[0].name: stepped[id(b)][i]}
            if i and "first" in fields:
                fields["first"] = 0
            handlers[q](cycle, b, fields)
        while pending is not None:
            self._macro(*pending[1:])
            pending = next(sums, None)
        for red, (dest, parts) in self._chains.items():
            self._close(red, dest, parts)
        self._collisions()
        return Trace(
            self.seg,
            self.n,
            self.length,
            self.events,
            self.reductions,
            self.count,
            {
                "ev": self.t.final(),
                "act": self.act.final(),
                "acc": self.acc.final(),
                "scalar": self.scalar.final(),
                "max": self.maximum.final(),
            },
            {a: h[-1][1] for a, h in self.mem_a.items()},
        )

    # Weight planes and sums --------------------------------------------------------------------

    def _planes(self) -> None:
        """Row and base of the plane visible at MEM_W in every cycle; -1 where there is none."""
        self.plane_row = np.full(self.length + 8, -1, np.int64)
        self.plane_base = np.zeros(self.length + 8, np.int64)
        d = QUEUES[isa.QUEUE_INDEX["MEMW.R"]].op("READ").d_func(self.chip)
        for b in self.bursts["MEMW.R"]:
            if b.mnemonic != "READ":
                continue
            at = b.start + d + np.arange(b.count) * b.interval
            self.plane_row[at] = b.stepped(self.chip)
            self.plane_base[at] = b.fields["base"]

    def _sums(self) -> list[tuple[Any, ...]]:
        """(last dispatch cycle, group, (rows, bases), abc, cycles) of every sum, in time order."""
        chip = self.chip
        cycles, groups, abcs, fresh = [], [], [], []
        for b in self.bursts["MXM.C"]:
            ni, top_a, top_g = b.fields["ni"], chip.act_depth, chip.acc_groups
            o, i = np.divmod(np.arange(b.count * ni), ni)
            cycles.append(b.start + o * b.interval + i)
            if b.mnemonic == "ROWS":
                groups.append((b.fields["acc"] + o) % top_g)
                abcs.append((b.fields["abc"] + i) % top_a)
                fresh.append((i == 0) & bool(b.fields["fresh"]))
            else:
                groups.append((b.fields["acc"] + i) % top_g)
                abcs.append((b.fields["abc"] + o) % top_a)
                fresh.append((o == 0) & bool(b.fields["fresh"]))
        if not cycles:
            return []
        cycle, group = np.concatenate(cycles), np.concatenate(groups)
        abc, new = np.concatenate(abcs), np.concatenate(fresh)
        at = cycle + 1 - chip.hop("MEM_W", "MXM")
        if (self.plane_row[at] < 0).any():
            bad = int(cycle[self.plane_row[at] < 0][0])
            raise self.fail("MXM.C", bad, "no weight plane arrives in that cycle")
        order = np.lexsort((cycle, group))
        starts = np.flatnonzero(new[order])
        out = []
        bounds = [*starts.tolist(), len(order)]
        if bounds[0] != 0:
            bad = int(cycle[order[0]])
            raise self.fail("MXM.C", bad, "adds to a sum that this segment did not start")
        for lo, hi in pairwise(bounds):
            pick = order[lo:hi]
            g = int(group[pick[0]])
            if (group[pick] != g).any():
                raise self.fail("MXM.C", int(cycle[pick[-1]]), "adds to a sum that was not started")
            rows = self.plane_row[at[pick]], self.plane_base[at[pick]]
            out.append((int(cycle[pick[-1]]), g, rows, abc[pick], cycle[pick]))
        out.sort(key=lambda x: (x[0], x[1]))
        return out

    def _macro(self, group: int, rows, abcs, cycles) -> None:
        d = QUEUES[isa.QUEUE_INDEX["MXM.C"]].op("ROWS").d_func(self.chip)
        first, last = int(cycles[0]) + d, int(cycles[-1]) + d
        acts = np.array(
            [self.act.at(a, c) for a, c in zip(abcs.tolist(), cycles.tolist(), strict=True)],
            np.int64,
        )
        early = [a for a in self.drains.get(group, []) if first <= a < last]
        if early:
            raise self.fail("MXM.A", early[0], f"group {group} is read before its sum is complete")
        index = self.new("acc")
        self.acc.write(group, first, -1)  # incomplete until `last`
        self.acc.write(group, last, index)
        self.landed("MXM.C", int(cycles[-1]), last)
        read = QUEUES[isa.QUEUE_INDEX["MEMW.R"]].op("READ").d_func(self.chip)
        dispatched = cycles + 1 - self.chip.hop("MEM_W", "MXM") - read
        self.events.append(Macro(group, rows[0], rows[1], dispatched, acts, index))

    # One handler per queue ---------------------------------------------------------------------

    def _event(self, queue: str, cycle: int, b: Burst, fields: dict[str, int], index: int) -> Event:
        e = Event(f"{queue} {b.mnemonic}", cycle, fields, index)
        self.events.append(e)
        return e

    def _mema_r(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        index = self.new("W_a")
        e = self._event("MEMA.R", cycle, b, f, index)
        if f["base"] == Base.ZERO:
            if f["addr"] >= self.chip.mem_a_depth:
                raise self.fail(
                    "MEMA.R", cycle, f"vector {f['addr']} is beyond MEM_A's {self.chip.mem_a_depth}"
                )
            seen = [w for w in self.mem_a.get(f["addr"], []) if w[0] < cycle]
            if seen:
                e.ins["value"] = ("ev", seen[-1][1])
        self.drive("W_a", cycle + b.queue.op("READ").d_func(self.chip), index)

    def _gather(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        if self.seg is Seg.EMBED and cycle < isa.TOKEN_CYCLES:
            raise self.fail("MEMW.R", cycle, f"the token is known from cycle {isa.TOKEN_CYCLES}")
        index = self.new("E_b")
        self._event("MEMW.R", cycle, b, f, index)
        self.drive("E_b", cycle + b.queue.op("GATHER").d_func(self.chip), index)

    def _drain(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        index = self.new("E_acc")
        e = self._event("MXM.A", cycle, b, f, index)
        for s in range(self.chip.subs):
            group = f["slot"] * self.chip.subs + s
            self.drains.setdefault(group, []).append(cycle)
            version = self.acc.at(group, cycle)
            if version < 0:
                raise self.fail(
                    "MXM.A", cycle, f"accumulator {f['slot']} is read before its sum is complete"
                )
            e.ins[f"g{s}"] = ("acc", version)
        self.drive("E_acc", cycle + b.queue.op("ACC").d_func(self.chip), index)

    def _sxm(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        index = self.new("W_s")
        e = self._event("SXM", cycle, b, f, index)
        stream, driver = ("W_a", "MEM_A") if f["src"] else ("E_v", "VXM")
        value = self.sample("SXM", stream, driver, "SXM", cycle)
        e.ins["value"] = ("W_a" if f["src"] else "ev", value)
        if b.mnemonic == "BCAST" and self.seg is Seg.EMBED and cycle < isa.TOKEN_CYCLES:
            raise self.fail("SXM", cycle, f"the token is known from cycle {isa.TOKEN_CYCLES}")
        self.drive("W_s", cycle + 1, index)

    def _vxm(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        template = self.program.templates[f["tmpl"]]
        index = self.new("ev")
        e = self._event("VXM", cycle, b, f, index)
        c = cycle + Timing.VXM_AB
        streams = {
            ASrc.ACC: ("E_acc", "E_acc", "MXM"),
            ASrc.WA: ("W_a", "W_a", "MEM_A"),
            ASrc.WS: ("W_s", "W_s", "SXM"),
            ASrc.BYTE: ("E_b", "E_b", "MEM_W"),
        }
        if template.a in streams:
            stream, buffer, driver = streams[template.a]
            e.ins["a"] = (buffer, self.sample("VXM", stream, driver, "VXM", c))
        elif template.a is ASrc.T:
            e.ins["a"] = ("ev", self.t.at(f["ta"], c))
        if template.b in (BSrc.WA, BSrc.WA4, BSrc.WS):
            stream, buffer, driver = streams[ASrc.WS if template.b is BSrc.WS else ASrc.WA]
            e.ins["b"] = (buffer, self.sample("VXM", stream, driver, "VXM", c))
        elif template.b in (BSrc.T, BSrc.T4):
            e.ins["b"] = ("ev", self.t.at(f["tb"], c))
        if template.b is BSrc.SCALAR or template.dyn:
            e.ins["s"] = (
                "scalar",
                self._complete(self.scalar.at(f["sx"], c), cycle, "scalar", f["sx"]),
            )
        if template.c:
            e.ins["c"] = ("ev", self.t.at(f["tc"], cycle + Timing.VXM_C))
        if template.func is isa.Func.EXP:
            seen = self.maximum.at(f["mx"], cycle + Timing.VXM_MAX_READ)
            e.ins["m"] = ("max", self._complete(seen, cycle, "maximum", f["mx"]))
        self.drive("E_v", cycle + Timing.VXM_RESULT, index)
        if template.wt:
            self.t.write(f["td"], cycle + Timing.VXM_T, index)
            self.landed("VXM", cycle, cycle + Timing.VXM_T)
        if template.mask is not Mask.NONE or template.red is Red.ARGMAX:
            self._element = 0 if f["first"] else self._element + 1
            e.element = self._element
        if template.red is not Red.NONE:
            self._reduce(template.red, cycle, f, index)

    def _complete(self, version: int, cycle: int, what: str, entry: int) -> int:
        if version < 0:
            raise self.fail(
                "VXM", cycle, f"{what} {entry} is read before its reduction is complete"
            )
        self.used_slots.add((what, version))
        return version

    def _reduce(self, red: Red, cycle: int, f: dict[str, int], index: int) -> None:
        dest = f["mx"] if red is Red.MAX else f["sx"] if red is not Red.ARGMAX else 0
        late = (
            Timing.vxm_max(self.chip)
            if red in (Red.MAX, Red.ARGMAX)
            else Timing.vxm_scalar(self.chip)
        )
        visible = cycle + late
        self.landed("VXM", cycle, visible)
        if f["first"] or red not in self._chains:
            if not f["first"]:
                raise self.fail(
                    "VXM", cycle, f"{red.name} goes on with a reduction this segment did not start"
                )
            if red in self._chains:
                self._close(red, *self._chains[red])
            self._chains[red] = (dest, [])
        if self._chains[red][0] != dest:
            raise self.fail("VXM", cycle, f"{red.name} changes its destination within a reduction")
        parts = self._chains[red][1]
        parts.append((visible, index))
        if red is Red.ARGMAX:
            return
        versions, what = (self.maximum, "maximum") if red is Red.MAX else (self.scalar, "scalar")
        if len(parts) == 1:
            self.slots[red] = self.new("max" if red is Red.MAX else "scalar")
        elif (what, self.slots[red]) in self.used_slots:
            raise self.fail(
                "VXM", cycle, f"{what} {dest} was read before this reduction was complete"
            )
        versions.write(dest, visible, self.slots[red])

    def _close(self, red: Red, dest: int, parts: list[tuple[int, int]]) -> None:
        index = self.slots[red] if red is not Red.ARGMAX else 0
        self.reductions.append((red, index, [i for _, i in parts]))

    def _load(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        index = self.new("act")
        e = self._event("MXM.L", cycle, b, f, index)
        if f["src"]:
            e.ins["value"] = ("ev", self.sample("MXM.L", "E_v", "VXM", "MXM", cycle))
        else:
            e.ins["value"] = ("W_a", self.sample("MXM.L", "W_a", "MEM_A", "MXM", cycle))
        e.ins["old"] = ("act", self.act.at(f["dst"], cycle))
        self.act.write(f["dst"], cycle + 1, index)
        self.landed("MXM.L", cycle, cycle + 1)

    def _mema_w(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        index = self.sample("MEMA.W", "E_v", "VXM", "MEM_A", cycle)
        if f["base"] != Base.ZERO:
            raise self.fail("MEMA.W", cycle, "writes need base ZERO")
        if f["addr"] >= self.chip.mem_a_depth:
            raise self.fail(
                "MEMA.W", cycle, f"vector {f['addr']} is beyond MEM_A's {self.chip.mem_a_depth}"
            )
        self.mem_a.setdefault(f["addr"], []).append((cycle, index))
        self.landed("MEMA.W", cycle, cycle + 1)

    def _memw_w(self, cycle: int, b: Burst, f: dict[str, int]) -> None:
        e = self._event("MEMW.W", cycle, b, f, -1)
        e.ins["value"] = ("ev", self.sample("MEMW.W", "E_v", "VXM", "MEM_W", cycle))
        written = QUEUES[isa.QUEUE_INDEX["MEMW.W"]].op(b.mnemonic).d_func(self.chip)
        self.landed("MEMW.W", cycle, cycle + written)

    # Collisions --------------------------------------------------------------------------------

    def _collisions(self) -> None:
        for b in self.bursts["MEMA.R"]:
            if b.fields["base"] != Base.ZERO:
                continue
            for i, addr in enumerate(b.stepped(self.chip)):
                cycle = b.start + i * b.interval
                if any(w[0] == cycle for w in self.mem_a.get(addr, [])):
                    raise self.fail(
                        "MEMA.R", cycle, f"vector {addr} is read and written in one cycle"
                    )
