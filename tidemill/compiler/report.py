"""What a program costs and why, as plain data: cycles, roofline, size, memory, use of slices."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tidemill.chip import Chip
from tidemill.compiler.analysis import roofline
from tidemill.compiler.layout import Geometry
from tidemill.isa import QUEUES, Config, Seg
from tidemill.program import Program
from tidemill.timeline import Burst, expand_segment

__all__ = ["CONTEXTS", "report"]

#: Contexts that reports speak of, as far as the program's own goes.
CONTEXTS = (1, 64, 128, 256)
#: Context whose layer is looked at closely.
CLOSE = 64
#: Bits of a program word as block RAMs hold it, whatever part of it a queue uses.
STORED_BITS = 36


def _kind(name: str) -> str:
    """Name of an op without its numbers: `attention 3.0` -> `attention`."""
    return re.sub(r" \d+(\.\d+)*", "", name)


def _waits(gaps: list[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """MXM gaps of a layer joined by what waited for what, longest first."""
    total: Counter[tuple[str, str]] = Counter()
    for op, cause, cycles in gaps:
        total[_kind(op), _kind(cause)] += cycles
    return [{"op": op, "waits_for": w, "cycles": c} for (op, w), c in total.most_common() if c]


def _busy(bursts: list[Burst]) -> int:
    return sum(b.count * b.duration for b in bursts)


def report(program: Program) -> dict[str, Any]:
    """Everything `tidemill compile` says, as plain data."""
    chip, info = program.chip, program.info
    geo = Geometry(chip, **info["geometry"])
    layers = program.config[Config.LAYERS]
    contexts = [c for c in CONTEXTS if c <= program.context]
    cycles = {c: program.cycles(c - 1, True) for c in contexts}
    best = {c: roofline(geo, layers, c) for c in contexts}
    return {
        "chip": chip.name,
        "chip_hash": chip.hash,
        "program_hash": program.hash,
        "context": program.context,
        "cycles": {str(c): v for c, v in cycles.items()},
        "roofline": {str(c): v for c, v in best.items()},
        "roofline_fraction": {str(c): round(best[c] / cycles[c], 4) for c in contexts},
        **_close(program, geo),
        **_size(program),
        "memory": _memory(program, geo),
        "chip_account": _account(chip),
    }


def _close(program: Program, geo: Geometry) -> dict[str, Any]:
    """Where the cycles of one token went, how busy every queue is, what the MXM waited for."""
    context = min(CLOSE, program.context)
    n = program.rows(context - 1)
    layers = program.config[Config.LAYERS]
    layer, length = expand_segment(program, Seg.LAYER, n)
    head, head_length = expand_segment(program, Seg.HEAD, n)
    work, work_head = _busy(layer["MXM.C"]), _busy(head["MXM.C"])
    best = roofline(geo, layers, context)
    return {
        "close_context": context,
        "cycles_went_to": {
            "roofline": best,
            "padding": layers * work + work_head - best,
            "MXM waits in LAYER": layers * (length - work),
            "MXM waits in HEAD": head_length - work_head,
            "EMBED": program.config[Config.EMBED_LENGTH],
        },
        "layer_length": length,
        "layer_use": {q: round(_busy(b) / length, 4) for q, b in layer.items()},
        "layer_waits": _waits(program.info.get("gaps", [])),
    }


def _size(program: Program) -> dict[str, Any]:
    words = {q.name: len(w) for q, w in zip(QUEUES, program.queues, strict=True)}
    tide = sum(len(row) for row in program.tide)
    return {
        "program_words": words,
        "program_bytes": -(-sum(words.values()) * STORED_BITS // 8),
        "tide_words": tide,
        "tide_bytes": -(-tide * 29 // 8),
    }


def _tensors(program: Program, geo: Geometry) -> dict[str, int]:
    """Rows of every MEM_W bank that each kind of tensor takes, over all layers."""
    layers, subs, dim = program.config[Config.LAYERS], program.chip.subs, geo.dim_vecs
    per_layer = {
        "Wq": geo.q_vecs * subs * dim,
        "Wk": geo.kv_vecs * subs * dim,
        "Wv": geo.kv_vecs * subs * dim,
        "Wo": dim * subs * geo.q_vecs,
        "W1 and W3": 2 * geo.hidden_vecs * subs * dim,
        "W2": dim * subs * geo.hidden_vecs,
    }
    cache = program.config[Config.W_LAYER_STRIDE] - sum(per_layer.values())
    out = {name: layers * rows for name, rows in {**per_layer, "K and V cache": cache}.items()}
    rest = [(n, r) for n, _, r in program.info["memory_map"]["MEM_W"] if not n.startswith("layer")]
    return out | dict(rest)


def _memory(program: Program, geo: Geometry) -> dict[str, Any]:
    chip = program.chip
    vectors: Counter[str] = Counter()
    for name, _, count in program.info["memory_map"]["MEM_A"]:
        vectors["row multipliers" if name.startswith("multipliers") else name] += count
    out: dict[str, Any] = {}
    for bank in range(chip.weight_streams):
        out[f"MEM_W.{bank}"] = _used(_tensors(program, geo), chip.mem_w_depth, "rows", chip.lanes)
    out["MEM_A"] = _used(dict(vectors), chip.mem_a_depth, "vectors", 2 * chip.lanes)
    return out


def _used(tensors: dict[str, int], depth: int, unit: str, size: int) -> dict[str, Any]:
    largest = dict(sorted(tensors.items(), key=lambda item: -item[1]))
    return {
        "needed": sum(tensors.values()),
        "available": depth,
        "unit": f"{unit} of {size} bytes",
        "tensors": largest,
    }


def _account(chip: Chip) -> dict[str, Any]:
    rams, multipliers = chip.block_rams(), chip.multipliers()
    return {
        "block_rams": {**rams, "total": sum(rams.values())},
        "multipliers": {**multipliers, "total": sum(multipliers.values())},
    }
