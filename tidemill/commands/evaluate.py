"""`tidemill eval`: what the integers lose against the floating-point model."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.commands.common import (
    UserError,
    emit_json,
    json_option,
    model_option,
    show,
    tokenizer_option,
    working,
)

__all__ = ["evaluate_command"]


@click.command("eval", short_help="Bits per byte, integer model against float.")
@model_option
@tokenizer_option
@click.option(
    "--text",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Held-out stories, blank lines between them (default: eval.txt beside the model).",
)
@click.option(
    "--stories", metavar="N", type=click.IntRange(1), default=60, show_default=True, help="Stories."
)
@click.option(
    "--tokens",
    metavar="N",
    type=click.IntRange(2),
    default=192,
    show_default=True,
    help="Tokens of each story.",
)
@click.option(
    "--calibration-seed",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the texts that the quantiser measures ranges on; `run` and `compile` use 0.",
)
@json_option
def evaluate_command(
    *,
    model: str,
    tokenizer: Path | None,
    text: Path | None,
    stories: int,
    tokens: int,
    calibration_seed: int,
    as_json: bool,
) -> None:
    """Measure bits per byte of a text under the float model and under the integers of the chip.

    The integer model is the one that simulator and RTL agree with to the bit; it does not depend on
    the chip. The text should be one that the model was not trained on.

    \b
    tidemill eval --text stories.txt
    """  # noqa: D301
    from tidemill.model.evaluate import evaluate
    from tidemill.model.quantise import quantise
    from tidemill.store import find_model

    if Path(model).suffix == ".tide":
        raise UserError("eval compares with the float model, which a .tide program does not hold")
    found = find_model(model, tokenizer)
    source = text or found.path.parent / "eval.txt"
    if text is None and not source.is_file():
        raise UserError(
            f"model {model!r} comes without a text ({source}); give one with --text FILE: UTF-8, "
            "stories that the model was not trained on, blank lines between them"
        )
    with working() as say:
        say(f"quantising {found.name} and reading {stories} stories")
        integers = quantise(found.checkpoint, seed=calibration_seed)
        facts = evaluate(found.checkpoint, found.tokenizer, source, integers, stories, tokens)
    seed = {"calibration_seed": calibration_seed}
    if as_json:
        emit_json({"model": found.name, "text": str(source), "stories": stories, **seed, **facts})
        return
    rows = [
        ["bits per byte, float", f"{facts['bits_per_byte_float']:.4f}"],
        ["bits per byte, integer", f"{facts['bits_per_byte']:.4f}"],
        ["loss", f"{facts['loss_percent']:+.3f} %"],
        ["same most likely token", f"{100 * facts['top1_agreement']:.2f} %"],
        ["text", f"{facts['tokens']:,.0f} tokens, {facts['bytes']:,.0f} bytes, {stories} stories"],
    ]
    show("", (found.name, ""), rows)
