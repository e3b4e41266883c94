"""Assembler text: a program's words, templates, tide table and registers, to read, edit and build again.

    .template 3 a=WA b=ONE wt=1
    .config LAYERS 5
    .tide 0:2=11 15:0=503 ...          one line per n: queue:column=value
    .queue MXM.C
    .segment LAYER
      ROWS abc=0 acc=4 ni=4 fresh=1 wait=2
      REPEAT count=3 interval=0 stride=0
      NOP tide=3
      SYNC

`;` starts a comment. Memory images and tables stay in the `.tide` file the text is assembled onto.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any

from tidemill import isa
from tidemill.compiler.emit import EmitError, encode_control, encode_op
from tidemill.isa import QUEUE_INDEX, QUEUES, Config, Ctrl, Kind, Seg, Template
from tidemill.program import Program, ProgramError
from tidemill.timeline import decode_word

__all__ = ["assemble", "disassemble"]

_ENUMS: dict[str, type[IntEnum]] = {
    "a": isa.ASrc,
    "b": isa.BSrc,
    "func": isa.Func,
    "mask": isa.Mask,
    "red": isa.Red,
}


def disassemble(program: Program) -> str:
    """Text of a program; `assemble(disassemble(p), p)` has the same hash."""
    chip = program.chip
    out = [f"; {chip.describe()}", f".chip {chip.hash}"]
    for i, t in enumerate(program.templates):
        fields = []
        for name, _ in Template.LAYOUT:
            value = getattr(t, name)
            if value or name == "a":
                fields.append(f"{name}={value.name if name in _ENUMS else int(value)}")
        out.append(f".template {i} " + " ".join(fields))
    for register, value in program.config.items():
        name = Config(register).name if register < Config.SCALAR0 else f"SCALAR{register - Config.SCALAR0}"
        out.append(f".config {name} {value}")
    for row in program.tide:
        out.append(".tide " + " ".join(f"{d}:{c}={v}" for d, c, v in row))
    for queue, words, starts in zip(QUEUES, program.queues, program.starts, strict=True):
        out.append(f".queue {queue.name}")
        for at, word in enumerate(words):
            out += [f".segment {s.name}" for s in Seg if starts[s] == at]
            w = decode_word(queue, chip, word)
            fields = dict(w.fields)
            if w.kind in (Kind.NOP, Kind.REPEAT):
                count = fields.pop("count")
                fields = {"tide" if fields.pop("tide") else "count": count, **fields}
                if w.kind is Kind.NOP:
                    fields = {k: v for k, v in fields.items() if k in ("tide", "count")}
            if w.wait:
                fields["wait"] = w.wait
            out.append("  " + " ".join([w.mnemonic, *(f"{k}={v}" for k, v in fields.items())]))
    return "\n".join(out) + "\n"


class _Assembler:
    def __init__(self, base: Program):
        self.base, self.chip = base, base.chip
        self.templates: list[Template] = []
        self.config: dict[int, int] = {}
        self.tide: list[tuple[tuple[int, int, int], ...]] = []
        self.words: list[list[int]] = [[] for _ in QUEUES]
        self.starts: list[dict[int, int]] = [{} for _ in QUEUES]
        self.queue: isa.Queue | None = None

    def number(self, text: str) -> int:
        try:
            return int(text, 0)
        except ValueError:
            raise ProgramError(f"{text!r} is not a number") from None

    def pairs(self, items: list[str]) -> dict[str, str]:
        out = {}
        for item in items:
            key, sign, value = item.partition("=")
            if not sign:
                raise ProgramError(f"{item!r} is not of the form name=value")
            out[key] = value
        return out

    def line(self, items: list[str]) -> None:
        head, rest = items[0], items[1:]
        handler = {
            ".chip": self.on_chip,
            ".template": self.on_template,
            ".config": self.on_config,
            ".tide": self.on_tide,
            ".queue": self.on_queue,
            ".segment": self.on_segment,
        }.get(head)
        if handler is not None:
            handler(rest)
        elif head.startswith("."):
            raise ProgramError(f"unknown directive {head!r}")
        else:
            self.word(head, rest)

    def on_chip(self, rest: list[str]) -> None:
        if rest != [self.chip.hash]:
            raise ProgramError(f"the text is for chip {' '.join(rest)}, the image for {self.chip.describe()}")

    def on_template(self, rest: list[str]) -> None:
        if not rest or self.number(rest[0]) != len(self.templates):
            raise ProgramError(f"template {len(self.templates)} comes next")
        values: dict[str, Any] = {}
        for key, text in self.pairs(rest[1:]).items():
            kind = _ENUMS.get(key)
            if kind is not None and text not in kind.__members__:
                raise ProgramError(f"template {key}={text}: one of {', '.join(kind.__members__)}")
            if key not in dict(Template.LAYOUT):
                raise ProgramError(f"a template has no field {key!r}")
            value = self.number(text) if kind is None else kind[text]
            values[key] = value if kind or key == "shift" else bool(value)
        if "a" not in values:
            raise ProgramError("a template needs a=")
        self.templates.append(Template(**values))

    def on_config(self, rest: list[str]) -> None:
        if len(rest) != 2:
            raise ProgramError(".config takes a register and a value")
        name = rest[0]
        if name in Config.__members__ and name != "SCALAR0":
            register = int(Config[name])
        elif name.startswith("SCALAR") and name[6:] in "01234567" and len(name) == 7:
            register = Config.SCALAR0 + int(name[6:])
        else:
            raise ProgramError(f"unknown register {name!r}")
        self.config[register] = self.number(rest[1])

    def on_tide(self, rest: list[str]) -> None:
        row = []
        for key, text in self.pairs(rest).items():
            dest, _, column = key.partition(":")
            row.append((self.number(dest), self.number(column or "?"), self.number(text)))
        self.tide.append(tuple(row))

    def on_queue(self, rest: list[str]) -> None:
        if len(rest) != 1 or rest[0] not in QUEUE_INDEX:
            raise ProgramError(f"unknown queue {' '.join(rest)!r}; one of {', '.join(QUEUE_INDEX)}")
        self.queue = QUEUES[QUEUE_INDEX[rest[0]]]

    def on_segment(self, rest: list[str]) -> None:
        if self.queue is None:
            raise ProgramError(".segment before .queue")
        if len(rest) != 1 or rest[0] not in Seg.__members__:
            raise ProgramError(f"unknown segment {' '.join(rest)!r}; one of {', '.join(Seg.__members__)}")
        self.starts[self.queue.index][Seg[rest[0]]] = len(self.words[self.queue.index])

    def word(self, mnemonic: str, rest: list[str]) -> None:
        queue = self.queue
        if queue is None:
            raise ProgramError(f"{mnemonic} before .queue")
        fields = {k: self.number(v) for k, v in self.pairs(rest).items()}
        wait = fields.pop("wait", 0)
        if not 0 <= wait < 1 << isa.WAIT_BITS:
            raise ProgramError(f"{queue.name} {mnemonic}: wait={wait} does not fit {isa.WAIT_BITS} bits")
        names = [o.mnemonic for o in queue.ops]
        if mnemonic == "SYNC":
            bits = queue.payload_bits(self.chip)
            word = int(Ctrl.SYNC) | wait << bits | int(Kind.CTRL) << (bits + isa.WAIT_BITS)
        elif mnemonic in ("NOP", "REPEAT"):
            tide = "tide" in fields
            count = fields.pop("tide") if tide else fields.pop("count", 0)
            known = {k: fields.pop(k, 0) for k in ("interval", "stride")}
            if fields:
                raise ProgramError(f"{mnemonic} has no field {next(iter(fields))!r}")
            word = encode_control(queue, self.chip, Kind[mnemonic], count, tide=tide, wait=wait, **known)
        elif mnemonic in names:
            word = encode_op(queue, self.chip, mnemonic, fields, wait)
        elif mnemonic in queue.reserved or mnemonic in Ctrl.__members__:
            raise ProgramError(f"{queue.name}: {mnemonic} is reserved, not built")
        else:
            raise ProgramError(
                f"{queue.name} has no instruction {mnemonic!r}; one of {', '.join([*names, 'NOP', 'REPEAT', 'SYNC'])}"
            )
        self.words[queue.index].append(word)


def assemble(text: str, base: Program) -> Program:
    """Program of `text` with the images of `base`. Raises `ProgramError` with the line."""
    a = _Assembler(base)
    for number, line in enumerate(text.splitlines(), 1):
        items = line.split(";")[0].split()
        if not items:
            continue
        try:
            a.line(items)
        except (ProgramError, EmitError) as e:
            raise ProgramError(f"line {number}: {e}") from None
    for queue, starts in zip(QUEUES, a.starts, strict=True):
        missing = [s.name for s in Seg if s not in starts]
        if missing:
            raise ProgramError(f"queue {queue.name} has no segment {missing[0]}")
    if len({len(row) for row in a.tide}) != 1:
        raise ProgramError("the tide table needs rows of one length")
    return dataclasses.replace(
        base,
        templates=tuple(a.templates),
        config=a.config,
        tide=tuple(a.tide),
        queues=tuple(tuple(w) for w in a.words),
        starts=tuple((s[0], s[1], s[2]) for s in a.starts),
    )
