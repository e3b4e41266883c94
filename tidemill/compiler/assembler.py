"""Assembler text: everything of a program but its memory images, to read, edit and build again.

    .chip name=ulx3s-85f lanes=16 weight_streams=8 ... hops=1,1,1,1
    .config LAYERS=5 W_LAYER_STRIDE=456
    .template 3 a=WA b=ONE wt=1
    .tide 1 SEQ.0=503 MXM.C.0=4                 row n = 1: destination.column=value
    .queue MXM.C
    .segment LAYER
      ROWS abc=0 acc=4 ni=4 fresh=1 wait=2      operations of the queue, fields of docs/isa.md
      REPEAT count=3 interval=0                 re-issue; `stride=1` steps the first field
      NOP 12
      NOP tide=3                                as many cycles as column 3 of the tide table says
      SYNC

`;` starts a comment. A field that is not given is 0. Long lines may be split: `.config` and `.tide`
add to what came before. Memory images, function tables and facts about the model come from the
program the text is assembled onto.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Any

import numpy as np

from tidemill import isa, numerics
from tidemill.chip import Chip, ChipError
from tidemill.compiler.disassembler import SEQUENCER, TEMPLATE_COUNT, TEMPLATE_ENUMS
from tidemill.compiler.emit import encode_control, encode_op
from tidemill.isa import (
    QUEUE_INDEX,
    QUEUES,
    TIDE_SEQUENCER,
    Ctrl,
    Kind,
    Queue,
    Seg,
    Template,
)
from tidemill.program import Program, ProgramError, register_name

__all__ = ["AssemblyError", "assemble"]


class AssemblyError(ProgramError):
    """Text that is no program; one sentence with the line, the thing and what is possible."""


def assemble(text: str, base: Program | None = None) -> Program:
    """Program of `text` with memories, tables and facts of `base` (None: empty memories).

    Raises `AssemblyError` with the number of the line.
    """
    a = _Assembler(base)
    for number, line in enumerate(text.splitlines(), 1):
        items = line.partition(";")[0].split()
        try:
            if items:
                a.line(items)
        except (ProgramError, ChipError) as e:
            raise AssemblyError(f"line {number}: {e}") from None
    return a.program()


class _Assembler:
    def __init__(self, base: Program | None):
        self.base = base
        self._chip = base.chip if base else None
        self._chip_from_text = False
        self.templates: dict[int, Template] = {}
        self.config: dict[int, int] = {}
        self.tide: list[list[tuple[int, int, int]]] = []
        self.words: list[list[int]] = [[] for _ in QUEUES]
        self.starts: list[dict[Seg, int]] = [{} for _ in QUEUES]
        self.queue: Queue | None = None

    @property
    def chip(self) -> Chip:
        if self._chip is None:
            raise AssemblyError("the text has to begin with .chip, or be given a --image")
        return self._chip

    def line(self, items: list[str]) -> None:
        handlers = {
            ".chip": self.on_chip,
            ".config": self.on_config,
            ".template": self.on_template,
            ".tide": self.on_tide,
            ".queue": self.on_queue,
            ".segment": self.on_segment,
        }
        if items[0] in handlers:
            handlers[items[0]](items[1:])
        elif items[0].startswith("."):
            raise AssemblyError(f"unknown directive {items[0]!r}; there are {', '.join(handlers)}")
        else:
            self.word(items[0], items[1:])

    # Directives ----------------------------------------------------------------------------------

    def on_chip(self, rest: list[str]) -> None:
        kinds = {f.name: f.type for f in dataclasses.fields(Chip)}
        if self._chip_from_text or self.tide or any(self.words):
            raise AssemblyError(".chip comes once, before everything that depends on it")
        values: dict[str, Any] = {}
        for key, text in _pairs(rest).items():
            if key not in kinds:
                raise AssemblyError(f".chip has no field {key!r}; it has {', '.join(kinds)}")
            if key in ("name", "family"):
                values[key] = text
            elif key == "hops":
                values[key] = tuple(_number(h) for h in text.split(","))
            else:
                values[key] = _number(text)
        required = [f.name for f in dataclasses.fields(Chip) if f.default is dataclasses.MISSING]
        missing = [name for name in required if name not in values]
        if missing:
            raise AssemblyError(f".chip needs {missing[0]}")
        self._chip, self._chip_from_text = Chip(**values), True

    def on_config(self, rest: list[str]) -> None:
        bits = isa.config_bits(self.chip)
        registers = {register_name(r): int(r) for r in bits}
        for name, text in _pairs(rest).items():
            if name not in registers:
                raise AssemblyError(f"no register {name!r}; there are {', '.join(registers)}")
            register = registers[name]
            self.config[register] = _within(name, text, 0, (1 << bits[register]) - 1)

    def on_template(self, rest: list[str]) -> None:
        if not rest:
            raise AssemblyError(".template needs a number")
        number = _within("template", rest[0], 0, TEMPLATE_COUNT - 1)
        layout = dict(Template.LAYOUT)
        values: dict[str, Any] = {}
        for key, text in _pairs(rest[1:]).items():
            if key not in layout:
                raise AssemblyError(f"a template has no field {key!r}; it has {', '.join(layout)}")
            if key in TEMPLATE_ENUMS:
                values[key] = _member(key, text, TEMPLATE_ENUMS[key])
            elif key == "shift":
                top = 1 << (layout[key] - 1)
                values[key] = _within(key, text, -top, top - 1)
            else:
                values[key] = bool(_within(key, text, 0, 1))
        if "a" not in values:
            raise AssemblyError(
                f"template {number} needs a=, one of {', '.join(isa.ASrc.__members__)}"
            )
        self.templates[number] = Template(**values)

    def on_tide(self, rest: list[str]) -> None:
        if not rest:
            raise AssemblyError(".tide needs the number of its row, 1 first")
        n = _within("row", rest[0], 1, self.chip.tide_rows)
        if n not in (len(self.tide), len(self.tide) + 1):
            raise AssemblyError(f"row {n} of the tide table comes after row {len(self.tide)}")
        if n > len(self.tide):
            self.tide.append([])
        for key, text in _pairs(rest[1:]).items():
            name, _, column = key.rpartition(".")
            names = [*QUEUE_INDEX, SEQUENCER]
            if name not in names:
                raise AssemblyError(
                    f"no tide destination {name!r} in {key}; there are {', '.join(names)}, "
                    "written destination.column=value"
                )
            dest = TIDE_SEQUENCER if name == SEQUENCER else QUEUE_INDEX[name]
            top = (1 << isa.TIDE_VALUE_BITS) - 1
            where = _within(f"{name} column", column, 0, isa.TIDE_COLUMNS - 1)
            self.tide[-1].append((dest, where, _within(key, text, 0, top)))

    def on_queue(self, rest: list[str]) -> None:
        if len(rest) != 1 or rest[0] not in QUEUE_INDEX:
            name = " ".join(rest)
            raise AssemblyError(f"no queue {name!r}; there are {', '.join(QUEUE_INDEX)}")
        self.queue = QUEUES[QUEUE_INDEX[rest[0]]]

    def on_segment(self, rest: list[str]) -> None:
        if self.queue is None:
            raise AssemblyError(".segment comes before any .queue")
        if len(rest) != 1 or rest[0] not in Seg.__members__:
            name = " ".join(rest)
            raise AssemblyError(f"no segment {name!r}; there are {', '.join(Seg.__members__)}")
        starts = self.starts[self.queue.index]
        if Seg[rest[0]] in starts:
            raise AssemblyError(f"{self.queue.name} has a second segment {rest[0]}")
        starts[Seg[rest[0]]] = len(self.words[self.queue.index])

    # Words ---------------------------------------------------------------------------------------

    def word(self, mnemonic: str, rest: list[str]) -> None:
        queue = self.queue
        if queue is None:
            raise AssemblyError(f"{mnemonic} comes before any .queue")
        words = self.words[queue.index]
        if len(words) == self.chip.queue_depth:
            raise AssemblyError(
                f"{queue.name} is full: this chip has {len(words)} words (queue_depth)"
            )
        what = f"{queue.name} {mnemonic}"
        names = [o.mnemonic for o in queue.ops]
        if mnemonic in (*queue.reserved, *(c.name for c in Ctrl if c is not Ctrl.SYNC)):
            raise AssemblyError(f"{what} is reserved, not built")
        if mnemonic not in (*names, "NOP", "REPEAT", "SYNC"):
            possible = ", ".join((*names, "NOP", "REPEAT", "SYNC"))
            raise AssemblyError(f"{queue.name} has no operation {mnemonic!r}; it has {possible}")
        if mnemonic == "NOP" and rest and "=" not in rest[0]:
            rest = [f"count={rest[0]}", *rest[1:]]
        given = _pairs(rest)
        wait = _within(f"{what}: wait", given.pop("wait", "0"), 0, (1 << isa.WAIT_BITS) - 1)
        if mnemonic in names:
            words.append(self.operation(queue, mnemonic, given, wait))
        else:
            words.append(self.control(queue, mnemonic, given, wait))

    def operation(self, queue: Queue, mnemonic: str, given: dict[str, str], wait: int) -> int:
        widths = {f.name: f.bits(self.chip) for f in queue.fields}
        enums = {f.name: f.enum for f in queue.fields}
        values: dict[str, int] = {}
        for name, text in given.items():
            what = f"{queue.name} {mnemonic}: {name}"
            if name not in widths:
                raise AssemblyError(
                    f"{queue.name} {mnemonic} has no field {name!r}; "
                    f"it has {', '.join(widths)}, wait"
                )
            kind = enums[name]
            if kind is not None and not text.lstrip("-")[:1].isdigit():
                values[name] = _member(what, text, kind)
            else:
                values[name] = _within(what, text, int(name == "ni"), (1 << widths[name]) - 1)
        if "ni" in widths and "ni" not in values:
            raise AssemblyError(f"{queue.name} {mnemonic} needs ni, at least 1")
        return encode_op(queue, self.chip, mnemonic, values, wait)

    def control(self, queue: Queue, mnemonic: str, given: dict[str, str], wait: int) -> int:
        what = f"{queue.name} {mnemonic}"
        known = [] if mnemonic == "SYNC" else ["count", "tide", "interval", "stride"]
        for name in given:
            if name not in known:
                possible = ", ".join([*known, "wait"])
                raise AssemblyError(f"{what} has no field {name!r}; it has {possible}")
        if mnemonic == "SYNC":
            return encode_control(queue, self.chip, Kind.CTRL, int(Ctrl.SYNC), wait=wait)
        if ("tide" in given) == ("count" in given):
            raise AssemblyError(f"{what} needs either count or tide")
        widths = dict(isa.CONTROL_LAYOUT)
        if "tide" in given:
            count = _within(f"{what}: tide", given["tide"], 0, isa.TIDE_COLUMNS - 1)
        else:
            top = (1 << widths["count"]) - 1
            count = _within(f"{what}: count", given["count"], int(mnemonic == "NOP"), top)
        top = (1 << widths["interval"]) - 1
        half = 1 << (widths["stride"] - 1)
        return encode_control(
            queue,
            self.chip,
            Kind[mnemonic],
            count,
            tide="tide" in given,
            interval=_within(f"{what}: interval", given.get("interval", "0"), 0, top),
            stride=_within(f"{what}: stride", given.get("stride", "0"), -half, half - 1),
            wait=wait,
        )

    # The whole -----------------------------------------------------------------------------------

    def program(self) -> Program:
        chip = self.chip
        for queue, starts in zip(QUEUES, self.starts, strict=True):
            missing = [s.name for s in Seg if s not in starts]
            if missing:
                raise AssemblyError(f"queue {queue.name} lacks .segment {missing[0]}")
        if not self.tide or len({len(row) for row in self.tide}) != 1:
            raise AssemblyError("the tide table needs rows, all of the same length")
        size = sum(map(len, self.tide))
        if size > chip.tide_depth:
            raise AssemblyError(f"the tide table has {size} words, this chip {chip.tide_depth}")
        gap = next((i for i in range(len(self.templates)) if i not in self.templates), None)
        if gap is not None:
            raise AssemblyError(f"template {gap} is missing")
        return dataclasses.replace(
            self.base if self.base and self.base.chip.hash == chip.hash else self.empty(),
            queues=tuple(tuple(w) for w in self.words),
            starts=tuple((s[Seg.EMBED], s[Seg.LAYER], s[Seg.HEAD]) for s in self.starts),
            tide=tuple(tuple(row) for row in self.tide),
            config=self.config,
            templates=tuple(self.templates[i] for i in range(len(self.templates))),
        )

    def empty(self) -> Program:
        """Empty memories and plain tables. Refuses to drop a base that is for another chip."""
        chip = self.chip
        if self.base is not None:
            raise AssemblyError(
                f"the text is for {chip.describe()}, the image for {self.base.chip.describe()}"
            )
        return Program(
            chip=chip,
            queues=(),
            starts=(),
            tide=(),
            config={},
            templates=(),
            lane_table=numerics.build_lane_table(1 / 2048, 1 / 2048),
            scalar_table=numerics.build_scalar_table(),
            mem_w=np.zeros((chip.mem_w_depth, chip.weight_streams, chip.lanes), np.int8),
            mem_w_used=np.zeros(chip.mem_w_depth, bool),
            mem_a=np.zeros((chip.mem_a_depth, chip.lanes), np.int16),
            mem_a_used=np.zeros(chip.mem_a_depth, bool),
            info={
                "context": min(chip.context, chip.lanes * len(self.tide)),
                "temperature_scalar": 1,
                "temperature_max": 1.0,
                "temperature_unit": 65535,
            },
        )


def _pairs(items: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for item in items:
        key, sign, value = item.partition("=")
        if not sign or not key or not value:
            raise AssemblyError(f"{item!r} is not of the form name=value")
        if key in out:
            raise AssemblyError(f"{key} is given twice")
        out[key] = value
    return out


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise AssemblyError(f"{text!r} is not a whole number") from None


def _within(what: str, text: str, low: int, high: int) -> int:
    value = _number(text)
    if not low <= value <= high:
        raise AssemblyError(f"{what} must be from {low} to {high}, not {value}")
    return value


def _member(what: str, text: str, kind: type[IntEnum]) -> IntEnum:
    if text not in kind.__members__:
        raise AssemblyError(f"{what} must be one of {', '.join(kind.__members__)}, not {text!r}")
    return kind[text]
