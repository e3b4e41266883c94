"""`tidemill boards` and `tidemill constraints`: the boards, and their pins for plain Verilog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidemill.boards.board import Board
from tidemill.commands.common import UserError, emit_json, json_option, note, show, write_file
from tidemill.commands.target import board_option, named_board

__all__ = ["boards", "constraints_command"]


def _facts(board: Board) -> dict[str, Any]:
    part = board.part
    return {
        "name": board.name,
        "title": board.title,
        "part": part.name,
        "family": part.family,
        "package": board.package,
        "speed": board.speed,
        "clock_hz": board.clock_hz,
        "mhz": list(board.mhz),
        "baud": board.baud,
        "luts": part.luts,
        "flip_flops": part.flip_flops,
        "block_rams": part.block_rams,
        "block_ram_bits": part.block_ram_bits,
        "multipliers": part.multipliers,
        "chip": board.chip,
        "pins": {port: pin.site for port, pin in board.pins.items()},
        "warning": board.warning,
    }


@click.command(short_help="Boards, their parts and what fits.")
@json_option
def boards(*, as_json: bool) -> None:
    """List the boards: part, oscillator, memories, the chip that is sized for it.

    A board of your own is a Python file with `BOARD = Board(...)`; the commands below take it as
    --board-file (docs/boards.md has an example).
    """
    from tidemill.boards.catalog import BOARDS

    if as_json:
        emit_json({"boards": [_facts(b) for b in BOARDS.values()]})
        return
    rows = [
        [
            b.name,
            b.part.name,
            f"{b.clock_hz / 1e6:g}",
            f"{b.mhz[-1]:g} to {b.mhz[0]:g}",
            b.part.luts,
            b.part.block_rams,
            f"{b.part.block_rams * b.part.block_ram_bits // 8192} KiB",
            b.part.multipliers,
            b.chip or "-",
        ]
        for b in BOARDS.values()
    ]
    columns = ("board", "part", "MHz in", "MHz tried", "LUTs", "block RAMs", "", "multipliers")
    show("", (*columns, "chip"), rows)
    for b in BOARDS.values():
        if b.warning:
            note(f"{b.name}: {b.warning}")


@click.command("constraints", short_help="Pin and clock files for plain Verilog.")
@board_option
@click.option(
    "-o",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default="constraints",
    show_default=True,
    help="Folder.",
)
@json_option
def constraints_command(
    *, board: str | None, board_file: Path | None, folder: Path, as_json: bool
) -> None:
    """Write the constraints of `tidemill_top` for one board, or for all without --board.

    \b
    .lpf .pcf .cst   pins, for nextpnr; the first two hold the clock too
    .sdc             the clock, for vendor tools
    """  # noqa: D301
    from tidemill.boards.catalog import BOARDS
    from tidemill.boards.constraints import constraints

    one = board is not None or board_file is not None
    chosen = [named_board(board, board_file)] if one else [*BOARDS.values()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(f"cannot make the folder {str(folder)!r}: {e.strerror}") from None
    files = {name: text for b in chosen for name, text in constraints(b).items()}
    for name, text in files.items():
        write_file(folder / name, text)
    if as_json:
        emit_json({"files": [str(folder / name) for name in files]})
    else:
        note(f"wrote {', '.join(str(folder / name) for name in files)}")
