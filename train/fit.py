"""The training loop: windows of tokens, AdamW, validation, a state to resume from, the export.

A run's folder holds `state.pt` (weights, optimiser, step: what `resume` reads), `log.jsonl` (one
object a validation), `model.bin` (llama2.c version 0) and copies of the tokenizer, so that
`tidemill run --model FOLDER` works after every validation. A run that was stopped and resumed ends
with the same weights, to the bit, as one that was not, on the same machine and number of threads.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from net import Net
from prepare import Data, load_data
from recipe import Recipe
from tidemill.model.checkpoint import ModelError, save_checkpoint

__all__ = ["fit", "validate"]

#: Held-out windows of a validation on the way; the last one takes all.
GLANCE = 64


def validate(net: Net, data: Data, length: int, windows: int | None = None) -> dict[str, float]:
    """Loss (nats per token) and bits per byte over held-out windows of `length` tokens.

    Windows follow one another without overlap; `windows` of them, evenly spread, or all. The
    stories' BOS tokens are predicted like any other, so the end of a story is part of its price.
    """
    count = (len(data.val_tokens) - 1) // length
    picked = np.unique(np.linspace(0, count - 1, min(count, windows or count)).astype(int))
    total = 0.0
    with torch.no_grad():
        for part in np.array_split(picked, -(-len(picked) // 16)):
            total += float(net.loss(_windows(data.val_tokens, part * length, length))) * len(part)
    loss = total / len(picked)
    return {
        "val": loss,
        "bits_per_byte": loss / math.log(2) * data.val.tokens / data.val.bytes,
    }


def _windows(tokens: NDArray[np.uint16], starts: NDArray[Any], length: int) -> torch.Tensor:
    """(len(starts), length + 1) int64: a window and the token after it."""
    return torch.from_numpy(tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64))


def _load_fitting(folder: Path, recipe: Recipe) -> Data:
    """The data, if the recipe can be followed with it."""
    data = load_data(folder)
    if data.vocab != recipe.model.vocab:
        raise ModelError(
            f"the data in {folder} has {data.vocab} tokens, the recipe a vocabulary of "
            f"{recipe.model.vocab}"
        )
    longest = max(recipe.length, recipe.short_length)
    for name, tokens in (("training", data.train_tokens), ("held-out", data.val_tokens)):
        if len(tokens) <= longest:
            raise ModelError(f"{len(tokens)} {name} tokens do not fill a window of {longest}")
    return data


def _optimizer(net: Net, recipe: Recipe) -> torch.optim.Optimizer:
    gains = [w for n, w in net.weights.items() if n.endswith("norm")]
    matrices = [w for n, w in net.weights.items() if not n.endswith("norm")]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": gains}],
        weight_decay=0.0,
        betas=(recipe.beta1, recipe.beta2),
        fused=True,
    )


def _load_state(path: Path, recipe: Recipe, data: Data) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
        before = state["recipe"]
        same_data = state["data"] == data.digest
    except OSError as e:
        raise ModelError(f"cannot resume: {path}: {e.strerror}") from None
    except (RuntimeError, EOFError, LookupError, TypeError, struct.error, pickle.UnpicklingError):
        raise ModelError(f"cannot resume: {path} is damaged or no state of a run") from None
    now = _flat(recipe)
    for name in now:
        if before.get(name) != now[name]:
            raise ModelError(
                f"cannot resume: the run began with {name} = {before.get(name)}, now it is "
                f"{now[name]}"
            )
    if not same_data:
        raise ModelError("cannot resume: the run began with other data")
    return state


def _flat(recipe: Recipe) -> dict[str, Any]:
    values = asdict(recipe)
    return values.pop("model") | values


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside `path` and rename, so that a run that is killed leaves a whole file."""
    new = path.with_suffix(".new")
    write(new)
    os.replace(new, path)


def _step(
    net: Net, optimizer: torch.optim.Optimizer, recipe: Recipe, data: Data, step: int
) -> float:
    """One update; returns the loss before it. Windows depend on seed and step alone."""
    length = recipe.length_at(step)
    rng = np.random.default_rng([recipe.seed, step])
    starts = rng.integers(0, len(data.train_tokens) - length, recipe.tokens_per_step // length)
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate_at(step)
    optimizer.zero_grad()
    loss = net.loss(_windows(data.train_tokens, starts, length))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
    optimizer.step()
    value = loss.item()
    if not math.isfinite(value):
        raise ModelError(f"the loss of step {step + 1} is {value}: lower the rate")
    return value


def fit(
    recipe: Recipe,
    folder: Path,
    out: Path,
    *,
    stop: int | None = None,
    resume: bool = False,
    threads: int = 1,
    every: int = 500,
    say: Callable[[str], None] = print,
) -> list[dict[str, float]]:
    """Train until `recipe.steps`, or stop early after step `stop`.

    Parameters
    ----------
    recipe
        Model and settings.
    folder
        What `prepare` wrote.
    out
        Folder of the run; made if missing.
    stop
        Steps after which to stop; the learning rate still follows `recipe.steps`.
    resume
        Go on from the state in `out`. Without it, an `out` that holds a run is refused.
    threads
        Threads of torch.
    every
        Steps between two validations.
    say
        Gets a line for every validation.

    Returns
    -------
    list
        One dict a validation: step, tokens, seconds (of this call), rate, train (mean loss since
        the last), val, bits_per_byte.

    Raises `ModelError` if data and recipe do not fit, if there is nothing to resume or to train,
    or if the loss is no longer a finite number.
    """
    data = _load_fitting(folder, recipe)
    torch.set_num_threads(threads)
    torch.manual_seed(recipe.seed)
    net = Net(recipe.model)
    optimizer = _optimizer(net, recipe)
    state_path, log_path = out / "state.pt", out / "log.jsonl"
    first = 0
    if resume:
        state = _load_state(state_path, recipe, data)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    elif state_path.exists():
        raise ModelError(f"{out} holds a run already: resume it, or name another folder")
    last = min(stop or recipe.steps, recipe.steps)
    if first >= last:
        raise ModelError(f"nothing to train: the run has done {first} of {last} steps")
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        log_path.unlink(missing_ok=True)
    for name in ("tokenizer.model", "tokenizer.bin"):
        shutil.copy(folder / name, out / name)

    log: list[dict[str, float]] = []
    losses: list[float] = []
    began = time.perf_counter()
    for step in range(first, last):
        losses.append(_step(net, optimizer, recipe, data, step))
        done = step + 1
        if done % every and done != last:
            continue
        entry = {
            "step": done,
            "tokens": done * recipe.tokens_per_step,
            "seconds": round(time.perf_counter() - began, 1),
            "rate": recipe.rate_at(step),
            "train": float(np.mean(losses)),
            **validate(net, data, recipe.length, None if done == last else GLANCE),
        }
        log.append(entry)
        losses.clear()
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": done,
            "recipe": _flat(recipe),
            "data": data.digest,
        }
        _replace(out / "model.bin", partial(save_checkpoint, net.checkpoint()))
        _replace(state_path, partial(torch.save, state))
        with log_path.open("a") as f:
            f.write(json.dumps(entry) + "\n")
        say(
            f"step {done:6} of {recipe.steps}  {entry['tokens'] / 1e6:6.2f} M tokens  "
            f"{entry['seconds']:7.1f} s  rate {entry['rate']:.2e}  train {entry['train']:.4f}  "
            f"val {entry['val']:.4f}  {entry['bits_per_byte']:.4f} bits per byte"
        )
    return log
