"""What nextpnr and yosys report in JSON: use of the part, clock, slowest path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.boards.parts import Part

__all__ = ["Report", "ReportError", "cell_use", "load_report"]

#: Row of the table -> nextpnr's name, by family. On an iCE40 a logic cell is LUT and flip-flop.
BELS = {
    "ecp5": {"LUT": "TRELLIS_COMB", "FF": "TRELLIS_FF", "BRAM": "DP16KD", "DSP": "MULT18X18D"},
    "ice40": {
        "LUT": "ICESTORM_LC",
        "BRAM": "ICESTORM_RAM",
        "DSP": "ICESTORM_DSP",
        "SPRAM": "ICESTORM_SPRAM",
    },
    "gowin": {"LUT": "LUT4", "FF": "DFF", "BRAM": "BSRAM", "DSP": "MULT18X18"},
}
#: Row -> yosys' cells and how many of the part's elements each takes, at least.
CELLS: dict[str, dict[str, dict[str, float]]] = {
    "ecp5": {
        "LUT": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
        "FF": {"TRELLIS_FF": 1},
        "BRAM": {"DP16KD": 1},
        "DSP": {"MULT18X18D": 1},
    },
    "ice40": {
        "LUT": {"SB_LUT4": 1},
        "FF": {"SB_DFF": 1},
        "BRAM": {"SB_RAM40_4K": 1},
        "DSP": {"SB_MAC16": 1},
    },
    "gowin": {
        "LUT": {"LUT1": 1, "LUT2": 1, "LUT3": 1, "LUT4": 1, "ALU": 1, "RAM16SDP4": 4},
        "FF": {"DFF": 1},
        "BRAM": {"SDPX9B": 1, "SDPB": 1, "DPX9B": 1, "DPB": 1, "SPX9": 1, "SP": 1},
        "DSP": {"MULT18X18": 1, "MULT9X9": 0.5, "MULT36X36": 4},
    },
}
#: Families of cells that yosys names one by one: SB_DFFESR is an SB_DFF.
STEMS = ("SB_DFF", "SB_RAM40_4K", "DFF")


class ReportError(RuntimeError):
    """A report that is missing or says nothing of a clock."""


@dataclass(frozen=True)
class Report:
    """A routed design. Frequencies in MHz; `use` gives used and available of each row."""

    achieved: float
    constraint: float
    use: dict[str, tuple[int, int]]
    path: dict[str, Any]

    @property
    def passed(self) -> bool:
        """The clock is as fast as it was asked to be."""
        return self.achieved >= self.constraint


def _stem(cell: str) -> str:
    return next((stem for stem in STEMS if cell.startswith(stem)), cell)


def cell_use(stat: Path, part: Part) -> dict[str, tuple[int, int]]:
    """Used and available after synthesis, from yosys' `stat -json`: lower bounds."""
    counts = json.loads(stat.read_text())["design"]["num_cells_by_type"]
    available = {
        "LUT": part.luts,
        "FF": part.flip_flops,
        "BRAM": part.block_rams,
        "DSP": part.multipliers,
    }
    return {
        row: (int(sum(n * cells.get(_stem(cell), 0) for cell, n in counts.items())), available[row])
        for row, cells in CELLS[part.family].items()
    }


def load_report(path: Path, part: Part, mhz: float) -> Report:
    """Nextpnr's report of a design whose clock should be `mhz`.

    Raises `ReportError` if there is no report, no clock in it, or a clock that nextpnr timed for
    another frequency: a constraint that does not reach the clock lets any design pass.
    """
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ReportError("nextpnr left no report") from None
    clocks: Mapping[str, Mapping[str, float]] = data.get("fmax", {})
    if not clocks:
        raise ReportError("nextpnr's report names no clock, so nothing was timed")
    for name, clock in clocks.items():
        if abs(clock["constraint"] - mhz) > 0.01 * mhz:
            raise ReportError(
                f"the clock {name} is not constrained: nextpnr timed it for "
                f"{clock['constraint']:.2f} MHz, the chip runs at {mhz:.2f} MHz"
            )
    worst = min(clocks.values(), key=lambda clock: clock["achieved"] / clock["constraint"])
    use = {
        row: (data["utilization"][bel]["used"], data["utilization"][bel]["available"])
        for row, bel in BELS[part.family].items()
        if bel in data["utilization"]
    }
    return Report(worst["achieved"], worst["constraint"], use, _slowest(data))


def _slowest(data: Mapping[str, Any]) -> dict[str, Any]:
    """Ends, length and share of wires of the slowest path between registers."""
    inside = [p["path"] for p in data["critical_paths"] if p["from"] == p["to"] and p["path"]]
    if not inside:
        return {}
    path = max(inside, key=lambda steps: sum(s["delay"] for s in steps))
    total = sum(s["delay"] for s in path)
    wires = sum(s["delay"] for s in path if s["type"] == "routing")
    return {
        "from": path[0]["from"]["cell"],
        "to": path[-1]["to"]["cell"],
        "ns": round(total, 2),
        "routing": round(wires / total, 2),
    }
