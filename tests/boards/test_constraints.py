"""`constraints/` is what the board definitions say, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.boards.board import PORTS, Board
from tidemill.boards.catalog import BOARDS
from tidemill.boards.constraints import constraints, constraints_name

FOLDER = Path(__file__).parents[2] / "constraints"


def test_the_folder_is_up_to_date() -> None:
    """If not: `tidemill constraints`."""
    want = {name: text for b in BOARDS.values() for name, text in constraints(b).items()}
    assert {p.name: p.read_text() for p in FOLDER.iterdir()} == want


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_port_has_its_pin_and_the_clock_its_frequency(board: Board) -> None:
    texts = constraints(board)
    lines = texts[constraints_name(board)].splitlines()
    form = {
        "ecp5": 'LOCATE COMP "{}" SITE "{}";',
        "ice40": "{} {}",
        "gowin": 'IO_LOC "{}" {};',
    }[board.part.family]
    for port in PORTS:
        assert sum(line.endswith(form.format(port, board.pins[port].site)) for line in lines) == 1
    mhz = f"{board.clock_hz / 1e6:g}"
    clock = {"ecp5": f'FREQUENCY PORT "clk" {mhz} MHZ;', "ice40": f"set_frequency clk {mhz}"}
    if board.part.family in clock:
        assert clock[board.part.family] in lines
    assert f"-period {1e9 / board.clock_hz:.3f} " in texts[f"{board.name}.sdc"]
