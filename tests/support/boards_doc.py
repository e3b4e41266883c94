"""The command lines of docs/boards.md."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["EXAMPLES", "command_lines", "text"]

#: Board of each family's example.
EXAMPLES = {"ECP5": "ulx3s-25f", "Gowin": "tangnano20k", "iCE40": "icebreaker"}


def text() -> str:
    return (Path(__file__).parents[2] / "docs/boards.md").read_text()


def command_lines(family: str) -> list[str]:
    """Of the section about plain Verilog."""
    (block,) = re.findall(rf"^### {family}\n.*?^```\n(.*?)^```\n", text(), re.M | re.S)
    return block.splitlines()
