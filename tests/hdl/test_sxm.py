"""SXM against its definition in the instruction table."""

import dataclasses

import numpy as np
import pytest

from support.simulate import simulate
from tidemill.chip import CHIPS
from tidemill.isa import QUEUE_INDEX, QUEUES, Fault
from tidemill_hdl.sxm import Sxm

QUEUE = QUEUES[QUEUE_INDEX["SXM"]]
SIZES = ((1, 1), (2, 2), (4, 2), (8, 2))


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def chip(request):
    lanes, streams = request.param
    return dataclasses.replace(CHIPS["tiny"], lanes=lanes, weight_streams=streams)


def model(mnemonic, x, token_lane):
    if mnemonic == "BCAST":
        return np.full_like(x, x[token_lane])
    if len(x) == 1:
        return x
    even, odd = x[0::2], x[1::2]
    pairs = {"SWAP": (-odd, even), "DUPE": (even, even), "DUPO": (odd, odd)}[mnemonic]
    return np.stack(pairs, axis=1).ravel()


def test_random_moves(chip):
    rng = np.random.default_rng(chip.lanes)
    ops = {op.code: op for op in QUEUE.ops}
    cycles = 200
    codes = rng.integers(0, 1 << QUEUE.op_bits, cycles).tolist()
    sources = rng.integers(0, 2, cycles).tolist()
    valid = (rng.random(cycles) < 0.9).tolist()
    tokens = rng.integers(0, chip.lanes, cycles).tolist()
    x = rng.choice([-32767, 32767, -1, 0, 12345, -321], (2, cycles, chip.lanes))
    dut = Sxm(chip)

    async def bench(ctx):
        want, fault = None, Fault.NONE
        for t in range(cycles):
            ctx.set(dut.i.valid, valid[t])
            ctx.set(dut.i.op, codes[t])
            ctx.set(dut.i.src, sources[t])
            ctx.set(dut.run.token_lane, tokens[t])
            ctx.set(dut.e_v, x[0, t].tolist())
            ctx.set(dut.w_a, x[1, t].tolist())
            if want is not None:
                assert [ctx.get(lane) for lane in dut.w_s] == want
            assert ctx.get(dut.fault.kind) == fault
            op = ops.get(codes[t])
            fault = Fault.ILLEGAL if valid[t] and op is None else Fault.NONE
            if valid[t] and op is not None:
                # the next turn of the loop looks one cycle later
                assert (op.skew, op.d_func(chip)) == (0, 1)
                want = model(op.mnemonic, x[sources[t], t], tokens[t]).tolist()
            await ctx.tick()

    simulate(dut, bench)
    assert {codes[t] for t in range(cycles) if valid[t]} == set(range(8))
