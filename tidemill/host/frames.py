"""Frames of the host link as the host sees them: a parser, and what payloads mean.

Timing rule: a gap of `GAP` seconds inside a frame ends it; the owner of a `Parser` calls `gap()`.
The layout is in `docs/link.md`, its numbers in `tidemill.link`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from tidemill.link import MAX_PAYLOAD, SYNC, Push

__all__ = ["GAP", "LONGEST", "Frame", "Identity", "Parser", "Status", "Token"]

#: Bytes around a payload: sync, kind, sequence, length; and the CRC.
HEADER, TRAILER = 4, 4
#: Bytes of the longest frame.
LONGEST = HEADER + MAX_PAYLOAD + TRAILER
#: Seconds without a byte that end a frame.
GAP = 0.1


@dataclass(frozen=True)
class Frame:
    """One frame whose CRC is right; sequence: of a pushed frame the run number."""

    kind: int
    sequence: int
    payload: bytes = b""

    @property
    def pushed(self) -> bool:
        """Whether nobody asked for it."""
        return self.kind in list(Push)


class Parser:
    """Bytes in, frames with a right CRC out.

    After a wrong CRC or length the search goes on with the byte behind the sync byte, so that a
    damaged frame does not take an intact one with it.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    @property
    def inside(self) -> bool:
        """Whether the last byte belongs to a frame that is not complete."""
        return bool(self._bytes)

    def feed(self, data: bytes) -> list[Frame]:
        """Frames that these bytes complete."""
        self._bytes += data
        return self._scan()

    def gap(self) -> list[Frame]:
        """The line was quiet: what is incomplete stays so. Frames behind a false beginning."""
        found: list[Frame] = []
        while self._bytes:
            del self._bytes[0]
            found += self._scan()
        return found

    def _scan(self) -> list[Frame]:
        found: list[Frame] = []
        while True:
            start = self._bytes.find(SYNC)
            del self._bytes[: start if start >= 0 else len(self._bytes)]
            if len(self._bytes) < HEADER:
                return found
            _, kind, sequence, length = self._bytes[:HEADER]
            end = HEADER + length
            if length <= MAX_PAYLOAD:
                if len(self._bytes) < end + TRAILER:
                    return found
                crc = int.from_bytes(self._bytes[end : end + TRAILER], "little")
                if crc == zlib.crc32(self._bytes[1:end]):
                    found.append(Frame(kind, sequence, bytes(self._bytes[HEADER:end])))
                    del self._bytes[: end + TRAILER]
                    continue
            del self._bytes[0]


@dataclass(frozen=True)
class Identity:
    """Reply to ID. chip_hash: 16 hex digits, as `Chip.hash`; clock in Hz."""

    version: int
    chip_hash: str
    clock_hz: int
    build_id: int

    LAYOUT = struct.Struct("<BQIQ")

    @classmethod
    def decode(cls, payload: bytes) -> Identity:
        """Of a reply. Raises `struct.error` for another length."""
        version, chip, clock, build = cls.LAYOUT.unpack(payload)
        return cls(version, f"{chip:016x}", clock, build)

    def encode(self) -> bytes:
        """The payload."""
        return self.LAYOUT.pack(self.version, int(self.chip_hash, 16), self.clock_hz, self.build_id)


@dataclass(frozen=True)
class Status:
    """Reply to STATUS, and payload of DONE.

    cycles: since power-up, modulo 2**32; tokens: events in the FIFO; run: number of the current or
    last run, 0 since power-up; fault: an `isa.Fault`, 0 for none.
    """

    cycles: int
    tokens: int
    run: int
    busy: bool = False
    aborted: bool = False
    fault: int = 0
    fault_queue: int = 0
    fault_cycle: int = 0

    LAYOUT = struct.Struct("<IHBBIBB")

    @classmethod
    def decode(cls, payload: bytes) -> Status:
        """Of a reply. Raises `struct.error` for another length."""
        cycles, tokens, run, flags, at, kind, queue = cls.LAYOUT.unpack(payload)
        fault = (kind, queue, at) if flags & 2 else (0, 0, 0)
        return cls(cycles, tokens, run, bool(flags & 1), bool(flags & 4), *fault)

    def encode(self) -> bytes:
        """The payload."""
        flags = self.busy | bool(self.fault) << 1 | self.aborted << 2
        place = (self.fault_cycle, self.fault, self.fault_queue)
        return self.LAYOUT.pack(self.cycles, self.tokens, self.run, flags, *place)


@dataclass(frozen=True)
class Token:
    """Payload of TOKEN: the event of position `index`; cycles are the chip's counter."""

    index: int
    token: int
    cycles: int
    generated: bool

    LAYOUT = struct.Struct("<HHI")

    @classmethod
    def decode(cls, payload: bytes) -> Token:
        """Of a pushed frame. Raises `struct.error` for another length."""
        index, token, rest = cls.LAYOUT.unpack(payload)
        return cls(index, token, rest & 0xFFFFFF, bool(rest >> 24 & 1))

    def encode(self) -> bytes:
        """The payload."""
        return self.LAYOUT.pack(self.index, self.token, self.cycles | self.generated << 24)
