"""Frames of the host link, and what their payloads mean (`docs/link.md`).

Timing rule: a gap of `GAP` seconds inside a frame ends it; the owner of a `Parser` calls `gap()`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "GAP",
    "LINK_VERSION",
    "LONGEST",
    "MAX_WORDS",
    "Frame",
    "Identity",
    "Kind",
    "Parser",
    "Reason",
    "Status",
    "Token",
    "encode",
]

LINK_VERSION = 1
SYNC = 0xA5
#: Bit of the kind: from the board.
REPLY = 0x80
#: Bytes of payload at most.
MAX_PAYLOAD = 64
#: Words of a WRITE or READ at most.
MAX_WORDS = 7
#: Sync, kind, sequence, length; and the CRC.
HEADER, TRAILER = 4, 4
#: Bytes of the longest frame.
LONGEST = HEADER + MAX_PAYLOAD + TRAILER
#: Seconds without a byte that end a frame.
GAP = 0.1


class Kind(IntEnum):
    """Requests, and what the board pushes; a reply's kind is its request's with `REPLY`."""

    ID = 0x01
    WRITE = 0x02
    READ = 0x03
    START = 0x04
    STOP = 0x05
    STATUS = 0x06
    SEEK = 0x07
    TOKEN = 0xC0
    DONE = 0xC1
    REFUSED = 0xFF


class Reason(IntEnum):
    """Why the board refuses a request."""

    UNKNOWN = 1
    LENGTH = 2
    BUSY = 3


@dataclass(frozen=True)
class Frame:
    """One frame whose CRC is right."""

    kind: int
    sequence: int
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """The bytes of a frame on the line."""
    if len(frame.payload) > MAX_PAYLOAD:
        raise ValueError(f"a payload holds {MAX_PAYLOAD} bytes at most, not {len(frame.payload)}")
    body = bytes((frame.kind, frame.sequence, len(frame.payload))) + frame.payload
    return bytes((SYNC,)) + body + zlib.crc32(body).to_bytes(TRAILER, "little")


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

    run: number of the current or last run, 0 since power-up; tokens: events in the FIFO; fault: an
    `isa.Fault`, 0 for none; cycles: since power-up.
    """

    busy: bool
    aborted: bool
    run: int
    tokens: int
    fault: int
    fault_queue: int
    fault_cycle: int
    cycles: int

    LAYOUT = struct.Struct("<BBHBBIQ")

    @classmethod
    def decode(cls, payload: bytes) -> Status:
        """Of a reply. Raises `struct.error` for another length."""
        flags, run, tokens, kind, queue, at, cycles = cls.LAYOUT.unpack(payload)
        fault = kind if flags & 2 else 0
        return cls(bool(flags & 1), bool(flags & 4), run, tokens, fault, queue, at, cycles)

    def encode(self) -> bytes:
        """The payload."""
        flags = self.busy | bool(self.fault) << 1 | self.aborted << 2
        return self.LAYOUT.pack(
            *(flags, self.run, self.tokens),
            *(self.fault, self.fault_queue, self.fault_cycle, self.cycles),
        )


@dataclass(frozen=True)
class Token:
    """Payload of TOKEN: the event of position `index` of a run; cycles are the chip's counter."""

    run: int
    index: int
    generated: bool
    token: int
    cycles: int

    LAYOUT = struct.Struct("<BHBHI")

    @classmethod
    def decode(cls, payload: bytes) -> Token:
        """Of a pushed frame. Raises `struct.error` for another length."""
        run, index, flags, token, cycles = cls.LAYOUT.unpack(payload)
        return cls(run, index, bool(flags & 1), token, cycles)

    def encode(self) -> bytes:
        """The payload."""
        return self.LAYOUT.pack(self.run, self.index, self.generated, self.token, self.cycles)
