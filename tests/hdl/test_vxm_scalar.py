"""Scalar unit against `numerics.recip` and `numerics.rsqrt`, one sum per cycle."""

import numpy as np

from support.simulate import simulate
from tidemill import numerics
from tidemill_hdl.vxm_scalar import VxmScalar

#: Cycles from a sum to the write of the scalar file (which reads one cycle later).
LATENCY = 8


def _jobs():
    """(square, sum, eps): edges of every power of two, then random sums of all magnitudes."""
    edges = [v for k in range(40) for v in ((1 << k) - 1, 1 << k, (1 << k) + 1)]
    edges += [(1 << 40) - 1, 0, -1, -(1 << 40)]
    jobs = [(square, v, 0) for v in edges for square in (0, 1)]
    jobs += [(square, v, 1) for v in (0, 1, -1, 255) for square in (0, 1)]
    random = np.random.default_rng(1)
    for _ in range(3000):
        x = int(random.integers(1 << 40) >> random.integers(40))
        eps = int(random.integers(1 << 32) >> random.integers(32))
        square = int(random.integers(2))
        jobs.append((square, x - eps if square and x > eps else x, eps))
    return [(square, x, eps) for square, x, eps in jobs if x + square * eps < 1 << 40]


def test_functions():
    dut = VxmScalar()
    table = numerics.build_scalar_table()
    jobs = _jobs()
    got = []

    async def bench(ctx):
        ctx.set(dut.table.en, 1)
        ctx.set(dut.table.we, 1)
        for address, (base, slope) in enumerate(table.tolist()):
            ctx.set(dut.table.addr, address)
            ctx.set(dut.table.wdata, base | (slope & 0xFFFF) << 16)
            await ctx.tick()
        ctx.set(dut.table.en, 0)
        for k in range(len(jobs) + LATENCY):
            if k < len(jobs):
                square, x, eps = jobs[k]
                ctx.set(dut.square, square)
                ctx.set(dut.sum, x)
                ctx.set(dut.eps, eps)
                ctx.set(dut.sx, k % 8)
            ctx.set(dut.valid, k < len(jobs))
            assert ctx.get(dut.o.en) == (k >= LATENCY)
            got.append((ctx.get(dut.o.sx), ctx.get(dut.o.data.mant), ctx.get(dut.o.data.exp) & 63))
            await ctx.tick()
        assert ctx.get(dut.o.en) == 0

    simulate(dut, bench)

    for k, (square, x, eps) in enumerate(jobs):
        mant, exp = numerics.rsqrt(table, x + eps) if square else numerics.recip(table, x)
        assert got[k + LATENCY] == (k % 8, mant, exp), jobs[k]


def test_abort():
    """Nothing in flight is written after an abort."""
    dut = VxmScalar()

    async def bench(ctx):
        for age in range(LATENCY):
            ctx.set(dut.valid, 1)
            await ctx.tick()
            ctx.set(dut.valid, 0)
            for _ in range(age):
                await ctx.tick()
            ctx.set(dut.abort, 1)
            await ctx.tick()
            ctx.set(dut.abort, 0)
            for _ in range(LATENCY + 2):
                assert ctx.get(dut.o.en) == 0
                await ctx.tick()

    simulate(dut, bench)
