"""`tidemill selftest`: memories by march tests, units by small programs, faults by place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidemill.chip import load_chip
from tidemill.commands.board import BOARDS, board_options, connection
from tidemill.commands.common import (
    UserError,
    chip_option,
    emit_json,
    json_option,
    say_line,
    show,
    working,
)
from tidemill.isa import Space
from tidemill.program import Program

__all__ = ["selftest"]

#: Places that are printed; there are more when something central is broken.
PLACES = 20


def _simulate(program: Program, prompt: tuple[int, ...]) -> Any:
    from tidemill_sim.engine import Machine

    machine = Machine(program)
    events = machine.run(list(prompt), 1)
    return [(e.token, e.cycles) for e in events], machine.mem_w, machine.mem_a


def _told(space: Space, say: Callable[[str], None]) -> Callable[[float], None]:
    """Says each tenth of a march test."""
    tenths = iter(range(11))
    coming = next(tenths)

    def told(done: float) -> None:
        nonlocal coming
        while coming <= 10 * done:
            say(f"{space.name}: {coming}0 % of the march test")
            coming = next(tenths, 11)

    return told


@click.command(short_help="Test every memory and unit of a board.")
@chip_option
@click.option(
    "--engine",
    type=click.Choice(BOARDS),
    default="virtual-board",
    show_default=True,
    help="board: an FPGA on a serial port; virtual-board: the whole board in Verilator.",
)
@board_options
@click.option("--no-memories", is_flag=True, help="Leave the march tests out; they take longest.")
@json_option
def selftest(
    *,
    chip: str,
    engine: str,
    port: str | None,
    baud: int | None,
    bitstream: Path | None,
    no_memories: bool,
    as_json: bool,
) -> None:
    """Test a board: MEM_W and MEM_A cell by cell, every multiplier, table and path by itself.

    Results are read back and compared with the simulator's. What is wrong is named by slice, bank,
    stream and lane, and the exit code is 1.

    \b
    tidemill selftest --chip tiny
    tidemill selftest --engine board --port /dev/ttyUSB0
    """  # noqa: D301
    from tidemill.selftest.march import march
    from tidemill.selftest.runs import run_trials
    from tidemill.selftest.trials import trials

    reach = connection(engine, port, baud, bitstream)
    assert reach
    target = load_chip(chip)
    parts = []
    with reach.board(target) as board, working() as say:
        board.halt()
        for space in () if no_memories else (Space.MEM_W, Space.MEM_A):
            parts.append(march(board.link, target, space, _told(space, say)))
        for part in run_trials(board, trials(target), _simulate):
            say(f"{part.name}: done")
            parts.append(part)
    wrong = [sentence for part in parts for sentence in part.sentences()]
    if as_json:
        emit_json(
            {
                "chip": target.name,
                "chip_hash": target.hash,
                "engine": engine,
                "parts": {p.name: {"elements": p.elements, "wrong": p.sentences()} for p in parts},
                "passed": not wrong,
            }
        )
    else:
        rows = [(p.name, p.elements, "FAILED" if p.wrong else "passed") for p in parts]
        show(f"self-test of {target.describe()}", ("part", "elements", ""), rows)
        for sentence in wrong[:PLACES]:
            say_line(sentence)
    if wrong:
        more = f" (and {len(wrong) - 1} places more)" if len(wrong) > 1 else ""
        raise UserError(f"the self-test failed: {wrong[0]}{more}")
