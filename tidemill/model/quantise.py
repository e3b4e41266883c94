"""From a checkpoint to the integers the machine computes with.

`quantise` runs the float model on text it writes itself, measures the range of every intermediate
result, and
chooses shifts, row multipliers and weights so that each pass of the machine (`tidemill.numerics`)
keeps its
precision and does not saturate. `docs/numerics.md` derives the formulas.

A *unit* is the real value of one integer step. A *row* is an output of a matrix.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics
from tidemill.model.checkpoint import Checkpoint, ModelConfig, ModelError
from tidemill.model.reference import FloatModel, rope_angles

__all__ = ["Calibration", "QuantMatrix", "QuantModel", "Units", "quantise"]

Floats = NDArray[np.float64]

INT16 = 32767
PRE = (1 << 17) - 1
#: Largest sum |row| that keeps an int32 accumulator exact under int16 activations.
L1_LIMIT = (2**31 - 1) // INT16
#: Positions whose P x V sum stays exact in int32.
CONTEXT_LIMIT = (2**31 - 1) // (INT16 * 127)
#: Head dimension whose score sum stays exact in int32.
HEAD_LIMIT = CONTEXT_LIMIT
#: Width of the residual whose sum of squares stays below 2**40.
DIM_LIMIT = 1023
#: Score steps per factor of two of the softmax weight (fixed by the exp table).
SCORE_STEPS = 1024
#: Gumbel noise steps per nat (fixed by the noise table).
NOISE_STEPS = 2048

#: How far past the calibrated peak every kind of value may go before it saturates.
MARGIN = {"x": 1.25, "q": 1.25, "k": 1.05, "v": 1.1, "g": 1.25, "u": 1.25, "pre": 1.1, "logit": 1.2}
#: Largest factor by which a row's weights may be made coarser so that its type gets a smaller
#: pre-shift.
NARROW = 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantMatrix:
    """int8 rows and what brings their int32 sums back to int16.

    static:  y = sat16(round(preshift(acc, shift) * mul / 2**16) + C)
    dynamic: y = sat16(round(preshift(acc, shift + rk) * compound(mul, rm) / 2**16) + C),
    (rm, rk) = numerics.rsqrt(sum x**2 + eps) of the residual x that the matrix reads.
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
    k_byte: Floats
    #: (layers, heads, head_dim): one step of q after RoPE.
    q: Floats
    #: (layers, kv_dim): one step of the stored V byte.
    v_byte: Floats
    #: (layers,): one step of u.
    u: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantModel:
    """Everything the compiler needs, unpadded and independent of the chip. Arrays are read-only.

    The passes, in order (`c` = numerics.compound, `p` = numerics.preshift; `IntegerModel` runs
    them):

    ``embed``     x = c(p(embed[v] << 8, embed_shift), embed_mul[v])
    ``norm``      q = sum x**2 + eps;  (rm, rk) = rsqrt(q);  mul' = c(mul, rm) for wq, wk, wv, w1,
    w3, head
    ``q, k, v``   y = c(p(acc, shift + rk), mul')
    ``rope``      t = c(swap(y), sin);  y = c(y, cos, t)    on q and k; the result is at half scale
    ``k``         k_doublings times: y = c(y, 65536, y);  stored byte = to_byte(y)
    ``q``         q_doublings times: y = c(y, 65536, y)
    ``v``         stored byte = to_byte(y)                  (no RoPE, no doubling)
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
    #: Times K is doubled after RoPE, each time by one pass A = y, B = ONE, C = y.
    k_doublings: int
    #: The same for q.
    q_doublings: int
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


# Calibration -------------------------------------------------------------------------------------

#: Offline rotations tried for every RoPE pair of K.
ANGLES = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Peaks of the float model's intermediate results on its own text (absolute values)."""

    #: Residual, anywhere.
    x: float
    #: Smallest mean square of the residual before a norm.
    x_square: float
    #: (layers, rows): before RoPE.
    q: Floats
    k: Floats
    v: Floats
    g: Floats
    u: Floats
    h: Floats
    #: (layers, dim).
    o: Floats
    #: (layers, heads, head_dim / 2): radius of a RoPE pair.
    q_radius: Floats
    #: (ANGLES, layers, kv_heads, head_dim / 2): larger component of a pair, before and after RoPE,
    #: after an offline rotation by i / ANGLES of a quarter turn.
    k_pair: Floats
    #: Contributions to the residual, (layers, dim) before they are added.
    wo: Floats
    w2: Floats
    #: (vocab,).
    logit: Floats
    #: Largest valid score in nats.
    score: float
    #: Second moments E[y y^T] of what matrices read, (layers, inputs, inputs): the normalised
    #: residual before attention and before the MLP, o, h; and (dim, dim) of the final one, gain
    #: included.
    attn_moment: Floats
    mlp_moment: Floats
    o_moment: Floats
    h_moment: Floats
    final_moment: Floats


