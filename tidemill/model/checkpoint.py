"""Checkpoints of llama2.c (version 0): read, check, write, or make a small random one.

A version 0 file is seven little-endian int32 (dim, hidden, layers, heads, kv_heads, vocab,
context; a negative vocab says that the head is not tied to the embedding) and then float32 arrays
without padding.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Checkpoint",
    "ModelConfig",
    "ModelError",
    "load_checkpoint",
    "random_checkpoint",
    "save_checkpoint",
]

Floats = NDArray[np.float32]

_HEADER = struct.Struct("<7i")
#: Largest legal value of every header field, far above what any chip holds.
_LIMITS = {
    "dim": 1 << 14,
    "hidden": 1 << 16,
    "layers": 256,
    "heads": 256,
    "kv_heads": 256,
    "vocab": 1 << 16,
    "context": 1 << 16,
}


class ModelError(ValueError):
    """A model that cannot be used.

    The text is one sentence that names the thing and the numbers.
    """


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape and constants of a llama-type model.

    Raises `ModelError` when a value is impossible; the message names it.
    """

    #: Width of the residual.
    dim: int
    #: Width of the MLP.
    hidden: int
    layers: int
    #: Query heads.
    heads: int
    #: Key and value heads; divides `heads`.
    kv_heads: int
    vocab: int
    #: Positions of the RoPE table.
    context: int
    #: Added to the mean square in every RMSNorm.
    eps: float = 1e-5
    #: Base of the RoPE frequencies.
    theta: float = 10000.0
    #: The head uses the embedding's rows.
    tied: bool = True

    def __post_init__(self) -> None:
        for field, top in _LIMITS.items():
            value = getattr(self, field)
            if not 1 <= value <= top:
                raise ModelError(f"model: {field} must be from 1 to {top}, not {value}")
        if self.dim % self.heads:
            raise ModelError(f"model: dim {self.dim} is not a multiple of heads {self.heads}")
        if self.heads % self.kv_heads:
            raise ModelError(
                f"model: heads {self.heads} is not a multiple of kv_heads {self.kv_heads}"
            )
        if self.head_dim % 2:
            raise ModelError(
                f"model: head dimension {self.head_dim} (dim / heads) is odd, RoPE needs pairs"
            )
        if not self.eps > 0 or not self.theta > 0:
            raise ModelError(f"model: eps {self.eps} and theta {self.theta} must be positive")

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.heads

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def kv_dim(self) -> int:
        """Width of K and of V."""
        return self.kv_heads * self.head_dim

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every array of a `Checkpoint`.

        In file order (`head` comes after the RoPE tables).
        """
        n, d, h, k = self.layers, self.dim, self.hidden, self.kv_dim
        shapes: dict[str, tuple[int, ...]] = {
            "embed": (self.vocab, d),
            "attn_norm": (n, d),
            "wq": (n, d, d),
            "wk": (n, k, d),
            "wv": (n, k, d),
            "wo": (n, d, d),
            "mlp_norm": (n, d),
            "w1": (n, h, d),
            "w2": (n, d, h),
            "w3": (n, h, d),
            "final_norm": (d,),
        }
        if not self.tied:
            shapes["head"] = (self.vocab, d)
        return shapes

    @property
    def parameters(self) -> int:
        """Number of trained values."""
        return sum(int(np.prod(s)) for s in self.shapes().values())


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model in float32.

    Matrices are (outputs, inputs), stacked over layers where they have one each.
    """

    config: ModelConfig
    embed: Floats
    attn_norm: Floats
    wq: Floats
    wk: Floats
    wv: Floats
    wo: Floats
    mlp_norm: Floats
    #: Gate: operand of silu.
    w1: Floats
    #: Down: back to the residual.
    w2: Floats
    #: Up: multiplies silu(gate).
    w3: Floats
    final_norm: Floats
    #: Rows of the LM head; the embedding itself when tied.
    head: Floats

    def __post_init__(self) -> None:
        shapes = self.config.shapes() | {"head": (self.config.vocab, self.config.dim)}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape:
                raise ModelError(f"model: {name} has shape {array.shape}, needed is {shape}")
            if not np.isfinite(array).all():
                at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
                raise ModelError(f"model: {name}{list(at)} is {array[at]}, not a finite number")
            array.setflags(write=False)


