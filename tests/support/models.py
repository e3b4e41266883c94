"""Random models whose shapes fit no lanes."""

from __future__ import annotations

import functools
from typing import Any

from tidemill.model.checkpoint import ModelConfig, random_checkpoint
from tidemill.model.quantise import QuantModel, quantise

ODD = {
    "3x6": {"dim": 18, "hidden": 41, "layers": 2, "heads": 3, "kv_heads": 1, "vocab": 257},
    "9x6": {"dim": 54, "hidden": 57, "layers": 1, "heads": 9, "kv_heads": 3, "vocab": 99,
            "tied": False},
    "2x10": {"dim": 20, "hidden": 7, "layers": 2, "heads": 2, "kv_heads": 2, "vocab": 50},
    "2x24": {"dim": 48, "hidden": 33, "layers": 1, "heads": 2, "kv_heads": 1, "vocab": 99},
}  # fmt: skip


@functools.cache
def odd_model(name: str, **changes: Any) -> QuantModel:
    """A model of `ODD`, quantised, with some fields of its shape changed."""
    config = ModelConfig(**{**ODD[name], "context": 64, **changes})
    return quantise(random_checkpoint(config, seed=3), calibration_sequences=4)
