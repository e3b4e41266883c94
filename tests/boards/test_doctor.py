"""What doctor says of tools, versions and USB devices."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tidemill.boards import doctor, usb
from tidemill.boards.catalog import BOARDS
from tidemill.boards.doctor import check_tools, check_usb


def findings() -> dict[str, doctor.Finding]:
    return {f.name: f for f in check_tools(lambda text: None)}


def test_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = findings()
    for name in ("yosys", "ecppack", "gowin_pack", "g++", "vcd2fst", "openFPGALoader"):
        assert found[name].verdict == "missing"
    assert found["ecppack"].cost.startswith("no bitstreams for ECP5 boards (pip install ")
    assert found["g++"].cost == "no engines rtl and virtual-board (apt install g++)"
    assert found["amaranth"].verdict == "ok"


def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "yosys": "Yosys 0.33",
        "make": "GNU Make 4.3",
        "openFPGALoader": "error while loading shared libraries: libftdi1.so.2: cannot open",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = findings()
    assert (found["yosys"].verdict, found["yosys"].version) == ("not tested", "0.33, native")
    assert (found["make"].verdict, found["make"].version) == ("ok?", "4.3, native")
    assert found["openFPGALoader"].verdict == "missing"
    assert "does not start without libftdi1.so.2: sudo apt" in found["openFPGALoader"].cost


@pytest.mark.parametrize(
    ("found", "oldest", "newest", "inside"),
    [
        ("0.5.10", "0.5.10", "0.5", True),
        ("0.5.9", "0.5.10", "0.5", False),
        ("0.6.0", "0.5.10", "0.5", False),
        ("2.1.3", "2.1", "2.1", True),
        ("2.2", "2.1", "2.1", False),
    ],
)
def test_ranges_of_packages(found: str, oldest: str, newest: str, inside: bool) -> None:
    assert doctor._within(found, oldest, newest) is inside


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux' list of devices")
def test_usb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that may be opened, one that may not, and something else."""
    for name, product, number in (("1-1", "6015", "7"), ("1-2", "6010", "8"), ("1-3", "1234", "9")):
        place = tmp_path / "sys" / name
        place.mkdir(parents=True)
        facts = {"idVendor": "0403", "idProduct": product, "busnum": "1", "devnum": number}
        for key, value in {**facts, "product": f"Bridge {number}"}.items():
            (place / key).write_text(value + "\n")
    node = tmp_path / "dev/001/007"
    node.parent.mkdir(parents=True)
    node.touch()
    monkeypatch.setattr(usb, "SYSTEM", tmp_path / "sys")
    monkeypatch.setattr(usb, "NODES", tmp_path / "dev")
    first, second = check_usb(BOARDS.values())
    assert first.name == "USB 0403:6015 Bridge 7"
    assert "perhaps ulx3s-12f or ulx3s-25f" in first.version
    assert (first.verdict, first.cost) == ("ok", "")
    assert second.verdict == "missing"
    assert second.cost.startswith('no permission: echo \'SUBSYSTEM=="usb", ATTRS{idVendor}==')
    assert os.access(node, os.W_OK)


def test_no_list_of_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usb, "SYSTEM", tmp_path / "none")
    assert check_usb(BOARDS.values()) == []
