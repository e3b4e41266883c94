"""The report's figures against the program they come from."""

from __future__ import annotations

import pytest

from tidemill.chip import CHIPS
from tidemill.compiler.analysis import roofline
from tidemill.compiler.compile import compile_model
from tidemill.compiler.layout import Geometry
from tidemill.compiler.report import report
from tidemill.isa import QUEUES, Config, Seg
from tidemill.model.checkpoint import ModelConfig, random_checkpoint
from tidemill.model.quantise import quantise
from tidemill.program import Program
from tidemill.timeline import expand_segment


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def program(request: pytest.FixtureRequest) -> Program:
    config = ModelConfig(
        dim=18, hidden=41, layers=3, heads=3, kv_heads=1, vocab=33, context=70, tied=request.param
    )
    model = quantise(random_checkpoint(config), calibration_sequences=2, calibration_tokens=16)
    return compile_model(CHIPS["tiny"], model)


def test_roofline_of_our_model() -> None:
    """The figures of the design for td260k on 16 lanes x 8 streams."""
    geo = Geometry(CHIPS["ulx3s-85f"], 64, 176, 4, 2, 16, 512, 192)
    assert [roofline(geo, 5, c) for c in (1, 64)] == [2116, 2376]


def test_cycles_are_the_programs(program: Program) -> None:
    facts = report(program)
    assert list(facts["cycles"]) == list(facts["roofline"]) == ["1", "64"]
    for context, cycles in facts["cycles"].items():
        assert cycles == program.cycles(int(context) - 1, True)
        fraction = facts["roofline"][context] / cycles
        assert facts["roofline_fraction"][context] == pytest.approx(fraction, abs=1e-4)
        assert 0 < fraction < 1


def test_every_cycle_is_accounted_for(program: Program) -> None:
    facts = report(program)
    assert sum(facts["cycles_went_to"].values()) == facts["cycles"]["64"]
    assert all(v >= 0 for v in facts["cycles_went_to"].values())
    waits = sum(w["cycles"] for w in facts["layer_waits"])
    layers = program.config[Config.LAYERS]
    assert waits * layers == facts["cycles_went_to"]["MXM waits in LAYER"]
    assert any(w["waits_for"] == "residual Wo" for w in facts["layer_waits"])
    assert all(w["op"] and w["waits_for"] for w in facts["layer_waits"])


def test_use_is_busy_cycles_over_length(program: Program) -> None:
    facts = report(program)
    bursts, length = expand_segment(program, Seg.LAYER, program.rows(63))
    assert facts["layer_length"] == length
    assert list(facts["layer_use"]) == [q.name for q in QUEUES]
    for queue, use in facts["layer_use"].items():
        busy = {
            b.start + i * b.interval + d
            for b in bursts[queue]
            for i in range(b.count)
            for d in range(b.duration)
        }
        assert use == pytest.approx(len(busy) / length, abs=1e-4)


def test_memory_adds_up(program: Program) -> None:
    facts = report(program)
    chip = program.chip
    assert [*facts["memory"]] == [*(f"MEM_W.{b}" for b in range(chip.weight_streams)), "MEM_A"]
    for name, image in (("MEM_W.0", "MEM_W"), ("MEM_A", "MEM_A")):
        last = program.info["memory_map"][image][-1]
        end = max(at + size for _, at, size in program.info["memory_map"][image])
        assert facts["memory"][name]["needed"] == end, last
        sizes = list(facts["memory"][name]["tensors"].values())
        assert sizes == sorted(sizes, reverse=True)
        assert min(sizes) > 0
    assert facts["memory"]["MEM_W.0"]["available"] == chip.mem_w_depth
    assert facts["memory"]["MEM_A"]["available"] == chip.mem_a_depth


def test_size(program: Program) -> None:
    facts = report(program)
    words = [len(w) for w in program.queues]
    assert list(facts["program_words"].values()) == words
    assert facts["program_bytes"] == (sum(words) * 36 + 7) // 8
    assert facts["tide_words"] == len(program.tide) * program.config[Config.TIDE_ROW]
    assert facts["chip_account"]["block_rams"]["total"] == sum(program.chip.block_rams().values())
