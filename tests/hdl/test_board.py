"""The board top's Verilog under Verilator, spoken to through its UART."""

from __future__ import annotations

import json

import pytest

from support.chips import small_chip
from support.cocotb_runs import Bench
from tidemill.compiler.compile import compile_model
from tidemill.isa import Config, Space
from tidemill.model.checkpoint import ModelConfig, random_checkpoint
from tidemill.model.quantise import quantise
from tidemill_hdl.verilog import generate_board
from tidemill_sim.engine import Machine

#: 4 x 2 and no larger than the model below needs: most of the time goes into loading.
CHIP = small_chip(
    mem_w_depth=256, mem_a_depth=128, queue_depth=128, tide_depth=256, context=12, vocab=20
)
CLOCK_HZ, BAUD, DIVISOR = 40_000, 10_000, 4
BUILD_ID = 0xFEDC_BA98_7654_3210
#: prompt, tokens, temperature, seed
RUNS = [([1, 5, 9], 3, 0.0, 0), ([7], 8, 0.9, 11), ([2, 3], 30, 0.95, 0xDEADBEEF)]


def words_of(chip):
    """(space, number of host words) of the memories that can be read."""
    w = chip.mem_w_depth * chip.weight_streams * -(-chip.lanes // 8)
    return [(Space.MEM_W, w), (Space.MEM_A, chip.mem_a_depth * -(-chip.lanes // 4))]


@pytest.fixture(scope="module")
def story() -> dict:
    """A small random model, and what the simulator makes of it."""
    config = ModelConfig(dim=6, hidden=5, layers=1, heads=1, kv_heads=1, vocab=20, context=12)
    program = compile_model(
        CHIP, quantise(random_checkpoint(config, seed=3), calibration_sequences=4)
    )
    machine = Machine(program)
    runs = []
    for run in RUNS:
        events = [[e.token, e.cycles, int(e.generated)] for e in machine.run(*run)]
        runs.append((program.run_writes(*run), events))
    stride, embed = (program.config[c] for c in (Config.EMB_STRIDE, Config.EMBED_LENGTH))
    extra = 5000
    return {
        "hash": CHIP.hash,
        "clock_hz": CLOCK_HZ,
        "build_id": BUILD_ID,
        "divisor": DIVISOR,
        "sizes": words_of(CHIP),
        "boot": list(program.boot_writes()),
        "runs": runs,
        # rows of the embedding far beyond MEM_W
        "fault": [(Space.CONFIG, Config.EMB_STRIDE, CHIP.mem_w_depth)],
        "mend": [(Space.CONFIG, Config.EMB_STRIDE, stride)],
        "slow": (
            [(Space.CONFIG, Config.EMBED_LENGTH, embed + extra)],
            extra,
            [(Space.CONFIG, Config.EMBED_LENGTH, embed)],
        ),
    }


@pytest.mark.rtl
def test_board_through_its_uart(verilator, story, passed, tmp_path):
    (tmp_path / "story").write_text(json.dumps(story))
    text = generate_board(CHIP, CLOCK_HZ, BAUD, BUILD_ID)
    ports = ["clk", "uart_rx", "uart_tx", "led"]
    bench = Bench(text, "tidemill_top", ports, tmp_path, verilator)
    passed(bench.run("support.board_bench", "", {"STORY": str(tmp_path / "story")}), tests=8)
