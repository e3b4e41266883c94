"""Options of the commands that need a board's definition, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemill.boards.board import Board
from tidemill.chip import Chip, load_chip
from tidemill.commands.common import UserError

__all__ = ["board_option", "chip_of", "named_board", "own_chip_option"]

Command = TypeVar("Command", bound=Callable[..., Any])


def board_option(command: Command) -> Command:
    """Adds --board and --board-file."""
    for option in (
        click.option(
            "--board-file",
            metavar="FILE.PY",
            type=click.Path(path_type=Path),
            help="A board of your own: a Python file with BOARD = Board(...).",
        ),
        click.option("--board", metavar="B", help="Board (see `tidemill boards`)."),
    ):
        command = option(command)
    return command


own_chip_option = click.option(
    "--chip", metavar="C", help="Named chip or a .toml file (default: the one of the board)."
)


def named_board(name: str | None, file: Path | None) -> Board:
    """The board of the options. Raises `BoardError`."""
    from tidemill.boards.catalog import find_board

    return find_board(name, file)


def chip_of(board: Board, chip: str | None) -> Chip:
    """The chip of the option, else the board's. Raises `ChipError`, or `UserError` for none."""
    if not (chip or board.chip):
        raise UserError(f"board {board.name} has no named chip: give one with --chip")
    return load_chip(chip or board.chip)
