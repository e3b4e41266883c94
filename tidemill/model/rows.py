"""Rows of a matrix as int8: their units, their rounding, and the bounds that keep sums exact.

A *unit* is the real value of one integer step. A *row* is an output of a matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.model.checkpoint import ModelError
from tidemill.model.quantmodel import INT16

__all__ = ["PRE", "frozen", "multipliers", "narrow", "pre_shift", "row_units", "rows", "to_nearest"]

Floats = NDArray[np.float64]

#: Largest shifted sum: 18 bits, signed.
PRE = (1 << 17) - 1
#: Largest sum |row| that keeps an int32 accumulator exact under int16 activations.
L1_LIMIT = (2**31 - 1) // INT16
#: How far past its calibrated peak a shifted sum may go before it saturates.
MARGIN = 1.1
#: Largest factor by which a row's weights may be made coarser so that its type gets a smaller
#: pre-shift.
NARROW = 1.5


def frozen(array: NDArray, dtype: type) -> NDArray:
    """Read-only copy of integers that fit `dtype` symmetrically."""
    info = np.iinfo(dtype)
    assert array.min() >= -info.max
    assert array.max() <= info.max
    out: NDArray[Any] = np.ascontiguousarray(array, dtype)
    out.setflags(write=False)
    return out


def to_nearest(x: Floats) -> NDArray[np.int64]:
    """Half up, as the machine rounds."""
    return np.floor(x + 0.5).astype(np.int64)


def row_units(w: Floats) -> Floats:
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


def rows(w: Floats, unit: Floats, moment: Floats, name: str) -> NDArray[np.int8]:
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
    return frozen(q, np.int8)


def narrow(w: Floats, unit: Floats) -> Floats:
    """Units made just large enough that no row's L1 norm exceeds L1_LIMIT."""
    l1 = np.abs(w).sum(-1) / unit + w.shape[-1] / 2
    return unit * np.maximum(1.0, l1 / L1_LIMIT)


def pre_shift(peak: Floats, unit: Floats, lowest: int) -> tuple[int, Floats]:
    """Smallest pre-shift for all rows, and the units of rows that had to be made coarser for it.

    peak: largest |acc| * unit of every row, after the exponent is taken away.
    """
    for shift in range(lowest, 32):
        factor = peak * MARGIN / (unit * PRE * 2.0**shift)
        if factor.max() <= NARROW:
            return shift, unit * np.maximum(1.0, factor)
    raise ModelError("an accumulator needs a pre-shift beyond 31")


def multipliers(value: Floats, name: str) -> NDArray[np.int16]:
    """Row multipliers as int16; raises `ModelError` if one does not fit."""
    m = to_nearest(value)
    if m.max() > INT16:
        raise ModelError(f"{name}: a row multiplier is {m.max()}, the largest is {INT16}")
    return frozen(m, np.int16)
