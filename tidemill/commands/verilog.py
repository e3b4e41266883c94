"""`tidemill verilog`: a chip as one Verilog file and a manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from tidemill.boards.board import Board
from tidemill.chip import Chip, load_chip
from tidemill.commands.common import (
    Chosen,
    UserError,
    chip_option,
    emit_json,
    json_option,
    note,
    working,
    write_file,
)
from tidemill.commands.target import board_option, chip_of, named_board

__all__ = ["verilog"]


@click.command(short_help="A chip as Verilog.")
@chip_option
@board_option
@click.option(
    "--freq",
    metavar="MHZ",
    type=click.FloatRange(min=0, min_open=True),
    help="With a board: clock of the chip (default: the fastest of the board's list).",
)
@click.option(
    "-o", "folder", metavar="DIR", type=click.Path(path_type=Path), required=True, help="Folder."
)
@click.option(
    "--primitives",
    is_flag=True,
    help="Instantiate the multiplier cells of the chip's family; for synthesis only.",
)
@json_option
@click.pass_context
def verilog(
    ctx: click.Context,
    *,
    chip: str,
    board: str | None,
    board_file: Path | None,
    freq: float | None,
    folder: Path,
    primitives: bool,
    as_json: bool,
) -> None:
    """Write DIR/tidemill.v, one self-contained module `tidemill`, with .json and .vlt beside it.

    The JSON manifest lists ports, shape, latencies, hashes and versions. The .vlt file names, for
    `verilator --lint-only -Wall tidemill.vlt tidemill.v`, the warnings that say nothing. The same
    chip gives the same bytes, run after run.

    With --board it is DIR/tidemill_top.v instead: chip, PLL, UART and reset for that board, beside
    the constraints of its pins. docs/boards.md has the lines that make a bitstream of it.
    """
    if freq and board is None and board_file is None:
        raise UserError("--freq needs --board")
    target = named_board(board, board_file) if board or board_file else None
    wanted = chip_of(target, chip if Chosen(ctx)("chip") else None) if target else load_chip(chip)
    if primitives and wanted.family != "ecp5":
        raise UserError(
            f"chip {wanted.name!r} is of family {wanted.family}, which has no primitives"
        )
    with working() as say:
        say(f"generating {wanted.name}")
        contents, facts = _on_board(target, wanted, freq) if target else _chip(wanted, primitives)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(f"cannot make the folder {str(folder)!r}: {e.strerror}") from None
    for name, content in contents.items():
        write_file(folder / name, content)
    if as_json:
        emit_json(facts)
    else:
        note(f"wrote {', '.join(str(folder / name) for name in contents)}")


def _chip(chip: Chip, primitives: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """Files and manifest of the bare chip."""
    from tidemill_hdl.verilog import WAIVERS, generate, manifest

    text = generate(chip, primitives)
    facts = manifest(chip, text, primitives)
    return {
        "tidemill.v": text,
        "tidemill.json": json.dumps(facts, indent=1) + "\n",
        "tidemill.vlt": WAIVERS.read_text(),
    }, facts


def _on_board(
    board: Board, chip: Chip, freq: float | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Files and facts of the chip with all that is around it on a board."""
    from tidemill.boards.build import top_verilog
    from tidemill.boards.constraints import constraints
    from tidemill.boards.flow import TOP

    text, hz, build_id = top_verilog(board, chip, freq or board.mhz[0])
    facts = {
        "module": TOP,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "board": board.name,
        "part": board.part.name,
        "chip": json.loads(json.dumps(chip.as_dict())),
        "chip_hash": chip.hash,
        "build_id": build_id,
        "clock_hz": hz,
        "baud": board.baud,
    }
    return {
        f"{TOP}.v": text,
        f"{TOP}.json": json.dumps(facts, indent=1) + "\n",
        **constraints(board),
    }, facts
