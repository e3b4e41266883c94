"""What docs/boards.md tells people to type is what `tidemill build` does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.boards_doc import EXAMPLES, command_lines, text
from tidemill.boards.board import load_board_file
from tidemill.boards.catalog import BOARDS
from tidemill.boards.flow import pack, place_and_route, synthesise


@pytest.mark.parametrize("family", EXAMPLES)
def test_command_lines(family: str) -> None:
    board = BOARDS[EXAMPLES[family]]
    steps = (synthesise(board), place_and_route(board, 27), pack(board))
    assert command_lines(family) == [step.line for step in steps]


def test_every_board_is_there() -> None:
    for name in BOARDS:
        assert f"`{name}`" in text()


def test_a_board_of_your_own(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", text(), re.S)
    (tmp_path / "my_board.py").write_text(block)
    assert load_board_file(tmp_path / "my_board.py").name == "mine"
