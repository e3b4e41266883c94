"""Memory images: where every weight, multiplier and table of a quantised model lies.

MEM_W holds one block per layer (weights in the order the MXM consumes them, then K and V rows),
then the head. MEM_A holds one block of row multipliers per layer, then tables, constants and
working vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.chip import Chip
from tidemill.compiler.layout import Allocator, Geometry, pad_rows
from tidemill.model.quantmodel import QuantModel

__all__ = ["Memory", "build_memory"]

Array = NDArray[np.signedinteger[Any]]


@dataclass
class Memory:
    """Addresses (layer-relative where a layer has its own) and the images."""

    w: Allocator
    a: Allocator
    mem_w: NDArray[np.int8]
    mem_w_used: NDArray[np.bool_]
    mem_a: NDArray[np.int16]
    mem_a_used: NDArray[np.bool_]
    # MEM_W, layer-relative
    wq: int = 0
    wk: int = 0
    wv: int = 0
    wo: int = 0
    w13: int = 0
    w2: int = 0
    #: first row of every K unit (a head, or the heads that share a vector) and V unit
    k: list[int] = field(default_factory=list)
    v: list[int] = field(default_factory=list)
    w_stride: int = 0
    k_stride: int = 0
    v_stride: int = 0
    # MEM_W, absolute
    head: int = 0
    embedding: int = 0
    # MEM_A, layer-relative
    mq: int = 0
    mk: int = 0
    mv: int = 0
    mo: int = 0
    m1: int = 0
    m3: int = 0
    m2: int = 0
    a_stride: int = 0
    # MEM_A, absolute
    head_m: int = 0
    embed_m: int = 0
    rope: int = 0
    rope_vecs: int = 1
    rope_stride: int = 1
    gain: int = 0
    zero: int = 0
    cos: int = 0
    sin: int = 0
    x: int = 0
    scores: int = 0
    score_buffers: int = 1


def _planes(chip: Chip, weight: Array, order: str) -> Array:
    """Padded matrix [rows, columns] -> planes [n, S, L] in the order the MXM consumes them.

    ROWS: vector of rows, group of S, chunk of L columns; COLS: chunk, vector, group.
    """
    s, lanes = chip.weight_streams, chip.lanes
    rows, cols = weight.shape
    cube = weight.reshape(rows // lanes, chip.subs, s, cols // lanes, lanes)
    axes = (0, 1, 3, 2, 4) if order == "ROWS" else (3, 0, 1, 2, 4)
    return cube.transpose(axes).reshape(-1, s, lanes)


def build_memory(chip: Chip, geo: Geometry, qm: QuantModel, columns: bool, clear: bool) -> Memory:
    """Lay out and fill both memories. Raises `CompileError` when they do not fit.

    columns: Wo and W2 are stored k outer; clear: a zero vector is needed.
    """
    lanes, layers = chip.lanes, qm.config.layers
    mem = Memory(
        Allocator("MEM_W", chip.mem_w_depth),
        Allocator("MEM_A", chip.mem_a_depth),
        np.zeros((chip.mem_w_depth, chip.weight_streams, lanes), np.int8),
        np.zeros(chip.mem_w_depth, bool),
        np.zeros((chip.mem_a_depth, lanes), np.int16),
        np.zeros(chip.mem_a_depth, bool),
    )
    dim, hid, voc = geo.plain_rows(geo.dim), geo.plain_rows(geo.hidden), geo.plain_rows(geo.vocab)
    qr, kr = geo.q_rows(), geo.kv_rows()
    k_outer = "COLS" if columns else "ROWS"

    def two(weight: Array, rows: Array, cols: Array, order: str = "ROWS") -> Array:
        return _planes(chip, pad_rows(pad_rows(weight, rows), cols, 1), order)

    def w13(i: int) -> Array:
        half = [two(m.weight[i], hid, dim).reshape(geo.hidden_vecs, -1, chip.weight_streams, lanes)
                for m in (qm.w1, qm.w3)]  # fmt: skip
        return np.concatenate(half, 1).reshape(-1, chip.weight_streams, lanes)

    blocks = {
        "wk": lambda i: two(qm.wk.weight[i], kr, dim),
        "wq": lambda i: two(qm.wq.weight[i], qr, dim),
        "wv": lambda i: two(qm.wv.weight[i], kr, dim),
        "wo": lambda i: two(qm.wo.weight[i], dim, qr, k_outer),
        "w13": w13,
        "w2": lambda i: two(qm.w2.weight[i], dim, hid, k_outer),
    }
    images = {name: [make(i) for i in range(layers)] for name, make in blocks.items()}
    relative = Allocator("MEM_W layer", chip.mem_w_depth)
    for name, image in images.items():
        setattr(mem, name, relative.take(name, len(image[0])))
    mem.k_stride = geo.head_vecs
    mem.v_stride = geo.v_groups
    units = geo.kv_heads if geo.head_pad >= lanes else geo.kv_vecs
    mem.k = [relative.take(f"K {u}", geo.n_max * chip.subs * geo.head_vecs) for u in range(units)]
    v_units = -(-geo.kv_heads * geo.head_pad // max(geo.head_pad, chip.weight_streams))
    mem.v = [relative.take(f"V {u}", geo.n_max * geo.v_groups) for u in range(v_units)]
    mem.w_stride = relative.next
    for i in range(layers):
        mem.w.take(f"layer {i}", relative.next)
    mem.head = mem.w.take("head", geo.vocab_vecs * chip.subs * geo.dim_vecs)
    mem.embedding = mem.head if qm.config.tied else mem.w.take("embedding", mem.w.next - mem.head)

    _vectors(chip, geo, qm, mem, clear)
    hint = "a smaller context (--context) or a larger memory helps"
    mem.w.check(hint)
    mem.a.check(hint)

    def put(at: int, planes: Array) -> None:
        mem.mem_w[at : at + len(planes)] = planes
        mem.mem_w_used[at : at + len(planes)] = True

    for name, image in images.items():
        for i, planes in enumerate(image):
            put(i * mem.w_stride + getattr(mem, name), planes)
    put(mem.head, two(qm.head.weight, voc, dim))
    if not qm.config.tied:
        put(mem.embedding, two(qm.embed, voc, dim))
    return mem


def _vectors(chip: Chip, geo: Geometry, qm: QuantModel, mem: Memory, clear: bool) -> None:
    """Allocate and fill MEM_A (nothing is filled beyond its depth; the caller checks)."""
    lanes = chip.lanes
    pending: list[tuple[int, Array]] = []

    def put(at: int, values: Array, rows: Array) -> None:
        pending.append((at, pad_rows(values, rows).reshape(-1, lanes)))

    dim, hid, voc = geo.plain_rows(geo.dim), geo.plain_rows(geo.hidden), geo.plain_rows(geo.vocab)
    qr, kr = geo.q_rows(), geo.kv_rows()
    vectors = [
        ("mk", qm.wk.mul, kr), ("mq", qm.wq.mul, qr), ("mv", qm.wv.mul, kr), ("mo", qm.wo.mul, dim),
        ("m1", qm.w1.mul, hid), ("m3", qm.w3.mul, hid), ("m2", qm.w2.mul, dim),
    ]  # fmt: skip
    for name, _, rows in vectors:
        setattr(mem, name, mem.a_stride)
        mem.a_stride += len(rows) // lanes
    for i in range(qm.config.layers):
        base = mem.a.take(f"multipliers {i}", mem.a_stride)
        for name, values, rows in vectors:
            put(base + getattr(mem, name), values[i], rows)
    mem.head_m = mem.a.take("head multipliers", geo.vocab_vecs)
    put(mem.head_m, qm.head.mul, voc)
    if qm.config.tied:
        mem.embed_m = mem.head_m
    else:
        mem.embed_m = mem.a.take("embedding multipliers", geo.vocab_vecs)
        put(mem.embed_m, qm.embed_mul, voc)
    table = _rope(chip, geo, qm)
    mem.rope_vecs = max(1, geo.head_pad // lanes)
    mem.rope_stride = table.shape[1]
    mem.rope = mem.a.take("RoPE table", table.shape[0] * table.shape[1])
    pending.append((mem.rope, table.reshape(-1, lanes)))
    mem.gain = mem.a.take("final gain", geo.dim_vecs)
    put(mem.gain, qm.final_gain, dim)
    if clear:
        mem.zero = mem.a.take("zero", 1)
        pending.append((mem.zero, np.zeros((1, lanes), np.int64)))
    if lanes > 1:
        mem.cos = mem.a.take("cos", mem.rope_vecs)
        mem.sin = mem.a.take("sin", mem.rope_vecs)
    mem.x = mem.a.take("residual", geo.dim_vecs)
    room = (mem.a.depth - mem.a.next) // geo.n_max
    mem.score_buffers = max(1, min(4, geo.heads, room))
    mem.scores = mem.a.take("scores", mem.score_buffers * geo.n_max)
    for at, rows_ in pending:
        rows_ = rows_[: max(0, mem.a.depth - at)]
        mem.mem_a[at : at + len(rows_)] = rows_
        mem.mem_a_used[at : at + len(rows_)] = True


def _rope(chip: Chip, geo: Geometry, qm: QuantModel) -> Array:
    """[context, vectors, L]: cosines in even lanes, sines in odd lanes, per head repeated.

    lanes = 1: for every dimension its cosine, then its sine with the sign it has in the rotation.
    """
    ctx, half = geo.context, geo.head_dim // 2
    cos, sin = qm.rope_cos[:ctx].astype(np.int64), qm.rope_sin[:ctx].astype(np.int64)
    if chip.lanes == 1:
        signed = np.stack([-sin, sin], 2).reshape(ctx, -1)
        both = np.stack([np.repeat(cos, 2, 1), signed], 2)
        return both.reshape(ctx, 4 * half, 1)
    pairs = np.zeros((ctx, geo.head_pad), np.int64)
    pairs[:, 0 : 2 * half : 2] = cos
    pairs[:, 1 : 2 * half : 2] = sin
    copies = max(1, chip.lanes // geo.head_pad)
    return np.tile(pairs, (1, copies)).reshape(ctx, -1, chip.lanes)
