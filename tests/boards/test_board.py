"""Boards: what is refused, what comes with Tidemill, a made-up one in a file."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from support.chips import bare_chip
from tidemill.boards.board import PORTS, Board, BoardError, Pin, load_board_file
from tidemill.boards.build import top_verilog
from tidemill.boards.catalog import BOARDS, find_board
from tidemill.boards.constraints import constraints
from tidemill.boards.fit import chip_needs
from tidemill.boards.parts import Part
from tidemill.chip import CHIPS
from tidemill_hdl.board import BoardTop
from tidemill_hdl.pll import find_dividers
from tidemill_hdl.uart import baud_divisor

ULX3S = BOARDS["ulx3s-12f"]

MINE = """
from tidemill.boards.board import PORTS, Board, Pin
from tidemill.boards.parts import PARTS

BOARD = Board(
    name="mine",
    title="My board",
    part=PARTS["LFE5U-25F"],
    package="CABGA256",
    speed="6",
    clock_hz=48_000_000,
    pins={port: Pin(site) for port, site in zip(PORTS, "P6 R1 T2 T3 R4 T4 R5".split())},
    mhz=(48,),
    baud=3_000_000,
    loader=("-c", "ft2232"),
    usb=("0403", "6010"),
)
"""


def test_ports_are_those_of_the_top() -> None:
    top = BoardTop(bare_chip(1, 1), 12_000_000, 3_000_000)
    top._MustUse__silence = True  # made for its ports alone
    names: list[str] = []
    for name in top.signature.members:
        width = len(getattr(top, name))
        names += [name] if width == 1 else [f"{name}[{k}]" for k in range(width)]
    assert tuple(names) == PORTS


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_frequency_of_a_board_can_be_made(board: Board) -> None:
    assert list(board.mhz) == sorted(board.mhz, reverse=True)
    for mhz in board.mhz:
        hz = round(mhz * 1e6)
        if hz != board.clock_hz:
            hz = round(find_dividers(board.part.family, board.clock_hz, hz).out_hz)
        assert baud_divisor(hz, board.baud) >= 4


@pytest.mark.parametrize("board", [b for b in BOARDS.values() if b.chip], ids=lambda b: b.name)
def test_the_named_chip_fits_its_board(board: Board) -> None:
    for need in chip_needs(CHIPS[board.chip], board):
        assert need.fits, need.sentence()


def test_pins_of_the_ulx3s() -> None:
    """As its schematic has them; M1 is what the FT231X sends."""
    sites = {port: pin.site for port, pin in ULX3S.pins.items()}
    assert sites["clk"] == "G2"
    assert (sites["uart_rx"], sites["uart_tx"]) == ("M1", "L4")
    assert sites["led[0]"] == "B2"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "board '': name must be a non-empty string, not ''"),
        ({"part": "LFE5U-12F"}, "part must be a Part, such as PARTS of LFE5U-12F, "),
        ({"part": Part("x", "xilinx", "x", 1, 1, 1, 1, 1)}, "must be one of ecp5, ice40, gowin"),
        ({"speed": "5"}, "speed must be '6', '7' or '8' on an ECP5, not '5'"),
        ({"package": ""}, "package must be a non-empty string, not ''"),
        ({"clock_hz": 0}, "clock_hz must be a positive int, not 0"),
        ({"baud": 1.5}, "baud must be a positive int, not 1.5"),
        ({"mhz": ()}, r"mhz must be a tuple of positive numbers, not \(\)"),
        ({"pins": {}}, r"'ulx3s-12f' has no pin for clk, uart_rx, .* its ports are clk, uart_rx"),
        ({"pins": {**ULX3S.pins, "rst": Pin("A1")}}, "has a pin for rst; its ports are clk, "),
        ({"pins": {**ULX3S.pins, "clk": Pin("M1")}}, "clk and uart_rx are both on pin M1"),
    ],
)
def test_refusals(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BoardError, match=sentence):
        dataclasses.replace(ULX3S, **changes)


def test_own_board(tmp_path: Path) -> None:
    """One file, and all the rest follows: constraints, a top without PLL, a top with one."""
    path = tmp_path / "my_board.py"
    path.write_text(MINE)
    board = find_board(None, path)
    assert board == load_board_file(path)
    files = constraints(board)
    assert 'LOCATE COMP "clk" SITE "P6";' in files["mine.lpf"]
    assert 'FREQUENCY PORT "clk" 48 MHZ;' in files["mine.lpf"]
    assert "-period 20.833" in files["mine.sdc"]
    text, hz, build_id = top_verilog(board, bare_chip(1, 1), 48)
    assert hz == board.clock_hz
    assert "EHXPLLL" not in text
    assert re.fullmatch("[0-9a-f]{16}", build_id)
    faster, hz, other_id = top_verilog(board, bare_chip(1, 1), 60)
    assert hz == 60_000_000
    assert "EHXPLLL" in faster
    assert other_id != build_id
    assert top_verilog(board, bare_chip(1, 1), 48) == (text, board.clock_hz, build_id)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"board file '.*b\.py' defines no BOARD = Board\(\.\.\.\)"),
        ("BOARD = 5", r"defines no BOARD = Board\(\.\.\.\)"),
        ("1 / 0", "fails: ZeroDivisionError: division by zero"),
        ("def", "fails: SyntaxError: "),
        (MINE.replace("48_000_000", "-1"), "board 'mine': clock_hz must be a positive int"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "b.py"
    path.write_text(text)
    with pytest.raises(BoardError, match=sentence):
        load_board_file(path)


def test_unknown_boards(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="no board named 'nope'; boards are ulx3s-12f, "):
        find_board("nope")
    with pytest.raises(BoardError, match=r"give either --board, one of ulx3s-12f, .* or --board-"):
        find_board(None)
    with pytest.raises(BoardError, match="give either --board"):
        find_board("ulx3s-12f", "my.py")
    with pytest.raises(BoardError, match=r"cannot read board file '.*no\.py': No such file"):
        find_board(None, tmp_path / "no.py")
