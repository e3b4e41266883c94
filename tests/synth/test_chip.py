"""The whole `ulx3s-85f` through yosys: it takes what `Chip` says and no more.

    python -m pytest -m synth -s tests/synth/test_chip.py

prints the cells. One synthesis of about five minutes serves all tests here.
"""

import re

import pytest

from tidemill.chip import CHIPS
from tidemill_hdl.verilog import generate

CHIP = CHIPS["ulx3s-85f"]

pytestmark = [pytest.mark.synth, pytest.mark.xdist_group("synth")]


@pytest.fixture(scope="module")
def result(synthesise, tmp_path_factory):
    """Cell counts by type, and yosys' log."""
    folder = tmp_path_factory.mktemp("chip")
    counts, log = synthesise(generate(CHIP, primitives=True), "tidemill", folder)
    print(f"\n{CHIP.name}:", counts)
    return counts, log


def test_block_rams(result):
    assert result[0]["DP16KD"] == sum(CHIP.block_rams().values()) == 198


def test_multipliers(result):
    assert result[0]["MULT18X18D"] == sum(CHIP.multipliers().values()) == 146


def test_luts(result):
    assert result[0]["LUT4"] <= 30_000


def test_memories_stay_memories(result):
    """Every memory finds a RAM, and no port needs flip-flops to imitate what the RAM lacks."""
    _, log = result
    memories = set(re.findall(r"^mapping memory (\S+) via \$__", log, re.M))
    assert {"tidemill.mem_w.bank_0.chunk_0", "tidemill.mem_a.sram.chunk_0"} <= memories
    assert "using FF mapping" not in log
    assert "emulate_" not in log


def test_flip_flops(result):
    """The smallest memory of a bank is 512 x 128 bits: in flip-flops it would show at once."""
    assert result[0]["TRELLIS_FF"] <= 30_000
