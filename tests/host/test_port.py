"""Serial ports that cannot be opened, one sentence each; a pseudo-terminal that can."""

from __future__ import annotations

import errno
import os
import pty
import re

import pytest
import serial
from serial.tools import list_ports

from tidemill.host import port as ports
from tidemill.host.port import PortError, found_ports, open_port


@pytest.fixture
def terminal():
    ours, theirs = pty.openpty()
    yield ours, os.ttyname(theirs)
    os.close(ours)
    os.close(theirs)


def test_a_port_opens_for_one(terminal):
    ours, name = terminal
    with open_port(name) as port:
        os.write(ours, b"\x05\xa5")
        assert port.read(2) == b"\x05\xa5"
        port.write(b"abc")
        assert os.read(ours, 9) == b"abc"
        with pytest.raises(PortError) as e:
            open_port(name)
        assert str(e.value) == f"{name!r} is busy: another program has it open"
    open_port(name).close()


def test_no_such_port(monkeypatch):
    monkeypatch.setattr(list_ports, "comports", list)
    with pytest.raises(PortError) as e:
        open_port("/dev/ttyUSB77")
    assert str(e.value) == "there is no port '/dev/ttyUSB77'; no serial port was found"


def test_ports_are_listed(monkeypatch):
    class Info:
        def __init__(self, device, description):
            self.device, self.description = device, description

        def __lt__(self, other):
            return self.device < other.device

    found = [Info("/dev/ttyUSB1", "ULX3S FPGA 85K"), Info("/dev/ttyS0", "n/a")]
    monkeypatch.setattr(list_ports, "comports", lambda: found)
    assert found_ports() == "serial ports found: /dev/ttyS0, /dev/ttyUSB1 (ULX3S FPGA 85K)"


def test_no_permission(monkeypatch, tmp_path):
    name = tmp_path / "ttyUSB0"
    name.touch()

    def denied(*args, **more):
        raise serial.SerialException(errno.EACCES, "could not open port")

    monkeypatch.setattr(ports.serial, "Serial", denied)
    with pytest.raises(PortError) as e:
        open_port(str(name))
    group = name.group()
    assert str(e.value) == (
        f"no permission to use '{name}': join its group {group} (sudo usermod -aG {group} $USER, "
        'then log in again), or put the line SUBSYSTEM=="tty", SUBSYSTEMS=="usb", MODE="0666" '
        "into /etc/udev/rules.d/99-tidemill.rules"
    )
    name.unlink()
    with pytest.raises(PortError, match="join its group dialout "):
        open_port(str(name))


def test_what_is_no_port(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PortError, match=re.escape(f"cannot open '{file}' at 9600 baud as a ser")):
        open_port(str(file), 9600)


def test_a_rate_that_is_none(terminal):
    with pytest.raises(PortError, match=f"{terminal[1]!r} does not take {1 << 40} baud"):
        open_port(terminal[1], 1 << 40)