def _pairs(y: Floats) -> NDArray[np.complex128]:
    return y[..., 0::2] + 1j * y[..., 1::2]


def calibrate(checkpoint: Checkpoint, *, sequences: int, tokens: int, seed: int) -> Calibration:
    """Measure ranges on `sequences` texts of `tokens` tokens, written at temperature 1.

    float64, so that the result does not depend on the machine's float32 kernels.
    """
    c = checkpoint.config
    model = FloatModel(checkpoint, np.float64)
    text = model.sample(sequences, tokens, seed)
    peaks: dict[str, list[Floats]] = {}
    moments: dict[str, list[Floats]] = {}
    x_peak, x_square, score = 0.0, math.inf, 0.0
    turns = np.exp(0.5j * np.pi * np.arange(ANGLES) / ANGLES)

    def moment(what: str, layer: int, y: Floats) -> None:
        layers = moments.setdefault(what + "_moment", [])
        if layer >= len(layers):
            layers.append(np.zeros((y.shape[-1],) * 2))
        flat = y.reshape(-1, y.shape[-1])
        layers[layer] += flat.T @ flat / text.size

    def observe(what: str, layer: int, y: NDArray[Any]) -> None:
        nonlocal x_peak, x_square, score
        if what.startswith("x_"):
            x_peak = max(x_peak, float(np.abs(y).max()))
            square = (y * y).mean(-1, keepdims=True)
            x_square = min(x_square, float(square.min()))
            final = what == "x_final"
            gain = checkpoint.final_norm if final else 1.0
            moment(what[2:], 0 if final else layer, y / np.sqrt(square + c.eps) * gain)
            return
        if what in ("o", "h"):
            moment(what, layer, y)
        if what == "score":
            score = max(score, float(np.abs(y.max(-1)).max()))
            return
        if what in ("k", "k_rope"):
            z = _pairs(y)
            peak = np.stack(
                [np.maximum(abs((z * t).real), abs((z * t).imag)).max((0, 2)) for t in turns]
            )
            peaks.setdefault(what + "_pair", []).append(peak)
        if what == "q_rope":
            peaks.setdefault("q_radius", []).append(np.abs(_pairs(y)).max((0, 2)))
        elif y.ndim == 4:
            peaks.setdefault(what, []).append(np.abs(y).max((0, 2)).reshape(-1))
        else:
            peaks.setdefault(what, []).append(np.abs(y).max((0, 1)))
        if what in ("o", "h"):
            matrix = {"o": "wo", "h": "w2"}[what]
            added = y @ getattr(checkpoint, matrix)[layer].astype(np.float64).T
            peaks.setdefault(matrix, []).append(np.abs(added).max((0, 1)))

    for part in np.array_split(text, max(1, sequences // 8)):
        previous = peaks
        peaks = {}
        model.forward(part, observe=observe)
        for name, layers in previous.items():
            peaks[name] = [np.maximum(a, b) for a, b in zip(peaks[name], layers, strict=True)]
    assert c.layers == len(peaks["q"])
    stack = {name: np.stack(layers) for name, layers in peaks.items()}
    return Calibration(
        x=x_peak,
        x_square=x_square,
        score=score,
        logit=stack["logits"][0],
        k_pair=np.maximum(stack["k_pair"], stack["k_rope_pair"]).transpose(1, 0, 2, 3),
        final_moment=moments.pop("final_moment")[0],
        **{name: np.stack(layers) for name, layers in moments.items()},
        **{n: stack[n] for n in ("q", "k", "v", "g", "u", "h", "o", "q_radius", "wo", "w2")},
    )


# Rows --------------------------------------------------------------------------------------------


def _frozen(array: NDArray, dtype: type) -> NDArray:
    info = np.iinfo(dtype)
    assert array.min() >= -info.max
    assert array.max() <= info.max
    out: NDArray[Any] = np.ascontiguousarray(array, dtype)
    out.setflags(write=False)
    return out


def _round(x: Floats) -> NDArray[np.int64]:
    return np.floor(x + 0.5).astype(np.int64)


def _row_units(w: Floats) -> Floats:
    """Unit of every row (..., rows) of weights (..., rows, inputs).

    An all-zero row gets a tiny one.
    """
    return np.maximum(np.abs(w).max(-1), 1e-30) / 127


#: Share of the mean second moment added to every input's own, so that the inverse is well behaved.
DAMPING = 0.01


def _compensate(w: Floats, moment: Floats) -> Floats:
    """Integers near the rows of `w` (rows, inputs) whose sums are nearest on average.

    Inputs are rounded one after another, strongest first; what is lost on one is made up for on
    those not yet rounded, as far as they are correlated (`moment`, (inputs, inputs)). This is GPTQ
    (Frantar et al., 2022).
    """
    order = np.argsort(-moment.diagonal(), kind="stable")
    damped = moment + np.eye(len(moment)) * (DAMPING * moment.diagonal().mean() + 1e-30)
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    rest = w[:, order]
    out = np.empty_like(rest)
    for j in range(rest.shape[1]):
        out[:, j] = np.clip(np.floor(rest[:, j] + 0.5), -127, 127)
        rest[:, j + 1 :] -= np.outer((rest[:, j] - out[:, j]) / upper[j, j], upper[j, j + 1 :])
    return out[:, np.argsort(order)]


def _rows(w: Floats, unit: Floats, moment: Floats, name: str) -> NDArray[np.int8]:
    """int8 rows (..., rows, inputs) for inputs with second moments (..., inputs, inputs).

    Raises `ModelError` naming matrix, layer and row if a row's L1 norm could overflow an
    accumulator.
    """
    scaled = w / unit[..., None]
    if w.ndim == 2:
        q = _compensate(scaled, moment).astype(np.int64)
    else:
        q = np.stack([_compensate(*layer) for layer in zip(scaled, moment, strict=True)]).astype(
            np.int64
        )
    l1 = np.abs(q).sum(-1)
    if l1.max() > L1_LIMIT:
        at = np.unravel_index(int(l1.argmax()), l1.shape)
        where = f"layer {at[0]} row {at[1]}" if len(at) == 2 else f"row {at[0]}"
        raise ModelError(
            f"{name} {where}: the sum of |weights| is {l1[at]}, "
            f"an int32 accumulator allows {L1_LIMIT}"
        )
    return _frozen(q, np.int8)


def _narrow(w: Floats, unit: Floats) -> Floats:
    """Units made just large enough that no row's L1 norm exceeds L1_LIMIT."""
    l1 = np.abs(w).sum(-1) / unit + w.shape[-1] / 2
    return unit * np.maximum(1.0, l1 / L1_LIMIT)


def _pre_shift(peak: Floats, unit: Floats, lowest: int) -> tuple[int, Floats]:
    """Smallest pre-shift for all rows, and the units of rows that had to be made coarser for it.

    peak: largest |acc| * unit of every row, after the exponent is taken away.
    """
    for shift in range(lowest, 32):
        factor = peak * MARGIN["pre"] / (unit * PRE * 2.0**shift)
        if factor.max() <= NARROW:
            return shift, unit * np.maximum(1.0, factor)
    raise ModelError("an accumulator needs a pre-shift beyond 31")


def _mul(value: Floats, name: str) -> NDArray[np.int16]:
    m = _round(value)
    if m.max() > INT16:
        raise ModelError(f"{name}: a row multiplier is {m.max()}, the largest is {INT16}")
    return _frozen(m, np.int16)


# The quantiser -----------------------------------------------------------------------------------


def quantise(
    checkpoint: Checkpoint,
    *,
    calibration_tokens: int | None = None,
    calibration_sequences: int = 48,
    seed: int = 0,
    k_doublings: int = 3,
) -> QuantModel:
    """Quantise for the machine. Deterministic; seconds for a model of 260,000 parameters.

    Parameters
    ----------
    checkpoint
        The model.
    calibration_tokens
        Length of the calibration texts: the context the model was trained at. Default: the model's
        context, at most 192.
    calibration_sequences
        Number of calibration texts.
    seed
        Seed of the calibration texts.
    k_doublings
        Passes that double K after RoPE: RoPE halves it once, and rows with small sums need another
        factor.

    Raises
    ------
    ModelError
        If the model cannot be computed exactly: too wide for an accumulator or a format. The text
        names the matrix, layer and row.
    """
    c = checkpoint.config
    if c.dim > DIM_LIMIT:
        raise ModelError(f"dim {c.dim}: the sum of squares allows at most {DIM_LIMIT}")
    if c.head_dim > HEAD_LIMIT:
        raise ModelError(
            f"head dimension {c.head_dim}: a score's int32 sum allows at most {HEAD_LIMIT}"
        )
    tokens = calibration_tokens or min(c.context, 192)
    cal = calibrate(
        checkpoint, sequences=calibration_sequences, tokens=min(tokens, c.context), seed=seed
    )
    f64 = {n: getattr(checkpoint, n).astype(np.float64) for n in (*c.shapes(), "head")}
    root = math.sqrt(c.dim)
    attn, mlp = f64["attn_norm"][:, None, :] * root, f64["mlp_norm"][:, None, :] * root

    # Residual and embedding: x up to INT16, and embedding multipliers up to INT16 at shift 0.
    embed_unit = _narrow(f64["embed"], _row_units(f64["embed"]))
    sx = max(cal.x * MARGIN["x"] / INT16, float(embed_unit.max()) * 256 / INT16)
    embed_shift = min(8, math.floor(math.log2(INT16 * sx / (256 * float(embed_unit.max())))))
    embed_mul = _mul(embed_unit / sx * 2.0 ** (8 + embed_shift), "embedding")
    eps = max(1, round(c.dim * c.eps / sx**2))
    # Below a quarter of the smallest calibrated square the pre-shift's clamp at 0 acts as a larger
    # eps.
    rk_min = max(eps, int(c.dim * cal.x_square / sx**2 / 4)).bit_length() - 1 >> 1

    def dynamic(w: Floats, peak: Floats) -> tuple[Floats, int]:
        """Row units and shift of a matrix that reads the residual.

        1/sqrt leaves a factor below 2.
        """
        shift, unit = _pre_shift(2 * peak, _row_units(w), -rk_min)
        return _narrow(w, unit), shift

    def matrix(w: Floats, unit: Floats, mul: Floats, shift: int, name: str) -> QuantMatrix:
        moment = {"wo": cal.o_moment, "w2": cal.h_moment, "head": cal.final_moment}.get(name)
        if moment is None:
            moment = cal.mlp_moment if name in ("w1", "w3") else cal.attn_moment
        return QuantMatrix(
            weight=_rows(w, unit, moment, name),
            mul=_mul(mul, name),
            shift=shift,
            dynamic=name not in ("wo", "w2"),
        )

    def at_least(unit: Floats, shift: int) -> Floats:
        """Smallest unit of a row's result whose multiplier fits."""
        return unit * 2.0 ** (16 + shift) / INT16

    # K: rotate every pair so that its larger component is smallest, then fill the byte.
    heads = (c.layers, c.heads, c.head_dim)
    kv_heads = (c.layers, c.kv_heads, c.head_dim)
    best = cal.k_pair.argmin(0)
    k_peak = np.repeat(np.take_along_axis(cal.k_pair, best[None], 0)[0], 2, -1)
    turn = np.exp(0.5j * np.pi * best / ANGLES)

    def rotate(w: Floats, turn: NDArray[np.complex128]) -> Floats:
        pairs = w.reshape(*turn.shape[:2], c.head_dim // 2, 2, c.dim)
        z = (pairs[..., 0, :] + 1j * pairs[..., 1, :]) * turn[..., None]
        return np.stack([z.real, z.imag], -2).reshape(w.shape)

    wk = rotate(f64["wk"] * attn, turn)
    wq = rotate(f64["wq"] * attn, np.repeat(turn, c.group, 1))
    k_unit, k_shift = dynamic(wk, k_peak.reshape(c.layers, -1))
    floor = at_least(k_unit, k_shift).reshape(kv_heads)
    floor = np.repeat(floor.reshape(*floor.shape[:2], -1, 2).max(-1), 2, -1)
    # y_k is the unit before RoPE; the stored byte is y_k * 2 (RoPE) * 256 / 2**k_doublings.
    byte = 512 / 2.0**k_doublings
    y_k = np.maximum(
        np.maximum(k_peak * MARGIN["k"] / (127 * byte), floor), k_peak * MARGIN["k"] / INT16
    )
    k_byte = y_k * byte

    # Q takes what K leaves: unit(q) * unit(k byte) is one constant.
    q_peak = np.repeat(cal.q_radius, 2, -1)
    q_unit, q_shift = dynamic(wq, q_peak.reshape(c.layers, -1))
    k_of_q = np.repeat(k_byte, c.group, 1)
    q_floor = np.maximum(q_peak * MARGIN["q"] / INT16, at_least(q_unit, q_shift).reshape(heads))
    product = float((2 * q_floor * k_of_q).max())
    nats = math.log2(math.e) * SCORE_STEPS / math.sqrt(c.head_dim)
    # A score is the sum times at most one; q doubled after RoPE halves what it has to be
    # multiplied by.
    q_doublings = max(0, math.ceil(math.log2(product * nats / 0.99)))
    product /= 2.0**q_doublings
    score_shift = max(0, math.ceil(math.log2(product * nats)) * -1 - 1)
    score_mul = math.ceil(product * nats * 2.0 ** (16 + score_shift))
    if score_mul >= 1 << 16:
        raise ModelError(f"attention scores need a multiplier of {score_mul}, the largest is 65535")
    product = score_mul / (nats * 2.0 ** (16 + score_shift))
    y_q = product / (2 * k_of_q) * 2.0**q_doublings

    # V: a unit per channel, taken back by Wo's columns.
    wv = f64["wv"] * attn
    v_unit, v_shift = dynamic(wv, cal.v)
    y_v = np.maximum(cal.v * MARGIN["v"] / (127 * 256), at_least(v_unit, v_shift))

    columns = np.repeat(y_v.reshape(kv_heads), c.group, 1).reshape(c.layers, 1, -1)
    wo = f64["wo"] * columns
    o_shift, wo_unit = _pre_shift(cal.wo, _row_units(wo), 0)
    wo_unit = _narrow(wo, wo_unit)

    # MLP.
    w1, w3 = f64["w1"] * mlp, f64["w3"] * mlp
    g_unit, g_shift = dynamic(w1, cal.g)
    silu_in = max(float(cal.g.max()) * MARGIN["g"] / INT16, float(at_least(g_unit, g_shift).max()))
    silu_out = INT16 * silu_in / INT16
    u_unit, u_shift = dynamic(w3, cal.u)
    y_u = np.maximum(cal.u.max(-1) * MARGIN["u"] / INT16, at_least(u_unit, u_shift).max(-1))
    w2 = f64["w2"] * (y_u * silu_out * 65536)[:, None, None]
    h_shift, w2_unit = _pre_shift(cal.w2, _row_units(w2), 0)
    w2_unit = _narrow(w2, w2_unit)

    # Head: xg = x * gain * scale; its rows are the embedding's when tied.
    gain_peak = float(np.abs(f64["final_norm"]).max())
    scale = INT16 / 65536 / gain_peak
    if c.tied:
        head_unit, head_mul_scale = embed_unit, 2.0 ** (8 + embed_shift) / sx
    else:
        head_unit = _narrow(f64["head"], _row_units(f64["head"]))
        head_mul_scale = INT16 / float(head_unit.max())
    pre = 2 * float((cal.logit / head_unit).max()) * MARGIN["pre"] / root
    head_shift = max(-rk_min, math.ceil(math.log2(pre * scale / PRE)))
    # logit = integer * root / scale * 2**(16 + head_shift) / head_mul_scale
    unit = root / scale * 2.0 ** (16 + head_shift) / head_mul_scale
    unit = max(unit, float(cal.logit.max()) * MARGIN["logit"] / INT16)
    unit = 2.0 ** math.ceil(math.log2(unit))
    scale = root / unit * 2.0 ** (16 + head_shift) / head_mul_scale
    final_gain = _mul_signed(f64["final_norm"] * scale * 65536)
    if c.tied:
        embed = _rows(f64["embed"], embed_unit, np.eye(c.dim), "embedding")
        head = QuantMatrix(weight=embed, mul=embed_mul, shift=head_shift, dynamic=True)
    else:
        embed = _rows(f64["embed"], embed_unit, np.eye(c.dim), "embedding")
        head = matrix(f64["head"], head_unit, head_unit * head_mul_scale, head_shift, "head")

    angle = rope_angles(c.context, c.head_dim, c.theta)
    flat = (c.layers, -1)
    return QuantModel(
        config=c,
        embed=embed,
        embed_mul=embed_mul,
        embed_shift=embed_shift,
        eps=eps,
        wq=matrix(wq, q_unit, q_unit / y_q.reshape(flat) * 2.0 ** (16 + q_shift), q_shift, "wq"),
        wk=matrix(wk, k_unit, k_unit / y_k.reshape(flat) * 2.0 ** (16 + k_shift), k_shift, "wk"),
        wv=matrix(wv, v_unit, v_unit / y_v * 2.0 ** (16 + v_shift), v_shift, "wv"),
        wo=matrix(wo, wo_unit, wo_unit / sx * 2.0 ** (16 + o_shift), o_shift, "wo"),
        w1=matrix(w1, g_unit, g_unit / silu_in * 2.0 ** (16 + g_shift), g_shift, "w1"),
        w2=matrix(w2, w2_unit, w2_unit / sx * 2.0 ** (16 + h_shift), h_shift, "w2"),
        w3=matrix(w3, u_unit, u_unit / y_u[:, None] * 2.0 ** (16 + u_shift), u_shift, "w3"),
        final_gain=final_gain,
        head=head,
        rope_cos=_frozen(_round(np.cos(angle) * INT16), np.int16),
        rope_sin=_frozen(_round(np.sin(angle) * INT16), np.int16),
        k_doublings=k_doublings,
        q_doublings=q_doublings,
        score_mul=score_mul,
        score_shift=score_shift,
        attn_shift=-8,
        lane_table=_frozen(numerics.build_lane_table(silu_in, silu_out), np.int64),
        scalar_table=_frozen(numerics.build_scalar_table(), np.int64),
        units=Units(
            residual=sx,
            silu_in=silu_in,
            silu_out=silu_out,
            logit=unit,
            k_byte=k_byte,
            q=2 * y_q / 2.0**q_doublings,
            v_byte=256 * y_v,
            u=y_u,
        ),
    )


def _mul_signed(value: Floats) -> NDArray[np.int16]:
    return _frozen(np.clip(_round(value), -INT16, INT16), np.int16)
