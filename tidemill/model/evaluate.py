"""How much the integers lose: bits per byte of held-out text, float against integer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidemill.model.checkpoint import Checkpoint, ModelError
from tidemill.model.integer import IntegerModel
from tidemill.model.quantmodel import QuantModel
from tidemill.model.reference import FloatModel

__all__ = ["evaluate", "read_stories"]


class Tokenizer(Protocol):
    """What evaluation needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, BOS first."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens."""
        ...


def read_stories(path: str | Path, count: int) -> list[str]:
    """The first `count` blank-line-separated stories of a text file.

    Raises `ModelError` if the file cannot be read or holds fewer.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ModelError(f"cannot read stories {path}: {getattr(e, 'strerror', e)}") from None
    stories = [s.strip() for s in text.split("\n\n") if s.strip()]
    if len(stories) < count:
        raise ModelError(f"{path} holds {len(stories)} stories, {count} are needed")
    return stories[:count]


def evaluate(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    text: str | Path,
    model: QuantModel,
    stories: int = 60,
    tokens: int = 192,
) -> dict[str, float]:
    """Compare the float and the integer model on the first `tokens` tokens of each story.

    Returns
    -------
    dict
        bits_per_byte_float, bits_per_byte, loss_percent (of bits per byte), top1_agreement
        (fraction of
        positions with the same most likely token), bytes and tokens counted.
    """
    integer = IntegerModel(model)
    reference = FloatModel(checkpoint)
    tokens = min(tokens, integer.model.max_context)
    unit = integer.model.units.logit
    rows, size = [], 0
    for story in read_stories(text, stories):
        row = tokenizer.encode(story)[:tokens]
        size += len(tokenizer.decode(row).encode())
        rows.append(row)
    batch = np.zeros((len(rows), tokens), np.int64)
    for i, values in enumerate(rows):
        batch[i, : len(values)] = values
    counted = np.arange(1, tokens)[None, :] < np.array([[len(r)] for r in rows])

    def measure(forward: Callable[[NDArray[np.int64]], NDArray]) -> tuple[float, NDArray]:
        bits, best = 0.0, []
        for part, mask in zip(
            np.array_split(batch, -(-len(batch) // 8)),
            np.array_split(counted, -(-len(batch) // 8)),
            strict=True,
        ):
            logits = forward(part)[:, :-1]
            best.append(logits.argmax(-1)[mask])
            logits = logits.astype(np.float64)
            top = logits.max(-1)
            norm = np.log(np.exp(logits - top[..., None]).sum(-1)) + top
            chosen = np.take_along_axis(logits, part[:, 1:, None], -1)[..., 0]
            bits += float(((norm - chosen) * mask).sum()) / math.log(2)
        return bits, np.concatenate(best)

    bits_float, best_float = measure(reference.forward)
    bits, best = measure(lambda part: integer.forward(part) * unit)
    return {
        "bits_per_byte_float": bits_float / size,
        "bits_per_byte": bits / size,
        "loss_percent": 100 * (bits / bits_float - 1),
        "top1_agreement": float((best == best_float).mean()),
        "bytes": size,
        "tokens": int(counted.sum()),
    }
