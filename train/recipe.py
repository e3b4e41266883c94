"""How one model is trained: shape, length of the run, learning rate. Read from a TOML file."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.model.checkpoint import ModelConfig, ModelError

__all__ = ["Recipe", "load_recipe"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides the weights, apart from the data and the version of torch.

    Raises `ModelError` when a value is impossible; the message names it.
    """

    model: ModelConfig
    #: Of the initial weights and of the windows.
    seed: int = 1
    steps: int
    #: Predicted tokens of one step, whatever the length of a window.
    tokens_per_step: int = 4096
    #: Tokens of a window at the end, and in the first `short_part` of the steps.
    length: int = 256
    short_length: int = 256
    short_part: float = 0.0
    #: Highest learning rate.
    rate: float
    #: Steps of linear warm-up.
    warmup: int = 100
    #: Part of the steps before the cosine begins to fall.
    hold: float = 0.0
    #: The rate at the end, relative to the highest.
    floor: float = 0.05
    #: Of matrices; norm gains do not decay.
    weight_decay: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.99
    #: Longest gradient; a longer one is scaled down.
    clip: float = 1.0

    def __post_init__(self) -> None:
        for field in ("steps", "tokens_per_step", "length", "short_length", "warmup"):
            if getattr(self, field) < 1:
                raise ModelError(f"recipe: {field} must be at least 1, not {getattr(self, field)}")
        for field in ("short_part", "hold", "floor", "beta1", "beta2"):
            if not 0 <= getattr(self, field) < 1:
                raise ModelError(
                    f"recipe: {field} must be at least 0 and below 1, not {getattr(self, field)}"
                )
        if not self.rate > 0 or not self.clip > 0 or not self.weight_decay >= 0:
            raise ModelError(
                f"recipe: rate {self.rate} and clip {self.clip} must be positive, weight_decay "
                f"{self.weight_decay} not negative"
            )
        for field in ("length", "short_length"):
            length = getattr(self, field)
            if length > self.model.context:
                raise ModelError(
                    f"recipe: {field} {length} is more than the model's context "
                    f"{self.model.context}"
                )
            if self.tokens_per_step % length:
                raise ModelError(
                    f"recipe: tokens_per_step {self.tokens_per_step} is not a multiple of "
                    f"{field} {length}"
                )

    def length_at(self, step: int) -> int:
        """Tokens of a window in step 0, 1, ..."""
        return self.short_length if step < self.short_part * self.steps else self.length

    def rate_at(self, step: int) -> float:
        """Learning rate of step 0, 1, ...: linear warm-up, level, then a cosine to the floor."""
        fallen = max(0.0, (step / self.steps - self.hold) / (1 - self.hold))
        cosine = self.floor + (1 - self.floor) * (1 + math.cos(math.pi * fallen)) / 2
        return self.rate * min(1.0, (step + 1) / self.warmup) * cosine


def _table(path: Path, name: str, kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Check names and types of one TOML table against the fields of a dataclass."""
    fields = {f.name: f for f in dataclasses.fields(kind) if f.name != "model"}
    # Annotations are strings here: every field is int, float or bool.
    types: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
    for key, value in values.items():
        if key not in fields:
            raise ModelError(f"{path}: [{name}] has no {key!r}; possible are {', '.join(fields)}")
        if type(value) not in types[str(fields[key].type)]:
            raise ModelError(
                f"{path}: {key} of [{name}] must be of type {fields[key].type}, not {value!r}"
            )
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and key not in values:
            raise ModelError(f"{path}: [{name}] lacks {key!r}")
    return values


def load_recipe(path: Path, **changes: int) -> Recipe:
    """Read `[model]` (fields of `ModelConfig`) and `[training]` (fields of `Recipe`).

    `changes` replace values of `[training]`. Raises `ModelError` with one sentence for whatever is
    wrong with the file.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ModelError(
            f"cannot read recipe {path}: {getattr(e, 'strerror', None) or e}"
        ) from None
    unknown = [key for key in data if key not in ("model", "training")]
    if unknown or len(data) < 2 or not all(isinstance(table, dict) for table in data.values()):
        raise ModelError(
            f"{path} must hold the tables [model] and [training], it has "
            f"{', '.join(data) or 'none'}"
        )
    try:
        model = ModelConfig(**_table(path, "model", ModelConfig, data["model"]))
        return Recipe(model=model, **_table(path, "training", Recipe, data["training"] | changes))
    except ModelError as e:
        text = str(e)
        raise ModelError(text if text.startswith(str(path)) else f"{path}: {text}") from None
