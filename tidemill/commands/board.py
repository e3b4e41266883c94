"""Options and runs of the engines `board` and `virtual-board`: one driver for both."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemill.chip import Chip
from tidemill.commands.common import UserError, working
from tidemill.commands.engines import Listener, Outcome, Request, fault_text
from tidemill.program import Program

__all__ = ["BOARDS", "Connection", "board_options", "connection", "run_board"]

BOARDS = ("board", "virtual-board")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Connection:
    """How to reach a board; port None: a virtual one is switched on."""

    port: str | None
    baud: int | None
    bitstream: Path | None

    @contextlib.contextmanager
    def board(self, chip: Chip) -> Iterator[Any]:
        """The `Board` that holds `chip`, while the block lasts. Refuses any other in a sentence."""
        from tidemill.host.bitstream import load_bitstream
        from tidemill.host.driver import Board
        from tidemill.host.link import Link
        from tidemill.host.port import DEFAULT_BAUD, open_port

        build = load_bitstream(self.bitstream) if self.bitstream else None
        with contextlib.ExitStack() as stack:
            name, baud = self.port, self.baud or (build and build.baud) or DEFAULT_BAUD
            if name is None:
                from tidemill_sim.virtual_board import BAUD, VirtualBoard

                with working() as say:
                    say(f"building the board of {chip.name} with Verilator (the first time)")
                    virtual = VirtualBoard(chip)
                    virtual.build()
                name, baud = stack.enter_context(virtual).port, BAUD
            board = Board(Link(stack.enter_context(open_port(name, baud))))
            board.accept(chip, build)
            yield board


def board_options(command: Command) -> Command:
    """Adds --port, --baud and --bitstream."""
    for option in (
        click.option(
            "--bitstream",
            metavar="FILE.JSON",
            type=click.Path(path_type=Path),
            help="The board must hold this build, and its timing must have been met.",
        ),
        click.option(
            "--baud",
            metavar="N",
            type=click.IntRange(min=1),
            help="Rate of the port (default: that of --bitstream, or 3000000).",
        ),
        click.option("--port", metavar="P", help="Serial port of the board."),
    ):
        command = option(command)
    return command


def connection(
    engine: str, port: str | None, baud: int | None, bitstream: Path | None
) -> Connection | None:
    """What the options of `board_options` say; None for an engine without a board.

    Raises `UserError` for options that this engine does not have.
    """
    given = {"--port": port, "--baud": baud, "--bitstream": bitstream}
    for option, value in given.items():
        if value is not None and engine != "board":
            raise UserError(f"{option} needs --engine board, not {engine}")
    if engine == "board" and port is None:
        from tidemill.host.port import found_ports

        raise UserError(f"--engine board needs --port; {found_ports()}")
    return Connection(port, baud, bitstream) if engine in BOARDS else None


def run_board(
    program: Program,
    request: Request,
    listen: Listener | None,
    reach: Connection,
    *,
    verify: bool,
) -> Outcome:
    """The run on a board. Raises `LinkError`, `BoardError`, `PortError` if it cannot be."""
    with reach.board(program.chip) as board:
        with working() as say:
            say(f"loading {sum(1 for _ in program.boot_writes()):,} words")
            board.load(program, verify=verify)
        begin = time.perf_counter()
        events = []
        for event in board.run(
            program, request.prompt, request.tokens, request.temperature, request.seed
        ):
            events.append(event)
            if listen:
                listen(event.token, event.generated)
        seconds = time.perf_counter() - begin
        last = board.last
        memories = board.memories(program.chip) if request.check else None
    fault = fault_text(last.fault, last.fault_queue, last.fault_cycle) if last.fault else ""
    if not events:
        raise UserError(f"the chip began no run: {fault or 'and reports no fault'}")
    return Outcome(
        [e.token for e in events],
        [e.generated for e in events],
        [e.cycles for e in events],
        seconds,
        fault,
        memories,
        board.identity.clock_hz if reach.port else None,
    )
