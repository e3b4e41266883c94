"""Where the cycles go: the roofline of a model on a chip, and what the matrix unit waited for."""

from __future__ import annotations

from tidemill.compiler.layout import Geometry
from tidemill.compiler.schedule import Schedule

__all__ = ["gaps", "roofline"]


def roofline(geo: Geometry, layers: int, context: int) -> int:
    """MXM cycles of a token if nothing ever waits: a weight plane every cycle, unpadded shapes."""
    lanes, streams = geo.chip.lanes, geo.chip.weight_streams

    def planes(rows: int, columns: int) -> int:
        return -(-rows // streams) * -(-columns // lanes)

    d, kv = geo.heads * geo.head_dim, geo.kv_heads * geo.head_dim
    weights = (
        planes(d, geo.dim)
        + 2 * planes(kv, geo.dim)
        + planes(geo.dim, d)
        + 2 * planes(geo.hidden, geo.dim)
        + planes(geo.dim, geo.hidden)
    )
    attention = planes(context, geo.head_dim) + planes(geo.head_dim, context)
    return layers * (weights + geo.heads * attention) + planes(geo.vocab, geo.dim)


def gaps(layer: Schedule, n: int) -> list[tuple[str, str, int]]:
    """(MXM op, what it waited for, idle cycles) of every MXM gap of a LAYER at n, longest first."""
    at = n - 1
    ops = sorted((o for o in layer.ops if o.kind == "MXM"), key=lambda o: int(o.start[at]))
    out = []
    free = 0
    for op in ops:
        begin = int(op.start[at])
        if begin > free:
            tight = [
                layer.ops[p].name
                for p, lag in op.preds.items()
                if p >= 0 and int(layer.ops[p].start[at] + lag[at]) == begin
            ]
            out.append((op.name, tight[0] if tight else "the weight stream", begin - free))
        busy = op.slots[0].occupancy(len(op.start))
        free = max(free, begin + int(busy[at]))
    out.append(("the end of the layer", "the last residual", int(layer.length[at]) - free))
    return sorted(out, key=lambda g: -g[2])
