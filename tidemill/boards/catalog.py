"""The boards that come with Tidemill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amaranth_boards.icebreaker import ICEBreakerPlatform
from amaranth_boards.icepi_zero import IcepiZero1_3Platform
from amaranth_boards.ulx3s import ULX3S_12F_Platform

from tidemill.boards.board import Board, BoardError, load_board_file, platform_pins
from tidemill.boards.parts import PARTS
from tidemill.boards.tang_nano_20k import TangNano20kPlatform

__all__ = ["BOARDS", "find_board"]

#: MHz for an ECP5 with 24 K LUTs. All lists hold what the PLL can make and divides to 3 Mbaud.
SLOW = (75, 69, 60, 54, 45, 39, 30)


def _ulx3s(size: str, chip: str, mhz: tuple[float, ...]) -> Board:
    platform: Any = ULX3S_12F_Platform()  # the sizes differ in the part alone
    return Board(
        name=f"ulx3s-{size}f",
        title=f"ULX3S with LFE5U-{size}F",
        part=PARTS[f"LFE5U-{size}F"],
        package="CABGA381",
        speed=platform.speed,
        clock_hz=int(platform.default_clk_frequency),
        pins=platform_pins(platform),
        mhz=mhz,
        baud=3_000_000,
        chip=chip,
        loader=("-b", "ulx3s"),
        usb=("0403", "6015"),
    )


def _icebreaker() -> Board:
    platform: Any = ICEBreakerPlatform()
    # LEDs of the section that can be broken off: those beside the FPGA are inverted, and two
    platform.add_resources(platform.break_off_pmod)
    return Board(
        name="icebreaker",
        title="iCEBreaker",
        part=PARTS["iCE40UP5K"],
        package="sg48",
        clock_hz=int(platform.default_clk_frequency),
        pins=platform_pins(platform, led=2),
        mhz=(30, 24, 21, 18, 12),
        baud=3_000_000,
        loader=("-b", "ice40_generic"),
        sram=False,
        usb=("0403", "6010"),
    )


def _icepi_zero() -> Board:
    platform: Any = IcepiZero1_3Platform()
    return Board(
        name="icepi-zero",
        title="Icepi Zero 1.3",
        part=PARTS["LFE5U-25F"],
        package="CABGA256",
        speed=platform.speed,
        clock_hz=int(platform.default_clk_frequency),
        pins=platform_pins(platform),
        mhz=SLOW,
        baud=3_000_000,
        chip="icepi-zero",
        loader=("-b", "icepi-zero"),
        usb=("0403", "6015"),
    )


def _tang_nano_20k() -> Board:
    platform: Any = TangNano20kPlatform()
    return Board(
        name="tangnano20k",
        title="Tang Nano 20K",
        part=PARTS[platform.part],
        clock_hz=int(platform.default_clk_frequency),
        pins=platform_pins(platform),
        mhz=(81, 72, 60, 54, 48, 36, 27),
        baud=3_000_000,
        loader=("-b", "tangnano20k"),
        usb=("0403", "6010"),
        led_inverted=True,
        warning=(
            "experimental: the open Gowin tools have computed wrong sums in carry chains on this "
            "board (YosysHQ/apicula issue 514); --no-alu builds without them"
        ),
    )


#: By name.
BOARDS: dict[str, Board] = {
    b.name: b
    for b in (
        _ulx3s("12", "ulx3s-12f", SLOW),
        _ulx3s("25", "ulx3s-12f", SLOW),
        _ulx3s("45", "ulx3s-45f", (90, 84, 75, 69, 60, 54, 45, 39, 30)),
        _ulx3s("85", "ulx3s-85f", (120, 114, 108, 96, 90, 84, 75, 69, 60, 45)),
        _icebreaker(),
        _icepi_zero(),
        _tang_nano_20k(),
    )
}


def find_board(name: str | None, file: str | Path | None = None) -> Board:
    """A board by name, or that of a Python file. Raises `BoardError` in one sentence."""
    if (name is None) == (file is None):
        raise BoardError(
            f"give either --board, one of {', '.join(BOARDS)}, or --board-file with a Python file"
        )
    if file is not None:
        return load_board_file(file)
    assert name is not None
    if name not in BOARDS:
        raise BoardError(
            f"no board named {name!r}; boards are {', '.join(BOARDS)}, or give --board-file with a "
            "Python file of your own"
        )
    return BOARDS[name]
