"""What `--model` and `--chip` mean: a program, read or compiled."""

from __future__ import annotations

from pathlib import Path

from tidemill.chip import load_chip
from tidemill.commands.common import UserError, working
from tidemill.program import Program, load_program

__all__ = ["open_program"]


def open_program(
    model: str,
    chip: str,
    *,
    chip_given: bool,
    context: int | None = None,
    tokenizer: Path | None = None,
) -> Program:
    """A .tide file as it is; anything else compiled for `chip`, or taken from the cache.

    chip_given: the user named the chip, so a .tide file for another one is refused.
    """
    if Path(model).suffix == ".tide":
        return _read(model, chip if chip_given else None, context)
    from tidemill.store import find_model, program_for

    target = load_chip(chip)
    found = find_model(model, tokenizer)
    with working() as say:
        return program_for(found, target, context, say)


def _read(path: str, chip: str | None, context: int | None) -> Program:
    program = load_program(path)
    if chip is not None:
        wanted = load_chip(chip)
        if wanted.hash != program.chip.hash:
            raise UserError(
                f"{path} was compiled for {program.chip.describe()}, not for {wanted.describe()}"
            )
    if context not in (None, program.context):
        raise UserError(
            f"{path} was compiled for a context of {program.context}, not of {context}; "
            "compile the model again"
        )
    return program
