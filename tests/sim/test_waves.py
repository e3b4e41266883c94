"""Waves of a window: read back with pyvcd's reader, against the program's timeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from vcd.reader import TokenKind, tokenize

from tidemill.isa import Config, Seg
from tidemill.program import Program
from tidemill.timeline import Burst, expand_segment
from tidemill_sim.rtl import RtlEngine, RunRequest, SimulatorError, Wave

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.xdist_group("waves")]

#: Begins in EMBED, ends in the second layer.
FIRST, LAST = 20, 1000


@pytest.fixture(scope="module")
def engine(verilator, small_program):
    return RtlEngine(small_program.chip)


def record(engine: RtlEngine, program: Program, wave: Wave) -> int:
    """Write waves of a run of one position; its cycles."""
    request = RunRequest(program.run_writes([1], 1))
    [result] = engine.run(program.boot_writes(), [request], wave=wave)
    return result.tokens[0].measured


@pytest.fixture(scope="module")
def wave(engine, small_program, tmp_path_factory) -> Wave:
    wave = Wave(tmp_path_factory.mktemp("waves") / "out.vcd", FIRST, LAST)
    record(engine, small_program, wave)
    return wave


def read(path: Path) -> tuple[dict[str, list[tuple[int, str]]], int]:
    """Changes (time, value) of every signal by full name, and the last time in the file."""
    scopes, codes, time = [], {}, 0
    changes: dict[str, list[tuple[int, str]]] = {}
    with path.open("rb") as f:
        for token in tokenize(f):
            if token.kind is TokenKind.SCOPE:
                scopes.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scopes.pop()
            elif token.kind is TokenKind.VAR:
                name = ".".join([*scopes, token.var.ref_str])
                changes[name] = codes.setdefault(token.var.id_code, [])
            elif token.kind is TokenKind.CHANGE_TIME:
                time = token.data
            elif token.kind.name.startswith("CHANGE_"):
                codes[token.data.id_code].append((time, str(token.data.value)))
    return changes, time


def held(changes: list[tuple[int, str]]) -> dict[int, str]:
    """Value in every cycle of the window."""
    at = dict(changes)
    out, value = {}, ""
    for cycle in range(FIRST, LAST + 1):
        out[cycle] = value = at.get(cycle, value)
    return out


def bursts(program: Program, queue: str) -> Iterator[tuple[int, Burst]]:
    """(cycle in which its segment begins, burst) of position 0, from the program's words."""
    begin = 0
    for seg in (Seg.EMBED, *[Seg.LAYER] * program.config[Config.LAYERS], Seg.HEAD):
        of_queue, length = expand_segment(program, seg, 1)
        yield from ((begin, burst) for burst in of_queue[queue])
        begin += length
    assert begin == program.cycles(0, True)


def test_times_lie_in_the_window(wave):
    changes, end = read(wave.path)
    times = {time for values in changes.values() for time, _ in values}
    assert min(times) == FIRST
    assert max(times) == LAST
    assert end == LAST + 1
    cycle = held(changes["tidemill.sequencer.cycle"])
    assert {c: int(v) for c, v in cycle.items()} == {c: c for c in cycle}


def test_macs_are_at_the_cycles_of_the_timeline(wave, small_program):
    """What MXM.C issues, by name and fields, and the cycles in which the matrix unit works."""
    changes, _ = read(wave.path)
    issued, busy = {}, set()
    for begin, burst in bursts(small_program, "MXM.C"):
        steps = burst.stepped(small_program.chip)
        for i, stepped in enumerate(steps):
            at = begin + burst.start + i * burst.interval
            issued[at] = burst.mnemonic, "acc" if burst.mnemonic == "ROWS" else "abc", stepped
            busy |= set(range(at, at + burst.duration))
    window = range(FIRST, LAST + 1)
    issued = {at: what for at, what in issued.items() if at in window}
    assert {mnemonic for mnemonic, _, _ in issued.values()} == {"ROWS", "COLS"}
    seen = {}
    for cycle, text in held(changes["tidemill.queue_mxm_c.instruction"]).items():
        if text != "-":
            mnemonic, fields = re.fullmatch(r"(\w+)\((.*)\)", text).groups()
            name = "acc" if mnemonic == "ROWS" else "abc"
            value = dict(f.split("=") for f in fields.split(","))[name]
            seen[cycle] = mnemonic, name, int(value)
    assert seen == issued
    working = held(changes["tidemill.mxm.s0_control.valid"])
    assert {c for c, v in working.items() if v == "1"} == busy & set(window)


@pytest.mark.parametrize("queue", ["MEMW.R", "VXM", "SXM", "MEMA.R", "MEMA.W"])
def test_instructions_are_at_the_cycles_of_the_timeline(wave, small_program, queue):
    changes, _ = read(wave.path)
    want = {
        begin + burst.start + i * burst.interval: burst.mnemonic
        for begin, burst in bursts(small_program, queue)
        for i in range(burst.count)
    }
    scope = queue.lower().replace(".", "_")
    seen = held(changes[f"tidemill.queue_{scope}.instruction"])
    assert {c: v.partition("(")[0] for c, v in seen.items() if v != "-"} == {
        c: mnemonic for c, mnemonic in want.items() if FIRST <= c <= LAST
    }


def test_the_save_file_names_what_is_there(wave):
    changes, _ = read(wave.path)
    text = wave.save_file.read_text()
    assert f'[dumpfile] "{wave.path}"' in text
    shown = re.findall(r"^(?:\+\{\w+\} )?(tidemill\.[^\[\n]+)(?:\[\d+:0\])?$", text, re.M)
    assert len(shown) == len(re.findall(r"^(?:\+|tidemill)", text, re.M))
    assert set(shown) <= set(changes)
    groups = re.findall(r"^-(\w+)$", text, re.M)
    assert {"instructions", "streams", "mem_w", "mxm", "vxm", "sxm", "mem_a"} <= set(groups)
    assert "tidemill.e_acc_to_vxm.o" in shown


def test_names_are_those_of_the_hardware_files(wave):
    changes, _ = read(wave.path)
    assert "tidemill.queue_vxm.issue__tmpl" in changes
    assert not [n for n in changes if "$" in n or n.endswith((".clk", ".rst"))]


def test_fst_is_made_by_vcd2fst(engine, small_program, tmp_path, monkeypatch):
    """A stand-in that copies: what it gets is the whole VCD, what it makes is the result."""
    tool = tmp_path / "bin" / "vcd2fst"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\ncp "$1" "$2"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    made = Wave(tmp_path / "out.fst", 5, 9)
    record(engine, small_program, made)
    changes, end = read(made.path)
    assert end == 10
    assert changes["tidemill.sequencer.cycle"][0] == (5, "5")
    assert not (tmp_path / "out.vcd").exists()
    assert f'[dumpfile] "{made.path}"' in made.save_file.read_text()


def test_a_window_may_outlast_the_run_but_not_begin_after_it(engine, small_program, tmp_path):
    cycles = record(engine, small_program, Wave(tmp_path / "a.vcd", 0, 10))
    record(engine, small_program, Wave(tmp_path / "a.vcd", cycles - 5, 1 << 40))
    changes, end = read(tmp_path / "a.vcd")
    assert cycles < end < cycles + 100_000
    assert changes["tidemill.sequencer.cycle"][0][0] == cycles - 5
    with pytest.raises(SimulatorError, match="the run ended before cycle 9999999 of the waves"):
        record(engine, small_program, Wave(tmp_path / "b.vcd", 9_999_999, 10_000_000))
