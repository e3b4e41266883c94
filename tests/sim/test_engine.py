"""The numpy engine against the integer model.

Tokens of odd models on many chips, poison, overflow.
"""

import dataclasses

import numpy as np
import pytest

from support.chips import SIZES, roomy_chip
from support.models import odd_model
from tidemill.compiler.compile import compile_model
from tidemill.isa import Config
from tidemill.model.integer import IntegerModel
from tidemill.trace import Hazard
from tidemill_sim.engine import Machine

MODELS = ("3x6", "9x6", "2x10")


@pytest.fixture(scope="module")
def models():
    return {name: odd_model(name) for name in MODELS}


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", MODELS)
def test_tokens_equal_the_integer_model(models, size, name):
    qm = models[name]
    program = compile_model(roomy_chip(*size), qm)
    warm = min(0.9, qm.max_temperature)
    count = 18
    machine = Machine(program, check=True)
    for temperature, seed in ((0.0, 0), (warm, 7)):
        want = IntegerModel(qm).generate(
            [1, 5, 9], count, temperature=temperature, seed=seed, lanes=size[0]
        )
        events = machine.run([1, 5, 9], count, temperature, seed)
        assert [e.token for e in events if e.generated] == want
        assert [e.cycles for e in events] == [program.cycles(p, p >= 2) for p in range(len(events))]


def test_context_end_and_token_count_stop_a_run(models):
    program = compile_model(roomy_chip(4, 2), models["2x10"])
    machine = Machine(program)
    assert len(machine.run([1], 1000)) == program.context
    assert len(machine.run([1, 2, 3], 4)) == 6


def test_eos_stops_a_run(models):
    program = compile_model(roomy_chip(4, 2), models["2x10"])
    first = Machine(program).run([1], 12)
    stop = first[4].token
    at = [e.token for e in first].index(stop)
    program = dataclasses.replace(program, config=program.config | {int(Config.EOS): stop})
    assert len(Machine(program).run([1], 12)) == at + 1


def test_runs_leave_no_trace(models):
    """A, B, A on one machine without reset: both As are equal."""
    machine = Machine(compile_model(roomy_chip(8, 8), models["3x6"]), check=True)
    first = machine.run([1, 4], 12)
    machine.run([1, 9, 200], 20, 0.5, 3)
    assert machine.run([1, 4], 12) == first


def test_poison_is_found(models):
    program = compile_model(roomy_chip(4, 2), models["3x6"])
    used = program.mem_a_used.copy()
    used[0] = False  # the first multipliers of layer 0
    machine = Machine(dataclasses.replace(program, mem_a_used=used), check=True)
    with pytest.raises(Hazard, match="was never written"):
        machine.run([1], 3)


def test_overflow_is_found(models):
    program = compile_model(roomy_chip(16, 8), models["3x6"])
    machine = Machine(program, check=True)
    machine.mem_w = np.full_like(machine.mem_w, 1 << 18)
    with pytest.raises(Hazard, match="does not fit int32"):
        machine.run([1], 3)
