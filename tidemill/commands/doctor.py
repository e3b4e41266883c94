"""`tidemill doctor`: the tools of this machine, and boards on its USB."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from tidemill import __version__
from tidemill.commands.common import emit_json, json_option, note, say_line, show, working

__all__ = ["doctor"]


@click.command(short_help="Tools of this machine, and boards on its USB.")
@click.option(
    "--board-file",
    metavar="FILE.PY",
    type=click.Path(path_type=Path),
    help="Look for this board on USB too.",
)
@json_option
def doctor(*, board_file: Path | None, as_json: bool) -> None:
    """Every tool: native or WebAssembly, version, tested with Tidemill or not, cost without it.

    `not tested` is no error: the version lies outside the range that the tests ran with. Nothing
    here needs all of them.
    """
    from tidemill.boards.board import load_board_file
    from tidemill.boards.catalog import BOARDS
    from tidemill.boards.doctor import check_tools, check_usb, python_facts

    known = [*BOARDS.values(), *([load_board_file(board_file)] if board_file else [])]
    with working() as say:
        tools = check_tools(say if not as_json else lambda text: None)
        usb = check_usb(known)
    if as_json:
        facts: dict[str, Any] = {"tidemill": __version__, "python": python_facts()}
        for name, findings in (("tools", tools), ("usb", usb)):
            facts[name] = [dataclasses.asdict(f) | {"verdict": f.verdict} for f in findings]
        emit_json(facts)
        return
    say_line(f"tidemill {__version__}, {python_facts()}")
    rows = [[f.verdict, f.name, f.version, f.cost if not f.found else ""] for f in tools]
    show("", ("", "tool", "version", "without it"), rows)
    say_line()
    if not usb:
        say_line("no USB device that could be a board")
    for f in usb:
        say_line(f"{f.name} ({f.version}){': ' + f.cost if f.cost else ''}")
    if any(f.version.endswith("WebAssembly") for f in tools):
        note(
            "WebAssembly tools compile at their first start (about a minute) and are two to three "
            "times slower; for large chips put OSS CAD Suite on PATH"
        )
