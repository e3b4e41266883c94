"""Writes docs/isa.md from the tables of `tidemill.isa`: `python -m tidemill.isa_doc [FILE]`.

Nothing in the page is typed by hand but the sentences that introduce each table; a test compares
the file with what this module writes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path

from tidemill import isa
from tidemill.chip import CHIPS, Chip

__all__ = ["PAGE", "main", "render"]

#: The page in a checkout.
PAGE = Path(__file__).resolve().parents[1] / "docs" / "isa.md"

HEAD = """\
# Instruction set

Written by `python -m tidemill.isa_doc` from `tidemill/isa.py`; edit that table, not this page. How
slices and queues behave in time is told in [architecture.md](architecture.md).

Every slice has one or more in-order instruction queues. `t` is the cycle in which a slice sees an
instruction (dispatch); an operand is sampled at t + skew, a result is first visible at t + d_func,
plus the hops to the slice that reads it. Widths and latencies are functions of the chip and are
given here for each named chip.
"""


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [list(header), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _picture(items: Iterable[tuple[str, int]]) -> str:
    """One line of fields, most significant first: `| kind 35:34 | wait 33:28 | ... |`.

    `items` are (name, width), least significant first; fields of no width are left out.
    """
    cells = []
    at = 0
    for name, width in items:
        if width:
            bits = f"{at + width - 1}:{at}" if width > 1 else f"{at}"
            cells.append(f"{name} {bits}")
        at += width
    return "| " + " | ".join(reversed(cells)) + " |"


def _word(queue: isa.Queue, chip: Chip, layout: list[tuple[str, int]]) -> str:
    """Picture of a whole word whose payload is `layout`."""
    free = queue.payload_bits(chip) - sum(width for _, width in layout)
    tail = [("0", free), ("wait", isa.WAIT_BITS), ("kind", 2)]
    return _picture([*layout, *tail])


def _per_chip(value: Callable[[Chip], int]) -> list[int]:
    return [value(chip) for chip in CHIPS.values()]


def _comments(enum: type[IntEnum]) -> dict[str, str]:
    """The `#:` comment above each member in the source."""
    notes: dict[str, str] = {}
    pending: list[str] = []
    for line in inspect.getsource(enum).splitlines():
        text = line.strip()
        if text.startswith("#:"):
            pending.append(text[2:].strip())
        elif " = " in text:
            notes[text.split(" = ")[0]] = " ".join(pending)
            pending = []
    return notes


def _members(enum: type[IntEnum]) -> str:
    """Table of an enumeration; the third column appears if any member has a comment."""
    notes = _comments(enum)
    rows: list[list[object]] = [[m.value, f"`{m.name}`", notes.get(m.name, "")] for m in enum]
    if not any(notes.values()):
        return _table(("value", "name"), [row[:2] for row in rows])
    return _table(("value", "name", "meaning"), rows)


def _sentence(enum: type[IntEnum]) -> str:
    return inspect.getdoc(enum) or ""


def _queue(queue: isa.Queue) -> str:
    """Section of one queue."""
    out = [f"## {queue.index}. {queue.name}\n\nSlice {queue.slice}: {queue.doc}.\n\n```text\n"]
    for chip in CHIPS.values():
        out.append(f"{chip.name:10s} {_word(queue, chip, queue.layout(chip))}\n")
    out.append("```\n\n")
    fields = [
        [f"`{f.name}`", *_per_chip(f.bits), f.doc + (f" (`{f.enum.__name__}`)" if f.enum else "")]
        for f in queue.fields
    ]
    if queue.op_bits:
        fields.append(["`op`", *[queue.op_bits] * len(CHIPS), "operation code"])
    out.append(_table(("field", *(f"bits, {name}" for name in CHIPS), "meaning"), fields))
    out.append("\n")
    ops = [
        [f"`{op.mnemonic}`", op.code, *_per_chip(op.d_func), op.skew, op.doc] for op in queue.ops
    ]
    names = (f"d_func, {name}" for name in CHIPS)
    out.append(_table(("operation", "code", *names, "skew", "what it does"), ops))
    if queue.reserved:
        first = len(queue.ops)
        codes = ", ".join(f"`{name}` ({first + i})" for i, name in enumerate(queue.reserved))
        out.append(
            f"\nReserved, refused by the assembler and a fault (`ILLEGAL`) in the chip: {codes}.\n"
        )
    return "".join(out)


def _words() -> str:
    """Section on what all queues share."""
    any_queue = isa.QUEUES[0]
    chip = next(iter(CHIPS.values()))
    control = _word(any_queue, chip, isa.CONTROL_LAYOUT)
    ctrl = _word(any_queue, chip, [("ctrl", 2)])
    widths = _table(
        ("queue", *(f"word bits, {name}" for name in CHIPS), "words that fit"),
        [
            [q.name, *_per_chip(q.word_bits), " / ".join(str(n) for n in _per_chip(_depth))]
            for q in isa.QUEUES
        ],
    )
    return (
        "## Words\n\n"
        "A word is, least significant bit first, payload, wait and kind:\n\n"
        f"{_members(isa.Kind)}\n"
        "- `OP` issues its payload; `wait` idle cycles follow it.\n"
        "- `NOP` idles `count` cycles, at least one.\n"
        "- `REPEAT` issues the last `OP` again, `count` times, `interval` cycles apart (0: its\n"
        "  duration), and steps the first field of the payload by `stride` each time (signed,\n"
        f"  {isa.STRIDE_BITS} bits, modulo the field); `wait` idle cycles follow.\n"
        "- with `tide` set, `count` names a column of the tide table, which holds the number for\n"
        f"  this token's n; {isa.TIDE_COLUMNS} columns a queue, {isa.TIDE_VALUE_BITS} bits each.\n"
        f"  Destination {isa.TIDE_SEQUENCER} is the sequencer: its column 0 is LAYER's length.\n"
        "- `CTRL` is for the ICU itself.\n\n"
        f"```text\nNOP, REPEAT   {control}\nCTRL          {ctrl}\n```\n\n"
        f"{_sentence(isa.Ctrl)}\n\n{_members(isa.Ctrl)}\n{widths}"
    )


def _depth(chip: Chip) -> int:
    return chip.queue_depth


def _control() -> str:
    """Section on segments and bases."""
    return (
        "## Segments and address bases\n\n"
        f"{_sentence(isa.Seg)}\n\n{_members(isa.Seg)}\n"
        f"Every queue is parked at `SYNC` {isa.PARK_CYCLES} cycles before its segment ends.\n"
        f"Token-dependent operands are defined from cycle {isa.TOKEN_CYCLES} of EMBED on.\n\n"
        f"{_sentence(isa.Base)}\n\n{_members(isa.Base)}"
    )


def _templates() -> str:
    """Section on VXM templates."""
    enums: list[type[IntEnum]] = [isa.ASrc, isa.BSrc, isa.Func, isa.Mask, isa.Red]
    picture = _picture(isa.Template.LAYOUT)
    first, _, rest = (inspect.getdoc(isa.Template) or "").partition("\n\n")
    body = "\n".join(f"    {line}" for line in rest.splitlines())
    parts = [
        f"## VXM templates\n\n{first}\n\n{body}\n\n",
        f"```text\n{picture}\n```\n",
    ]
    parts += [f"\n### {e.__name__}\n\n{_sentence(e)}\n\n{_members(e)}" for e in enums]
    latencies = [
        ["operands A and B, scalar", *[isa.Timing.VXM_AB] * len(CHIPS)],
        ["maximum file read", *[isa.Timing.VXM_MAX_READ] * len(CHIPS)],
        ["operand C", *[isa.Timing.VXM_C] * len(CHIPS)],
        ["result on E_v and W_v", *[isa.Timing.VXM_RESULT] * len(CHIPS)],
        ["result readable in T", *[isa.Timing.VXM_T] * len(CHIPS)],
        ["maximum file, token register", *_per_chip(isa.Timing.vxm_max)],
        ["scalar file", *_per_chip(isa.Timing.vxm_scalar)],
    ]
    parts.append("\n### Latencies of a pass\n\nCycles from dispatch.\n\n")
    parts.append(_table(("what", *CHIPS), latencies))
    return "".join(parts)


def _host() -> str:
    """Section on what the host sees."""
    return (
        f"## Host spaces\n\n{_sentence(isa.Space)} A read answers after "
        f"{isa.HOST_READ_LATENCY} cycles.\n\n"
        f"{_members(isa.Space)}\n"
        f"## Configuration registers\n\n{_sentence(isa.Config)}\n\n{_members(isa.Config)}\n"
        f"## Faults\n\n{_sentence(isa.Fault)}\n\n{_members(isa.Fault)}"
    )


def render() -> str:
    """The whole page."""
    sections = [HEAD, _words(), *map(_queue, isa.QUEUES), _control(), _templates(), _host()]
    return "\n".join(sections)


def main() -> None:
    """Write the page to the path on the command line, or to docs/isa.md."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    path.write_text(render())


if __name__ == "__main__":
    main()
