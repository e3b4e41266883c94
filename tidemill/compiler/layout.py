"""Where a model's numbers lie: padding, head placement, memory maps.

The only place that knows both shapes.

Vectors have L lanes, weight planes S banks. Heads narrower than a vector share it: a query head
stands at the lane offset of its KV head (so that its scores meet the right half of a K row), and
Wo's columns follow the same order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemill.chip import Chip

__all__ = ["Allocator", "CompileError", "Geometry", "pad_rows"]


class CompileError(ValueError):
    """A model that this chip cannot hold or run.

    The text names the thing, the need and what there is.
    """


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Geometry:
    """Padded shapes of a model on a chip; `*_vecs` count vectors of L lanes."""

    chip: Chip
    dim: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int

    @property
    def dim_vecs(self) -> int:
        """Vectors of the residual."""
        return _ceil(self.dim, self.chip.lanes)

    @property
    def hidden_vecs(self) -> int:
        """Vectors of the MLP's hidden layer."""
        return _ceil(self.hidden, self.chip.lanes)

    @property
    def vocab_vecs(self) -> int:
        """Vectors of the logits."""
        return _ceil(self.vocab, self.chip.lanes)

    @property
    def n_max(self) -> int:
        """Largest n: vectors of tokens in a full context."""
        return _ceil(self.context, self.chip.lanes)

    @property
    def head_pad(self) -> int:
        """Lanes of one head: a power of two up to L, or a multiple of L."""
        lanes = self.chip.lanes
        if self.head_dim >= lanes:
            return _ceil(self.head_dim, lanes) * lanes
        return 1 << (self.head_dim - 1).bit_length()

    @property
    def head_vecs(self) -> int:
        """Vectors one head spans (1 when heads share a vector)."""
        return max(1, self.head_pad // self.chip.lanes)

    @property
    def kv_vecs(self) -> int:
        """Vectors of all KV heads."""
        return _ceil(self.kv_heads * self.head_pad, self.chip.lanes)

    @property
    def v_groups(self) -> int:
        """Bank groups of S head dimensions that one P x V reads."""
        return max(1, self.head_pad // self.chip.weight_streams)

    def kv_head(self, head: int) -> int:
        """KV head of a query head."""
        return head // (self.heads // self.kv_heads)

    def q_place(self) -> list[tuple[int, int]]:
        """(first vector, lane offset) of every query head."""
        lanes, pad = self.chip.lanes, self.head_pad
        if pad >= lanes:
            return [(h * self.head_vecs, 0) for h in range(self.heads)]
        used: dict[int, int] = defaultdict(int)
        out = []
        for h in range(self.heads):
            offset = self.kv_head(h) * pad % lanes
            out.append((used[offset], offset))
            used[offset] += 1
        return out

    @property
    def q_vecs(self) -> int:
        """Vectors of all query heads (and of the attention output)."""
        return max(v for v, _ in self.q_place()) + self.head_vecs

    def q_rows(self) -> NDArray[np.int64]:
        """Source row of Wq (column of Wo) for every padded lane, -1 for padding: [q_vecs * L]."""
        out = np.full(self.q_vecs * self.chip.lanes, -1, np.int64)
        for h, (vec, offset) in enumerate(self.q_place()):
            at = vec * self.chip.lanes + offset
            out[at : at + self.head_dim] = h * self.head_dim + np.arange(self.head_dim)
        return out

    def kv_rows(self) -> NDArray[np.int64]:
        """Source row of Wk and Wv for every padded lane: [kv_vecs * L]."""
        out = np.full(self.kv_vecs * self.chip.lanes, -1, np.int64)
        for g in range(self.kv_heads):
            at = g * self.head_pad
            out[at : at + self.head_dim] = g * self.head_dim + np.arange(self.head_dim)
        return out

    def plain_rows(self, rows: int) -> NDArray[np.int64]:
        """Identity, padded to whole vectors."""
        out = np.full(_ceil(rows, self.chip.lanes) * self.chip.lanes, -1, np.int64)
        out[:rows] = np.arange(rows)
        return out


def pad_rows(array: NDArray, rows: NDArray[np.int64], axis: int = 0) -> NDArray:
    """Take `rows` of `array` along `axis`, zero where the row is -1."""
    taken = np.take(array, np.maximum(rows, 0), axis)
    shape = [1] * array.ndim
    shape[axis] = len(rows)
    return np.where((rows >= 0).reshape(shape), taken, 0).astype(array.dtype)


@dataclass
class Allocator:
    """Bump allocator of one memory, with a named map for the report."""

    what: str
    depth: int
    next: int = 0
    map: list[tuple[str, int, int]] = field(default_factory=list)

    def take(self, name: str, rows: int) -> int:
        """First row of `rows` fresh rows."""
        at = self.next
        self.next += rows
        self.map.append((name, at, rows))
        return at

    def check(self, hint: str) -> None:
        """Raise `CompileError` when more was taken than there is."""
        if self.next > self.depth:
            biggest = ", ".join(f"{n} {r}" for n, _, r in sorted(self.map, key=lambda m: -m[2])[:4])
            raise CompileError(
                f"{self.what} needs {self.next} rows, this chip has {self.depth} ({biggest}); "
                f"{hint}"
            )
