"""Reports of nextpnr and yosys, cut down to what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemill.boards.parts import PARTS
from tidemill.boards.report import ReportError, cell_use, load_report

ECP5 = PARTS["LFE5U-12F"]


def step(kind: str, delay: float, cell: str) -> dict[str, Any]:
    return {"type": kind, "delay": delay, "from": {"cell": cell}, "to": {"cell": f"{cell}2"}}


REPORT = {
    "fmax": {"$glbnet$clk": {"achieved": 67.9, "constraint": 60.0}},
    "utilization": {
        "TRELLIS_COMB": {"used": 12421, "available": 24288},
        "TRELLIS_FF": {"used": 7832, "available": 24288},
        "DP16KD": {"used": 21, "available": 56},
        "MULT18X18D": {"used": 14, "available": 28},
        "EHXPLLL": {"used": 1, "available": 2},
    },
    "critical_paths": [
        {"from": "posedge clk", "to": "posedge clk", "path": [step("clk-to-q", 0.5, "a")]},
        {
            "from": "posedge clk",
            "to": "posedge clk",
            "path": [step("clk-to-q", 1.0, "b"), step("routing", 3.0, "c")],
        },
        {"from": "<async>", "to": "posedge clk", "path": [step("routing", 9.0, "d")]},
    ],
}


def write(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "report.json"
    path.write_text(json.dumps(data))
    return path


def test_what_is_read(tmp_path: Path) -> None:
    report = load_report(write(tmp_path, REPORT), ECP5, 60)
    assert (report.achieved, report.constraint, report.passed) == (67.9, 60.0, True)
    assert report.use == {
        "LUT": (12421, 24288),
        "FF": (7832, 24288),
        "BRAM": (21, 56),
        "DSP": (14, 28),
    }
    assert report.path == {"from": "b", "to": "c2", "ns": 4.0, "routing": 0.75}


def test_the_worst_clock_counts(tmp_path: Path) -> None:
    clocks = {"a": {"achieved": 90.0, "constraint": 60.0}, "b": {"achieved": 59.0} | {}}
    clocks["b"]["constraint"] = 60.0
    report = load_report(write(tmp_path, REPORT | {"fmax": clocks}), ECP5, 60)
    assert (report.achieved, report.passed) == (59.0, False)


def test_a_clock_without_constraint(tmp_path: Path) -> None:
    """Nextpnr times it for 12 MHz, and everything passes."""
    clocks = {"clk": {"achieved": 50.0, "constraint": 12.0}}
    path = write(tmp_path, REPORT | {"fmax": clocks})
    with pytest.raises(ReportError, match=r"clock clk is not constrained: nextpnr timed it for 12"):
        load_report(path, ECP5, 60)


def test_no_clock_and_no_report(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="nextpnr left no report"):
        load_report(tmp_path / "report.json", ECP5, 60)
    with pytest.raises(ReportError, match="names no clock, so nothing was timed"):
        load_report(write(tmp_path, REPORT | {"fmax": {}}), ECP5, 60)
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(ReportError, match="nextpnr left no report"):
        load_report(tmp_path / "report.json", ECP5, 60)


@pytest.mark.parametrize(
    ("part", "counts", "used"),
    [
        (
            "LFE5U-12F",
            {"LUT4": 100, "CCU2C": 10, "TRELLIS_DPR16X4": 5, "TRELLIS_FF": 7, "DP16KD": 3},
            {"LUT": 140, "FF": 7, "BRAM": 3, "DSP": 0},
        ),
        (
            "iCE40UP5K",
            {"SB_LUT4": 9, "SB_CARRY": 4, "SB_DFFESR": 2, "SB_DFF": 1, "SB_RAM40_4KNR": 2},
            {"LUT": 9, "FF": 3, "BRAM": 2, "DSP": 0},
        ),
        (
            "GW2AR-LV18QN88C8/I7",
            {"LUT2": 1, "LUT4": 2, "ALU": 3, "DFFRE": 4, "SDPX9B": 5, "DPX9B": 1, "MULT9X9": 3},
            {"LUT": 6, "FF": 4, "BRAM": 6, "DSP": 1},
        ),
    ],
)
def test_cells_after_synthesis(
    tmp_path: Path, part: str, counts: dict[str, int], used: dict[str, int]
) -> None:
    stat = tmp_path / "cells.json"
    stat.write_text(json.dumps({"design": {"num_cells_by_type": counts}}))
    found = cell_use(stat, PARTS[part])
    assert {row: n for row, (n, _) in found.items()} == used
    assert found["BRAM"][1] == PARTS[part].block_rams
