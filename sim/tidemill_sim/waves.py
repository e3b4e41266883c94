"""Waves for a reader: time in cycles of the run, names of the hardware files, instructions as text.

Verilator's dump goes in; a VCD or FST file and a save file for GTKWave beside it come out. One
nanosecond of the file is one cycle, so there is neither clock nor reset. Signals without a name are
left out, and so are the elements of arrays that are there as a whole.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vcd.gtkw import GTKWSave
from vcd.writer import Variable, VCDWriter

from tidemill import isa
from tidemill.chip import Chip

__all__ = ["Wave", "write"]

#: Scope of the chip in the file.
TOP = "tidemill"

#: Picoseconds of Verilator's dump, whose first moment is the middle of the window's first cycle.
_CYCLE, _HALF = 10_000, 5_000

_SLICES = ("mem_w", "mxm", "vxm", "sxm", "mem_a")
_HIDDEN = ("clk", "rst")


@dataclass(frozen=True)
class Wave:
    """Waves of cycles `first` to `last` of the first run.

    path: `.vcd`, or `.fst` where there is GTKWave's vcd2fst. Raises `ValueError` with one sentence
    for what cannot be.
    """

    path: Path
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise ValueError(f"there are no cycles from {self.first} to {self.last}")
        if self.path.suffix not in (".vcd", ".fst"):
            raise ValueError(f"waves are written as .vcd or .fst, not as {self.path.name!r}")
        if self.path.suffix == ".fst" and shutil.which("vcd2fst") is None:
            raise ValueError(
                f"writing {self.path.name!r} needs vcd2fst of GTKWave on PATH "
                "(Debian: apt install gtkwave); .vcd needs nothing"
            )
        if not self.path.resolve().parent.is_dir():
            raise ValueError(f"cannot write {str(self.path)!r}: its folder does not exist")

    @property
    def save_file(self) -> Path:
        """For GTKWave: opens the waves on instructions, streams and slices."""
        return self.path.with_suffix(".gtkw")


@dataclass
class _Signals:
    """What the header declares.

    names: (scope, name) -> code and width, in order of declaration.
    """

    names: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def inside(self, scope: str) -> list[str]:
        """Whole signals of a scope (not their fields) in alphabetical order."""
        return sorted(n for s, n in self.names if s == scope and not set(n) & set(".["))

    def scopes(self, pattern: str) -> list[str]:
        """Scopes right below the top whose name matches."""
        found = {s.removeprefix(f"{TOP}.") for s, _ in self.names}
        return sorted(s for s in found if re.fullmatch(pattern, s))


@dataclass
class _Text:
    """A signal of words made from signals of bits, by `words(values)`."""

    scope: str
    name: str
    sources: dict[str, str]  # name -> code
    words: Callable[[dict[str, int]], str]


def write(raw: Path, wave: Wave, chip: Chip) -> None:
    """Make the wave file and its save file from Verilator's dump."""
    target = wave.path if wave.path.suffix == ".vcd" else raw.with_name("named.vcd")
    with raw.open() as f, target.open("w") as out:
        signals = _header(f)
        texts = list(_texts(signals, chip))
        _copy(f, VCDWriter(out, "1 ns", "", init_timestamp=wave.first, check_values=False),
              wave, signals, texts)  # fmt: skip
    if target != wave.path:
        subprocess.run(["vcd2fst", target, wave.path], check=True, capture_output=True)
    with wave.save_file.open("w") as out:
        _save_file(GTKWSave(out), wave, signals, texts)


def _header(lines: Iterator[str]) -> _Signals:
    """Named signals of the chip. Verilator writes one declaration a line."""
    out, scopes = _Signals(), list[str]()
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "$scope":
            scopes.append(words[2].replace("$", "_"))
        elif words[0] == "$upscope":
            scopes.pop()
        elif words[0] == "$var" and scopes[:2] == ["bench", "dut"]:
            width, code, name = int(words[2]), words[3], words[4]
            if name[0] != "$" and name not in _HIDDEN and not scopes[-1].startswith("init_"):
                scope = ".".join([TOP, *scopes[2:]])
                out.names[scope, name.replace("$", "_")] = code, width
        elif words[0] == "$enddefinitions":
            names = {
                (scope, name): found
                for (scope, name), found in out.names.items()
                if (scope, name.partition("[")[0]) not in out.names or "[" not in name
            }
            return _Signals(names)
    raise ValueError("the dump has no end of its header")


