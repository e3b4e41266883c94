"""Whole models in the RTL: tokens, cycles and every defined byte of SRAM equal the numpy engine's.

The engine in turn equals the integer model (test_engine.py), and its cycles are the compiler's.
"""

from __future__ import annotations

import dataclasses

import pytest

from tidemill.chip import CHIPS
from tidemill.compiler.compile import compile_model
from tidemill.model.checkpoint import ModelConfig, load_checkpoint, random_checkpoint
from tidemill.model.quantise import quantise
from tidemill.store import find_model, program_for
from tidemill_sim.engine import Machine
from tidemill_sim.rtl import RtlEngine, RunRequest

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

ODD = ModelConfig(dim=18, hidden=41, layers=2, heads=3, kv_heads=1, vocab=257, context=40)


def equal(program, runs, differences, prompts=None):
    """Runs on one power-up without reset, in the RTL and in the engine; memories stay dirty."""
    machine = Machine(program)
    results = RtlEngine(program.chip).run(
        program.boot_writes(), [RunRequest(program.run_writes(*r)) for r in runs], dump=True
    )
    for run, result in zip(runs, results, strict=True):
        events = machine.run(*run)
        assert [e.cycles for e in events] == [
            program.cycles(p, p + 1 >= len(run[0])) for p in range(len(events))
        ]
        assert differences(machine, events, result) == [], run


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (8, 2), (8, 8)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_size_matrix(verilator, differences, size):
    lanes, streams = size
    chip = dataclasses.replace(
        CHIPS["tiny"], name=f"{lanes}x{streams}", lanes=lanes, weight_streams=streams, context=20,
        mem_w_depth=12000 if lanes == 1 else 2048, mem_a_depth=4096 if lanes == 1 else 512,
        act_depth=128, acc_depth=64 if lanes == 1 else 32, queue_depth=4096, tide_depth=2048,
    )  # fmt: skip
    qm = quantise(random_checkpoint(ODD, seed=3), calibration_sequences=4)
    program = compile_model(chip, qm)
    equal(program, [([1, 5, 9], 8, 0.0, 0), ([1], 5, 0.9, 3)], differences)


def test_ice40_form(verilator, differences, shared_models):
    """2 x 2, the files read on the falling edge, no hops: the model of a small board."""
    chip = dataclasses.replace(
        CHIPS["tiny"], name="ice40", lanes=2, weight_streams=2, context=128, family="ice40",
        mem_w_depth=32768, act_depth=256, acc_depth=64, queue_depth=2048, hops=(0, 0, 0, 0),
    )  # fmt: skip
    program = compile_model(chip, quantise(load_checkpoint(shared_models / "td100k.bin")))
    equal(program, [([1, 403, 407], 6, 0.0, 0), ([1], 4, 0.8, 2)], differences)


@pytest.mark.xdist_group("ulx3s")
def test_td260k_fills_the_context(verilator, differences):
    """A story over all 192 positions, two seeds at 0.8, then the first again: one power-up."""
    model = find_model("td260k")
    program = program_for(model, CHIPS["ulx3s-85f"])
    assert program.context >= 192
    program = dataclasses.replace(program, config=program.config | {12: 0xFFFF})  # no EOS
    start = model.tokenizer.encode("Once upon a time")
    runs = [
        (start, 192, 0.0, 0),
        (start, 192, 0.8, 1),
        ([1], 192, 0.8, 2),
        (start, 20, 0.0, 0),
    ]
    equal(program, runs, differences)


@pytest.mark.xdist_group("ulx3s")
def test_abort_in_mid_token(verilator, differences):
    """A run after an abort equals the same run on a fresh chip."""
    program = program_for(find_model("td260k"), CHIPS["ulx3s-85f"])
    run = ([1, 403, 407], 12, 0.0, 0)
    requests = [
        RunRequest(program.run_writes([1, 9, 30], 20, 0.8, 5), abort_at=7 * 2900 + 1234),
        RunRequest(program.run_writes(*run)),
    ]
    cut, after = RtlEngine(program.chip).run(program.boot_writes(), requests, dump=True)
    assert cut.fifo is None
    assert len(cut.tokens) < 20
    machine = Machine(program)
    assert differences(machine, machine.run(*run), after) == []


@pytest.mark.xdist_group("ulx3s")
def test_stories260k(verilator, differences, shared_models):
    """hidden 172 and heads of 8: two heads share a vector."""
    qm = quantise(load_checkpoint(shared_models / "stories260K.bin"))
    program = compile_model(CHIPS["ulx3s-85f"], qm)
    equal(program, [([1], 40, 0.0, 0), ([1, 403], 20, 0.8, 1)], differences)


@pytest.mark.xdist_group("tiny")
@pytest.mark.parametrize("model", ["td260k", "td100k"])
def test_named_models_on_tiny(verilator, differences, model):
    program = program_for(find_model(model), CHIPS["tiny"])
    equal(program, [([1, 403, 407], 6, 0.8, 4)], differences)
