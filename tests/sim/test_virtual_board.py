"""The driver on the whole board top in Verilator: stories, soak, bad lines, hosts that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import serial
from click.testing import CliRunner

from support.fake_board import Faults, Line
from tidemill.chip import CHIPS
from tidemill.cli import cli
from tidemill.host.driver import Board
from tidemill.host.link import Link
from tidemill.host.port import open_port
from tidemill_sim.engine import Machine
from tidemill_sim.virtual_board import CLOCK_HZ, VirtualBoard

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.xdist_group("virtual-board")]

#: prompt, tokens, temperature, seed
RUNS = (([1, 5, 9], 6, 0.0, 0), ([7], 4, 1.5, 0xDEADBEEF), ([3, 2, 32, 11, 4], 8, 0.0, 1))


@pytest.fixture
def virtual(verilator, small_program):
    with VirtualBoard(small_program.chip) as board:
        yield board


@pytest.fixture
def host(virtual):
    """Connects to the board, through `pipe` if given."""
    with ExitStack() as stack:

        def connect(pipe=lambda port: port):
            return Board(Link(pipe(stack.enter_context(open_port(virtual.port)))))

        yield connect


def story(board, program, run):
    return [(e.token, e.generated, e.cycles) for e in board.run(program, *run)]


def expected(machine, run):
    return [(e.token, e.generated, e.cycles) for e in machine.run(*run)]


def test_runs_and_memories(host, small_program):
    board, machine = host(), Machine(small_program, check=True)
    assert board.identity.clock_hz == CLOCK_HZ
    board.accept(small_program.chip)
    board.load(small_program, verify=True)
    for run in RUNS:
        assert story(board, small_program, run) == expected(machine, run)
        assert not board.last.fault
    w, a = board.memories(small_program.chip)
    assert (w == machine.mem_w)[machine.mem_w_ok].all()
    assert (a == machine.mem_a)[machine.mem_a_ok].all()


def test_twenty_prompts_on_one_power_up(host, small_program):
    board, machine = host(), Machine(small_program)
    board.load(small_program)
    rng = np.random.default_rng(7)
    for seed in range(20):
        prompt = rng.integers(0, 33, rng.integers(1, 20)).tolist()
        run = (prompt, int(rng.integers(1, 24)), float(rng.choice([0, 0.7, 1.5])), seed)
        assert story(board, small_program, run) == expected(machine, run), run


class Lossy:
    """A port whose bytes go through two bad lines."""

    def __init__(self, port: serial.Serial, faults: Faults, seed: int):
        import random

        self._port = port
        self._lines = [Line(faults, random.Random(seed + k)) for k in range(2)]

    def __getattr__(self, name):
        return getattr(self._port, name)

    def _through(self, line: Line, data: bytes) -> bytes:
        line.put(data, 0.0)
        return line.get(float("inf"))

    def read(self, size=1):
        return self._through(self._lines[0], self._port.read(size))

    def write(self, data):
        return self._port.write(self._through(self._lines[1], data))


@pytest.mark.parametrize("kind", ["drop", "flip", "double", "swap", "truncate"])
def test_bad_lines(host, small_program, kind):
    board = host(lambda port: Lossy(port, Faults(**{kind: 3e-4}), 5))
    board.load(small_program)
    machine = Machine(small_program)
    for run in RUNS:
        assert story(board, small_program, run) == expected(machine, run)


HOST = """
import sys
from tidemill.host.driver import Board
from tidemill.host.link import Link
from tidemill.host.port import open_port
from tidemill.program import load_program

program = load_program(sys.argv[2])
board = Board(Link(open_port(sys.argv[1])))
board.load(program)
for event in board.run(program, [1], 20):
    print(event.token, flush=True)
    if event.index == 1:
        sys.stdin.read()  # never to return
"""


def test_a_new_host_after_one_that_was_killed(virtual, host, small_program, tmp_path):
    small_program.save(tmp_path / "small.tide")
    with subprocess.Popen(
        [sys.executable, "-c", HOST, virtual.port, str(tmp_path / "small.tide")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as old:
        old.stdout.readline()
        old.stdout.readline()
        old.send_signal(signal.SIGKILL)
    board, machine = host(), Machine(small_program)
    assert board.link.status().run == 1
    board.load(small_program)
    for run in RUNS:
        assert story(board, small_program, run) == expected(machine, run)


def test_a_host_that_dies_in_a_frame(virtual, host, small_program):
    """In the middle of loading, and while a story is told."""
    with open_port(virtual.port) as port:
        port.write(b"\xa5\x02\x01\x3c" + bytes(20))
    first = host()
    first.load(small_program)
    events = first.run(small_program, [1], 20)
    next(events)
    first.link._port.write(b"\xa5\x06")
    first.link._port.close()
    second, machine = host(), Machine(small_program)
    second.load(small_program)
    assert story(second, small_program, RUNS[0]) == expected(machine, RUNS[0])


def test_stopped_in_mid_story(host, small_program):
    board, machine = host(), Machine(small_program)
    board.load(small_program)
    for at in range(4):
        events = board.run(small_program, [1, 2], 20)
        for _ in range(at):
            next(events)
        events.close()
        assert not board.link.status().busy
        assert story(board, small_program, RUNS[0]) == expected(machine, RUNS[0])


def test_the_board_ends_with_its_host(verilator, small_program):
    with VirtualBoard(small_program.chip) as board:
        process = board._process
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_story_of_td260k(verilator):
    result = CliRunner().invoke(
        cli, ["run", "--engine", "virtual-board", "--prompt", "Tom", "--tokens", "5", "--json"]
    )
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["equal"] is facts["equal_sim"] is True
    assert facts["cycles"] == facts["cycles_predicted"]
    assert facts["clock_hz"] is None
    assert facts["text"].startswith("Tom")


ECHO = """
module tidemill_top(input clk, input uart_rx, output uart_tx, output led);
  reg [9:0] line = 10'h3ff;
  always @(posedge clk) line <= {line[8:0], uart_rx};
  assign uart_tx = line[9];
  assign led = 0;
endmodule
"""


def test_bytes_pass_both_ways(verilator):
    data = np.random.default_rng(1).bytes(3000)
    with VirtualBoard(CHIPS["tiny"], verilog=ECHO) as board, open_port(board.port) as port:
        for piece in (data, b"\x00", b"\xff", data):
            port.timeout = 5
            port.write(piece)
            assert port.read(len(piece)) == piece


def test_a_board_that_does_not_compile(verilator):
    from tidemill_sim.verilator import SimulatorError

    with pytest.raises(SimulatorError, match="Verilator could not build the board: %Error") as e:
        VirtualBoard(CHIPS["tiny"], verilog=ECHO.replace("reg", "gre")).build()
    assert Path(str(e.value).partition("whole log is ")[2].rstrip(")")).exists()
