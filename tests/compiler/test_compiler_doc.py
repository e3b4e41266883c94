"""The example of docs/compiler.md is what the compiler makes of td260k."""

from __future__ import annotations

import re

import pytest

from tidemill import store
from tidemill.chip import CHIPS
from tidemill.compiler.disassembler import disassemble
from tidemill.isa import Seg
from tidemill.program import Program
from tidemill.timeline import expand_segment


@pytest.fixture(scope="module")
def program() -> Program:
    return store.program_for(store.find_model("td260k"), CHIPS["ulx3s-85f"])


@pytest.fixture(scope="module")
def page(repo) -> str:
    return (repo / "docs" / "compiler.md").read_text()


def row(page: str, name: str) -> list[int]:
    """Numbers of a line of the table of cycles: n = 1 to 6, and 12."""
    line = re.search(rf"^\| {name} ((?:\| +\d* *)+)\|$", page, re.M)
    return [int(number) for number in re.findall(r"\d+", line[1])]


@pytest.mark.slow
def test_words(page, program):
    (listing,) = re.findall(r"```tasm\n(.*?)```", page, re.S)
    assert listing in disassemble(program)


@pytest.mark.slow
def test_cycles(page, program):
    shown = [1, 2, 3, 4, 5, 6, 12]
    segments = [expand_segment(program, Seg.LAYER, n) for n in shown]
    assert row(page, "length of LAYER") == [length for _, length in segments]
    starts = {
        "scores 0": ("MXM.C", "abc", 4),
        "softmax max 0": ("VXM", "tmpl", 15),
        "softmax exp 0": ("VXM", "tmpl", 16),
        "P x V 0": ("MXM.C", "abc", 8),
    }
    for name, (queue, field, value) in starts.items():
        first = [
            next(b.start for b in bursts[queue] if b.fields[field] == value)
            for bursts, _ in segments
        ]
        assert row(page, name) == first, name


@pytest.mark.slow
def test_memory_map(page, program):
    assert list(program.info["memory_map"]["MEM_W"][-1]) == ["head", 2280, 256]
    assert "| 2280..2535 | head" in page
    named = {name: (at, at + size - 1) for name, at, size in program.info["memory_map"]["MEM_A"]}
    assert "| 414..471 | final gain" in page
    assert (named["final gain"][0], named["scores"][1]) == (414, 471)
