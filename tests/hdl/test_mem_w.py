"""MEM_W against banks that are read and written at the times of the instruction table."""

import dataclasses

import numpy as np
import pytest

from support.simulate import simulate
from tidemill import numerics
from tidemill.chip import CHIPS
from tidemill.isa import HOST_READ_LATENCY, QUEUE_INDEX, QUEUES, Fault
from tidemill_hdl.mem_w import MemW

READS, WRITES = (QUEUES[QUEUE_INDEX[name]] for name in ("MEMW.R", "MEMW.W"))
READ, GATHER = READS.op("READ"), READS.op("GATHER")
WRITE, SCATTER = WRITES.op("WRITE"), WRITES.op("SCATTER")
SIZES = ((1, 1), (4, 2), (4, 4), (8, 2), (16, 4))
DEPTH = 24


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def chip(request):
    lanes, streams = request.param
    return dataclasses.replace(
        CHIPS["tiny"], lanes=lanes, weight_streams=streams, mem_w_depth=DEPTH, family="ecp5"
    )


def dispatch(ctx, port, op, addr=0, sub=0):
    """Dispatch `op`; None: nothing. Fields of no width do not exist."""
    ctx.set(port.valid, op is not None)
    ctx.set(port.addr, addr)
    ctx.set(port.op, op.code if op else 0)
    if "sub" in port.signature.members:
        ctx.set(port.sub, sub)


def plane(ctx, dut):
    return [[ctx.get(lane) for lane in bank] for bank in dut.planes]


def stored(ctx, dut):
    """All rows, as row x bank x lane."""
    lanes = range(dut.chip.lanes)
    return [[[ctx.get(bank.row(a))[n] for n in lanes] for bank in dut.banks] for a in range(DEPTH)]


def test_random_streams(chip):
    """A read and a write in nearly every cycle, positions and tokens as they come."""
    rng = np.random.default_rng(chip.macs)
    cycles = 250
    mem = np.zeros((DEPTH, chip.weight_streams, chip.lanes), np.int64)
    ends = [-32768, -32767, -32641, -32640, 32639, 32640, 32767, -129, -128, 127, 128, 0]
    values = rng.choice([*ends, *rng.integers(-32768, 32768, 12).tolist()], (cycles, chip.lanes))
    pos_lane, token_bank = rng.integers(0, (chip.lanes, chip.weight_streams), (cycles, 2)).T
    pos_bank, sub = rng.integers(0, (chip.weight_streams, chip.subs), (cycles, 2)).T
    dut = MemW(chip)

    async def bench(ctx):
        planes, rows, pending = {}, {}, {}
        written = None
        for t in range(cycles):
            # what was dispatched d_func ago now reads as written
            if t in pending:
                op, addr, then = pending.pop(t)
                data = numerics.to_byte(values[then])
                if op is WRITE:
                    mem[addr, pos_bank[then]] = data
                else:
                    column = data.reshape(chip.subs, -1)[sub[then]]
                    mem[addr, :, pos_lane[then]] = column
            w, r = (int(n) for n in rng.integers(0, DEPTH, 2))
            w_op = rng.choice([WRITE, SCATTER, None], p=[0.45, 0.45, 0.1])
            r_op = rng.choice([READ, GATHER, None], p=[0.45, 0.45, 0.1])
            if r == written:
                r_op = None
            dispatch(ctx, dut.w, w_op, w, int(sub[t]))
            dispatch(ctx, dut.r, r_op, r)
            ctx.set(dut.run.pos_lane, int(pos_lane[t]))
            ctx.set(dut.run.pos_bank, int(pos_bank[t]))
            ctx.set(dut.run.token_bank, int(token_bank[t]))
            ctx.set(dut.w_v, values[t].tolist())
            written = w if w_op else None
            if w_op:
                pending[t + w_op.d_func(chip)] = (w_op, w, t)
            if r_op is READ:
                planes[t + READ.d_func(chip)] = mem[r].tolist()
            if r_op is GATHER:
                rows[t + GATHER.d_func(chip)] = mem[r, token_bank[t]].tolist()
            if t in planes:
                assert plane(ctx, dut) == planes[t]
            if t in rows:
                assert [ctx.get(lane) for lane in dut.e_b] == rows[t]
            assert ctx.get(dut.fault.kind) == Fault.NONE
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("op", [READ, GATHER], ids=lambda op: op.mnemonic)
def test_read_latency(chip, op):
    """The value appears the operation's d_func after the dispatch and not before."""
    dut = MemW(chip)
    seen = []

    async def bench(ctx):
        ctx.set(dut.w_v, [7 << 8] * chip.lanes)
        dispatch(ctx, dut.w, WRITE, 5)
        await ctx.tick()
        dispatch(ctx, dut.w, None)
        await ctx.tick()
        dispatch(ctx, dut.r, op, 5)
        for _ in range(6):
            seen.append(ctx.get(dut.planes[0][0] if op is READ else dut.e_b[0]))
            await ctx.tick()
            dispatch(ctx, dut.r, None)

    simulate(dut, bench)
    assert seen.index(7) == op.d_func(chip)


