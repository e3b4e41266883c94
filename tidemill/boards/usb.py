"""Boards on this machine's USB, as Linux lists them, and who may talk to them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Device", "devices", "udev_rule"]

#: Where Linux lists USB devices, and where they are opened.
SYSTEM = Path("/sys/bus/usb/devices")
NODES = Path("/dev/bus/usb")


@dataclass(frozen=True)
class Device:
    """A USB device; `writable` by this user."""

    vendor: str
    product: str
    title: str
    node: Path
    writable: bool


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def devices(wanted: Iterable[tuple[str, str]]) -> list[Device]:
    """Devices with one of the (vendor, product) identities; none where there is no such list."""
    identities = set(wanted)
    found = []
    for place in sorted(SYSTEM.glob("*")):
        identity = _read(place / "idVendor"), _read(place / "idProduct")
        if identity not in identities:
            continue
        bus, number = _read(place / "busnum"), _read(place / "devnum")
        node = NODES / bus.zfill(3) / number.zfill(3)
        title = _read(place / "product") or "no name"
        found.append(Device(*identity, title, node, os.access(node, os.W_OK)))
    return found


def udev_rule(identity: tuple[str, str]) -> str:
    """Commands that let every user at the machine open such a device."""
    vendor, product = identity
    rule = (
        f'SUBSYSTEM=="usb", ATTRS{{idVendor}}=="{vendor}", ATTRS{{idProduct}}=="{product}", '
        'MODE="0666"'
    )
    return (
        f"echo '{rule}' | sudo tee /etc/udev/rules.d/70-tidemill-{vendor}-{product}.rules && "
        "sudo udevadm control --reload-rules && sudo udevadm trigger"
    )
