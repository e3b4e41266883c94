"""What a program costs and why: roofline, memory, slice use, and what the matrix unit waited for."""

from __future__ import annotations

import dataclasses
from typing import Any

from tidemill.model.checkpoint import ModelConfig

__all__ = ["model_info"]


def model_info(name: str, config: ModelConfig) -> dict[str, Any]:
    """The facts about a model that a program carries."""
    return {"model": {"name": name, **dataclasses.asdict(config)}}
