"""Command lines from `tidemill_top.v` and the constraints file to a bitstream.

The same lines that `docs/boards.md` shows to people who want nothing but Verilog. All files lie in
one folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.boards.board import Board
from tidemill.boards.constraints import constraints_name

__all__ = ["BITSTREAM", "ROUTERS", "TOP", "Command", "pack", "place_and_route", "synthesise"]

TOP = "tidemill_top"
#: Endings of bitstreams.
BITSTREAM = {"ecp5": "bit", "ice40": "bin", "gowin": "fs"}
#: Routers of nextpnr, the default first. On the chips tried here router1 ended sooner or alone,
#: with the faster clock; on very full parts it may not end, and router2 may.
ROUTERS = ("router1", "router2")


@dataclass(frozen=True)
class Command:
    """A tool of `tools.TOOLS` and its arguments."""

    tool: str
    arguments: tuple[str, ...]

    @property
    def line(self) -> str:
        """As one types it."""
        return " ".join((self.tool, *(f'"{a}"' if " " in a else a for a in self.arguments)))


def synthesise(board: Board, *, alu: bool = True) -> Command:
    """Yosys, to `tidemill_top.json`. alu: use the carry chains of a Gowin part."""
    if board.part.family == "gowin":
        more = "" if alu else " -noalu"
        steps = f"synth_gowin -family gw2a{more} -top {TOP} -json {TOP}.json"
    else:
        # in two halves: with names that nobody uses, abc9 of yosys 0.70 stops at an assertion
        synth = f"synth_{board.part.family}{' -dsp' if board.part.family == 'ice40' else ''}"
        first, second = f"{synth} -top {TOP} -run :map_luts", f"{synth} -run map_luts:"
        steps = f"{first}; opt_clean -purge; {second} -json {TOP}.json"
    return Command("yosys", ("-q", "-p", f"read_verilog {TOP}.v; {steps}"))


def place_and_route(board: Board, mhz: float, seed: int = 1, router: str = ROUTERS[0]) -> Command:
    """Nextpnr, with a report. mhz: frequency of the chip."""
    part = board.part
    common = (
        *("--json", f"{TOP}.json", "--seed", str(seed), "--router", router),
        *("--report", "report.json"),
    )
    if part.family == "gowin":
        return Command(
            "nextpnr-himbaechel",
            (
                *("--device", part.name, "--vopt", f"family={part.device}"),
                *("--vopt", f"cst={constraints_name(board)}", *common),
                *("--write", f"{TOP}.pnr.json", "--freq", f"{mhz:g}"),
                # nextpnr 0.11 adds up the hold requirement of duplicated block RAM ports (nextpnr
                # issue 1803) and would fail; the clock is judged by the report
                "--timing-allow-fail",
            ),
        )
    place = (f"--{part.device}", "--package", board.package)
    if part.family == "ecp5":
        files = ("--lpf", constraints_name(board), "--textcfg", f"{TOP}.config")
        return Command("nextpnr-ecp5", (*place, "--speed", board.speed, *common, *files))
    files = ("--pcf", constraints_name(board), "--asc", f"{TOP}.asc")
    return Command("nextpnr-ice40", (*place, *common, *files))


def pack(board: Board) -> Command:
    """The family's packer, to `tidemill_top` with the ending of `BITSTREAM`."""
    out = f"{TOP}.{BITSTREAM[board.part.family]}"
    if board.part.family == "ecp5":
        return Command("ecppack", ("--compress", f"{TOP}.config", out))
    if board.part.family == "ice40":
        return Command("icepack", (f"{TOP}.asc", out))
    return Command("gowin_pack", ("-d", board.part.device, "-o", out, f"{TOP}.pnr.json"))
