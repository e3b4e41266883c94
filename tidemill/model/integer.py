"""The integer model: what the machine computes, to the bit, without its time or its memories.

Every arithmetic step is a function of `tidemill.numerics`. Sums are exact (float64 products of
small integers stay below 2**53), so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics
from tidemill.model.checkpoint import ModelError
from tidemill.model.quantmodel import QuantMatrix, QuantModel
from tidemill.numerics import QUAD, compound, preshift

__all__ = ["Cache", "IntegerModel"]

Ints = NDArray[np.int64]
#: Called with (what, layer, integers) for every result of a pass.
Observer = Callable[[str, int, Ints], None]
#: K bytes and V bytes, (layers, batch, kv_heads, positions, head_dim).
Cache = tuple[Ints, Ints]


def swap(y: Ints) -> Ints:
    """SXM SWAP: out[2i] = -in[2i+1], out[2i+1] = in[2i]."""
    out = np.empty_like(y)
    out[..., 0::2], out[..., 1::2] = -y[..., 1::2], y[..., 0::2]
    return out


class IntegerModel:
    """Runs a `QuantModel`, vectorised over a batch of sequences, with a KV cache of bytes."""

    def __init__(self, model: QuantModel) -> None:
        self.model = model
        self.config = model.config
        self._embed = model.embed.astype(np.int64)
        self._embed_mul = model.embed_mul.astype(np.int64)
        self._final_gain = model.final_gain.astype(np.int64)
        self._cos = np.repeat(model.rope_cos.astype(np.int64), 2, -1)
        self._sin = np.repeat(model.rope_sin.astype(np.int64), 2, -1)
        #: float64 copies: their products are exact.
        self._weights = {
            n: getattr(model, n).weight.astype(np.float64)
            for n in ("wq", "wk", "wv", "wo", "w1", "w2", "w3", "head")
        }
        table = model.scalar_table
        self._recip = np.frompyfunc(lambda q: numerics.recip(table, q), 1, 2)
        self._rsqrt = np.frompyfunc(lambda q: numerics.rsqrt(table, q), 1, 2)

    def empty_cache(self, batch: int, positions: int) -> Cache:
        """Zeroed K and V bytes."""
        c = self.config
        shape = (c.layers, batch, c.kv_heads, positions, c.head_dim)
        return np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def _table(self, address: tuple[Ints, Ints]) -> Ints:
        """Lane table at (index, fraction)."""
        index, fraction = address
        base, slope = self.model.lane_table[index, 0], self.model.lane_table[index, 1]
        return compound(slope, fraction, base)

    def _inverse_root(self, x: Ints) -> tuple[Ints, Ints]:
        """(mant, exp) of 1/sqrt(sum of squares + eps), with a trailing axis of 1."""
        mant, exp = self._rsqrt((x * x).sum(-1, keepdims=True) + self.model.eps)
        return mant.astype(np.int64), exp.astype(np.int64)

    def _product(self, name: str, layer: int | None, y: Ints) -> Ints:
        """int32 sums of every row of a matrix with the last axis of `y`."""
        w = self._weights[name] if layer is None else self._weights[name][layer]
        return (y.astype(np.float64) @ w.T).astype(np.int64)

    def _normed(self, name: str, layer: int, x: Ints, norm: tuple[Ints, Ints]) -> Ints:
        """A matrix that reads the residual.

        With the norm's scalar folded into its requantisation.
        """
        m: QuantMatrix = getattr(self.model, name)
        mant, exp = norm
        mul = compound(m.mul[layer].astype(np.int64), mant)
        return compound(preshift(self._product(name, layer, x), m.shift + exp), QUAD * mul)

    def _added(self, name: str, layer: int, y: Ints, x: Ints) -> Ints:
        """A matrix that adds to the residual."""
        m: QuantMatrix = getattr(self.model, name)
        return compound(
            preshift(self._product(name, layer, y), m.shift), m.mul[layer].astype(np.int64), x
        )

    def embed(self, tokens: NDArray[np.integer]) -> Ints:
        """Residual (..., dim) of tokens."""
        m = self.model
        return compound(
            preshift(self._embed[tokens] << 8, m.embed_shift), self._embed_mul[tokens][..., None]
        )

    def hidden(
        self,
        tokens: NDArray[np.integer],
        cache: Cache | None = None,
        start: int = 0,
        observe: Observer | None = None,
    ) -> Ints:
        """Residual (batch, time, dim) after the last layer; see `forward`."""
        c, m = self.config, self.model
        see = observe or (lambda what, layer, values: None)
        batch, time = tokens.shape
        stop = start + time
        if stop > m.max_context:
            raise ModelError(f"{stop} positions are needed, the model has {m.max_context}")
        cache_k, cache_v = cache or self.empty_cache(batch, stop)

        def heads(y: Ints, n: int) -> Ints:
            return y.reshape(batch, time, n, c.head_dim).transpose(0, 2, 1, 3)

        def rope(y: Ints) -> Ints:
            partner = compound(swap(y), QUAD * self._sin[start:stop])
            return compound(y, QUAD * self._cos[start:stop], partner)

        future = np.arange(stop)[None, :] > np.arange(start, stop)[:, None]
        x = self.embed(tokens)
        see("embed", 0, x)
        for i in range(c.layers):
            norm = self._inverse_root(x)
            q = heads(self._normed("wq", i, x, norm), c.heads)
            k = heads(self._normed("wk", i, x, norm), c.kv_heads)
            v = heads(self._normed("wv", i, x, norm), c.kv_heads)
            see("q", i, q), see("k", i, k), see("v", i, v)
            q, k = rope(q), rope(k)
            see("q_rope", i, q), see("k_rope", i, k)
            cache_k[i][:, :, start:stop] = numerics.to_byte(k)
            cache_v[i][:, :, start:stop] = numerics.to_byte(v)
            keys = cache_k[i][:, :, :stop].astype(np.float64)
            values = cache_v[i][:, :, :stop].astype(np.float64)
            see("k_byte", i, cache_k[i]), see("v_byte", i, cache_v[i])

            grouped = q.reshape(batch, c.kv_heads, c.group * time, c.head_dim).astype(np.float64)
            score = (grouped @ keys.swapaxes(-1, -2)).astype(np.int64)
            score = compound(preshift(score, m.score_shift), m.score_mul)
            score = score.reshape(batch, c.kv_heads, c.group, time, stop)
            score = np.where(future, numerics.MASKED, score)
            see("score", i, score)
            p = self._table(numerics.exp_address(score, score.max(-1, keepdims=True)))
            p = np.where(future, 0, p)
            see("p", i, p)
            am, ak = self._recip(p.sum(-1, keepdims=True))
            flat = p.reshape(batch, c.kv_heads, c.group * time, stop).astype(np.float64)
            acc = (flat @ values).astype(np.int64)
            acc = acc.reshape(batch, c.kv_heads, c.group, time, c.head_dim)
            o = compound(preshift(acc, m.attn_shift + ak.astype(np.int64)), am.astype(np.int64))
            o = o.reshape(batch, c.heads, time, c.head_dim)
            o = o.transpose(0, 2, 1, 3).reshape(batch, time, c.dim)
            see("o", i, o)
            x = self._added("wo", i, o, x)
            see("x_mlp", i, x)

            norm = self._inverse_root(x)
            g, u = self._normed("w1", i, x, norm), self._normed("w3", i, x, norm)
            s = self._table(numerics.silu_address(g))
            h = compound(u, s)
            see("g", i, g), see("u", i, u), see("s", i, s), see("h", i, h)
            x = self._added("w2", i, h, x)
            see("x", i, x)
        return x

    def head(self, x: Ints, noise: Ints | int = 0) -> Ints:
        """Logits (..., vocab), int16, of the last residual.

        With `noise` added before saturation.
        """
        m = self.model
        mant, exp = self._inverse_root(x)
        acc = self._product("head", None, compound(x, self._final_gain))
        mul = compound(m.head.mul.astype(np.int64), mant)
        return compound(preshift(acc, m.head.shift + exp), mul, noise)

    def forward(
        self,
        tokens: NDArray[np.integer],
        cache: Cache | None = None,
        start: int = 0,
        observe: Observer | None = None,
    ) -> Ints:
        """Logits (batch, time, vocab), int16 in steps of `units.logit` nats.

        Parameters
        ----------
        tokens
            (batch, time) token numbers at positions start..start+time-1.
        cache
            From `empty_cache`; must hold the positions before `start` and is filled in place.
        start
            Position of the first token.
        observe
            Sees embed, then per layer q, k, v, q_rope, k_rope, k_byte, v_byte, score, p,
            o, x_mlp, g, u, s, h, x. Heads come as (batch, heads, time, head_dim).
        """
        return self.head(self.hidden(tokens, cache, start, observe))

    def noise(self, state: NDArray[np.uint32], mantissa: int) -> tuple[NDArray[np.uint32], Ints]:
        """New lane states and the noise (vocab,) of one HEAD: one step per vector of L tokens.

        Lane l of vector i gives token i * L + l.
        """
        vectors = []
        for _ in range(-(-self.config.vocab // len(state))):
            state = numerics.xorshift32(state)
            vectors.append(self._table(numerics.gumbel_address(numerics.gumbel_code(state))))
        return state, compound(np.concatenate(vectors)[: self.config.vocab], mantissa)

    def generate(
        self,
        prompt: list[int],
        count: int,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        lanes: int = 1,
        eos: int | None = None,
    ) -> list[int]:
        """Up to `count` tokens after `prompt`, as one run of a chip with `lanes` lanes gives them.

        Parameters
        ----------
        prompt
            At least one token (usually BOS first).
        count
            Generated tokens before the run stops; it also stops at the end of the context.
        temperature
            0 is greedy, ties to the lowest token.
        seed
            Seed of the noise generators; matters only above temperature 0.
        lanes
            Lanes of the chip; matters only above temperature 0.
        eos
            Stop after this token; None never stops.

        Raises
        ------
        ModelError
            If the prompt is empty, does not fit or has an unknown token, or the temperature is out
            of range.
        """
        c = self.config
        if not 1 <= len(prompt) <= self.model.max_context:
            raise ModelError(
                f"a prompt must have 1 to {self.model.max_context} tokens, not {len(prompt)}"
            )
        for token in prompt:
            if not 0 <= token < c.vocab:
                raise ModelError(f"token {token} is outside the vocabulary of {c.vocab}")
        mantissa = self.model.noise_mantissa(temperature)
        state = numerics.lane_seeds(seed, lanes)
        positions = min(self.model.max_context, len(prompt) - 1 + count)
        cache = self.empty_cache(1, positions)
        block, start = list(prompt), 0
        out: list[int] = []
        while len(out) < count and start + len(block) <= positions:
            x = self.hidden(np.array([block]), cache, start)
            start += len(block)
            state, noise = self.noise(state, mantissa)
            token = int(self.head(x[0, -1], noise).argmax())
            out.append(token)
            block = [token]
            if token == eos:
                break
        return out
