"""`tidemill build`: a chip to a bitstream for a board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidemill.boards.build import BuildError, Options, build
from tidemill.boards.flow import ROUTERS
from tidemill.commands.common import UserError, emit_json, json_option, note, show, working
from tidemill.commands.target import board_option, chip_of, named_board, own_chip_option

__all__ = ["build_command"]


@click.command("build", short_help="A chip to a bitstream for a board.")
@board_option
@own_chip_option
@click.option(
    "-o",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder (default: build/BOARD).",
)
@click.option(
    "--freq",
    metavar="MHZ",
    type=click.FloatRange(min=0, min_open=True),
    help="Clock of the chip (default: the fastest of the board's list that closes).",
)
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Placements to try; the fastest is kept.",
)
@click.option(
    "--router",
    type=click.Choice([*ROUTERS, "both"]),
    default=ROUTERS[0],
    show_default=True,
    help="Of nextpnr.",
)
@click.option("--baud", metavar="N", type=click.IntRange(min=1), help="Rate of the UART.")
@click.option(
    "--alu/--no-alu", default=True, help="Carry chains on a Gowin part (default), or LUTs."
)
@click.option(
    "--limit",
    metavar="MINUTES",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="For one run of place and route.",
)
@click.option("--force", is_flag=True, help="Go on when the part seems too small.")
@json_option
def build_command(
    *,
    board: str | None,
    board_file: Path | None,
    chip: str | None,
    folder: Path | None,
    freq: float | None,
    seeds: int,
    router: str,
    baud: int | None,
    alu: bool,
    limit: float,
    force: bool,
    as_json: bool,
) -> None:
    """Synthesise, place, route and pack; what does not fit or is too slow is no success.

    Writes DIR/BOARD.bit (.bin, .fs) and DIR/BOARD.json, which says what it is: chip, clock, build,
    seed, tools, timing. The driver and `tidemill flash` read it. The tools of the machine are used
    if they are on PATH, else those that pip installed.

    Exit code 1 and no bitstream if the clock is missed, a clock has no constraint, or the part is
    too small; the numbers are printed.

    \b
    tidemill build --board ulx3s-12f
    tidemill build --board ulx3s-85f --seeds 4 --router both --limit 120
    """  # noqa: D301
    target = named_board(board, board_file)
    wanted = chip_of(target, chip)
    where = folder or Path("build") / target.name
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(f"cannot make the folder {str(where)!r}: {e.strerror}") from None
    if target.warning:
        note(f"{target.name}: {target.warning}")
    options = Options(
        mhz=(freq,) if freq else (),
        seeds=seeds,
        routers=ROUTERS if router == "both" else (router,),
        baud=baud,
        alu=alu,
        limit=limit,
        force=force,
    )
    try:
        with working() as say:
            record = build(target, wanted, options, where, say)
    except BuildError as e:
        if e.record and not as_json:
            _print(e.record)
        if e.record and as_json:
            emit_json(e.record)
        raise
    if as_json:
        emit_json(record)
    else:
        _print(record)
        note(f"wrote {where / record['bitstream']} and {where / target.name}.json")


def _print(record: dict[str, Any]) -> None:
    rows: list[list[Any]] = [
        [row, there["used"], there["available"], _share(there)]
        for row, there in record["utilisation"].items()
    ]
    chip, timing = record["chip"]["name"], record["timing"]
    show(f"{chip} [{record['chip_hash']}] on {record['part']}", ("", "used", "available", ""), rows)
    tries = [
        [
            f"{a['mhz']:g}",
            a["seed"],
            a["router"],
            f"{a['timing']['achieved'] or 0:.2f}",
            f"{a['timing']['constraint']:.2f}",
            a["timing"]["verdict"],
            f"{a['seconds']:.0f}",
        ]
        for a in record["attempts"]
    ]
    columns = ("MHz", "seed", "router", "Fmax", "needed", "", "seconds")
    show("\nplace and route, post-route figures of nextpnr", columns, tries)
    path = record["critical_path"]
    if path:
        note(
            f"slowest path: {path['ns']:.2f} ns, {path['routing']:.0%} wires, from {path['from']} "
            f"to {path['to']}"
        )
    note(f"{timing['verdict']}: clock {record['clock_hz']:,} Hz, {record['baud']:,} baud")


def _share(there: dict[str, int]) -> str:
    return f"{100 * there['used'] / there['available']:.0f} %" if there["available"] else "-"