def _texts(signals: _Signals, chip: Chip) -> Iterator[_Text]:
    """What each queue issues, and the segment that the sequencer begins."""
    codes = {name: code for name, (code, _) in signals.names.items()}
    for queue in isa.QUEUES:
        scope = f"{TOP}.queue_{queue.name.lower().replace('.', '_')}"
        ports = ["valid", *(name for name, width in queue.layout(chip) if width)]
        sources = {port: codes[scope, f"issue__{port}"] for port in ports}

        def issued(values: dict[str, int], queue: isa.Queue = queue) -> str:
            if not values["valid"]:
                return "-"
            op = next(o for o in queue.ops if o.code == values.get("op", 0))
            fields = [f.name for f in queue.fields if f.name in values and f.name != "base"]
            return f"{op.mnemonic}({','.join(f'{n}={values[n]}' for n in fields)})"

        yield _Text(scope, "instruction", sources, issued)
    scope = f"{TOP}.sequencer"
    sources = {port: codes[scope, port] for port in ("segment", "notify")}
    yield _Text(
        scope, "notified", sources, lambda v: isa.Seg(v["segment"]).name if v["notify"] else "-"
    )


def _copy(
    lines: Iterator[str], writer: VCDWriter, wave: Wave, signals: _Signals, texts: list[_Text]
) -> None:
    """All values of the window; a text follows its sources in the same cycle."""
    variables: dict[str, Variable] = {}
    for (scope, name), (code, width) in signals.names.items():
        if code in variables:
            writer.register_alias(scope, name, variables[code])
        else:
            variables[code] = writer.register_var(scope, name, "wire", width, "x")
    written = [writer.register_var(t.scope, t.name, "string", init="-") for t in texts]
    watched = {code: "0" for text in texts for code in text.sources.values()}
    begin: int | None = None
    cycle, stale = wave.first, False

    def settle() -> None:
        for text, variable in zip(texts, written, strict=True):
            values = {name: int(watched[code], 2) for name, code in text.sources.items()}
            writer.change(variable, cycle, text.words(values))

    for line in lines:
        if line[0] == "#":
            if stale:
                settle()
                stale = False
            begin = int(line[1:]) if begin is None else begin
            cycle = wave.first + (int(line[1:]) - begin + _HALF) // _CYCLE
            if cycle > wave.last:
                break
        elif line[0] in "01b":
            value, code = line[1:].split() if line[0] == "b" else (line[0], line[1:].rstrip("\n"))
            if code in variables:
                writer.change(variables[code], cycle, value)
            if code in watched:
                watched[code] = value
                stale = True
    if stale:
        settle()
    writer.close(min(cycle, wave.last) + 1)


def _save_file(save: GTKWSave, wave: Wave, signals: _Signals, texts: list[_Text]) -> None:
    def show(scope: str, name: str, alias: str | None = None) -> None:
        width = signals.names[scope, name][1]
        save.trace(f"{scope}.{name}" + (f"[{width - 1}:0]" if width > 1 else ""), alias)

    save.dumpfile(str(wave.path))
    save.savefile(str(wave.save_file))
    save.timestart(wave.first)
    save.treeopen(TOP)
    with save.group("run"):
        for name in ("cycle", "run__pos", "busy"):
            show(f"{TOP}.sequencer", name)
    with save.group("instructions"):
        for text in texts:
            name = text.scope.rpartition(".")[2]
            save.trace(f"{text.scope}.{text.name}", name.removeprefix("queue_"))
    with save.group("streams"):
        for stream in signals.scopes(r"\w+_to_\w+"):
            show(f"{TOP}.{stream}", "o", stream)
    for group in (*_SLICES, *signals.scopes(r"queue_\w+"), "sequencer"):
        with save.group(group, closed=True):
            for name in signals.inside(f"{TOP}.{group}"):
                show(f"{TOP}.{group}", name)