def _tail(config: ModelConfig) -> int:
    """Values of the two RoPE tables that a version 0 file carries (and nobody reads)."""
    return config.context * config.head_dim


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a llama2.c version 0 file.

    Raises `ModelError` with one sentence if the file is missing, its header is impossible, its
    length is not what the header says, or a weight is not finite. Nothing is allocated before the
    header and the length agree.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            header = f.read(_HEADER.size)
    except OSError as e:
        raise ModelError(f"cannot read model {path}: {e.strerror}") from None
    if len(header) < _HEADER.size:
        raise ModelError(
            f"model {path} is truncated: {size} bytes, the header alone has {_HEADER.size}"
        )
    dim, hidden, layers, heads, kv_heads, vocab, context = _HEADER.unpack(header)
    try:
        config = ModelConfig(
            dim=dim,
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            vocab=abs(vocab),
            context=context,
            tied=vocab > 0,
        )
    except ModelError as e:
        raise ModelError(f"{path} is not a llama2.c version 0 file: {e}") from None
    need = _HEADER.size + 4 * (config.parameters + _tail(config))
    if size < need:
        raise ModelError(f"model {path} is truncated: its header needs {need} bytes, it has {size}")
    if size > need:
        raise ModelError(
            f"model {path} is longer than its header says: needed are {need} bytes, it has {size}"
        )
    data = np.fromfile(path, "<f4", offset=_HEADER.size)
    arrays: dict[str, Floats] = {}
    at = 0
    for name, shape in config.shapes().items():
        if name == "head":
            at += _tail(config)
        count = int(np.prod(shape))
        arrays[name] = data[at : at + count].reshape(shape).astype(np.float32)
        at += count
    arrays.setdefault("head", arrays["embed"])
    try:
        return Checkpoint(config=config, **arrays)
    except ModelError as e:
        raise ModelError(f"{path}: {e}") from None


def _rope_tables(config: ModelConfig) -> Iterator[Floats]:
    exponent = np.arange(0, config.head_dim, 2) / config.head_dim
    angle = np.outer(np.arange(config.context), config.theta**-exponent)
    yield np.cos(angle).astype("<f4")
    yield np.sin(angle).astype("<f4")


def save_checkpoint(checkpoint: Checkpoint, path: str | Path) -> None:
    """Write a llama2.c version 0 file (without room for eps and theta: the usual ones only).

    Raises `ModelError` if eps or theta differ from what every reader of such a file assumes.
    """
    c = checkpoint.config
    usual = {f.name: f.default for f in dataclasses.fields(c)}
    for name in ("eps", "theta"):
        if getattr(c, name) != usual[name]:
            raise ModelError(
                f"a llama2.c version 0 file cannot hold {name} = {getattr(c, name)}, "
                f"only {usual[name]}"
            )
    vocab = c.vocab if c.tied else -c.vocab
    with Path(path).open("wb") as f:
        f.write(_HEADER.pack(c.dim, c.hidden, c.layers, c.heads, c.kv_heads, vocab, c.context))
        for name in c.shapes():
            if name != "head":
                f.write(np.ascontiguousarray(getattr(checkpoint, name), "<f4").tobytes())
        for table in _rope_tables(c):
            f.write(table.tobytes())
        if not c.tied:
            f.write(np.ascontiguousarray(checkpoint.head, "<f4").tobytes())


def random_checkpoint(config: ModelConfig, seed: int = 0) -> Checkpoint:
    """A model of any legal shape, random weights, activations like a trained model's."""
    rng = np.random.default_rng(seed)

    def normal(shape: tuple[int, ...], scale: float) -> Floats:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    arrays: dict[str, Floats] = {}
    for name, shape in config.shapes().items():
        if name.endswith("norm"):
            arrays[name] = (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
        elif name in ("embed", "head"):
            arrays[name] = normal(shape, 1.5 * config.dim**-0.5)
        else:
            residual = (2 * config.layers) ** -0.5 if name in ("wo", "w2") else 1.0
            arrays[name] = normal(shape, residual * shape[-1] ** -0.5)
    arrays.setdefault("head", arrays["embed"])
    return Checkpoint(config=config, **arrays)
