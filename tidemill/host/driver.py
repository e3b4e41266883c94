"""A chip behind a link: whether it is the right one, loading a program, runs.

Timing rule: a run that is silent for `QUIET` seconds is asked for its status. Tokens that got lost
are pushed again from the first missing one on (SEEK). A position that takes twice the cycles that
the program announces ends the run with an error; so does a token that does not get through for
`GIVE_UP` seconds.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.chip import CHIPS, Chip
from tidemill.host.bitstream import Bitstream
from tidemill.host.frames import Frame, Identity, Status, Token
from tidemill.host.link import GIVE_UP, Link, LinkError, Write
from tidemill.isa import Space
from tidemill.link import VERSION, Push, Request
from tidemill.program import Program, memory_words, unpack_memory

__all__ = ["Board", "BoardError"]

#: Seconds of silence after which a run is asked for its status.
QUIET = 0.5
#: The board counts its cycles modulo this.
CYCLES = 1 << 32


class BoardError(RuntimeError):
    """A board that is not what the program needs, or that did something else than it should."""


class Board:
    """The chip on the other side of `link`.

    Raises `BoardError` if it speaks another version of the link.
    """

    def __init__(self, link: Link):
        self.link = link
        self.identity: Identity = link.identify()
        #: State of the board after the last run.
        self.last: Status | None = None
        if self.identity.version != VERSION:
            raise BoardError(
                f"the board on {link.name} speaks version {self.identity.version} of the link, "
                f"this driver {VERSION}: use the tidemill that built its bitstream"
            )

    def accept(self, chip: Chip, bitstream: Bitstream | None = None) -> None:
        """Raises `BoardError` unless the board holds `chip`, as `bitstream` describes it."""
        found, where = self.identity, self.link.name
        if found.chip_hash != chip.hash:
            raise BoardError(
                f"the board on {where} holds {_describe(found.chip_hash)}, "
                f"the program was compiled for {chip.describe()}"
            )
        if bitstream is None:
            return
        for what, here, there in (
            ("chip", found.chip_hash, bitstream.chip_hash),
            ("build", f"{found.build_id:016x}", f"{bitstream.build_id:016x}"),
            ("clock", f"{found.clock_hz:,} Hz", f"{bitstream.clock_hz:,} Hz"),
        ):
            if here != there:
                raise BoardError(
                    f"the board on {where} was not flashed with {bitstream.path!r}: "
                    f"its {what} is {here}, that of the build {there}"
                )

    # Loading -------------------------------------------------------------------------------------

    def halt(self) -> Status:
        """Stop the run in progress, if there is one; whose it is does not matter."""
        status = self.link.status()
        if status.busy:
            self.link.request(Request.STOP, bytes((status.run,)))
            status = self.link.status()
            if status.busy:
                raise BoardError(f"the board on {self.link.name} does not stop run {status.run}")
        return status

    def load(self, program: Program, *, verify: bool = False) -> None:
        """Load everything but the options of a run.

        Each word is acknowledged, and protected by the CRC of its frame. verify: read back what
        can be read, MEM_W and MEM_A, and raise `BoardError` for a difference.
        """
        self.halt()
        self.link.write(program.boot_writes())
        if verify:
            self.compare(w for w in program.boot_writes() if w[0] in (Space.MEM_W, Space.MEM_A))

    def compare(self, writes: Iterator[Write]) -> None:
        """Raises `BoardError` for the first word that does not read as it was written."""
        for space, group in itertools.groupby(writes, key=lambda w: w[0]):
            for run in _consecutive(group):
                words = self.link.read(space, run[0][1], len(run))
                for (_, address, want), got in zip(run, words, strict=True):
                    if got != want:
                        raise BoardError(
                            f"{Space(space).name} word {address:#x} of the board on "
                            f"{self.link.name} reads {got:016x}, {want:016x} was written"
                        )

    def memories(self, chip: Chip) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
        """MEM_W [rows, S, L] and MEM_A [rows, L], read back."""
        w, a = (
            unpack_memory(
                chip, space, np.array(self.link.read(space, 0, memory_words(chip, space)), "u8")
            )
            for space in (Space.MEM_W, Space.MEM_A)
        )
        return w, a

    # Runs ----------------------------------------------------------------------------------------

    def run(
        self,
        program: Program,
        prompt: list[int],
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Iterator[Token]:
        """One run of the program that is loaded: an event for every position, as it comes.

        The state of the board afterwards is in `last`. Closing the iterator stops the run.
        """
        writes = program.run_writes(prompt, max_tokens, temperature, seed)
        number = self.halt().run % 255 + 1
        self.link.write(writes)
        self.link.request(Request.START, bytes((number,)))
        follow = _Follower(self, program, len(prompt), number)
        try:
            yield from follow.tokens()
        except LinkError:
            raise
        except BaseException:
            with suppress(LinkError):
                self.link.request(Request.STOP, bytes((number,)))
            raise
        self.last = follow.status


class _Follower:
    """What the driver knows about a run in progress."""

    def __init__(self, board: Board, program: Program, prompt: int, number: int):
        self._link = board.link
        self._program = program
        self._prompt = prompt
        self._number = number
        #: Position whose event comes next.
        self._next = 0
        #: When that event, or the news that it takes time, must have come.
        self._due = self._link.clock() + GIVE_UP
        #: Cycle of the board when this position was first seen in progress.
        self._since: int | None = None
        #: Of the end of the run.
        self.status: Status | None = None

    def tokens(self) -> Iterator[Token]:
        """Events in order, until the last has been seen."""
        while self.status is None:
            frame = self._link.push(QUIET)
            if frame is None:
                self._ask()
            elif frame.sequence != self._number:
                continue
            elif frame.kind == Push.DONE:
                self._judge(self._decoded(Status, frame))
            else:
                token: Token = self._decoded(Token, frame)
                if token.index > self._next:
                    self._seek()
                if token.index != self._next:
                    continue
                self._next += 1
                self._since = None
                self._due = self._link.clock() + GIVE_UP
                yield token

    def _left(self) -> float:
        """Seconds until the run is given up."""
        left = self._due - self._link.clock()
        if left <= 0:
            raise self._link.error(
                f"the token of position {self._next} does not get through for {GIVE_UP:g} s"
            )
        return left

    def _ask(self) -> None:
        status = self._link.status(limit=self._left())
        if status.run != self._number:
            raise self._link.error(
                f"the board is in run {status.run} and not in {self._number}: "
                "was it reset, or does another program use it?"
            )
        self._judge(status)

    def _judge(self, status: Status) -> None:
        """What a status of this run, of now or of its end, means."""
        if status.tokens < self._next:
            raise self._link.error(
                f"the board has {status.tokens} tokens of this run, {self._next} have come"
            )
        if status.tokens > self._next:
            self._seek()
        elif not status.busy:
            if status.aborted:
                raise self._link.error(f"run {self._number} was stopped by somebody else")
            self.status = status
        else:
            self._watch(status.cycles)

    def _watch(self, now: int) -> None:
        """A position takes the cycles that the program announces; twice as many are too many."""
        if self._since is None:
            self._since = now
        else:
            limit = self._program.cycles(self._next, self._next >= self._prompt - 1)
            passed = (now - self._since) % CYCLES
            if not 0 < passed <= 2 * limit:
                raise self._link.error(
                    f"position {self._next} takes {limit:,} cycles, "
                    f"and {passed:,} have passed on the board without its token"
                )
        self._due = self._link.clock() + GIVE_UP

    def _seek(self) -> None:
        self._link.seek(self._next, limit=self._left())

    def _decoded(self, kind: Any, frame: Frame) -> Any:
        try:
            return kind.decode(frame.payload)
        except struct.error:
            raise self._link.error(
                f"a pushed frame of kind {frame.kind:#x} has {len(frame.payload)} bytes: "
                "another link version?"
            ) from None


def _consecutive(writes: Iterator[Write]) -> Iterator[Sequence[Write]]:
    """Writes to consecutive addresses together."""
    for _, group in itertools.groupby(enumerate(writes), key=lambda item: item[1][1] - item[0]):
        yield [write for _, write in group]


def _describe(chip_hash: str) -> str:
    """A chip of which only the hash is known."""
    for chip in CHIPS.values():
        if chip.hash == chip_hash:
            return chip.describe()
    return f"a chip without a name here [{chip_hash}]"
