"""Opening a serial port, and the one sentence for each way in which that fails."""

from __future__ import annotations

import errno
from pathlib import Path

import serial
from serial.tools import list_ports

__all__ = ["DEFAULT_BAUD", "PortError", "found_ports", "open_port"]

DEFAULT_BAUD = 3_000_000
#: Seconds that a read waits for the first byte, and a write for the last.
READ_WAIT, WRITE_WAIT = 0.02, 3.0
#: What gives everybody at the machine the right to use USB serial ports.
UDEV_RULE = 'SUBSYSTEM=="tty", SUBSYSTEMS=="usb", MODE="0666"'


class PortError(RuntimeError):
    """A serial port that cannot be used; one sentence says why and what to do."""


def found_ports() -> str:
    """The serial ports of this machine, for a message."""
    names = [
        f"{p.device} ({p.description})" if p.description not in (None, "n/a") else p.device
        for p in sorted(list_ports.comports())
    ]
    return f"serial ports found: {', '.join(names)}" if names else "no serial port was found"


def open_port(name: str, baud: int = DEFAULT_BAUD) -> serial.Serial:
    """The port `name` at `baud`, for us alone, without what it received before.

    Raises `PortError`.
    """
    try:
        port = serial.Serial(
            name, baud, timeout=READ_WAIT, write_timeout=WRITE_WAIT, exclusive=True
        )
        port.reset_input_buffer()
    except (OSError, ValueError, OverflowError) as e:
        raise PortError(_sentence(name, baud, e)) from None
    return port


def _sentence(name: str, baud: int, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.ENOENT:
        return f"there is no port {name!r}; {found_ports()}"
    if number == errno.EACCES:
        return (
            f"no permission to use {name!r}: join its group {_group(name)} "
            "(sudo usermod -aG GROUP $USER, then log in again), or put the line "
            f"{UDEV_RULE} into /etc/udev/rules.d/99-tidemill.rules"
        ).replace("GROUP", _group(name))
    if number == errno.EBUSY or "exclusively lock" in str(error):
        return f"{name!r} is busy: another program has it open"
    if isinstance(error, (ValueError, OverflowError)):
        return f"{name!r} does not take {baud} baud"
    return f"cannot open {name!r} at {baud} baud as a serial port: {error}"


def _group(name: str) -> str:
    try:
        return Path(name).group()
    except (OSError, KeyError):
        return "dialout"
