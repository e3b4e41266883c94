"""MEM_A against an array that is read and written at the times of the instruction table."""

import dataclasses

import numpy as np
import pytest

from support.simulate import simulate
from tidemill.chip import CHIPS
from tidemill.isa import HOST_READ_LATENCY, QUEUE_INDEX, QUEUES, Fault
from tidemill_hdl.mem_a import MemA

READ = QUEUES[QUEUE_INDEX["MEMA.R"]].op("READ")
WRITE = QUEUES[QUEUE_INDEX["MEMA.W"]].op("WRITE")
SIZES = ((1, 1), (4, 2), (8, 2))
DEPTH = 24


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def chip(request):
    lanes, streams = request.param
    return dataclasses.replace(
        CHIPS["tiny"], lanes=lanes, weight_streams=streams, mem_a_depth=DEPTH, family="ecp5"
    )


def access(ctx, port, addr):
    """Dispatch at `addr`; None: nothing."""
    ctx.set(port.valid, addr is not None)
    ctx.set(port.addr, addr or 0)


def test_random_streams(chip):
    """A read and a write in nearly every cycle; a write is seen from WRITE's d_func on."""
    rng = np.random.default_rng(chip.lanes)
    cycles = 200
    rows = np.zeros((DEPTH, chip.lanes), np.int64)
    values = rng.choice([-32768, 32767, -1, 0, 77], (cycles, chip.lanes))
    dut = MemA(chip)

    async def bench(ctx):
        due = {}
        for t in range(cycles):
            w, r = rng.integers(0, DEPTH, 2).tolist()
            w = None if rng.random() < 0.1 else w
            r = None if rng.random() < 0.1 or r == w else r
            access(ctx, dut.w, w)
            access(ctx, dut.r, r)
            ctx.set(dut.e_v, values[t].tolist())
            if r is not None:
                due[t + READ.d_func(chip)] = rows[r].tolist()
            if w is not None:
                rows[w] = values[t]
            if t in due:
                assert [ctx.get(lane) for lane in dut.w_a] == due[t]
            assert ctx.get(dut.fault.kind) == Fault.NONE
            await ctx.tick()
        for row in range(DEPTH):
            stored = ctx.get(dut.sram.row(row))
            assert [stored[n] for n in range(chip.lanes)] == rows[row].tolist()

    simulate(dut, bench)
    assert WRITE.d_func(chip) == 1


def test_read_latency(chip):
    """The value appears READ's d_func after the dispatch and not before."""
    dut = MemA(chip)
    seen = []

    async def bench(ctx):
        ctx.set(dut.e_v, [7] * chip.lanes)
        access(ctx, dut.w, 5)
        await ctx.tick()
        access(ctx, dut.w, None)
        access(ctx, dut.r, 5)
        for _ in range(4):
            seen.append(ctx.get(dut.w_a[0]))
            await ctx.tick()
            access(ctx, dut.r, None)

    simulate(dut, bench)
    assert seen.index(7) == READ.d_func(chip)


def test_host(chip):
    """Words written one a cycle read back as fast, HOST_READ_LATENCY later."""
    dut = MemA(chip)
    words = -(-chip.lanes // 4)
    rng = np.random.default_rng(3)
    content = rng.integers(-32768, 32768, (DEPTH * words, min(4, chip.lanes))).tolist()
    packed = [sum((v & 0xFFFF) << 16 * n for n, v in enumerate(word)) for word in content]

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
        stored = ctx.get(dut.sram.row(DEPTH - 1))
        want = np.array(content[-words:]).ravel()
        assert [stored[n] for n in range(chip.lanes)] == want.tolist()
        assert ctx.get(dut.fault.kind) == Fault.NONE

    simulate(dut, bench)


def test_faults(chip):
    """A collision, and addresses beyond the last vector; nothing is written there."""
    dut = MemA(chip)

    async def bench(ctx):
        async def faults_with(kind, w=None, r=None, host=None):
            access(ctx, dut.w, w)
            access(ctx, dut.r, r)
            ctx.set(dut.host.en, host is not None)
            ctx.set(dut.host.addr, host or 0)
            await ctx.tick()
            assert ctx.get(dut.fault.kind) == kind

        ctx.set(dut.e_v, [9] * chip.lanes)
        ctx.set(dut.host.we, 1)
        ctx.set(dut.host.wdata, (1 << 64) - 1)
        words = -(-chip.lanes // 4)
        await faults_with(Fault.ADDRESS, w=DEPTH)
        await faults_with(Fault.ADDRESS, w=31)
        await faults_with(Fault.ADDRESS, r=DEPTH + 1)
        await faults_with(Fault.ADDRESS, host=DEPTH * words)
        await faults_with(Fault.ADDRESS, host=(1 << 24) - 1)
        await faults_with(Fault.NONE, w=3, r=4)
        await faults_with(Fault.COLLISION, w=4, r=4)
        await faults_with(Fault.NONE)
        for row in range(DEPTH):
            want = 9 if row in (3, 4) else 0
            assert ctx.get(dut.sram.row(row))[0] == want

    simulate(dut, bench)
