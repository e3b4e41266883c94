"""Words to issue times: what an instruction queue does with a program, cycle by cycle.

This is the reference for the ICU (`docs/architecture.md`, Control) and shares nothing with the
compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill import isa
from tidemill.chip import Chip
from tidemill.isa import QUEUES, Ctrl, Kind, Queue, Seg
from tidemill.program import Program, ProgramError

__all__ = ["Burst", "Word", "decode_word", "expand_queue", "expand_segment"]


@dataclass(frozen=True)
class Word:
    """A decoded word.

    `fields` holds the OP's fields, or count/interval/stride/tide of NOP and REPEAT.
    """

    kind: Kind
    mnemonic: str
    fields: dict[str, int]
    wait: int


@dataclass(frozen=True)
class Burst:
    """Issues of one instruction at cycles start + i*interval, i < count.

    The field named `step` of issue i is its value plus i*stride, modulo its width. `first_only`
    fields
    (VXM first, MAC fresh of COLS) count for issue 0 alone. `duration` is the cycles of one issue.
    """

    queue: Queue
    mnemonic: str
    fields: dict[str, int]
    start: int
    count: int
    interval: int
    stride: int
    duration: int

    @property
    def end(self) -> int:
        """First cycle after the last issue's duration."""
        return self.start + (self.count - 1) * self.interval + self.duration

    def stepped(self, chip: Chip) -> list[int]:
        """Value of the stepped field (ROWS: acc, otherwise the first field) of every issue."""
        name = "acc" if self.mnemonic == "ROWS" else self.queue.fields[0].name
        top = 1 << dict(self.queue.layout(chip))[name]
        return [(self.fields[name] + i * self.stride) % top for i in range(self.count)]


def decode_word(queue: Queue, chip: Chip, word: int) -> Word:
    """Fields of a word. Raises `ProgramError` for a reserved or unknown encoding."""
    bits = queue.payload_bits(chip)
    kind = Kind(word >> (bits + isa.WAIT_BITS) & 3)
    wait = word >> bits & ((1 << isa.WAIT_BITS) - 1)
    payload = word & ((1 << bits) - 1)
    if kind is Kind.CTRL:
        if payload != Ctrl.SYNC:
            raise ProgramError(
                f"{queue.name}: control code {payload} is reserved; only SYNC is built"
            )
        return Word(kind, "SYNC", {}, wait)
    layout = isa.CONTROL_LAYOUT if kind in (Kind.NOP, Kind.REPEAT) else queue.layout(chip)
    fields = {}
    for name, width in layout:
        fields[name] = payload & ((1 << width) - 1)
        payload >>= width
    if kind is not Kind.OP:
        if fields["stride"] >> (isa.STRIDE_BITS - 1):
            fields["stride"] -= 1 << isa.STRIDE_BITS
        return Word(kind, kind.name, fields, wait)
    code = fields.pop("op")
    names = [o.mnemonic for o in queue.ops] + list(queue.reserved)
    if code >= len(queue.ops):
        name = names[code] if code < len(names) else f"operation {code}"
        raise ProgramError(f"{queue.name}: {name} is reserved, not built")
    return Word(kind, names[code], fields, wait)


def expand_queue(
    queue: Queue, chip: Chip, words: tuple[int, ...], start: int, column: Callable[[int], int]
) -> tuple[list[Burst], int]:
    """Bursts of one queue from word `start` to SYNC, and the cycle in which it is parked.

    column: value of a tide column for this n.
    """
    bursts: list[Burst] = []
    now = 0
    last_issue = 0
    at = start
    while True:
        if at >= len(words):
            raise ProgramError(f"{queue.name}: the program runs past its last word without SYNC")
        w = decode_word(queue, chip, words[at])
        at += 1
        if w.kind is Kind.CTRL:
            return bursts, now + 1
        if w.kind is Kind.NOP:
            count = column(w.fields["count"]) if w.fields["tide"] else w.fields["count"]
            if count < 1:
                raise ProgramError(f"{queue.name}: NOP of {count} cycles; at least 1")
            now += count
        elif w.kind is Kind.OP:
            duration = w.fields["ni"] if "ni" in w.fields else 1
            bursts.append(Burst(queue, w.mnemonic, w.fields, now, 1, 1, 0, duration))
            last_issue = now
            now += duration
        else:
            now, last_issue = _repeat(queue, chip, bursts, w, column, now, last_issue)
        if w.kind is not Kind.NOP:
            now += w.wait


def _repeat(
    queue: Queue,
    chip: Chip,
    bursts: list[Burst],
    w: Word,
    column: Callable[[int], int],
    now: int,
    last_issue: int,
) -> tuple[int, int]:
    if not bursts or now != last_issue + bursts[-1].duration:
        raise ProgramError(
            f"{queue.name}: REPEAT must directly follow an OP or REPEAT without a wait"
        )
    b = bursts[-1]
    count = column(w.fields["count"]) if w.fields["tide"] else w.fields["count"]
    interval = w.fields["interval"] or b.duration
    if interval < b.duration:
        raise ProgramError(f"{queue.name}: REPEAT every {interval} cycles of an OP of {b.duration}")
    if count == 0:
        return now + 1, last_issue
    stride = 1 if b.mnemonic in ("ROWS", "COLS") else w.fields["stride"]
    if b.count == 1 or (b.interval == interval and b.stride == stride):
        bursts[-1] = Burst(
            queue, b.mnemonic, b.fields, b.start, b.count + count, interval, stride, b.duration
        )
    else:
        fields = dict(b.fields)
        name = "acc" if b.mnemonic == "ROWS" else queue.fields[0].name
        fields[name] = (b.stepped(chip)[-1] + stride) % (1 << dict(queue.layout(chip))[name])
        if "first" in fields:
            fields["first"] = 0
        if b.mnemonic == "COLS":
            fields["fresh"] = 0
        bursts.append(
            Burst(
                queue,
                b.mnemonic,
                fields,
                last_issue + interval,
                count,
                interval,
                stride,
                b.duration,
            )
        )
    last_issue += count * interval
    return last_issue + b.duration, last_issue


def expand_segment(program: Program, seg: Seg, n: int) -> tuple[dict[str, list[Burst]], int]:
    """Bursts of every queue of a segment, and its length. Checks that every queue parks in time."""
    chip = program.chip
    length = {
        Seg.EMBED: program.config[isa.Config.EMBED_LENGTH],
        Seg.HEAD: program.config[isa.Config.HEAD_LENGTH],
    }.get(seg)
    if length is None:
        length = program.layer_length(n)
    out: dict[str, list[Burst]] = {}
    for i, queue in enumerate(QUEUES):
        columns = {c: v for d, c, v in program.tide[n - 1] if d == i}

        def column(c: int, columns: dict[int, int] = columns, queue: Queue = queue) -> int:
            if c not in columns or seg is Seg.EMBED:
                raise ProgramError(f"{queue.name}: tide column {c} is not defined in {seg.name}")
            return columns[c]

        out[queue.name], parked = expand_queue(
            queue, chip, program.queues[i], program.starts[i][seg], column
        )
        if parked + isa.PARK_CYCLES > length:
            raise ProgramError(
                f"{queue.name}: parked in cycle {parked} of {seg.name}, the segment has {length}"
            )
    return out, length
