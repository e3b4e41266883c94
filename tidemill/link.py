"""Numbers of the host link, for both of its sides (docs/link.md)."""

from __future__ import annotations

import zlib
from enum import IntEnum

__all__ = [
    "ERROR",
    "MAX_PAYLOAD",
    "MAX_WORDS",
    "REPLY",
    "STATUS_BYTES",
    "SYNC",
    "TOKEN_BYTES",
    "VERSION",
    "Push",
    "Reason",
    "Request",
    "frame",
]

#: Version of the link, in the reply to ID.
VERSION = 1
#: First byte of every frame.
SYNC = 0xA5
#: Bytes of the longest payload that a receiver takes.
MAX_PAYLOAD = 64
#: Words of the longest WRITE or READ.
MAX_WORDS = 7
#: Set in the kind of every frame from the board.
REPLY = 0x80
#: Kind of the reply to a request that was refused; its payload is a `Reason`.
ERROR = 0xFF
#: Bytes of the payload of DONE and of the reply to STATUS.
STATUS_BYTES = 14
#: Bytes of the payload of TOKEN.
TOKEN_BYTES = 8


class Request(IntEnum):
    """Kinds of frames from the host."""

    ID = 1
    WRITE = 2
    READ = 3
    START = 4
    STOP = 5
    STATUS = 6
    SEEK = 7


class Push(IntEnum):
    """Kinds of frames that the board sends by itself."""

    TOKEN = 0xC0
    DONE = 0xC1


class Reason(IntEnum):
    """Why a request was refused."""

    KIND = 1
    LENGTH = 2
    BUSY = 3
    VALUE = 4


def frame(kind: int, sequence: int, payload: bytes = b"") -> bytes:
    """A whole frame; kind, sequence and length must each fit a byte."""
    body = bytes((kind, sequence, len(payload))) + payload
    return bytes((SYNC,)) + body + zlib.crc32(body).to_bytes(4, "little")
