"""The trials in the numpy engine: legal programs, whose results cover what they say."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from support.chips import bare_chip, small_chip
from tidemill import numerics
from tidemill.chip import CHIPS
from tidemill.isa import Func, Space
from tidemill.selftest.trials import trials
from tidemill_sim.engine import Machine

SIZES = [(1, 1), (2, 1), (4, 4), (8, 2), (64, 1)]
SHAPES = [small_chip(), CHIPS["ulx3s-85f"], *(bare_chip(*size) for size in SIZES)]
#: Files and queues that hold little: trials come in pieces.
SHAPES.append(small_chip(act_depth=2, acc_depth=2, temp_depth=4, queue_depth=48, mem_a_depth=60))


@pytest.fixture(scope="module", params=SHAPES, ids=lambda chip: chip.name)
def results(request):
    """Of every trial: itself, its events, and (name, value) of every element it looks at."""
    out = []
    for trial in trials(request.param):
        machine = Machine(trial.program, check=True)
        events = machine.run(list(trial.prompt), 1)
        elements = []
        for check in trial.checks:
            memory = "mem_a" if check.space == Space.MEM_A else "mem_w"
            values = getattr(machine, memory)[check.row].ravel()
            written = getattr(machine, f"{memory}_ok")[check.row].ravel()
            assert len(check.names) == len(values)
            for name, value, ok in zip(check.names, values.tolist(), written, strict=True):
                assert ok or name is None, (trial.part, check.row, name)
                if name is not None:
                    elements.append((name, value))
        out.append((trial, events, elements))
    return request.param, out


def test_every_place_is_looked_at(results):
    chip, made = results
    places = defaultdict(set)
    for trial, events, elements in made:
        places[trial.part] |= {name for name, _ in elements} | {trial.token} - {None}
        assert len(events) == len(trial.prompt)
    lanes = {f"lane {n}" for n in range(chip.lanes)}
    banks = {f"bank {s}, {lane}" for s in range(chip.weight_streams) for lane in lanes}
    assert places.pop("MXM") == {name.replace("bank", "stream") for name in banks}
    assert places.pop("MEM_W gather") == places.pop("MEM_W append") == banks
    assert places.pop("SXM") == {
        f"{move} from {stream}, {lane}"
        for move in ("SWAP", "DUPE", "DUPO", "BCAST")
        for stream in ("E_v", "W_a")
        for lane in lanes
    }
    assert set(places) == {
        f"VXM {part}"
        for part in ("exp", "gumbel", "silu", "products", "sum", "sumsq", "max", "argmax")
    }
    assert all(found == lanes for found in places.values())


def test_argmax_is_the_lane(results):
    _, made = results
    for trial, events, _ in made:
        if trial.token:
            assert trial.token == f"lane {events[-1].token}"


def test_every_bit_of_every_multiplier_counts(results):
    """A bit of a weight or an activation that is stuck, either way, changes a product."""
    chip, made = results
    mask = np.zeros((4, chip.weight_streams, chip.lanes), np.int64)
    mask[0::2] = -1  # of weights: AND, OR; of activations: AND, OR
    for trial, _, _ in made:
        if trial.part != "MXM":
            continue
        rows = trial.program.mem_w_used.sum()
        for w, a in zip(trial.program.mem_w[:rows], trial.program.mem_a[:rows], strict=True):
            [lane] = np.flatnonzero(a)
            assert not np.delete(w, lane, axis=1).any()
            mask[0, :, lane] &= w[:, lane]
            mask[1, :, lane] |= w[:, lane]
            mask[2, :, lane] &= a[lane]
            mask[3, :, lane] |= a[lane]
    assert (mask[0::2] == 0).all()
    assert (mask[1] & 0xFF == 0xFF).all()
    assert (mask[3] & 0xFFFF == 0xFFFF).all()


@pytest.mark.parametrize("func", [Func.EXP, Func.GUMBEL, Func.SILU])
def test_every_chord_of_a_table_is_used_in_every_lane(results, func):
    chip, made = results
    seen = [set() for _ in range(chip.lanes)]
    for trial, _, _ in made:
        if trial.part != f"VXM {func.name.lower()}":
            continue
        count = len(trial.checks)
        operands = trial.program.mem_a[1 : 1 + count].astype(np.int64)
        index, fraction = {
            Func.EXP: lambda x: numerics.exp_address(x, 0),
            Func.GUMBEL: numerics.gumbel_address,
            Func.SILU: numerics.silu_address,
        }[func](operands)
        for lane in range(chip.lanes):
            seen[lane] |= set(zip(index[:, lane].tolist(), fraction[:, lane] > 0, strict=True))
    base, size = {
        Func.EXP: (numerics.EXP_BASE, 128),
        Func.GUMBEL: (numerics.GUMBEL_BASE, 128),
        Func.SILU: (numerics.SILU_BASE, 256),
    }[func]
    want = {(base + k, late) for k in range(size) for late in (False, True)}
    if func == Func.SILU:
        want -= {(base, False)}  # -32768, which saturation never leaves
    assert all(found == want for found in seen)
