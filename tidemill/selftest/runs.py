"""Trials on a board: each is loaded, run, and compared with what the simulator makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tidemill.host.driver import Board
from tidemill.isa import Fault, Space
from tidemill.program import Program, memory_words, unpack_memory
from tidemill.selftest.findings import Part
from tidemill.selftest.trials import Trial

__all__ = ["Event", "Simulate", "run_trials"]

#: Token and cycles of a position.
Event = tuple[int, int]
#: Runs a program with a prompt, for one token: its events, MEM_W and MEM_A afterwards.
Simulate = Callable[
    [Program, tuple[int, ...]], tuple[list[Event], NDArray[np.integer], NDArray[np.integer]]
]


def run_trials(board: Board, trials: Iterator[Trial], simulate: Simulate) -> Iterator[Part]:
    """A part as soon as its trials are done; they come part by part."""
    loader = _Loader(board)
    part = None
    for trial in trials:
        if part is None or part.name != trial.part:
            if part:
                yield part
            part = Part(trial.part)
        loader.load(trial.program)
        events = [(e.token, e.cycles) for e in board.run(trial.program, list(trial.prompt), 1)]
        _judge(part, trial, board, events, simulate)
        loader.forget(trial)
    if part:
        yield part


def _judge(part: Part, trial: Trial, board: Board, events: list[Event], simulate: Simulate) -> None:
    right, mem_w, mem_a = simulate(trial.program, trial.prompt)
    assert board.last
    fault = board.last.fault
    part.judge("fault register", fault, Fault.NONE, f"cycle {board.last.fault_cycle}")
    part.judge("positions", len(events), len(right), "run")
    for at, ((token, cycles), (right_token, right_cycles)) in enumerate(
        zip(events, right, strict=False)
    ):
        part.judge("cycles", cycles, right_cycles, f"position {at}")
        if trial.token:
            part.judge(trial.token, token, right_token, "token")
    for space, want in ((Space.MEM_W, mem_w), (Space.MEM_A, mem_a)):
        checks = [c for c in trial.checks if c.space == space]
        if not checks:
            continue
        first = min(c.row for c in checks)
        found = _rows(board, trial.program, space, first, max(c.row for c in checks) + 1)
        for check in checks:
            got, right_row = found[check.row - first].ravel(), want[check.row].ravel()
            for k, name in enumerate(check.names):
                if name is not None:
                    part.judge(name, int(got[k]), int(right_row[k]), f"row {check.row}")


def _rows(
    board: Board, program: Program, space: Space, first: int, end: int
) -> NDArray[np.integer]:
    per = _words_per_row(program, space)
    words = board.link.read(space, first * per, (end - first) * per)
    return unpack_memory(program.chip, space, np.array(words, np.uint64))


def _words_per_row(program: Program, space: Space) -> int:
    chip = program.chip
    depth = chip.mem_w_depth if space == Space.MEM_W else chip.mem_a_depth
    return memory_words(chip, space) // depth


class _Loader:
    """Loads one program after another; only the words that differ."""

    def __init__(self, board: Board):
        self._board = board
        self._held: dict[tuple[int, int], int] = {}

    def load(self, program: Program) -> None:
        """What `Board.load` does, in less time."""
        fresh = {(int(s), a): d for s, a, d in program.boot_writes() if self._held.get((s, a)) != d}
        self._board.halt()
        self._board.link.write((s, a, d) for (s, a), d in fresh.items())
        self._held |= fresh

    def forget(self, trial: Trial) -> None:
        """The run wrote into the rows of its checks."""
        for check in trial.checks:
            per = _words_per_row(trial.program, check.space)
            for k in range(per):
                self._held.pop((check.space, check.row * per + k), None)
