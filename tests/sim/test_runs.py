"""Power-up, runs and aborts: nothing that a run or the power-up leaves behind changes a run.

All on Verilog without initial values, which Verilator fills with random bits: whatever a program
does not define itself would show.
"""

from __future__ import annotations

import pytest

from tidemill.isa import Config
from tidemill_hdl.verilog import generate
from tidemill_sim.engine import Machine
from tidemill_sim.rtl import RtlEngine, RunRequest

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.xdist_group("runs")]

#: prompt, tokens, temperature, seed
RUNS = (([1, 5, 9], 6, 0.0, 0), ([7], 4, 1.5, 0xDEADBEEF), ([3, 2, 32, 11, 4], 8, 0.0, 1))


@pytest.fixture(scope="module")
def engine(verilator, small_program, without_initial_values):
    return RtlEngine(
        small_program.chip, verilog=without_initial_values(generate(small_program.chip))
    )


@pytest.fixture(scope="module")
def request_of(small_program):
    """The host's side of a run of `RUNS`."""
    return lambda run, **more: RunRequest(small_program.run_writes(*run), **more)


@pytest.mark.parametrize("x_seed", [1, 2, 3])
def test_random_power_up(engine, request_of, small_program, differences, x_seed):
    [result] = engine.run(
        small_program.boot_writes(), [request_of(RUNS[0])], dump=True, x_seed=x_seed
    )
    machine = Machine(small_program, check=True)
    assert differences(machine, machine.run(*RUNS[0]), result) == []


class Untouched(RtlEngine):
    """Does not fill the memories by itself: only Verilator does."""

    def _write_script(self, *args, x_seed, **more):
        super()._write_script(*args, x_seed=None, **more)


def test_power_up_is_random(engine, request_of, small_program):
    """Rows that nobody wrote differ from seed to seed, or the other tests would mean little."""
    untouched = Untouched(small_program.chip, verilog=engine.verilog)
    boot, dumps = list(small_program.boot_writes()), []
    for x_seed in (1, 2):
        [result] = untouched.run(boot, [request_of(([1], 1))], dump=True, x_seed=x_seed)
        dumps.append((result.mem_w[-1], result.mem_a[-1]))
    for one, two in zip(*dumps, strict=True):
        assert (one != two).mean() > 0.8


def test_runs_without_reset_equal_fresh_ones(engine, request_of, small_program, differences):
    boot = list(small_program.boot_writes())
    together = engine.run(boot, [request_of(r) for r in RUNS], dump=True, x_seed=4)
    machine = Machine(small_program, check=True)
    for run, result in zip(RUNS, together, strict=True):
        assert differences(machine, machine.run(*run), result) == []
    for k, (run, result) in enumerate(zip(RUNS, together, strict=True)):
        [fresh] = engine.run(boot, [request_of(run)], dump=True, x_seed=5 + k)
        assert fresh.tokens == result.tokens
        assert fresh.fifo == result.fifo
        machine = Machine(small_program, check=True)
        assert differences(machine, machine.run(*run), fresh) == []


def test_run_after_an_abort_equals_a_fresh_one(engine, request_of, small_program, differences):
    """Aborts in EMBED, in both layers, in HEAD, around the end of a position; a run after each."""
    end = Machine(small_program).run(*RUNS[1])[0].cycles
    head = end - small_program.config[Config.HEAD_LENGTH]
    cycles = [1, 2, 30, 131, 500, 777, 1100, head - 1, head, head + 1, end - 60, end - 12]
    cycles += [end - 6, end - 5, end - 1, end, end + 1, end + 3, 2 * end + 40]
    machine = Machine(small_program, check=True)
    events = machine.run(*RUNS[0])
    requests = []
    for at in cycles:
        requests += [request_of(RUNS[1], abort_at=at), request_of(RUNS[0])]
    results = engine.run(small_program.boot_writes(), requests, dump=True, x_seed=9)
    for at, aborted, result in zip(cycles, results[::2], results[1::2], strict=True):
        assert aborted.fifo is None
        assert aborted.fault is None, f"abort in cycle {at}"
        assert differences(machine, events, result) == [], f"after an abort in cycle {at}"
