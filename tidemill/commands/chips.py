"""`tidemill chips`: the named chips, their memories and what they take of an FPGA."""

from __future__ import annotations

from typing import Any

import click

from tidemill.boards.parts import Part
from tidemill.chip import CHIPS, Chip, load_chip
from tidemill.commands.common import emit_json, json_option, say_line, show

__all__ = ["chips"]


def _device(chip: Chip) -> Part | None:
    """The part that a named chip is meant for."""
    from tidemill.boards.catalog import BOARDS

    return next((b.part for b in BOARDS.values() if b.chip == chip.name), None)


def _facts(chip: Chip) -> dict[str, Any]:
    return {
        **chip.as_dict(),
        "chip_hash": chip.hash,
        "mem_w_bytes": chip.mem_w_depth * chip.macs,
        "mem_a_bytes": chip.mem_a_depth * chip.lanes * 2,
        "block_rams": chip.block_rams(),
        "multipliers": chip.multipliers(),
    }


def _of(total: int, available: int | None) -> str:
    return f"{total} of {available}" if available else str(total)


@click.command(short_help="Named chips, their memories and block RAMs.")
@click.argument("name", required=False)
@json_option
def chips(*, name: str | None, as_json: bool) -> None:
    """List the named chips, or everything about the chip NAME (or a .toml file).

    A chip of your own is a TOML file: `base = "tiny"` and any field to change, as `tidemill chips
    tiny` lists them. Every command takes it as --chip my.toml.
    """
    if name is None:
        if as_json:
            emit_json({"chips": [_facts(c) for c in CHIPS.values()]})
        else:
            _list()
        return
    chip = load_chip(name)
    if as_json:
        emit_json(_facts(chip))
    else:
        _show(chip)


def _list() -> None:
    rows = [
        [
            c.name,
            f"{c.lanes} x {c.weight_streams}",
            c.context,
            c.vocab,
            f"{c.mem_w_depth * c.macs / 1024:,.0f} KiB",
            f"{c.mem_a_depth * c.lanes * 2 / 1024:,.0f} KiB",
            _of(sum(c.block_rams().values()), part.block_rams if part else None),
            _of(sum(c.multipliers().values()), part.multipliers if part else None),
        ]
        for c, part in ((c, _device(c)) for c in CHIPS.values())
    ]
    columns = ("chip", "lanes x streams", "context", "vocab", "MEM_W", "MEM_A", "block RAMs")
    show("", (*columns, "multipliers"), rows)


def _show(chip: Chip) -> None:
    say_line(chip.describe())
    say_line()
    show("", ("field", "value"), [[k, str(v)] for k, v in chip.as_dict().items()])
    part = _device(chip)
    for title, account, available in (
        ("block RAMs (18 kbit)", chip.block_rams(), part.block_rams if part else None),
        ("multipliers (18 x 18)", chip.multipliers(), part.multipliers if part else None),
    ):
        rows: list[list[Any]] = [[*i] for i in account.items()]
        rows.append(["total", sum(account.values())])
        note = f" of the {available} in an {part.name}" if part else ""
        show(f"\n{title}{note}", ("", ""), rows)
