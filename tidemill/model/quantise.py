"""From a checkpoint to the integers the machine computes with.

`quantise` measures the range of every intermediate result (`tidemill.model.calibrate`) and chooses
shifts, row multipliers and weights so that each pass of the machine (`tidemill.numerics`) keeps its
precision and does not saturate. `docs/numerics.md` derives the formulas.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics
from tidemill.model.calibrate import ANGLES, calibrate
from tidemill.model.checkpoint import Checkpoint, ModelError
from tidemill.model.quantmodel import CONTEXT_LIMIT, INT16, QuantMatrix, QuantModel, Units
from tidemill.model.reference import rope_angles
from tidemill.model.rows import (
    PRE,
    frozen,
    multipliers,
    narrow,
    pre_shift,
    row_units,
    rows,
    to_nearest,
)

__all__ = ["quantise"]

Floats = NDArray[np.float64]

#: Head dimension whose score sum stays exact in int32.
HEAD_LIMIT = CONTEXT_LIMIT
#: Width of the residual whose sum of squares stays below 2**40.
DIM_LIMIT = 1023
#: Score steps per factor of two of the softmax weight (fixed by the exp table).
SCORE_STEPS = 1024
#: One as the row multiplier of a matrix that reads the residual: B is 4 times as large.
ROW_ONE = numerics.ONE // numerics.QUAD

#: How far past the calibrated peak every kind of value may go before it saturates.
MARGIN = {
    "x": 1.25,
    "q": 1.25,
    "k": 1.05,
    "v": 1.1,
    "g": 1.25,
    "u": 1.25,
    "head": 1.1,
    "logit": 1.2,
}


def quantise(
    checkpoint: Checkpoint,
    *,
    calibration_tokens: int | None = None,
    calibration_sequences: int = 48,
    seed: int = 0,
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
    embed_unit = narrow(f64["embed"], row_units(f64["embed"]))
    sx = max(cal.x * MARGIN["x"] / INT16, float(embed_unit.max()) * 256 / INT16)
    embed_shift = min(8, math.floor(math.log2(INT16 * sx / (256 * float(embed_unit.max())))))
    embed_mul = multipliers(embed_unit / sx * 2.0 ** (8 + embed_shift), "embedding")
    eps = max(1, round(c.dim * c.eps / sx**2))
    # Below a quarter of the smallest calibrated square the pre-shift's clamp at 0 acts as a larger
    # eps.
    rk_min = max(eps, int(c.dim * cal.x_square / sx**2 / 4)).bit_length() - 1 >> 1

    def dynamic(w: Floats, peak: Floats) -> tuple[Floats, int]:
        """Row units and shift of a matrix that reads the residual.

        1/sqrt leaves a factor below 2.
        """
        shift, unit = pre_shift(2 * peak, row_units(w), -rk_min)
        return narrow(w, unit), shift

    def matrix(w: Floats, unit: Floats, mul: Floats, shift: int, name: str) -> QuantMatrix:
        moment = {"wo": cal.o_moment, "w2": cal.h_moment, "head": cal.final_moment}.get(name)
        if moment is None:
            moment = cal.mlp_moment if name in ("w1", "w3") else cal.attn_moment
        return QuantMatrix(
            weight=rows(w, unit, moment, name),
            mul=multipliers(mul, name),
            shift=shift,
            dynamic=name not in ("wo", "w2"),
        )

    def at_least(unit: Floats, shift: int) -> Floats:
        """Smallest unit of a row's result whose multiplier fits."""
        return unit * ROW_ONE * 2.0**shift / INT16

    def to_multiplier(unit: Floats, result: Floats, shift: int) -> Floats:
        """Row multipliers of a matrix that reads the residual."""
        return unit / result * ROW_ONE * 2.0**shift

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
    # y_k is the unit before RoPE, which doubles; a byte has 256 steps.
    y_k = np.maximum(k_peak * MARGIN["k"] / (127 * 128), floor)
    k_byte = y_k * 128

    # Q takes what K leaves: unit(q) * unit(k byte) is one constant.
    q_peak = np.repeat(cal.q_radius, 2, -1)
    q_unit, q_shift = dynamic(wq, q_peak.reshape(c.layers, -1))
    k_of_q = np.repeat(k_byte, c.group, 1)
    q_floor = np.maximum(2 * q_peak * MARGIN["q"] / INT16, at_least(q_unit, q_shift).reshape(heads))
    product = float((q_floor / 2 * k_of_q).max())
    nats = math.log2(math.e) * SCORE_STEPS / math.sqrt(c.head_dim)
    score_shift = max(0, math.ceil(math.log2(product * nats)) * -1 - 1)
    score_mul = math.ceil(product * nats * 2.0 ** (16 + score_shift))
    if score_mul >= 1 << 16:
        at = np.unravel_index(int((q_floor * k_of_q).argmax()), heads)
        raise ModelError(
            f"wq layer {at[0]} head {at[1]} channel {at[2]}: attention scores would need a "
            f"multiplier of {score_mul}, the largest is 65535; scores are too large, or the sums "
            "of this row too small beside other rows'"
        )
    product = score_mul / (nats * 2.0 ** (16 + score_shift))
    y_q = 2 * product / k_of_q

    # V: a unit per channel, taken back by Wo's columns.
    wv = f64["wv"] * attn
    v_unit, v_shift = dynamic(wv, cal.v)
    y_v = np.maximum(cal.v * MARGIN["v"] / (127 * 256), at_least(v_unit, v_shift))

    columns = np.repeat(y_v.reshape(kv_heads), c.group, 1).reshape(c.layers, 1, -1)
    wo = f64["wo"] * columns
    o_shift, wo_unit = pre_shift(cal.wo, row_units(wo), 0)
    wo_unit = narrow(wo, wo_unit)

    # MLP.
    w1, w3 = f64["w1"] * mlp, f64["w3"] * mlp
    g_unit, g_shift = dynamic(w1, cal.g)
    silu_in = max(float(cal.g.max()) * MARGIN["g"] / INT16, float(at_least(g_unit, g_shift).max()))
    silu_out = silu_in
    u_unit, u_shift = dynamic(w3, cal.u)
    y_u = np.maximum(cal.u.max(-1) * MARGIN["u"] / INT16, at_least(u_unit, u_shift).max(-1))
    w2 = f64["w2"] * (y_u * silu_out * 65536)[:, None, None]
    h_shift, w2_unit = pre_shift(cal.w2, row_units(w2), 0)
    w2_unit = narrow(w2, w2_unit)

    # Head: xg = x * gain * scale; its rows are the embedding's when tied.
    gain_peak = float(np.abs(f64["final_norm"]).max())
    scale = INT16 / 65536 / gain_peak
    if c.tied:
        head_unit, head_mul_scale = embed_unit, 2.0 ** (8 + embed_shift) / sx
    else:
        head_unit = narrow(f64["head"], row_units(f64["head"]))
        head_mul_scale = INT16 / float(head_unit.max())
    pre = 2 * float((cal.logit / head_unit).max()) * MARGIN["head"] / root
    head_shift = max(-rk_min, math.ceil(math.log2(pre * scale / PRE)))
    # logit = integer * root / scale * 2**(16 + head_shift) / head_mul_scale
    unit = root / scale * 2.0 ** (16 + head_shift) / head_mul_scale
    unit = max(unit, float(cal.logit.max()) * MARGIN["logit"] / INT16)
    unit = 2.0 ** math.ceil(math.log2(unit))
    scale = root / unit * 2.0 ** (16 + head_shift) / head_mul_scale
    final_gain = np.clip(to_nearest(f64["final_norm"] * scale * 65536), -INT16, INT16)
    embed = rows(f64["embed"], embed_unit, np.eye(c.dim), "embedding")
    if c.tied:
        head = QuantMatrix(weight=embed, mul=embed_mul, shift=head_shift, dynamic=True)
    else:
        head = matrix(f64["head"], head_unit, head_unit * head_mul_scale, head_shift, "head")

    angle = rope_angles(c.context, c.head_dim, c.theta)
    flat = (c.layers, -1)
    return QuantModel(
        config=c,
        embed=embed,
        embed_mul=embed_mul,
        embed_shift=embed_shift,
        eps=eps,
        wq=matrix(wq, q_unit, to_multiplier(q_unit, y_q.reshape(flat), q_shift), q_shift, "wq"),
        wk=matrix(wk, k_unit, to_multiplier(k_unit, y_k.reshape(flat), k_shift), k_shift, "wk"),
        wv=matrix(wv, v_unit, to_multiplier(v_unit, y_v, v_shift), v_shift, "wv"),
        wo=matrix(wo, wo_unit, wo_unit / sx * 2.0 ** (16 + o_shift), o_shift, "wo"),
        w1=matrix(w1, g_unit, to_multiplier(g_unit, np.array(silu_in), g_shift), g_shift, "w1"),
        w2=matrix(w2, w2_unit, w2_unit / sx * 2.0 ** (16 + h_shift), h_shift, "w2"),
        w3=matrix(w3, u_unit, to_multiplier(u_unit, y_u[:, None], u_shift), u_shift, "w3"),
        final_gain=frozen(final_gain, np.int16),
        head=head,
        rope_cos=frozen(to_nearest(np.cos(angle) * INT16), np.int16),
        rope_sin=frozen(to_nearest(np.sin(angle) * INT16), np.int16),
        score_mul=score_mul,
        score_shift=score_shift,
        attn_shift=-8,
        lane_table=frozen(numerics.build_lane_table(silu_in, silu_out), np.int64),
        scalar_table=frozen(numerics.build_scalar_table(), np.int64),
        units=Units(
            residual=sx,
            silu_in=silu_in,
            silu_out=silu_out,
            logit=unit,
            k_byte=k_byte,
            q=y_q / 2,
            v_byte=256 * y_v,
            u=y_u,
        ),
    )
