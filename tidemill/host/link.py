"""Requests over a serial port: each is answered, repeated, or given up with one sentence.

Timing rule: a request without a reply is repeated every `REPEAT` seconds and given up `GIVE_UP`
seconds after the last progress. WRITE frames follow one another without waiting, `WINDOW` of them
unanswered at most; every other request waits for its reply. Before a repetition go as many zero
bytes as the longest frame has: they complete whatever the board thinks it is in the middle of.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from serial import SerialTimeoutException

from tidemill.host.frames import GAP, LONGEST, Frame, Identity, Parser, Status
from tidemill.link import ERROR, MAX_WORDS, REPLY, Reason, Request, frame

__all__ = ["GIVE_UP", "Link", "LinkError", "Port"]

#: Seconds until a request is sent again.
REPEAT = 0.2
#: Seconds without progress until a request is given up.
GIVE_UP = 3.0
#: WRITE frames on their way: what a USB bridge that answers every 16 ms needs at 3 Mbaud.
WINDOW = 64
#: Bytes that an error message shows.
SHOWN = 16

Write = tuple[int, int, int]
T = TypeVar("T")


class LinkError(RuntimeError):
    """The board does not answer, or not as it should; one sentence says what was seen."""


class Port(Protocol):
    """What `Link` needs of a `serial.Serial` with a short `timeout`."""

    @property
    def port(self) -> str | None:
        """Its name."""

    @property
    def baudrate(self) -> int:
        """Its rate."""

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once."""

    def read(self, size: int = 1, /) -> bytes:
        """At most `size` bytes, none if the timeout passes."""

    def write(self, data: bytes, /) -> int | None:
        """Send."""


@dataclass(frozen=True)
class _Sent:
    """A request on its way."""

    sequence: int
    data: bytes


