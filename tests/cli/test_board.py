"""`tidemill run --engine board` on a board of Python behind a pseudo-terminal."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from support.fake_board import CLOCK, Event, FakeBoard
from support.terminal import Terminal
from tidemill.host.frames import Status
from tidemill.isa import Config, Fault, Space
from tidemill.program import load_program
from tidemill_sim.engine import Machine

Cli = Callable[..., Result]


class Chip(FakeBoard):
    """Runs what was loaded in the numpy engine; can be told to count or to fail otherwise."""

    def __init__(self, tide: Path, late: int = 0, fault: int = 0, byte: int = 0):
        self.program = load_program(tide)
        self.late, self.fault, self.byte = late, fault, byte
        super().__init__(self.program.chip.hash, self.events)
        self.identity = dataclasses.replace(self.identity, clock_hz=CLOCK)

    def events(self, memory: dict[tuple[int, int], int]) -> list[Event]:
        for space, address, data in self.program.boot_writes():
            assert memory[space, address] == data
        count = memory[Space.CONFIG, Config.PROMPT_LENGTH]
        prompt = [memory[Space.PROMPT, i] for i in range(count)]
        machine = Machine(self.program)
        events = machine.run(prompt, memory[Space.CONFIG, Config.MAX_TOKENS])
        program = dataclasses.replace(
            self.program,
            mem_w=machine.mem_w.astype("i1"), mem_w_used=machine.mem_w_ok.all((1, 2)),
            mem_a=machine.mem_a.astype("i2"), mem_a_used=machine.mem_a_ok.all(1),
        )  # fmt: skip
        memory |= {(s, a): d for s, a, d in program.boot_writes() if s <= Space.MEM_A}
        memory[Space.MEM_A, 0] ^= self.byte
        out = [(e.token, e.generated, e.cycles) for e in events]
        token, generated, cycles = out[-1]
        return [*out[:-1], (token, generated, cycles + self.late)]

    def _status(self, now: float) -> Status:
        status = super()._status(now)
        return dataclasses.replace(status, fault=self.fault, fault_queue=7, fault_cycle=99)


@pytest.fixture
def board(td: Cli, tide: Path) -> Callable[..., Result]:
    """Run three tokens on a board made with these arguments."""

    def run(*args: str, unplug_after: int | None = None, made: Any = None, **told: int) -> Result:
        with Terminal(made or Chip(tide, **told), unplug_after) as terminal:
            words = ("--model", str(tide), "--tokens", "3", "--engine", "board")
            return td("run", *words, "--port", terminal.port, *args)

    return run


def test_a_story(board: Callable[..., Result]) -> None:
    result = board("--json", "--verify")
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["equal"] is facts["equal_sim"] is True
    assert facts["cycles"] == facts["cycles_predicted"]
    assert (facts["engine"], facts["clock_hz"]) == ("board", CLOCK)
    text = board().stdout
    assert re.search(r"tokens and cycles of the sim engine +equal\n", text)
    mean = sum(facts["cycles"]) / len(facts["cycles"])
    assert re.search(rf"speed of the chip at 0.1 MHz +{CLOCK / mean:,.0f} tokens/s\n", text)
    assert re.search(r"speed seen by the host +[\d.]+ tokens/s\n", text)


@pytest.mark.parametrize(
    ("told", "key", "text"),
    [
        ({"late": 1}, "equal_sim", "the run differs from its prediction"),
        ({"byte": 1}, "equal_memories", "the run differs from its prediction"),
        (
            {"fault": Fault.COLLISION},
            "equal",
            "the chip reported a fault: COLLISION in MEMA.R, cycle 99 of the run",
        ),
    ],
)
def test_a_difference_is_an_error(
    board: Callable[..., Result], told: dict[str, int], key: str, text: str
) -> None:
    result = board("--json", "--check", **told)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == f"tidemill: {text}"
    facts = json.loads(result.stdout)
    assert facts["equal"] is facts[key] is False


def refused(result: Result) -> str:
    assert result.exit_code == 1
    assert result.stdout.strip() == ""
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


def test_the_wrong_board(board: Callable[..., Result], tide: Path) -> None:
    sentence = refused(board(made=FakeBoard("00000000deadbeef", lambda memory: [])))
    chip = load_program(tide).chip
    assert re.sub("/dev/pts/[0-9]+", "PORT", sentence) == (
        "tidemill: the board on PORT at 3000000 baud holds a chip without a name here "
        f"[00000000deadbeef], the program was compiled for {chip.describe()}"
    )


def test_the_wrong_bitstream(board: Callable[..., Result], tide: Path, tmp_path: Path) -> None:
    build = {
        "chip_hash": load_program(tide).chip.hash,
        "build_id": f"{0xB11D:016x}",
        "clock_hz": CLOCK,
        "timing": {"verdict": "PASS"},
    }
    path = tmp_path / "x.json"
    for change, text in (
        ({}, ""),
        ({"clock_hz": 5}, "its clock is 100,000 Hz, that of the build 5 Hz"),
        ({"timing": {"verdict": "FAIL"}}, "failed its timing (verdict 'FAIL')"),
    ):
        path.write_text(json.dumps(build | change))
        result = board("--bitstream", str(path))
        if change:
            assert text in refused(result)
        else:
            assert result.exit_code == 0


def test_a_run_that_never_began(board: Callable[..., Result], tide: Path) -> None:
    class Idle(Chip):
        def events(self, memory: dict[tuple[int, int], int]) -> list[Event]:
            return []

    assert refused(board(made=Idle(tide, fault=Fault.ILLEGAL))) == (
        "tidemill: the chip began no run: ILLEGAL in MEMA.R, cycle 99 of the run"
    )


def test_a_port_without_a_board(board: Callable[..., Result]) -> None:
    class Silent:
        def step(self, data: bytes, now: float) -> bytes:
            return b""

    begin = time.monotonic()
    sentence = refused(board(made=Silent()))
    assert time.monotonic() - begin < 4
    assert re.sub("/dev/pts/[0-9]+", "PORT", sentence) == (
        "tidemill: the board does not answer ID for 3 s "
        "(PORT at 3000000 baud; last bytes seen: none)"
    )


@pytest.mark.parametrize("when", ["loading", "telling"])
def test_unplugged(board: Callable[..., Result], tide: Path, when: str) -> None:
    clean = Chip(tide)
    sent = 0
    step = clean.step

    def count(data: bytes, now: float) -> bytes:
        nonlocal sent
        out = step(data, now)
        sent += len(out)
        return out

    clean.step = count  # type: ignore[method-assign]
    assert board(made=clean).exit_code == 0
    result = board(unplug_after=300 if when == "loading" else sent - 40)
    assert result.exit_code == 1
    sentence = result.stderr.splitlines()[-1]
    assert re.match("tidemill: the port went away, was it unplugged", sentence), sentence
    assert "Traceback" not in result.stderr
