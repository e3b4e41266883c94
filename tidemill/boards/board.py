"""What the flow knows of a board: part, pins, clock, rate of its UART, how it is flashed.

A board of your own is a Python file with `BOARD = Board(...)`, taken by every command as
`--board-file my_board.py`.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.boards.parts import FAMILIES, PARTS, Part

__all__ = ["PORTS", "Board", "BoardError", "Pin", "load_board_file", "platform_pins"]

#: Ports of `tidemill_top`, bit by bit; a board has a pin for each.
PORTS = ("clk", "uart_rx", "uart_tx", "led[0]", "led[1]", "led[2]", "led[3]")


class BoardError(ValueError):
    """A board that cannot be; the text names the field, the value and what is possible."""


@dataclass(frozen=True)
class Pin:
    """A ball or pin of the package, and attributes in the words of the constraints file."""

    site: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board. Raises `BoardError` when a field makes no sense."""

    #: Name on the command line and of the files in `constraints/`.
    name: str
    #: Name for people.
    title: str
    part: Part
    #: As nextpnr calls it; not used for Gowin.
    package: str = ""
    #: Speed grade of an ECP5: 6, 7 or 8.
    speed: str = ""
    #: Frequency of the oscillator at `clk`.
    clock_hz: int
    #: A pin for each of `PORTS`.
    pins: Mapping[str, Pin]
    #: MHz for the chip that `build` tries, fastest first. The oscillator's own needs no PLL.
    mhz: tuple[float, ...]
    #: Rate of the UART on the USB cable.
    baud: int
    #: Chip that is sized for the part: a named one, or a path to a .toml file; empty if none is.
    chip: str = ""
    #: openFPGALoader's arguments that find the board.
    loader: tuple[str, ...]
    #: Whether openFPGALoader can load its SRAM; without, only the flash.
    sram: bool = True
    #: USB vendor and product, four hex digits each, for the udev rule.
    usb: tuple[str, str]
    #: A LED is lit when its bit is 0.
    led_inverted: bool = False
    #: What has to be known before one relies on it; empty if nothing.
    warning: str = ""

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise BoardError(
                    f"board {self.name!r}: {name} must be {rule}, not {getattr(self, name)!r}"
                )

        need(isinstance(self.name, str) and bool(self.name), "name", "a non-empty string")
        need(isinstance(self.part, Part), "part", f"a Part, such as PARTS of {', '.join(PARTS)}")
        if self.part.family not in FAMILIES:
            raise BoardError(
                f"board {self.name!r}: the family of its part must be one of "
                f"{', '.join(FAMILIES)}, not {self.part.family!r}"
            )
        if self.part.family == "ecp5":
            need(self.speed in ("6", "7", "8"), "speed", "'6', '7' or '8' on an ECP5")
        need(self.part.family == "gowin" or bool(self.package), "package", "a non-empty string")
        need(isinstance(self.clock_hz, int) and self.clock_hz > 0, "clock_hz", "a positive int")
        need(isinstance(self.baud, int) and self.baud > 0, "baud", "a positive int")
        need(
            isinstance(self.mhz, tuple) and bool(self.mhz) and all(f > 0 for f in self.mhz),
            "mhz",
            "a tuple of positive numbers",
        )
        self._check_pins()

    def _check_pins(self) -> None:
        missing = [port for port in PORTS if port not in self.pins]
        unknown = [port for port in self.pins if port not in PORTS]
        if missing or unknown:
            what = (
                f"has no pin for {', '.join(missing)}"
                if missing
                else f"has a pin for {', '.join(unknown)}"
            )
            raise BoardError(f"board {self.name!r} {what}; its ports are {', '.join(PORTS)}")
        where: dict[str, str] = {}
        for port, pin in self.pins.items():
            if pin.site in where:
                raise BoardError(
                    f"board {self.name!r}: {where[pin.site]} and {port} are both on pin {pin.site}"
                )
            where[pin.site] = port


def platform_pins(platform: Any, *, led: int = 0) -> dict[str, Pin]:
    """Pins of a platform of amaranth-boards: its default clock, first UART, four LEDs.

    led: number of the first LED resource.
    """
    lines = {io.name: "-" for io in platform.lookup("uart", 0).ios}
    uart = platform.request("uart", 0, dir=lines)
    found = {
        "clk": platform.request(platform.default_clk, 0, dir="-"),
        "uart_rx": uart.rx,
        "uart_tx": uart.tx,
        **{f"led[{k}]": platform.request("led", led + k, dir="-") for k in range(4)},
    }
    pins = {}
    for port, there in found.items():
        (bit,) = there.io.metadata
        pins[port] = Pin(bit.name, dict(bit.attrs))
    return pins


def load_board_file(path: str | Path) -> Board:
    """The `BOARD` of a Python file. Raises `BoardError` with one sentence if there is none."""
    where = str(path)
    try:
        found = runpy.run_path(where).get("BOARD")
    except BoardError:
        raise
    except OSError as e:
        raise BoardError(f"cannot read board file {where!r}: {e.strerror}") from None
    except Exception as e:
        raise BoardError(f"board file {where!r} fails: {type(e).__name__}: {e}") from None
    if not isinstance(found, Board):
        raise BoardError(f"board file {where!r} defines no BOARD = Board(...)")
    return found