class Link:
    """Requests and replies over `port`; frames that the board pushes wait in `pushed`.

    clock: seconds that only grow.
    """

    def __init__(self, port: Port, clock: Callable[[], float] = time.monotonic):
        self.pushed: deque[Frame] = deque()
        self.clock = clock
        self._port = port
        self._parser = Parser()
        self._sequence = 0
        self._heard = clock()
        self._seen: deque[int] = deque(maxlen=SHOWN)
        self._send(bytes(LONGEST))

    @property
    def name(self) -> str:
        """Port and rate, for messages."""
        return f"{self._port.port} at {self._port.baudrate} baud"

    def error(self, what: str) -> LinkError:
        """`what` went wrong; with port, rate and the last bytes seen."""
        last = " ".join(f"{b:02x}" for b in self._seen)
        return LinkError(f"{what} ({self.name}; last bytes seen: {last or 'none'})")

    # Requests ------------------------------------------------------------------------------------

    def request(self, kind: Request, payload: bytes = b"", *, limit: float = GIVE_UP) -> bytes:
        """Payload of the reply. Raises `LinkError` after `limit` seconds without one."""
        request = self._numbered(kind, payload)
        reply: list[bytes] = []

        def take(sequence: int, answer: bytes) -> bool:
            reply.append(answer)
            return True

        self._send(request.data)
        self._exchange(kind, {request.sequence: request}, take, limit)
        return reply[0]

    def identify(self) -> Identity:
        """What is on the other side."""
        return self._decoded(Identity.decode, Request.ID, self.request(Request.ID))

    def status(self, *, limit: float = GIVE_UP) -> Status:
        """What the board is doing."""
        return self._decoded(
            Status.decode, Request.STATUS, self.request(Request.STATUS, limit=limit)
        )

    def seek(self, index: int, *, limit: float = GIVE_UP) -> None:
        """Let the board push the events of its run again, from position `index` on."""
        self.request(Request.SEEK, struct.pack("<H", index), limit=limit)

    def read(self, space: int, address: int, count: int) -> list[int]:
        """`count` words from consecutive addresses."""
        words: list[int] = []
        while len(words) < count:
            some = min(MAX_WORDS, count - len(words))
            place = _place(space, address + len(words))
            reply = self.request(Request.READ, place + bytes((some,)))
            layout = struct.Struct(f"<{some}Q")
            words += self._decoded(layout.unpack, Request.READ, reply)
        return words

    def write(self, writes: Iterable[Write]) -> None:
        """Write (space, address, 64-bit word); all of them have arrived when this returns.

        No address may occur twice: a word that was lost is sent again after later ones.
        """
        requests = (self._numbered(Request.WRITE, payload) for payload in _joined(writes))
        flying: dict[int, _Sent] = {}

        def more() -> None:
            # one that gets lost again and again must not meet its number in a later frame
            while len(flying) < WINDOW and all(
                (self._sequence - s) & 0xFF < 2 * WINDOW for s in flying
            ):
                request = next(requests, None)
                if request is None:
                    break
                flying[request.sequence] = request
                self._send(request.data)

        def take(sequence: int, answer: bytes) -> bool:
            # replies come in order: what was sent before and has none was lost
            for lost in list(flying):
                if lost == sequence:
                    break
                self._send(flying[lost].data)
                flying[lost] = flying.pop(lost)
            del flying[sequence]
            more()
            return not flying

        more()
        if flying:
            self._exchange(Request.WRITE, flying, take, GIVE_UP)

    # The line ------------------------------------------------------------------------------------

    def push(self, wait: float) -> Frame | None:
        """The next pushed frame, or None after `wait` seconds without any."""
        end = self.clock() + wait
        while not self.pushed and self.clock() < end:
            self._sort(self._receive())
        return self.pushed.popleft() if self.pushed else None

    def _exchange(
        self,
        kind: Request,
        flying: dict[int, _Sent],
        take: Callable[[int, bytes], bool],
        limit: float,
    ) -> None:
        """Await replies to the requests `flying`, which were sent, and repeat those.

        Until `take(sequence, payload)` says of a reply that it was the last.
        """
        progress = self.clock()
        repeat = progress + REPEAT
        while True:
            for reply in self._sort(self._receive()):
                if reply.sequence not in flying:
                    continue
                if reply.kind == ERROR:
                    raise self.error(f"the board refused {kind.name}: {_reason(reply.payload)}")
                if reply.kind == kind | REPLY:
                    if take(reply.sequence, reply.payload):
                        return
                    progress = self.clock()
                    repeat = progress + REPEAT
            now = self.clock()
            if now - progress >= limit:
                raise self.error(f"the board does not answer {kind.name} for {limit:g} s")
            if now >= repeat:
                repeat = now + REPEAT
                self._send(bytes(LONGEST) + b"".join(r.data for r in flying.values()))

    def _numbered(self, kind: Request, payload: bytes) -> _Sent:
        self._sequence = (self._sequence + 1) & 0xFF
        return _Sent(self._sequence, frame(kind, self._sequence, payload))

    def _sort(self, frames: list[Frame]) -> list[Frame]:
        """The replies among `frames`; pushed ones wait in `pushed`."""
        replies = []
        for one in frames:
            if one.pushed:
                self.pushed.append(one)
                continue
            replies.append(one)
            if one.kind in (Request.START | REPLY, Request.SEEK | REPLY):
                self.pushed.clear()  # the board begins anew behind this reply
        return replies

    def _receive(self) -> list[Frame]:
        try:
            data = self._port.read(max(1, self._port.in_waiting))
        except OSError as e:
            raise self._gone(e) from None
        now = self.clock()
        if data:
            self._heard = now
            self._seen.extend(data)
            return self._parser.feed(data)
        if self._parser.inside and now - self._heard >= GAP:
            return self._parser.gap()
        return []

    def _send(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except SerialTimeoutException:
            raise self.error("the port takes no more bytes") from None
        except OSError as e:
            raise self._gone(e) from None

    def _gone(self, error: OSError) -> LinkError:
        return self.error(f"the port went away, was it unplugged? [{error.strerror or error}]")

    def _decoded(self, decode: Callable[[bytes], T], kind: Request, payload: bytes) -> T:
        try:
            return decode(payload)
        except struct.error:
            raise self.error(
                f"the board answers {kind.name} with {len(payload)} bytes: another link version?"
            ) from None


def _place(space: int, address: int) -> bytes:
    return bytes((space,)) + address.to_bytes(3, "little")


def _joined(writes: Iterable[Write]) -> Iterator[bytes]:
    """Payloads of WRITE frames; words for consecutive addresses share one."""
    start = (-1, -1)
    words: list[int] = []
    for space, address, data in writes:
        if words and (len(words) == MAX_WORDS or (space, address - len(words)) != start):
            yield _place(*start) + struct.pack(f"<{len(words)}Q", *words)
            words = []
        if not words:
            start = (space, address)
        words.append(data)
    if words:
        yield _place(*start) + struct.pack(f"<{len(words)}Q", *words)


def _reason(payload: bytes) -> str:
    texts: dict[bytes, str] = {
        bytes((Reason.KIND,)): "it does not know this request",
        bytes((Reason.LENGTH,)): "its length is wrong",
        bytes((Reason.BUSY,)): "the chip is busy",
        bytes((Reason.VALUE,)): "a number in it is out of range",
    }
    return texts.get(payload, f"reason {payload.hex()}")
