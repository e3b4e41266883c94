"""The floating-point model: the yardstick for the integers, and the source of calibration data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidemill.model.checkpoint import Checkpoint

__all__ = ["FloatModel", "Observer", "rope_angles"]

Floats = NDArray[np.floating]
#: Called with (what, layer, values) for every intermediate result of a forward pass.
Observer = Callable[[str, int, Floats], None]


def rope_angles(positions: int, head_dim: int, theta: float) -> NDArray[np.float64]:
    """Angles (positions, head_dim / 2) in radians of the interleaved RoPE pairs."""
    return np.outer(np.arange(positions), theta ** -(np.arange(0, head_dim, 2) / head_dim))


class FloatModel:
    """A checkpoint that runs, vectorised over a batch of sequences, with a KV cache.

    Parameters
    ----------
    checkpoint
        The model.
    dtype
        numpy float type of all arithmetic.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: type = np.float32) -> None:
        self.config = c = checkpoint.config
        self.dtype = np.dtype(dtype)
        self._w = {n: getattr(checkpoint, n).astype(dtype) for n in (*c.shapes(), "head")}
        angle = rope_angles(c.context, c.head_dim, c.theta)
        self._cos: Floats = np.cos(angle).astype(dtype)
        self._sin: Floats = np.sin(angle).astype(dtype)

    def empty_cache(self, batch: int, positions: int) -> tuple[Floats, Floats]:
        """Zeroed K and V caches of shape (layers, batch, kv_heads, positions, head_dim)."""
        c = self.config
        shape = (c.layers, batch, c.kv_heads, positions, c.head_dim)
        return np.zeros(shape, self.dtype), np.zeros(shape, self.dtype)

    def _norm(self, x: Floats, gain: Floats) -> Floats:
        return (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + self.dtype.type(self.config.eps)) * gain
        )

    def _rope(self, y: Floats, start: int) -> Floats:
        """Rotate (batch, heads, time, head_dim) from position `start` on."""
        stop = start + y.shape[2]
        cos, sin = self._cos[start:stop], self._sin[start:stop]
        even, odd = y[..., 0::2], y[..., 1::2]
        return np.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(y.shape)

    def forward(
        self,
        tokens: NDArray[np.integer],
        cache: tuple[Floats, Floats] | None = None,
        start: int = 0,
        observe: Observer | None = None,
    ) -> Floats:
        """Logits (batch, time, vocab) of `tokens` (batch, time) at positions start..start+time-1.

        Parameters
        ----------
        tokens
            Token numbers.
        cache
            From `empty_cache`; must hold the positions before `start` and is filled in place.
        start
            Position of the first token.
        observe
            Sees x (residual before each norm), q, k, v, q_rope, k_rope, score (nats, masked ones
            -inf),
            o, g, u, h per layer, and x and logits with layer = layers.
        """
        c, w = self.config, self._w
        see = observe or (lambda what, layer, values: None)
        batch, time = tokens.shape
        stop = start + time
        if stop > c.context:
            raise ValueError(f"{stop} positions, the model has {c.context}")
        cache_k, cache_v = cache or self.empty_cache(batch, stop)

        def heads(y: Floats, n: int) -> Floats:
            return y.reshape(batch, time, n, c.head_dim).transpose(0, 2, 1, 3)

        future = np.arange(stop)[None, :] > np.arange(start, stop)[:, None]
        x = w["embed"][tokens]
        for i in range(c.layers):
            see("x_attn", i, x)
            n = self._norm(x, w["attn_norm"][i])
            q, k = heads(n @ w["wq"][i].T, c.heads), heads(n @ w["wk"][i].T, c.kv_heads)
            v = heads(n @ w["wv"][i].T, c.kv_heads)
            see("q", i, q), see("k", i, k), see("v", i, v)
            q, k = self._rope(q, start), self._rope(k, start)
            see("q_rope", i, q), see("k_rope", i, k)
            cache_k[i][:, :, start:stop], cache_v[i][:, :, start:stop] = k, v
            q = q.reshape(batch, c.kv_heads, c.group * time, c.head_dim)
            score = q @ cache_k[i][:, :, :stop].swapaxes(-1, -2) * self.dtype.type(c.head_dim**-0.5)
            score = score.reshape(batch, c.kv_heads, c.group, time, stop)
            score = np.where(future, -np.inf, score)
            see("score", i, score)
            p = np.exp(score - score.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            o = p.reshape(batch, c.kv_heads, c.group * time, stop) @ cache_v[i][:, :, :stop]
            o = o.reshape(batch, c.heads, time, c.head_dim).transpose(0, 2, 1, 3)
            o = o.reshape(batch, time, c.dim)
            see("o", i, o)
            x = x + o @ w["wo"][i].T
            see("x_mlp", i, x)
            n = self._norm(x, w["mlp_norm"][i])
            g, u = n @ w["w1"][i].T, n @ w["w3"][i].T
            h = g / (1 + np.exp(-g)) * u
            see("g", i, g), see("u", i, u), see("h", i, h)
            x = x + h @ w["w2"][i].T
        see("x_final", c.layers, x)
        logits = self._norm(x, w["final_norm"]) @ w["head"].T
        see("logits", c.layers, logits)
        return logits

    def sample(self, batch: int, length: int, seed: int, first: int = 1) -> NDArray[np.int64]:
        """`batch` sequences (batch, length) that the model writes by itself at temperature 1.

        Every sequence starts with token `first`. The same seed gives the same tokens.
        """
        rng = np.random.default_rng(seed)
        cache = self.empty_cache(batch, length)
        tokens = np.full((batch, length), first, np.int64)
        for p in range(length - 1):
            logits = self.forward(tokens[:, p : p + 1], cache, p)[:, 0].astype(np.float64)
            e = np.exp(logits - logits.max(-1, keepdims=True)).cumsum(-1)
            pick = rng.random((batch, 1)) * e[:, -1:]
            tokens[:, p + 1] = np.minimum((e <= pick).sum(-1), self.config.vocab - 1)
        return tokens
