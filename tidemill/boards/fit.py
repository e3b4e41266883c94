"""Whether a chip fits a part and a model the chip, with numbers, before any tool is started."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.boards.board import Board
from tidemill.chip import Chip
from tidemill.compiler.report import report
from tidemill.store import Model, program_for

__all__ = ["Need", "chip_needs", "model_needs"]


@dataclass(frozen=True)
class Need:
    """One line of the account."""

    what: str
    needed: int
    available: int
    unit: str

    @property
    def fits(self) -> bool:
        """Enough is there."""
        return self.needed <= self.available

    def sentence(self) -> str:
        """For a refusal."""
        return f"{self.what} needs {self.needed:,} {self.unit}, {self.available:,} are there"


def chip_needs(chip: Chip, board: Board) -> list[Need]:
    """Block RAMs and multipliers of the chip against the part.

    `Chip` counts block RAMs of 18 kbit; on a part with smaller ones this is a lower bound.
    """
    part = board.part
    block_rams = sum(chip.block_rams().values())
    if part.block_ram_bits < 18 * 1024:
        bits = chip.mem_w_depth * chip.macs * 8 + chip.mem_a_depth * chip.lanes * 16
        block_rams = max(block_rams, -(-bits // part.block_ram_bits))
    where = f"chip {chip.name} on the {part.name}"
    return [
        Need(where, block_rams, part.block_rams, "block RAMs"),
        Need(where, sum(chip.multipliers().values()), part.multipliers, "multipliers"),
    ]


def _roomy(chip: Chip, model: Model) -> Chip:
    """The chip with memories in which nothing can be too large."""
    planes = -(-2 * model.checkpoint.config.parameters // chip.macs)
    return dataclasses.replace(
        chip,
        name=f"{chip.name}, larger",
        mem_w_depth=min(1 << 20, planes + (1 << 14)),
        mem_a_depth=1 << 15,
        queue_depth=1 << 13,
        tide_depth=1 << 15,
    )


def model_needs(
    chip: Chip, model: Model, context: int | None, progress: Callable[[str], None]
) -> list[Need]:
    """Memories of the chip against what the compiled model takes.

    Raises `CompileError` if the model cannot be compiled for the shape of the chip, whatever its
    memories.
    """
    facts = report(program_for(model, _roomy(chip, model), context, progress))
    where = f"{model.name} on chip {chip.name}"
    queue, words = max(facts["program_words"].items(), key=lambda item: item[1])
    memory = facts["memory"]
    return [
        Need(
            f"{where}: each of {chip.weight_streams} banks of MEM_W",
            memory["MEM_W.0"]["needed"],
            chip.mem_w_depth,
            "rows",
        ),
        Need(f"{where}: MEM_A", memory["MEM_A"]["needed"], chip.mem_a_depth, "vectors"),
        Need(f"{where}: instruction queue {queue}", words, chip.queue_depth, "words"),
        Need(f"{where}: tide table", facts["tide_words"], chip.tide_depth, "words"),
    ]
