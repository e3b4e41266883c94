"""The whole path in seconds: text, tokenizer, training, export, and the export read back.

The text is made here, so that nothing has to be fetched: it is small and regular, and a model that
learns at all learns it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fit import fit, validate
from net import Net
from prepare import prepare
from recipe import Recipe
from tidemill.model.checkpoint import ModelConfig, ModelError, load_checkpoint
from tidemill.model.reference import FloatModel

__all__ = ["SMOKE", "compare", "make_stories", "smoke"]

#: Two layers, grouped heads, and a hidden width that is no multiple of anything.
SMOKE = Recipe(
    model=ModelConfig(dim=32, hidden=52, layers=2, heads=4, kv_heads=2, vocab=320, context=96),
    steps=60,
    tokens_per_step=1024,
    length=64,
    short_length=32,
    short_part=0.5,
    rate=1e-2,
    warmup=10,
)
#: What the loss must lose to count as learning, in nats per token.
FALL = 2.0
#: Largest difference of two float32 implementations of the same model.
CLOSE = 1e-4


def make_stories(count: int, seed: int = 0) -> list[str]:
    """Stories of three sentences about a mill by the sea, every one different."""
    rng = np.random.default_rng(seed)
    who = ("The miller", "A grey gull", "The old cat", "Her sister", "The boy next door")
    did = ("waits for", "looks at", "sings about", "walks along", "dreams of")
    what = ("the rising tide", "the wooden wheel", "a sack of flour", "the long wall", "the moon")
    when = ("in the morning", "before supper", "every spring", "when the water falls", "at noon")
    stories: dict[str, None] = {}
    while len(stories) < count:
        picks = [[words[rng.integers(5)] for words in (who, did, what, when)] for _ in range(3)]
        stories["\n".join(f"{a} {b} {c} {d}." for a, b, c, d in picks)] = None
    return list(stories)


def compare(net: Net, path: Path, tokens: np.ndarray) -> float:
    """Largest difference of logits between torch and the export at `path`, run by tidemill.

    `tokens` is (batch, time).
    """
    with torch.no_grad():
        ours = net(torch.from_numpy(tokens)).numpy()
    return float(np.abs(FloatModel(load_checkpoint(path)).forward(tokens) - ours).max())


def smoke(say: Callable[[str], None]) -> None:
    """Train a tiny model in a temporary folder.

    Raises `ModelError` if the loss has not fallen clearly, or if the exported file does not give
    the logits of the trained model.
    """
    with tempfile.TemporaryDirectory(prefix="tidemill-") as name:
        folder = Path(name)
        stories = make_stories(440)
        data = prepare([stories[40:]], [stories[:40]], SMOKE.model.vocab, folder / "data")
        torch.manual_seed(SMOKE.seed)
        net = Net(SMOKE.model)
        start = validate(net, data, SMOKE.length)["val"]
        log = fit(SMOKE, folder / "data", folder / "run", every=SMOKE.steps // 3, say=say)
        fall = start - log[-1]["val"]
        if fall < FALL:
            raise ModelError(f"smoke: the loss fell by {fall:.2f} nats, {FALL} are the least")
        state = torch.load(folder / "run" / "state.pt", weights_only=True)
        net.load_state_dict(state["net"])
        tokens = data.val_tokens[: 2 * 90].reshape(2, 90).astype(np.int64)
        far = compare(net, folder / "run" / "model.bin", tokens)
        if not far < CLOSE:
            raise ModelError(f"smoke: logits of the export differ by {far:.1e}, allowed is {CLOSE}")
    say(
        f"smoke: loss {start:.2f} -> {log[-1]['val']:.2f} on held-out text; logits of the export "
        f"within {far:.1e} of torch's"
    )
