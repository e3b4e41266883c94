"""A board made of Python behind a line that damages bytes, in simulated time.

The board follows `docs/link.md` and shares no code with the driver but the layouts of payloads.
Time passes only while the host reads: thousands of seconds of stalls and repetitions take none.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.host.frames import Identity, Parser, Status, Token

BAUD = 1_000_000
BYTE = 10 / BAUD
#: Clock of the board: small, so that a story takes seconds.
CLOCK = 100_000
TICK = 0.0002
READ_WAIT = 0.02

Event = tuple[int, bool, int]


@dataclass
class Faults:
    """Probabilities per byte; `stall`: seconds at most."""

    drop: float = 0
    flip: float = 0
    double: float = 0
    swap: float = 0
    truncate: float = 0
    pause: float = 0
    stall: float = 0.0
    #: Nothing passes from this byte on.
    cut: int | None = None


class Line:
    """One direction: bytes in, later bytes out."""

    def __init__(self, faults: Faults, rng: random.Random):
        self.faults = faults
        self.sent = 0
        self._rng = rng
        self._free = 0.0
        self._lost = 0
        self._bytes: deque[tuple[float, int]] = deque()
        self._held: int | None = None

    def put(self, data: bytes, now: float) -> None:
        f, rng = self.faults, self._rng
        for byte in data:
            self.sent += 1
            self._free = max(self._free, now) + BYTE
            if f.cut is not None and self.sent > f.cut:
                continue
            if rng.random() < f.truncate:
                self._lost = rng.randrange(1, 40)
            if self._lost:
                self._lost -= 1
                continue
            if rng.random() < f.drop:
                continue
            if rng.random() < f.pause:
                self._free += rng.random() * f.stall
            if rng.random() < f.flip:
                byte ^= 1 << rng.randrange(8)
            if self._held is None and rng.random() < f.swap:
                self._held = byte
                continue
            for b in [byte] * (1 + (rng.random() < f.double)):
                self._bytes.append((self._free, b))
            if self._held is not None:
                self._bytes.append((self._free, self._held))
                self._held = None

    def get(self, now: float) -> bytes:
        out = bytearray()
        while self._bytes and self._bytes[0][0] <= now:
            out.append(self._bytes.popleft()[1])
        return bytes(out)


class FakeBoard:
    """What stands behind the line.

    story: events of a run, from the words written so far; the board is busy for their cycles.
    """

    GAP = 1 << 20

    def __init__(self, chip_hash: str, story: Callable[[dict[tuple[int, int], int]], list[Event]]):
        self.identity = Identity(1, chip_hash, CLOCK, 0xB11D)
        self.memory: dict[tuple[int, int], int] = {}
        self.starts = 0
        self.hang = False
        self._story = story
        self._frame = bytearray()
        self._last = 0.0
        self._sending = 0.0
        self._replies: deque[bytes] = deque()
        self._run, self._begun, self._aborted = 0, 0.0, None
        self._events: list[tuple[float, Event]] = []
        self._next, self._done = 0, True

    # Time ----------------------------------------------------------------------------------------

    def step(self, data: bytes, now: float) -> bytes:
        """Take `data`, which has just arrived; what the board sends now."""
        for byte in data:
            self._take(byte, now)
        if self._frame and (now - self._last) * CLOCK > self.GAP:
            self._frame.clear()
        if now < self._sending:
            return b""
        out = self._replies.popleft() if self._replies else self._push(now)
        self._sending = now + len(out) * BYTE
        return out

    def _take(self, byte: int, now: float) -> None:
        self._last = now
        if not self._frame and byte != 0xA5:
            return
        self._frame.append(byte)
        if len(self._frame) < 4:
            return
        length = self._frame[3]
        if length > 64:
            self._frame.clear()
        elif len(self._frame) == length + 8:
            frame = bytes(self._frame)
            self._frame.clear()
            if zlib.crc32(frame[1:-4]) == int.from_bytes(frame[-4:], "little"):
                if not self._replies:  # the buffer holds one frame
                    self._act(frame[1], frame[2], frame[4:-4], now)

    def _over(self, now: float) -> bool:
        if self.hang:
            return self._run == 0
        return not self._events or self._aborted is not None or now >= self._events[-1][0]

    def _status(self, now: float) -> Status:
        limit = now if self._aborted is None else self._aborted
        ready = sum(t <= limit and not self.hang for t, _ in self._events)
        busy, aborted = not self._over(now), self._aborted is not None
        return Status(int(now * CLOCK) % (1 << 32), ready, self._run, busy, aborted)

    def _push(self, now: float) -> bytes:
        status = self._status(now)
        if self._next < status.tokens:
            token, generated, cycles = self._events[self._next][1]
            self._next += 1
            event = Token(self._next - 1, token, cycles, generated)
            return _frame(0xC0, self._run, event.encode())
        if self._run and not status.busy and not self._done:
            self._done = True
            return _frame(0xC1, self._run, status.encode())
        return b""

    # Requests ------------------------------------------------------------------------------------

    def _act(self, kind: int, sequence: int, payload: bytes, now: float) -> None:
        reply: bytes | int
        busy = not self._over(now)
        if kind == 1 and not payload:
            reply = self.identity.encode()
        elif kind in (2, 3) and busy:
            reply = 3
        elif kind == 2 and len(payload) in range(12, 61, 8):
            space, at = payload[0], int.from_bytes(payload[1:4], "little")
            words = struct.unpack(f"<{len(payload) // 8}Q", payload[4:])
            self.memory |= {(space, at + k): w for k, w in enumerate(words)}
            reply = b""
        elif kind == 3 and len(payload) == 5:
            space, at, count = payload[0], int.from_bytes(payload[1:4], "little"), payload[4]
            words = [self.memory.get((space, at + k), 0) for k in range(count)]
            reply = struct.pack(f"<{count}Q", *(w if space < 2 else 0 for w in words))
            reply = reply if 0 < count < 8 else 4
        elif kind == 4 and len(payload) == 1:
            number, reply = payload[0], b""
            if number == 0 or (busy and number != self._run):
                reply = 3 if number else 4
            elif number != self._run:
                self._start(number, now)
        elif kind == 5 and len(payload) == 1:
            if payload[0] == self._run and busy:
                self._aborted, self._done, self.hang = now, False, False
            reply = b""
        elif kind == 6 and not payload:
            reply = self._status(now).encode()
        elif kind == 7 and len(payload) == 2:
            self._next, self._done = struct.unpack("<H", payload)[0], False
            reply = b""
        else:
            reply = 2 if kind in range(1, 8) else 1
        if isinstance(reply, int):
            self._replies.append(_frame(0xFF, sequence, bytes((reply,))))
        else:
            self._replies.append(_frame(kind | 0x80, sequence, reply))

    def _start(self, run: int, now: float) -> None:
        self.starts += 1
        self._run, self._begun, self._aborted = run, now, None
        self._next, self._done = 0, False
        self._events, at = [], now
        for event in self._story(self.memory):
            at += event[2] / CLOCK
            self._events.append((at, event))

    def reset(self) -> None:
        """The power fails for a moment."""
        self.__init__(self.identity.chip_hash, self._story)  # type: ignore[misc]


def _frame(kind: int, sequence: int, payload: bytes) -> bytes:
    body = bytes((kind, sequence, len(payload))) + payload
    return b"\xa5" + body + zlib.crc32(body).to_bytes(4, "little")


@dataclass
class FakePort:
    """`board` behind a port with the interface of pyserial."""

    board: FakeBoard
    down: Faults = field(default_factory=Faults)
    up: Faults = field(default_factory=Faults)
    seed: int = 0
    port: str = "/dev/fake"
    baudrate: int = BAUD

    def __post_init__(self) -> None:
        self.now = 0.0
        self.unplugged = False
        self._down = Line(self.down, random.Random(self.seed))
        self._up = Line(self.up, random.Random(self.seed + 1))
        self._received = bytearray()
        self._parser = Parser()
        #: When the last intact frame came in.
        self.answered = 0.0

    def clock(self) -> float:
        """Simulated seconds."""
        return self.now

    @property
    def in_waiting(self) -> int:
        return len(self._received)

    def write(self, data: bytes, /) -> int:
        self._alive()
        self._down.put(data, self.now)
        return len(data)

    def read(self, size: int = 1, /) -> bytes:
        self._alive()
        end = self.now + READ_WAIT
        while not self._received and self.now < end:
            self.now += TICK
            self._up.put(self.board.step(self._down.get(self.now), self.now), self.now)
            self._received += self._up.get(self.now)
        out = bytes(self._received[:size])
        del self._received[:size]
        if self._parser.feed(out):
            self.answered = self.now
        return out

    def _alive(self) -> None:
        if self.unplugged:
            raise OSError(5, "Input/output error")
