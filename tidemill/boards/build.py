"""From a chip to a bitstream whose clock was proved, or to a refusal with numbers.

The fastest frequency is tried first. If no seed closes there, the next try is the fastest one that
the best of them reached. Every try is recorded in the result.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tidemill
from tidemill.boards.board import Board
from tidemill.boards.constraints import constraints
from tidemill.boards.fit import chip_needs
from tidemill.boards.flow import (
    BITSTREAM,
    ROUTERS,
    TOP,
    Command,
    pack,
    place_and_route,
    synthesise,
)
from tidemill.boards.report import Report, ReportError, cell_use, load_report
from tidemill.boards.tools import TOOLS, ToolError, need_tool, run_tool
from tidemill.chip import Chip

__all__ = ["BuildError", "Options", "build", "top_verilog"]

PACKAGE = Path(tidemill.__file__).parent
#: What the hardware reads of the package.
CONTRACT = ("chip.py", "isa.py", "numerics.py", "link.py")
#: Lines of a log that are quoted when a tool fails.
QUOTED = 3
Say = Callable[[str], None]


class BuildError(RuntimeError):
    """A build that cannot be or did not end well; one sentence with the numbers.

    record: what the build found out, if it got that far.
    """

    def __init__(self, text: str, record: dict[str, Any] | None = None):
        super().__init__(text)
        self.record = record


@dataclass(frozen=True)
class Options:
    """What the user may choose; mhz: frequencies to try, none: those of the board."""

    mhz: tuple[float, ...] = ()
    seeds: int = 1
    routers: tuple[str, ...] = ROUTERS[:1]
    baud: int | None = None
    alu: bool = True
    #: Minutes for one run of nextpnr.
    limit: float = 60
    #: What the part lacks is left to the tools.
    force: bool = False


@dataclass
class _State:
    """One build in the making."""

    board: Board
    chip: Chip
    options: Options
    folder: Path
    say: Say
    attempts: list[dict[str, Any]] = field(default_factory=list)


def _clock_hz(board: Board, mhz: float, baud: int) -> int:
    """Hz of the clock nearest to `mhz`. Raises `BuildError` if PLL or UART cannot do it."""
    from tidemill_hdl.pll import find_dividers
    from tidemill_hdl.uart import baud_divisor

    hz = round(mhz * 1e6)
    try:
        if hz != board.clock_hz:
            hz = round(find_dividers(board.part.family, board.clock_hz, hz).out_hz)
        baud_divisor(hz, baud)
    except ValueError as e:
        raise BuildError(f"board {board.name} at {mhz:g} MHz: {e}") from None
    return hz


def top_verilog(
    board: Board, chip: Chip, mhz: float, baud: int | None = None
) -> tuple[str, int, str]:
    """Text of `tidemill_top` for the board, frequency of its chip in Hz, build id (16 hex digits).

    The oscillator's own frequency needs no PLL. Raises `BuildError` if PLL or UART cannot do it.
    """
    from tidemill_hdl.pll import Pll
    from tidemill_hdl.verilog import generate_board

    baud = baud or board.baud
    hz = _clock_hz(board, mhz, baud)
    primitives = chip.family == board.part.family == "ecp5"
    own = hz == board.clock_hz
    pll = None if own else Pll(board.part.family, board.clock_hz, round(mhz * 1e6))
    build_id = _build_id(board.name, board.part.name, chip.as_dict(), hz, baud)
    return generate_board(chip, hz, baud, int(build_id, 16), pll, primitives), hz, build_id


def _build_id(*choices: object) -> str:
    """16 hex digits over what makes the Verilog: choices, our sources, Amaranth."""
    import tidemill_hdl

    h = hashlib.sha256(repr((choices, version("amaranth"))).encode())
    hardware = Path(tidemill_hdl.__file__).parent
    for file in (*sorted(hardware.glob("*.py")), *(PACKAGE / name for name in CONTRACT)):
        h.update(file.name.encode() + b"\0" + file.read_bytes())
    return h.hexdigest()[:16]


def build(board: Board, chip: Chip, options: Options, folder: Path, say: Say) -> dict[str, Any]:
    """Build; the record that also lies in `folder` as `{board}.json`, beside the bitstream.

    Everything else is in `folder / "work"`. A build that fails leaves no bitstream.

    Raises `BuildError` or `ToolError`.
    """
    state = _State(board, chip, options, folder, say)
    baud = options.baud or board.baud
    wanted = tuple(sorted(options.mhz or board.mhz, reverse=True))
    for mhz in wanted:
        _clock_hz(board, mhz, baud)
    short = [need for need in chip_needs(chip, board) if not need.fits]
    if short and not options.force:
        raise BuildError("; ".join(need.sentence() for need in short))
    for tool, spec in TOOLS.items():
        if spec.family in ("", board.part.family):
            need_tool(tool)
    for old in (_product(state, "json"), _product(state, BITSTREAM[board.part.family])):
        old.unlink(missing_ok=True)

    left = list(wanted)
    while left:
        mhz = left.pop(0)
        best = _one_frequency(state, mhz, baud)
        if best["timing"]["verdict"] == "PASS":
            return _finish(state, best)
        reached = best["timing"]["achieved"] or 0.0
        left = [f for f in left if f <= reached] or left[-1:]
    record = _record(state, best)
    timing = best["timing"]
    if timing["achieved"] is None:
        raise BuildError(f"no run of nextpnr ended well: {best['note']}", record)
    path = best["critical_path"]
    raise BuildError(
        f"chip {chip.name} on board {board.name} reaches {timing['achieved']:.2f} MHz, "
        f"{timing['constraint']:.2f} MHz are needed; the slowest path goes from {path.get('from')} "
        f"to {path.get('to')}; try --seeds, --router both or a lower --freq",
        record,
    )


def _product(state: _State, ending: str) -> Path:
    return state.folder / f"{state.board.name}.{ending}"


def _run(state: _State, command: Command, folder: Path, log: str) -> int:
    return run_tool(command.tool, command.arguments, folder, log, state.options.limit)


def _must(state: _State, command: Command, folder: Path, log: str) -> None:
    if _run(state, command, folder, log):
        raise BuildError(f"{command.tool} failed: {_last_lines(folder / log)}")


def _last_lines(log: Path) -> str:
    """The errors of a log, or its end."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    said = " / ".join((errors or lines)[-QUOTED:]) or "it said nothing"
    return f"{said} (the whole log is {log})"


