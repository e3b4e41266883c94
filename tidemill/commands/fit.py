"""`tidemill fit`: whether chip and model fit a board, in seconds and with every number."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.boards.fit import chip_needs, model_needs
from tidemill.commands.common import (
    UserError,
    emit_json,
    json_option,
    model_option,
    show,
    tokenizer_option,
    working,
)
from tidemill.commands.target import board_option, chip_of, named_board, own_chip_option
from tidemill.store import find_model

__all__ = ["fit"]


@click.command(short_help="Whether chip and model fit a board.")
@board_option
@own_chip_option
@model_option
@click.option("--context", metavar="N", type=int, help="Positions (default: all of the chip's).")
@tokenizer_option
@json_option
def fit(
    *,
    board: str | None,
    board_file: Path | None,
    chip: str | None,
    model: str,
    context: int | None,
    tokenizer: Path | None,
    as_json: bool,
) -> None:
    """Block RAMs and multipliers against the part, the model's memories against the chip.

    LUTs are known after synthesis only: `tidemill build` refuses there. Exit code 1 if something
    does not fit.
    """
    target = named_board(board, board_file)
    wanted = chip_of(target, chip)
    with working() as say:
        needs = [
            *chip_needs(wanted, target),
            *model_needs(wanted, find_model(model, tokenizer), context, say),
        ]
    short = [need for need in needs if not need.fits]
    if as_json:
        emit_json(
            {
                "board": target.name,
                "chip": wanted.as_dict(),
                "chip_hash": wanted.hash,
                "fits": not short,
                "needs": [
                    {
                        "what": n.what,
                        "needed": n.needed,
                        "available": n.available,
                        "unit": n.unit,
                        "fits": n.fits,
                    }
                    for n in needs
                ],
            }
        )
    else:
        rows = [
            [n.what, n.needed, n.available, n.unit, "fits" if n.fits else "TOO MUCH"] for n in needs
        ]
        show("", ("", "needed", "available", "", ""), rows)
    if short:
        raise UserError("; ".join(need.sentence() for need in short))
