"""A quantised decoder: everything the compiler needs, and the passes that its integers mean."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemill.model.checkpoint import ModelConfig, ModelError

__all__ = ["CONTEXT_LIMIT", "INT16", "QuantMatrix", "QuantModel", "Units"]

INT16 = 32767
#: Positions whose P x V sum stays exact in int32.
CONTEXT_LIMIT = (2**31 - 1) // (INT16 * 127)
#: Gumbel noise steps per nat (fixed by the noise table).
NOISE_STEPS = 2048


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantMatrix:
    """int8 rows and what brings their int32 sums back to int16.

    static:  y = sat16(round(preshift(acc, shift) * mul / 2**16) + C)
    dynamic: y = sat16(round(preshift(acc, shift + rk) * gain * compound(mul, rm) / 2**16) + C),
    (rm, rk) = numerics.rsqrt(sum x**2 + eps) of the residual x that the matrix reads; gain is
    4 (`numerics.QUAD`), for the head 1.
    """

    #: (layers, rows, inputs) int8, -127..127; the head has no layer axis.
    weight: NDArray[np.int8]
    #: (layers, rows) int16, 0..32767.
    mul: NDArray[np.int16]
    #: Pre-shift, the same in all layers; the exponent rk is added when `dynamic`. May be negative
    #: then.
    shift: int
    dynamic: bool


@dataclass(frozen=True, kw_only=True)
class Units:
    """Real value of one step of every integer format. For reports only.

    The machine never sees them.
    """

    residual: float
    silu_in: float
    silu_out: float
    logit: float
    #: (layers, kv_heads, head_dim): one step of the stored K byte.
    k_byte: NDArray[np.float64]
    #: (layers, heads, head_dim): one step of q after RoPE.
    q: NDArray[np.float64]
    #: (layers, kv_dim): one step of the stored V byte.
    v_byte: NDArray[np.float64]
    #: (layers,): one step of u.
    u: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantModel:
    """Everything the compiler needs, unpadded and independent of the chip. Arrays are read-only.

    The passes, in order (`c` = numerics.compound, `p` = numerics.preshift; `IntegerModel` runs
    them):

    ``embed``     x = c(p(embed[v] << 8, embed_shift), embed_mul[v])
    ``norm``      q = sum x**2 + eps;  (rm, rk) = rsqrt(q);  mul' = c(mul, rm) for wq, wk, wv, w1,
    w3, head
    ``q, k, v``   y = c(p(acc, shift + rk), 4 mul')
    ``rope``      t = c(swap(y), 4 sin);  y = c(y, 4 cos, t)  on q and k; the result is doubled
    ``k, v``      stored byte = to_byte(y)
    ``score``     s = c(p(sum q * k_byte, score_shift), score_mul)
    ``softmax``   P = exp table(s, max s over positions 0..p);  (am, ak) = recip(sum P)
    ``attention`` o = c(p(sum P * v_byte, attn_shift + ak), am)
    ``wo, w2``    x = c(p(acc, shift), mul, x)
    ``mlp``       g, u as q;  s = silu table(g);  h = c(u, s)
    ``final``     xg = c(x, final_gain);  (rm, rk) from x;  head on xg
    ``head``      logit = c(p(acc, head.shift + rk), mul', noise)
    ``noise``     noise = c(gumbel table(code), noise_mantissa(temperature)), 0 for temperature 0
    """

    config: ModelConfig
    #: (vocab, dim) int8 rows of the embedding.
    embed: NDArray[np.int8]
    #: (vocab,) int16, 0..32767.
    embed_mul: NDArray[np.int16]
    #: 0..8.
    embed_shift: int
    #: Added to every sum of squares, at least 1.
    eps: int
    #: (layers, heads * head_dim, dim), attention gain folded in. Row h * head_dim + d.
    wq: QuantMatrix
    #: (layers, kv_heads * head_dim, dim), attention gain folded in.
    wk: QuantMatrix
    #: (layers, kv_heads * head_dim, dim), attention gain folded in.
    wv: QuantMatrix
    #: (layers, dim, heads * head_dim), adds to the residual.
    wo: QuantMatrix
    #: (layers, hidden, dim) gate, MLP gain folded in.
    w1: QuantMatrix
    #: (layers, dim, hidden) down, adds to the residual.
    w2: QuantMatrix
    #: (layers, hidden, dim) up, MLP gain folded in.
    w3: QuantMatrix
    #: (dim,) int16, the final norm's gain times a power-of-two-unit constant.
    final_gain: NDArray[np.int16]
    #: (vocab, dim). When `config.tied`, weight is `embed` and mul is `embed_mul` (one copy serves
    #: both).
    head: QuantMatrix
    #: (context, head_dim / 2) int16: round(32767 * cos), interleaved pairs (2i, 2i + 1).
    rope_cos: NDArray[np.int16]
    #: (context, head_dim / 2) int16.
    rope_sin: NDArray[np.int16]
    #: Scalar mantissa, 1..65535, one for all layers and heads.
    score_mul: int
    score_shift: int
    #: Added to the exponent of 1 / sum P: always -8, o is the mean of V in steps of 1/256 byte.
    attn_shift: int
    #: (512, 2) int16 base, slope: numerics.build_lane_table.
    lane_table: NDArray[np.int64]
    #: (512, 2) base, slope: numerics.build_scalar_table.
    scalar_table: NDArray[np.int64]
    units: Units

    @property
    def max_context(self) -> int:
        """Positions this model may run: the RoPE table's, and what keeps P x V exact in int32."""
        return min(self.config.context, CONTEXT_LIMIT)

    def noise_mantissa(self, temperature: float) -> int:
        """Scalar mantissa that scales the Gumbel noise; 0 (greedy) for temperature 0.

        Raises `ModelError` if the temperature is negative, not finite or above `max_temperature`.
        """
        mantissa = round(temperature * self._noise_scale) if math.isfinite(temperature) else -1
        if not 0 <= mantissa < 1 << 16:
            raise ModelError(
                f"temperature must be from 0 to {self.max_temperature:.2f} for this model, "
                f"not {temperature}"
            )
        return mantissa

    @property
    def _noise_scale(self) -> float:
        return 65536 / (NOISE_STEPS * self.units.logit)

    @property
    def max_temperature(self) -> float:
        """Highest temperature whose noise mantissa fits 16 bits."""
        return 65535 / self._noise_scale

    @property
    def hash(self) -> str:
        """16 hex digits over every integer the machine sees."""
        digest = hashlib.sha256()

        def feed(name: str, value: object) -> None:
            if isinstance(value, QuantMatrix):
                for f in dataclasses.fields(value):
                    feed(f"{name}.{f.name}", getattr(value, f.name))
            elif isinstance(value, np.ndarray):
                little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
                digest.update(f"{name} {value.dtype.kind}{value.itemsize} {value.shape}".encode())
                digest.update(little.tobytes())
            elif isinstance(value, ModelConfig):
                text = json.dumps(dataclasses.asdict(value), sort_keys=True)
                digest.update(f"{name} {text}".encode())
            else:
                digest.update(f"{name} {value!r}".encode())

        for f in dataclasses.fields(self):
            if f.name != "units":
                feed(f.name, getattr(self, f.name))
        return digest.hexdigest()[:16]
