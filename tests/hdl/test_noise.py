"""Noise generators against `numerics.xorshift32`."""

import pytest

from support.simulate import simulate
from tidemill import numerics
from tidemill.chip import CHIPS
from tidemill_hdl.noise import Noise

CHIP = CHIPS["tiny"]


@pytest.mark.parametrize("seed", [0, 1, 0x9E3779B9, 2 * 0x9E3779B9 & 0xFFFFFFFF, 0xFFFFFFFF])
def test_codes(seed):
    """Steps with gaps; a seed that makes one lane's state zero; a second start."""
    dut = Noise(CHIP)

    async def bench(ctx):
        for _ in range(2):
            ctx.set(dut.start, 1)
            ctx.set(dut.seed, seed)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.seed, 12345)
            state = numerics.lane_seeds(seed, CHIP.lanes)
            for k in range(200):
                ctx.set(dut.step, 1)
                await ctx.tick()
                ctx.set(dut.step, 0)
                state = numerics.xorshift32(state)
                for _ in range(k % 3):
                    await ctx.tick()
                codes = [ctx.get(dut.code[lane]) for lane in range(CHIP.lanes)]
                assert codes == numerics.gumbel_code(state).tolist()

    simulate(dut, bench)
