"""Bitstreams of a small chip by the lines of docs/boards.md, real tools from end to end.

    python -m pytest -m synth -s tests/synth/test_bitstream.py

The chip has one multiplier and every slice, queue and link that the large ones have.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from support.boards_doc import EXAMPLES, command_lines
from support.chips import small_chip
from tidemill.boards.board import PORTS
from tidemill.boards.build import top_verilog
from tidemill.boards.catalog import BOARDS
from tidemill.boards.constraints import constraints
from tidemill.boards.flow import BITSTREAM, TOP
from tidemill.boards.report import load_report
from tidemill.boards.tools import run_tool

pytestmark = [pytest.mark.synth, pytest.mark.xdist_group("synth")]

CHIP = small_chip(
    name="micro",
    lanes=1,
    weight_streams=1,
    mem_w_depth=512,
    mem_a_depth=256,
    act_depth=16,
    acc_depth=4,
    temp_depth=4,
    queue_depth=16,
    tide_depth=16,
    context=8,
    vocab=16,
)
#: MHz behind the PLL of each family; Gowin's is its oscillator's own.
MHZ = {"ECP5": 45, "Gowin": 27}


@pytest.mark.parametrize("family", MHZ)
def test_from_verilog_to_bitstream(family: str, tmp_path: Path) -> None:
    board = BOARDS[EXAMPLES[family]]
    verilog, hz, _ = top_verilog(board, CHIP, MHZ[family])
    (tmp_path / f"{TOP}.v").write_text(verilog)
    for name, content in constraints(board).items():
        (tmp_path / name).write_text(content)
    for line in command_lines(family):
        tool, *arguments = shlex.split(line)
        log = tmp_path / f"{tool}.log"
        assert run_tool(tool, arguments, tmp_path, log.name, 30) == 0, log.read_text()[-2000:]
    report = load_report(tmp_path / "report.json", board.part, hz / 1e6)
    print(f"\n{CHIP.name} on {board.name}: {report.achieved:.1f} MHz,", report.use)
    assert report.passed
    assert all(used <= there for used, there in report.use.values())
    bitstream = tmp_path / f"{TOP}.{BITSTREAM[board.part.family]}"
    assert bitstream.stat().st_size > 10_000
    # every port is at a pin, none was optimised away
    placed = json.loads((tmp_path / "report.json").read_text())["utilization"]
    assert placed[{"ECP5": "TRELLIS_IO", "Gowin": "IOB"}[family]]["used"] == len(PORTS)