@pytest.mark.parametrize("op", [WRITE, SCATTER], ids=lambda op: op.mnemonic)
def test_write_latency(chip, op):
    """A READ d_func later sees the row, one a cycle sooner collides."""
    dut = MemW(chip)
    kinds, seen = [], []

    async def bench(ctx):
        ctx.set(dut.w_v, [7 << 8] * chip.lanes)
        dispatch(ctx, dut.w, op, 5)
        for t in range(8):
            dispatch(ctx, dut.r, READ if t == op.d_func(chip) - 1 else None, 5)
            if t == op.d_func(chip):
                dispatch(ctx, dut.r, READ, 5)
            kinds.append(ctx.get(dut.fault.kind))
            seen.append(ctx.get(dut.planes[0][0]))
            await ctx.tick()
            dispatch(ctx, dut.w, None)

    simulate(dut, bench)
    assert seen.index(7) == op.d_func(chip) + READ.d_func(chip)
    # reported two cycles later
    assert kinds.index(Fault.COLLISION) == op.d_func(chip) - 1 + 2
    assert sum(kind != Fault.NONE for kind in kinds) == 1


def test_host(chip):
    """Words written one a cycle read back as fast, HOST_READ_LATENCY later."""
    dut = MemW(chip)
    per_word = min(8, chip.lanes)
    words = -(-chip.lanes // 8)
    rng = np.random.default_rng(3)
    content = rng.integers(-128, 128, (DEPTH * chip.weight_streams * words, per_word)).tolist()
    packed = [sum((v & 0xFF) << 8 * n for n, v in enumerate(word)) for word in content]

    async def bench(ctx):
        ctx.set(dut.host.en, 1)
        ctx.set(dut.host.we, 1)
        for addr, word in enumerate(packed):
            ctx.set(dut.host.addr, addr)
            ctx.set(dut.host.wdata, word)
            await ctx.tick()
        ctx.set(dut.host.we, 0)
        for t in range(len(packed) + HOST_READ_LATENCY):
            ctx.set(dut.host.en, t < len(packed))
            ctx.set(dut.host.addr, min(t, len(packed) - 1))
            if t >= HOST_READ_LATENCY:
                assert ctx.get(dut.host.rdata) == packed[t - HOST_READ_LATENCY]
            await ctx.tick()
        want = np.array(content).reshape(DEPTH, chip.weight_streams, chip.lanes)
        assert stored(ctx, dut) == want.tolist()
        assert ctx.get(dut.fault.kind) == Fault.NONE

    simulate(dut, bench)


def test_addresses_beyond_the_last_row(chip):
    """They fault and write nothing."""
    dut = MemW(chip)
    last = DEPTH * chip.weight_streams * -(-chip.lanes // 8)

    async def bench(ctx):
        async def faults():
            await ctx.tick()
            dispatch(ctx, dut.w, None)
            dispatch(ctx, dut.r, None)
            ctx.set(dut.host.en, 0)
            for kind in (Fault.NONE, Fault.ADDRESS, Fault.NONE):
                assert ctx.get(dut.fault.kind) == kind
                await ctx.tick()

        ctx.set(dut.w_v, [9 << 8] * chip.lanes)
        for op in (WRITE, SCATTER):
            for addr in (DEPTH, 31):
                dispatch(ctx, dut.w, op, addr)
                await faults()
        dispatch(ctx, dut.r, READ, DEPTH)
        await faults()
        ctx.set(dut.host.wdata, (1 << 64) - 1)
        for we in (0, 1):
            for addr in (last, (1 << 24) - 1):
                ctx.set(dut.host.en, 1)
                ctx.set(dut.host.we, we)
                ctx.set(dut.host.addr, addr)
                await faults()
        assert not np.array(stored(ctx, dut)).any()

    simulate(dut, bench)


def test_abort_drops_the_write_of_its_cycle():
    chip = dataclasses.replace(CHIPS["tiny"], mem_w_depth=DEPTH)
    dut = MemW(chip)

    async def bench(ctx):
        ctx.set(dut.w_v, [9 << 8] * chip.lanes)
        for abort, addr in ((0, 2), (1, 3)):
            ctx.set(dut.run.abort, abort)
            dispatch(ctx, dut.w, WRITE, addr)
            await ctx.tick()
        dispatch(ctx, dut.w, None)
        await ctx.tick().repeat(3)
        rows = np.array(stored(ctx, dut))
        assert rows[2].any()
        assert not rows[3].any()

    simulate(dut, bench)
