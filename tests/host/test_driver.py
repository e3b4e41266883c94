"""The driver against a board of Python behind lines that damage bytes: the truth, or an error."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.fake_board import FakeBoard, FakePort, Faults
from support.host_program import BODY, HEAD, story
from tidemill.host.bitstream import Bitstream
from tidemill.host.driver import Board, BoardError
from tidemill.host.link import GIVE_UP, Link, LinkError
from tidemill.isa import Space
from tidemill.program import Program

RUNS = (([1, 5, 9], 6, 0.5, 3), ([7], 4, 0.0, 0), ([3, 2, 32, 11, 4], 8, 1.0, 1))
#: Simulated seconds above the promised three: a tick of the port, a byte, a read.
SLACK = 0.1


def truth(program: Program, runs: Any = RUNS) -> list[list[tuple[int, bool, int]]]:
    memory = {(int(s), a): d for s, a, d in program.boot_writes()}
    out = []
    for run in runs:
        memory |= {(int(s), a): d for s, a, d in program.run_writes(*run)}
        out.append(story(memory))
    return out


def connect(program: Program, **faults: Any) -> FakePort:
    return FakePort(FakeBoard(program.chip.hash, story), **faults)


def told(board: Board, program: Program, run: Any) -> list[tuple[int, bool, int]]:
    events = list(board.run(program, *run))
    assert [e.index for e in events] == list(range(len(events)))
    return [(e.token, e.generated, e.cycles) for e in events]


def session(port: FakePort, program: Program) -> list[list[tuple[int, bool, int]]]:
    board = Board(Link(port, port.clock))
    board.accept(program.chip)
    board.load(program, verify=True)
    return [told(board, program, run) for run in RUNS]


def test_three_runs(program):
    port = connect(program)
    assert session(port, program) == truth(program)
    assert port.board.starts == len(RUNS)
    for space, address, data in program.boot_writes():
        if space != Space.CONFIG:
            assert port.board.memory[space, address] == data


rates = st.sampled_from([0, 0, 0, 1e-4, 1e-3, 4e-3])
lines = st.builds(
    Faults,
    drop=rates, flip=rates, double=rates, swap=rates, truncate=rates, pause=rates,
    stall=st.sampled_from([0.15, 1.0, 2.5, 5.0]),
)  # fmt: skip


@settings(max_examples=120)
@given(lines, lines, st.integers(0, 1 << 32))
@example(Faults(drop=0.02), Faults(drop=0.02), 0)
@example(Faults(flip=0.01, truncate=0.002), Faults(swap=0.01, double=0.01), 1)
def test_the_truth_or_an_error_in_time(program, down, up, seed):
    port = connect(program, down=down, up=up, seed=seed)
    want, got = truth(program), []
    progress = 0.0
    failure = ""
    try:
        board = Board(Link(port, port.clock))
        board.load(program)
        for run, expected in zip(RUNS, want, strict=True):
            got = []
            for event in board.run(program, *run):
                got.append((event.token, event.generated, event.cycles))
                assert got == expected[: len(got)]
                progress = port.now
            assert got == expected
    except LinkError as e:
        failure = str(e)
    if failure:
        assert "(/dev/fake at 1000000 baud; last bytes seen: " in failure
        # WRITEs and positions in progress are progress, too: each has three seconds of its own
        assert port.now - max(progress, port.answered) <= GIVE_UP + SLACK
    assert port.board.starts <= len(RUNS)


def test_moderate_faults_cost_time_and_no_token(program):
    """What a bad cable does is repaired: no error for one fault in a thousand bytes."""
    for seed in range(20):
        faults = Faults(drop=3e-4, flip=3e-4, double=3e-4, truncate=1e-4, pause=1e-4, stall=0.5)
        port = connect(program, down=faults, up=faults, seed=seed)
        assert session(port, program) == truth(program)


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_line_cut_at_any_byte(program, direction):
    """An error within three seconds of the last frame that got through."""
    clean = connect(program)
    session(clean, program)
    total = getattr(clean, f"_{direction}").sent
    for cut in (*range(0, 300, 7), *range(300, total, total // 60)):
        port = connect(program, **{direction: Faults(cut=cut)})
        with pytest.raises(LinkError, match=r"does not (answer|get through)") as e:
            session(port, program)
        assert "last bytes seen" in str(e.value)
        assert port.now - port.answered <= GIVE_UP + SLACK, cut


def test_a_board_that_says_nothing(program):
    port = connect(program, up=Faults(cut=0))
    with pytest.raises(LinkError) as e:
        Board(Link(port, port.clock))
    assert str(e.value) == (
        "the board does not answer ID for 3 s (/dev/fake at 1000000 baud; last bytes seen: none)"
    )


def test_the_last_bytes_are_shown(program):
    port = connect(program)
    port.board.step = lambda data, now: b"\x55\xaa"
    with pytest.raises(LinkError, match=r"last bytes seen:( 55 aa| aa 55){8}\)$"):
        Board(Link(port, port.clock))


# Who is there ------------------------------------------------------------------------------------


def test_another_link_version(program):
    port = connect(program)
    port.board.identity = dataclasses.replace(port.board.identity, version=2)
    with pytest.raises(BoardError, match=r"speaks version 2 of the link, this driver 1: use "):
        Board(Link(port, port.clock))


def test_another_chip(program):
    from tidemill.chip import CHIPS

    for other, text in (
        (CHIPS["tiny"].hash, CHIPS["tiny"].describe()),
        ("00000000deadbeef", "a chip without a name here [00000000deadbeef]"),
    ):
        port = FakePort(FakeBoard(other, story))
        with pytest.raises(BoardError) as e:
            Board(Link(port, port.clock)).accept(program.chip)
        assert str(e.value) == (
            f"the board on /dev/fake at 1000000 baud holds {text}, "
            f"the program was compiled for {program.chip.describe()}"
        )


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("clock_hz", 90_000_000, "its clock is 100,000 Hz, that of the build 90,000,000 Hz"),
        ("build_id", 5, "its build is 000000000000b11d, that of the build 0000000000000005"),
        ("chip_hash", "0" * 16, "its chip is HASH, that of the build 0000000000000000"),
    ],
)
def test_another_bitstream(program, field, value, text):
    port = connect(program)
    board = Board(Link(port, port.clock))
    build = Bitstream("x.json", program.chip.hash, 0xB11D, 100_000)
    board.accept(program.chip, build)
    with pytest.raises(BoardError) as e:
        board.accept(program.chip, dataclasses.replace(build, **{field: value}))
    assert str(e.value).replace(program.chip.hash, "HASH") == (
        f"the board on /dev/fake at 1000000 baud was not flashed with 'x.json': {text}"
    )


def test_a_memory_that_forgets(program):
    port = connect(program)
    board = Board(Link(port, port.clock))
    board.load(program, verify=True)
    port.board.memory[Space.MEM_A, 3] ^= 1 << 17
    memory = (w for w in program.boot_writes() if w[0] == Space.MEM_A)
    want = port.board.memory[Space.MEM_A, 3] ^ 1 << 17
    with pytest.raises(BoardError) as e:
        board.compare(memory)
    assert str(e.value) == (
        "MEM_A word 0x3 of the board on /dev/fake at 1000000 baud "
        f"reads {want ^ 1 << 17:016x}, {want:016x} was written"
    )


# Runs that go wrong ------------------------------------------------------------------------------


@pytest.fixture
def loaded(program):
    port = connect(program)
    board = Board(Link(port, port.clock))
    board.load(program)
    return port, board


def test_closing_the_iterator_stops_the_run(program, loaded):
    _, board = loaded
    events = board.run(program, *RUNS[2])
    next(events)
    events.close()
    assert not board.link.status().busy
    assert board.link.status().aborted
    assert told(board, program, RUNS[1]) == truth(program, [RUNS[2], RUNS[1]])[1]


def test_a_new_host_in_mid_story(program, loaded):
    """The old one dies, in the middle of a frame; its tokens still come in."""
    port, board = loaded
    events = board.run(program, *RUNS[2])
    next(events)
    port.write(b"\xa5\x02\x07\x3c")
    new = Board(Link(port, port.clock))
    new.load(program)
    assert told(new, program, RUNS[1]) == truth(program, [RUNS[2], RUNS[1]])[1]
    assert port.board.starts == 2


def test_run_numbers_go_round(program, loaded):
    port, board = loaded
    port.board._run = 255
    assert told(board, program, RUNS[0]) == truth(program, [RUNS[0]])[0]
    assert board.last.run == 1


def test_a_position_that_does_not_end(program, loaded):
    port, board = loaded
    port.board.hang = True
    with pytest.raises(LinkError, match=rf"position 0 takes {BODY + HEAD:,} cycles, and [\d,]+ h"):
        list(board.run(program, *RUNS[1]))


def test_a_clock_that_stands_still(program, loaded, monkeypatch):
    port, board = loaded
    port.board.hang = True
    status = port.board._status
    monkeypatch.setattr(
        port.board, "_status", lambda now: dataclasses.replace(status(now), cycles=5)
    )
    with pytest.raises(LinkError, match=r"takes [\d,]+ cycles, and 0 have passed on the board"):
        list(board.run(program, *RUNS[1]))


def test_a_reset_in_mid_story(program, loaded):
    port, board = loaded
    events = board.run(program, *RUNS[2])
    next(events)
    port.board.reset()
    with pytest.raises(LinkError, match="the board is in run 0 and not in 1: was it reset, or "):
        list(events)


def test_somebody_else_stops_the_run(program, loaded):
    port, board = loaded
    events = board.run(program, *RUNS[2])
    next(events)
    port.board._act(5, 0, b"\x01", port.now)
    with pytest.raises(LinkError, match="run 1 was stopped by somebody else"):
        list(events)


def test_unplugged_in_mid_story(program, loaded):
    port, board = loaded
    events = board.run(program, *RUNS[2])
    next(events)
    port.unplugged = True
    with pytest.raises(LinkError, match=r"the port went away, was it unplugged\? \[Input/output"):
        list(events)


def test_a_refusal_has_its_reason(program, loaded):
    _, board = loaded
    events = board.run(program, *RUNS[2])
    next(events)
    with pytest.raises(LinkError, match="the board refused WRITE: the chip is busy"):
        board.link.write([(1, 2, 3)])


def test_payloads_of_another_length(program, loaded, monkeypatch):
    port, board = loaded
    monkeypatch.setattr(type(port.board.identity), "encode", lambda self: bytes(20))
    with pytest.raises(LinkError, match="the board answers ID with 20 bytes: another link vers"):
        board.link.identify()
