"""`tidemill flash`: a bitstream into a board, and whether the right one answers."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import click

from tidemill.boards.board import Board
from tidemill.boards.flow import BITSTREAM
from tidemill.boards.loader import NAMES, find_loader, flash, loader_arguments
from tidemill.chip import Chip
from tidemill.commands.common import UserError, emit_json, json_option, note, say_line, working
from tidemill.commands.target import board_option, named_board

__all__ = ["flash_command"]


@click.command("flash", short_help="A bitstream into a board.")
@board_option
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option("--persist", is_flag=True, help="Write the flash: the board keeps it without power.")
@click.option("--dry-run", is_flag=True, help="Print the command of openFPGALoader only.")
@click.option("--port", metavar="P", help="Serial port, to read the ID of the chip afterwards.")
@json_option
def flash_command(
    *,
    board: str | None,
    board_file: Path | None,
    folder: Path | None,
    persist: bool,
    dry_run: bool,
    port: str | None,
    as_json: bool,
) -> None:
    """Load what `tidemill build` left in DIR (default: build/BOARD).

    The FPGA itself is loaded, and forgets it without power; --persist writes the flash beside it.
    With --port the chip's ID is read back and compared with the build; after --persist the board
    has to be switched off and on before. A build whose timing failed is not loaded.
    """
    target = named_board(board, board_file)
    where = folder or Path("build") / target.name
    bitstream = where / f"{target.name}.{BITSTREAM[target.part.family]}"
    record = where / f"{target.name}.json"
    arguments = loader_arguments(target, str(bitstream), persist=persist)
    if persist and not port and not dry_run:
        raise UserError("--persist needs --port: the ID is read back before it is called done")
    facts = _checked(target, bitstream, record)
    command = [find_loader() or NAMES[0], *arguments]
    if dry_run:
        if as_json:
            emit_json({"command": command})
        else:
            say_line(shlex.join(command))
        return
    flash(target, bitstream, persist=persist)
    if persist:
        click.confirm(
            "Switch the board off and on (pull its USB cable), then answer y", abort=True, err=True
        )
    if port:
        with working() as say:
            say(f"reading the ID on {port}")
            _identify(port, facts, record)
    if as_json:
        emit_json({"command": command, "verified": port is not None})
    else:
        note(f"done: {target.name} holds build {facts['build_id']}" if port else "loaded")


def _checked(board: Board, bitstream: Path, record: Path) -> dict[str, Any]:
    """The record of the build, if the bitstream is the one it speaks of."""
    from tidemill.host.bitstream import load_bitstream

    load_bitstream(record)  # refuses what is no build, or one that failed
    facts: dict[str, Any] = json.loads(record.read_text())
    if facts.get("part") != board.part.name:
        raise UserError(
            f"{str(record)!r} was built for the part {facts.get('part')}, board {board.name} has "
            f"{board.part.name}"
        )
    try:
        digest = hashlib.sha256(bitstream.read_bytes()).hexdigest()
    except OSError as e:
        raise UserError(f"cannot read bitstream {str(bitstream)!r}: {e.strerror}") from None
    if digest != facts.get("sha256"):
        raise UserError(
            f"{str(bitstream)!r} is not the bitstream that {str(record)!r} describes: its SHA-256 "
            f"begins with {digest[:12]}, not {str(facts.get('sha256'))[:12]}"
        )
    return facts


def _identify(port: str, facts: dict[str, Any], record: Path) -> None:
    """Raises an error in one sentence unless the board on `port` is this build."""
    from tidemill.host.bitstream import load_bitstream
    from tidemill.host.driver import Board as Connected
    from tidemill.host.link import Link
    from tidemill.host.port import open_port

    fields = facts["chip"]
    chip = Chip(**{**fields, "hops": tuple(fields["hops"])})
    with open_port(port, facts["baud"]) as serial:
        Connected(Link(serial)).accept(chip, load_bitstream(record))