def _one_frequency(state: _State, mhz: float, baud: int) -> dict[str, Any]:
    """Synthesise once, place and route with every seed and router; the best attempt."""
    board, options = state.board, state.options
    state.say(f"{mhz:g} MHz: generating the Verilog of {state.chip.name}")
    text, hz, build_id = top_verilog(board, state.chip, mhz, baud)
    folder = state.folder / "work" / f"{mhz:g}MHz"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{TOP}.v").write_text(text)
    for name, content in constraints(board).items():
        (folder / name).write_text(content)

    state.say(f"{mhz:g} MHz: synthesis (yosys)")
    begin = time.monotonic()
    command = synthesise(board, alu=options.alu)
    *most, script = command.arguments
    counted = Command(command.tool, (*most, f"{script}; tee -q -o cells.json stat -json"))
    _must(state, counted, folder, "yosys.log")
    seconds = round(time.monotonic() - begin, 1)
    cells = cell_use(folder / "cells.json", board.part)
    over = [f"{row} {used:,} of {there:,}" for row, (used, there) in cells.items() if used > there]
    if over and not options.force:
        raise BuildError(
            f"chip {state.chip.name} does not fit the {board.part.name}: after synthesis "
            f"{', '.join(over)}"
        )
    tried = []
    for router in options.routers:
        for seed in range(1, options.seeds + 1):
            state.say(f"{mhz:g} MHz: place and route, seed {seed}, {router} (nextpnr)")
            attempt = _attempt(state, folder, hz / 1e6, seed, router)
            attempt |= {"mhz": mhz, "clock_hz": hz, "baud": baud, "build_id": build_id}
            attempt |= {"synthesis_seconds": seconds, "folder": str(folder)}
            tried.append(attempt)
            state.attempts.append(attempt)
    return max(tried, key=lambda a: a["timing"]["achieved"] or 0.0)


def _attempt(state: _State, folder: Path, mhz: float, seed: int, router: str) -> dict[str, Any]:
    """One run of nextpnr. Its files get a name of their own when it is over."""
    command = place_and_route(state.board, mhz, seed, router)
    report_file = folder / "report.json"
    report_file.unlink(missing_ok=True)
    begin = time.monotonic()
    report: Report | None = None
    note = ""
    log = f"nextpnr-{router}-{seed}.log"
    try:
        code = _run(state, command, folder, log)
        report = load_report(report_file, state.board.part, mhz)
        if code and report.passed:
            note = _last_lines(folder / log)
    except ToolError as e:
        note = str(e)
    except ReportError as e:
        if report_file.exists():  # a clock without constraint: no seed changes that
            raise BuildError(str(e)) from None
        note = _last_lines(folder / log)
    verdict = "PASS" if report and report.passed and not note else "FAIL"
    keep = folder / f"{router}-{seed}"
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir()
    for name in ("report.json", f"{TOP}.config", f"{TOP}.asc", f"{TOP}.pnr.json"):
        if (folder / name).exists():
            (folder / name).rename(keep / name)
    return {
        "seed": seed,
        "router": router,
        "seconds": round(time.monotonic() - begin, 1),
        "timing": {
            "achieved": report and round(report.achieved, 2),
            "constraint": round(report.constraint if report else mhz, 2),
            "verdict": verdict,
        },
        "utilisation": {
            row: {"used": used, "available": there}
            for row, (used, there) in (report.use if report else {}).items()
        },
        "critical_path": report.path if report else {},
        "note": note,
        "command": command.line,
    }


def _finish(state: _State, best: dict[str, Any]) -> dict[str, Any]:
    """Pack the best attempt."""
    folder = Path(best["folder"]) / f"{best['router']}-{best['seed']}"
    ending = BITSTREAM[state.board.part.family]
    state.say("packing")
    _must(state, pack(state.board), folder, "pack.log")
    product = _product(state, ending)
    shutil.copy(folder / f"{TOP}.{ending}", product)
    return _record(state, best, product)


def _record(state: _State, best: dict[str, Any], product: Path | None = None) -> dict[str, Any]:
    """Write the facts of the build, and return them."""
    board, chip = state.board, state.chip
    kept = ("build_id", "clock_hz", "baud", "seed", "router", "timing", "utilisation")
    facts = {
        "board": board.name,
        "part": board.part.name,
        "chip": chip.as_dict(),
        "chip_hash": chip.hash,
        **{name: best[name] for name in (*kept, "critical_path")},
        "tidemill": tidemill.__version__,
        "tools": {
            tool: need_tool(tool).describe()
            for tool, spec in TOOLS.items()
            if spec.family in ("", board.part.family)
        },
        "alu": state.options.alu,
        "bitstream": product.name if product else None,
        "sha256": hashlib.sha256(product.read_bytes()).hexdigest() if product else None,
        "attempts": [
            {k: v for k, v in a.items() if k not in ("folder", "utilisation")}
            for a in state.attempts
        ],
    }
    text = json.dumps(facts, indent=1)
    _product(state, "json").write_text(text + "\n")
    return dict(json.loads(text))
