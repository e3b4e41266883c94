"""A board of Python behind a pseudo-terminal, in real time."""

from __future__ import annotations

import os
import pty
import select
import threading
import time
import tty

from support.fake_board import FakeBoard


class Terminal:
    """`board` at the terminal `port`, while a `with` block lasts.

    After `unplug_after` bytes to the host the cable is pulled.
    """

    def __init__(self, board: FakeBoard, unplug_after: int | None = None):
        self._board = board
        self._left = unplug_after
        self._stop = threading.Event()
        self._ours, self._theirs = pty.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Terminal:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        for end in (self._ours, self._theirs):
            if end >= 0:
                os.close(end)

    def _serve(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._ours], [], [], 0.001)
            data = os.read(self._ours, 4096) if ready else b""
            # a byte at a time, as they come over a line: a frame that waits is no frame lost
            for piece in [data[i : i + 1] for i in range(len(data))] or [b""]:
                out = self._board.step(piece, time.monotonic())
                self._board._sending = 0.0
                if out:
                    os.write(self._ours, out)
                if self._left is not None:
                    self._left -= len(out)
                    if self._left < 0:
                        os.close(self._theirs)
                        os.close(self._ours)
                        self._ours = self._theirs = -1
                        return
