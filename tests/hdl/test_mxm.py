"""MXM against a model of its two files that takes every time from the instruction table."""

import dataclasses
import random
from collections import defaultdict

import numpy as np
import pytest
from amaranth.back import verilog

from support.simulate import simulate
from tidemill.chip import CHIPS
from tidemill.isa import QUEUE_INDEX, QUEUES
from tidemill_hdl.multiplier import Multiplier
from tidemill_hdl.mxm import ROUTE, Mxm

MAC, LOAD, DRAIN = (QUEUES[QUEUE_INDEX[name]] for name in ("MXM.C", "MXM.L", "MXM.A"))
ROWS, COLS = MAC.op("ROWS"), MAC.op("COLS")
SIZES = ((1, 1), (2, 1), (4, 2), (4, 4), (8, 2))


def make_chip(lanes, streams):
    return dataclasses.replace(
        CHIPS["tiny"], lanes=lanes, weight_streams=streams, act_depth=8, acc_depth=4
    )


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def chip(request):
    return make_chip(*request.param)


def issue(ctx, port, fields):
    """Set an instruction port; None: nothing is dispatched. Fields of no width do not exist."""
    ctx.set(port.valid, fields is not None)
    for name, value in (fields or {}).items():
        if name in port.signature.members:
            ctx.set(getattr(port, name), value)


