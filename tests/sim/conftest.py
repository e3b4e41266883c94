"""A small chip with a small odd model, and what it means that RTL and simulator agree."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from support.chips import small_chip
from support.compare import compare
from tidemill.compiler.compile import compile_model
from tidemill.model.checkpoint import ModelConfig, random_checkpoint
from tidemill.model.quantise import quantise
from tidemill.program import Program
from tidemill_sim.engine import Machine, TokenEvent
from tidemill_sim.rtl import RunResult


@pytest.fixture(scope="session")
def small_program() -> Program:
    """Heads of 6 in vectors of 4, 41 hidden units, 33 tokens: nothing fits the lanes."""
    config = ModelConfig(dim=18, hidden=41, layers=2, heads=3, kv_heads=1, vocab=33, context=24)
    return compile_model(
        small_chip(), quantise(random_checkpoint(config, seed=3), calibration_sequences=4)
    )


@pytest.fixture(scope="session")
def differences() -> Callable[[Machine, list[TokenEvent], RunResult], list[str]]:
    """`compare`."""
    return compare


_REGISTER = re.compile(r"^(  reg (?:\[\d+:0\] )?[^;=\n]+?) = \d+'[hdb][0-9a-fx]+;$", re.M)
_INITIAL = re.compile(r"^  initial begin\b.*?^  end\n", re.M | re.S)


@pytest.fixture(scope="session")
def without_initial_values() -> Callable[[str], str]:
    """Verilog text whose registers and memories start undefined, as those of a chip may."""

    def strip(text: str) -> str:
        text, registers = _REGISTER.subn(r"\1;", text)
        text, memories = _INITIAL.subn("", text)
        assert registers > 100
        assert memories > 20
        # what is left are signals of yosys that start combinational processes at time 0
        left = re.findall(r"^\s*reg\b[^;\n]*=.*", text, re.M)
        assert all("dump_module" in line for line in left)
        assert "initial begin" not in text
        return text

    return strip
