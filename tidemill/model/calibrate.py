"""Ranges and second moments of the float model, measured on text it writes itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.model.checkpoint import Checkpoint
from tidemill.model.reference import FloatModel

__all__ = ["ANGLES", "Calibration", "calibrate"]

Floats = NDArray[np.float64]

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