def play(dut, program, streams):
    """Run a list of {queue letter: fields}, with `streams` = {port: list of vectors}.

    Returns E_acc of every cycle and the two files as they stand after the last.
    """
    sums, files = [], []

    async def bench(ctx):
        for t, words in enumerate(program):
            for name in "cla":
                issue(ctx, getattr(dut, name), words.get(name))
            for name, values in streams.items():
                ctx.set(getattr(dut, name), values[t].tolist())
            sums.append([ctx.get(lane) for lane in dut.e_acc])
            await ctx.tick()
        layout = range(dut.chip.lanes)
        acts = [
            [ctx.get(dut.act_file.data[row])[n] for n in layout]
            for row in range(dut.chip.act_depth)
        ]
        groups = [
            [
                ctx.get(accumulator.files[g % dut.chip.subs].data[g // dut.chip.subs])
                for accumulator in dut.accumulators
            ]
            for g in range(dut.chip.acc_groups)
        ]
        files.extend([np.array(acts), np.array(groups)])

    simulate(dut, bench)
    return np.array(sums), *files


def model(chip, program, streams):
    """What `play` returns, with None for an undefined E_acc."""
    lanes = np.arange(chip.lanes)
    act = np.zeros((chip.act_depth, chip.lanes), np.int64)
    acc = np.zeros((chip.acc_groups, chip.weight_streams), np.int64)
    due, sums = defaultdict(list), {}
    left = 0
    for t, words in enumerate(program):
        for group, fresh, dots in due.pop(t, ()):
            total = dots if fresh else acc[group] + dots
            acc[group] = (total + (1 << 31)) % (1 << 32) - (1 << 31)
        if "a" in words:
            sums[t + DRAIN.op("ACC").d_func(chip)] = acc.reshape(chip.acc_depth, -1)[
                words["a"]["slot"]
            ].copy()
        if "c" in words:
            mac, left, i = words["c"], words["c"]["ni"], 0
        if left:
            op = MAC.ops[mac["op"]]
            rows = op is ROWS
            if t + op.skew < len(program):
                weights = streams["planes"][t + op.skew]
                group = (mac["acc"] + (0 if rows else i)) % chip.acc_groups
                vector = act[(mac["abc"] + (i if rows else 0)) % chip.act_depth]
                fresh = mac["fresh"] and (i == 0 or not rows)
                due[t + op.d_func(chip)].append((group, fresh, weights @ vector))
            left, i = left - 1, i + 1
        if "l" in words:
            lw = words["l"]
            source = streams["w_v" if lw["src"] else "w_a"][t]
            block = lanes >> lw["mlog"] == lw["midx"]
            others = 0 if lw["zero"] else act[lw["dst"]]
            act[lw["dst"]] = np.where(block, source, others)
    for group, fresh, dots in due.pop(len(program), ()):
        total = dots if fresh else acc[group] + dots
        acc[group] = (total + (1 << 31)) % (1 << 32) - (1 << 31)
    return sums, act, acc


def noise(chip, rng, cycles, extreme):
    """Streams of random values; `extreme`: of the ends of the range."""

    def draw(shape, low, high):
        return rng.choice([low, high], shape) if extreme else rng.integers(low, high + 1, shape)

    return {
        "w_a": draw((cycles, chip.lanes), -32768, 32767),
        "w_v": draw((cycles, chip.lanes), -32767, 32767),
        "planes": draw((cycles, chip.weight_streams, chip.lanes), -128, 127),
    }


def check(chip, program, streams):
    sums, act, acc = play(Mxm(chip), program, streams)
    want_sums, want_act, want_acc = model(chip, program, streams)
    for t, want in want_sums.items():
        if t < len(sums):
            assert sums[t].tolist() == want.tolist(), f"E_acc in cycle {t}"
    assert act.tolist() == want_act.tolist()
    assert acc.tolist() == want_acc.tolist()


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
def test_random_programs(chip, extreme):
    rng = np.random.default_rng(chip.macs + extreme)
    choose = random.Random(chip.macs)
    cycles, left = 300, 0
    program = []
    for _ in range(cycles):
        words = {}
        # LW and ACC in most cycles; MAC back to back or after a pause, none in the last cycles
        if choose.random() < 0.7:
            words["l"] = {
                "dst": choose.randrange(chip.act_depth),
                "src": choose.randrange(2),
                "mlog": choose.randrange(8),
                "midx": choose.randrange(chip.lanes),
                "zero": choose.randrange(2),
            }
        if choose.random() < 0.9:
            words["a"] = {"slot": choose.randrange(chip.acc_depth)}
        if left <= 0 and choose.random() < 0.8:
            left = choose.choice((1, 1, 2, 3, 5, 2 * chip.acc_groups + 1))
            words["c"] = {
                "op": choose.choice((ROWS.code, COLS.code)),
                "abc": choose.randrange(chip.act_depth),
                "acc": choose.randrange(chip.acc_groups),
                "ni": left,
                "fresh": choose.random() < 0.3,
            }
        left -= 1
        program.append(words)
    check(chip, program, noise(chip, rng, cycles, extreme))


def test_long_sums_wrap(chip):
    """-32768 x -128 in every lane, long enough to pass 2**31, into one group in every cycle."""
    iterations = 5 + (1 << 31) // (chip.lanes << 22)
    cycles = iterations + 30
    streams = noise(chip, np.random.default_rng(0), cycles, extreme=True)
    streams["w_a"][:] = -32768
    streams["planes"][:] = -128
    fill = [
        {"l": {"dst": row, "src": 0, "mlog": 7, "midx": 0, "zero": 1}}
        for row in range(chip.act_depth)
    ]
    group = chip.acc_groups - 1
    mac = {"op": ROWS.code, "abc": 3, "acc": group, "ni": iterations, "fresh": 1}
    tail = [{} for _ in range(cycles - len(fill) - 1)]
    check(chip, [*fill, {"c": mac}, *tail], streams)


@pytest.mark.parametrize("op", [ROWS, COLS], ids=lambda op: op.mnemonic)
def test_mac_latency(chip, op):
    """The first ACC that sees the sum, and the one cycle in which the weights matter."""
    start = 4
    cycles = start + op.d_func(chip) + 6
    one = np.ones((cycles, chip.lanes), np.int64)
    planes = np.zeros((cycles, chip.weight_streams, chip.lanes), np.int64)
    planes[start + op.skew] = 1
    program = [{"a": {"slot": 0}} for _ in range(cycles)]
    program[0]["l"] = {"dst": 0, "src": 0, "mlog": 7, "midx": 0, "zero": 0}
    program[start]["c"] = {"op": op.code, "abc": 0, "acc": 0, "ni": 1, "fresh": 1}
    sums, _, _ = play(Mxm(chip), program, {"w_a": one, "w_v": one, "planes": planes})
    first = int(np.argmax(sums[:, 0] == chip.lanes))
    assert sums[first, 0] == chip.lanes
    assert first - DRAIN.op("ACC").d_func(chip) - start == op.d_func(chip)
    assert op.d_func(chip) == ROUTE + chip.lane_bits + 1


def test_load_latency(chip):
    """A MAC one cycle after LW reads the new vector, a MAC in the cycle of LW the old one."""
    lw, mac = LOAD.op("LW"), {"op": ROWS.code, "abc": 0, "ni": 1, "fresh": 1}
    cycles = 30
    w_a = np.zeros((cycles, chip.lanes), np.int64)
    w_a[1] = 5
    planes = np.ones((cycles, chip.weight_streams, chip.lanes), np.int64)
    program = [{} for _ in range(cycles)]
    program[1]["l"] = {"dst": 0, "src": 0, "mlog": 7, "midx": 0, "zero": 0}
    program[1]["c"] = mac | {"acc": 0}
    program[1 + lw.d_func(chip)]["c"] = mac | {"acc": 1}
    _, _, acc = play(Mxm(chip), program, {"w_a": w_a, "w_v": w_a, "planes": planes})
    assert acc[0, 0] == 0
    assert acc[1, 0] == 5 * chip.lanes


def test_zero_iterations_count_as_one():
    chip = make_chip(4, 2)
    cycles = 40
    streams = noise(chip, np.random.default_rng(1), cycles, extreme=False)
    program = [{} for _ in range(cycles)]
    program[0]["l"] = {"dst": 0, "src": 0, "mlog": 7, "midx": 0, "zero": 0}
    program[2]["c"] = {"op": COLS.code, "abc": 0, "acc": 0, "ni": 0, "fresh": 1}
    _, act, acc = play(Mxm(chip), program, streams)
    assert acc[0].tolist() == (streams["planes"][3] @ act[0]).tolist()
    assert not acc[1:].any()


def test_primitives_are_one_instance_per_multiplier(chip):
    text = verilog.convert(Mxm(chip, primitives=True), name="mxm", emit_src=False)
    assert text.count("MULT18X18D #(") == chip.macs
    files = chip.weight_streams * (1 + chip.subs)
    assert text.count("\nmodule ") == 3 + files  # the unit, its activations, a delay
    assert Multiplier.latency == ROUTE - 3
