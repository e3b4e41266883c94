"""Programs as assembler text: what `tidemill.compiler.assembler` reads back, to the bit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum

from tidemill import isa
from tidemill.chip import CHIPS, Chip
from tidemill.compiler.ops import TEMPLATES
from tidemill.isa import QUEUE_INDEX, QUEUES, TIDE_SEQUENCER, Kind, Queue, Seg, Template
from tidemill.program import Program, register_name
from tidemill.timeline import Word, decode_word

__all__ = ["SEQUENCER", "TEMPLATE_COUNT", "TEMPLATE_ENUMS", "disassemble", "instruction"]

WIDTH = 96
#: Name of the sequencer among the destinations of the tide table.
SEQUENCER = "SEQ"
#: Templates a program may have.
TEMPLATE_COUNT = 1 << next(
    f.bits(CHIPS["tiny"]) for f in QUEUES[QUEUE_INDEX["VXM"]].fields if f.name == "tmpl"
)

#: Fields of a template that are written by name.
TEMPLATE_ENUMS: dict[str, type[IntEnum]] = {
    "a": isa.ASrc,
    "b": isa.BSrc,
    "func": isa.Func,
    "mask": isa.Mask,
    "red": isa.Red,
}


def disassemble(program: Program) -> str:
    """Text of a program; `assemble(disassemble(p), p)` has the same hash."""
    chip = program.chip
    out = [f"; {chip.describe()}"]
    out.append(" ".join([".chip", *(f"{k}={_plain(v)}" for k, v in chip.as_dict().items())]))
    out += ["", "; registers"]
    out += _wrap(".config", (f"{register_name(r)}={v}" for r, v in program.config.items()))
    out += ["", "; what VXM passes do"]
    names = _template_names(program)
    for i, t in enumerate(program.templates):
        fields = []
        for name, _ in Template.LAYOUT:
            value = getattr(t, name)
            if value or name == "a":
                fields.append(f"{name}={value.name if name in TEMPLATE_ENUMS else int(value)}")
        out.append(f".template {i} {' '.join(fields)}" + (f"  ; {names[i]}" if names[i] else ""))
    out += ["", "; waits and counts that depend on n"]
    for n, row in enumerate(program.tide, 1):
        out += _wrap(f".tide {n}", (f"{_destination_name(d)}.{c}={v}" for d, c, v in row))
    for queue, words, starts in zip(QUEUES, program.queues, program.starts, strict=True):
        out += ["", f".queue {queue.name}  ; {len(words)} words"]
        for at in range(len(words) + 1):
            out += [f".segment {s.name}" for s in Seg if starts[s] == at]
            if at < len(words):
                w = decode_word(queue, chip, words[at])
                remark = names[w.fields["tmpl"]] if w.mnemonic == "PASS" else ""
                text = instruction(queue, chip, w)
                out.append(f"  {text:58}  ; {remark}" if remark else f"  {text}")
    return "\n".join(out) + "\n"


def instruction(queue: Queue, chip: Chip, word: Word) -> str:
    """One word as text."""
    fields = dict(word.fields)
    items = [word.mnemonic]
    if word.kind in (Kind.NOP, Kind.REPEAT):
        count, tide = fields.pop("count"), fields.pop("tide")
        if tide:
            items.append(f"tide={count}")
        else:
            items.append(str(count) if word.kind is Kind.NOP else f"count={count}")
        items += [
            f"{k}={v}"
            for k, v in fields.items()
            if v or (k, word.kind) == ("interval", Kind.REPEAT)
        ]
    else:
        widths = dict(queue.layout(chip))
        enums = {f.name: f.enum for f in queue.fields}
        for name, value in fields.items():
            kind = enums[name]
            known = kind is not None and value in kind._value2member_map_
            if widths[name]:
                items.append(f"{name}={kind(value).name if kind and known else value}")
    if word.wait:
        items.append(f"wait={word.wait}")
    return " ".join(items)


def _plain(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return re.sub(r"[^\w.,+-]", "_", text)


def _wrap(head: str, items: Iterable[str]) -> Iterator[str]:
    """Lines `head item item ...` of bounded width."""
    line = head
    for item in items:
        if len(line) + 1 + len(item) > WIDTH and line != head:
            yield line
            line = head
        line += " " + item
    yield line


def _destination_name(dest: int) -> str:
    return SEQUENCER if dest == TIDE_SEQUENCER else QUEUES[dest].name


def _template_names(program: Program) -> list[str]:
    """The compiler's names for the templates, where they are the compiler's."""
    known = list(TEMPLATES.items())
    names = [
        name if dataclasses.replace(t, shift=0) == dataclasses.replace(mine, shift=0) else ""
        for t, (name, mine) in zip(program.templates, known, strict=False)
    ]
    return names + [""] * (TEMPLATE_COUNT - len(names))
