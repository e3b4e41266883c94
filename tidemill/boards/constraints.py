"""Constraints files of a board: pins and clock of `tidemill_top`, in the words of its tools.

ECP5 and iCE40 files hold the frequency of the oscillator, from which nextpnr derives that of the
PLL. The Gowin format has no place for it (`nextpnr --freq`). The .sdc file says the same to
vendor tools.
"""

from __future__ import annotations

from tidemill.boards.board import Board, Pin

__all__ = ["constraints", "constraints_name"]

SUFFIX = {"ecp5": "lpf", "ice40": "pcf", "gowin": "cst"}
ORIGIN = "Pins and clock of tidemill_top on the {title}. Written by `tidemill constraints`."


def constraints_name(board: Board) -> str:
    """Name of the file that nextpnr reads."""
    return f"{board.name}.{SUFFIX[board.part.family]}"


def constraints(board: Board) -> dict[str, str]:
    """Text of both files by name: nextpnr's first, then the .sdc."""
    lines = {"ecp5": _lpf, "ice40": _pcf, "gowin": _cst}[board.part.family](board)
    comment = "//" if board.part.family == "gowin" else "#"
    origin = ORIGIN.format(title=board.title)
    period = f"{1e9 / board.clock_hz:.3f}"
    clock = f"create_clock -name clk -period {period} [get_ports {{clk}}]"
    return {
        constraints_name(board): "\n".join([f"{comment} {origin}", *lines, ""]),
        f"{board.name}.sdc": f"# {origin}\n{clock}\n",
    }


def _mhz(board: Board) -> str:
    return f"{board.clock_hz / 1e6:g}"


def _attributes(pin: Pin) -> str:
    return " ".join(f"{name}={value}" for name, value in pin.attributes.items())


def _lpf(board: Board) -> list[str]:
    lines = []
    for port, pin in board.pins.items():
        lines.append(f'LOCATE COMP "{port}" SITE "{pin.site}";')
        if pin.attributes:
            lines.append(f'IOBUF PORT "{port}" {_attributes(pin)};')
    return [*lines, f'FREQUENCY PORT "clk" {_mhz(board)} MHZ;']


def _pcf(board: Board) -> list[str]:
    lines = []
    for port, pin in board.pins.items():
        # the standard is the bank's voltage, and a global buffer is found without being asked for
        pullup = "-pullup yes " if pin.attributes.get("PULLUP") else ""
        lines.append(f"set_io {pullup}{port} {pin.site}")
    return [*lines, f"set_frequency clk {_mhz(board)}"]


def _cst(board: Board) -> list[str]:
    lines = []
    for port, pin in board.pins.items():
        lines.append(f'IO_LOC "{port}" {pin.site};')
        if pin.attributes:
            lines.append(f'IO_PORT "{port}" {_attributes(pin)};')
    return lines
