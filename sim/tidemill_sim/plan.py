"""A traced segment as batches: levels of independent events, and batches of one kind in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidemill.isa import QUEUE_INDEX, QUEUES, Base, Config, Red
from tidemill.trace import Hazard, Macro, Trace
from tidemill_sim.batches import BUILDERS, Batch

if TYPE_CHECKING:
    from tidemill_sim.engine import Machine

__all__ = ["Plan", "make_plan"]


@dataclass
class Plan:
    """How one segment runs for one n."""

    trace: Trace
    batches: list[Batch]
    argmax: bool = False
    mem_a_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    mem_a_from: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def make_plan(machine: Machine, trace: Trace) -> Plan:
    """Order a trace into batches. An event's level is one more than the highest of its operands."""
    level: dict[tuple[str, int], int] = {}
    program, chip = machine.program, machine.chip
    reduced: dict[int, tuple[Red, int, list[int]]] = {}
    for item in trace.reductions:
        reduced[item[2][-1]] = item
    groups: dict[tuple[Any, ...], list[Any]] = {}
    written: list[tuple[set[int], int, int]] = []  # relative rows, visible, level
    for e in trace.events:
        if isinstance(e, Macro):
            at = max((level.get(("act", int(a)), 0) for a in np.unique(e.acts)), default=0)
            for rows, visible, lv in written:
                hit = np.isin(e.rows, list(rows)) & (e.bases == Base.LAYER)
                if hit.any():
                    if (e.reads[hit] < visible).any():
                        raise Hazard(
                            f"MEMW.R, {trace.seg.name}: a row is read before this position's "
                            "K or V lands"
                        )
                    at = max(at, lv)
            e.level = at + 1
            level["acc", e.index] = e.level
            groups.setdefault((e.level, "MAC", len(e.rows)), []).append(e)
            continue
        e.level = 1 + max((level.get(i, 0) for i in e.ins.values()), default=0)
        key: tuple[Any, ...] = (e.level, e.kind)
        if e.kind.startswith("VXM"):
            key += (e.fields["tmpl"],)
            level["ev", e.index] = e.level
            if e.index in reduced:
                red, slot, parts = reduced[e.index]
                at = 1 + max(level["ev", i] for i in parts)
                if red is not Red.ARGMAX:
                    level["max" if red is Red.MAX else "scalar", slot] = at
                groups.setdefault((at, "reduce", red, slot), []).append(parts)
        elif e.kind.startswith("MEMA.R"):
            level["W_a", e.index] = e.level
            key += ("value" in e.ins,)
        elif e.kind.startswith("MEMW.R"):
            level["E_b", e.index] = e.level
        elif e.kind.startswith("MXM.A"):
            level["E_acc", e.index] = e.level
        elif e.kind.startswith("SXM"):
            level["W_s", e.index] = e.level
            key += (e.fields["src"],)
        elif e.kind.startswith("MXM.L"):
            level["act", e.index] = e.level
            key += (e.fields["src"],)
        elif e.kind.startswith("MEMW.W"):
            step = Config.K_STRIDE if e.kind.endswith("WRITE") else Config.V_STRIDE
            per = chip.weight_streams if e.kind.endswith("WRITE") else chip.lanes
            first, last = (trace.n - 1) * chip.lanes // per, (trace.n * chip.lanes - 1) // per
            rows = {e.fields["addr"] + program.config[step] * k for k in range(first, last + 1)}
            lands = QUEUES[QUEUE_INDEX["MEMW.W"]].op(e.kind.split()[1]).d_func(chip)
            written.append((rows, e.cycle + lands, e.level))
        groups.setdefault(key, []).append(e)
    batches = [
        BUILDERS[key[1].split()[0]](machine, key, items)
        for key, items in sorted(groups.items(), key=lambda g: g[0][0])
    ]
    writes = sorted(trace.mem_a_writes.items())
    return Plan(
        trace,
        batches,
        any(r[0] is Red.ARGMAX for r in trace.reductions),
        np.array([a for a, _ in writes], np.int64),
        np.array([i for _, i in writes], np.int64),
    )
