"""What it means that RTL and simulator agree."""

from __future__ import annotations

import numpy as np

from tidemill_sim.engine import Machine, TokenEvent
from tidemill_sim.rtl import RunResult

__all__ = ["compare"]


def compare(machine: Machine, events: list[TokenEvent], result: RunResult) -> list[str]:
    """What differs between a finished run of the numpy engine and one of the RTL; empty if nothing.

    Tokens, cycles (the chip's counter, the bench's edges, the FIFO), fault, bytes of both memories.
    """
    found = []
    want = [(e.token, e.generated, e.cycles) for e in events]
    ends = np.cumsum([e.cycles for e in events]).tolist()
    if result.fault is not None:
        found.append(f"fault {result.fault}")
    if [(t.token, t.generated) for t in result.tokens] != [w[:2] for w in want]:
        found.append("tokens")
    if [t.cycles for t in result.tokens] != [w[2] for w in want]:
        found.append("cycles")
    if [t.measured for t in result.tokens] != ends:
        found.append("measured cycles")
    if result.fifo != want:
        found.append("token FIFO")
    for name in ("mem_w", "mem_a"):
        ok = getattr(machine, f"{name}_ok")
        bad = (getattr(result, name) != getattr(machine, name)) & ok
        if bad.any():
            found.append(f"{int(bad.sum())} of {int(ok.sum())} elements of {name}")
    return found
