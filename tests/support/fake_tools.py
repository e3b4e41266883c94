"""FPGA tools that answer at once, as told: for tests of what happens around them."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemill.boards import build
from tidemill.boards.board import Board
from tidemill.chip import Chip

__all__ = ["FakeTools", "short_verilog"]

YOSYS = """
cells = {"design": {"num_cells_by_type": told["cells"]}}
pathlib.Path("cells.json").write_text(json.dumps(cells))
if told["yosys"]:
    print(told["yosys"])
    sys.exit(1)
"""
NEXTPNR = """
value = lambda name: sys.argv[sys.argv.index(name) + 1]
mhz = float(pathlib.Path.cwd().name.removesuffix("MHz"))
if told["sleep"]:
    time.sleep(told["sleep"])
if told["nextpnr"]:
    print(told["nextpnr"])
    sys.exit(1)
achieved = told["achieved"].get(f"{value('--router')}/{value('--seed')}/{mhz:g}", told["default"])
path = [{"type": "routing", "delay": 9.0, "from": {"cell": "here"}, "to": {"cell": "there"}}]
pathlib.Path(value("--report")).write_text(json.dumps({
    "fmax": {"clk": {"achieved": achieved, "constraint": told["constraint"] or mhz}},
    "utilization": {"TRELLIS_COMB": {"used": 5, "available": 24288}},
    "critical_paths": [{"from": "clk", "to": "clk", "path": path}],
}))
pathlib.Path(value("--textcfg")).write_text(f"{achieved}")
sys.exit(achieved < mhz)
"""
PACK = """
pathlib.Path(sys.argv[-1]).write_text("bits of " + pathlib.Path(sys.argv[-2]).read_text())
"""


class FakeTools:
    """yosys, nextpnr-ecp5 and ecppack on PATH.

    `told` says what they answer: `achieved` is MHz by "router/seed/frequency", `default` the rest.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.told: dict[str, Any] = {
            "cells": {"LUT4": 5},
            "yosys": "",
            "nextpnr": "",
            "sleep": 0,
            "achieved": {},
            "default": 1000.0,
            "constraint": None,
        }
        self._file = folder / "told.json"
        for name, body in {"yosys": YOSYS, "nextpnr-ecp5": NEXTPNR, "ecppack": PACK}.items():
            program = folder / name
            program.write_text(
                f"#!{sys.executable}\nimport json, pathlib, sys, time\n"
                "if '--version' in sys.argv: sys.exit(print('Tool 0.70 (git 1)'))\n"
                f"told = json.loads(pathlib.Path({str(self._file)!r}).read_text())\n{body}"
            )
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        self.tell()

    def tell(self, **changes: Any) -> None:
        """Change what they answer."""
        self.told |= changes
        self._file.write_text(json.dumps(self.told))


def short_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the time to generate what no fake tool reads."""

    def short(board: Board, chip: Chip, mhz: float, baud: int) -> tuple[str, int, str]:
        return "module;", build._clock_hz(board, mhz, baud), "0123456789abcdef"

    monkeypatch.setattr(build, "top_verilog", short)
