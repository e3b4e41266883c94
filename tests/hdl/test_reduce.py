"""The helpers of the pipelines that no slice's test sees: `spread`."""

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from support.simulate import simulate
from tidemill_hdl.reduce import spread


class Spread(wiring.Component):
    """`value` three registers later, in `copies` copies."""

    def __init__(self, copies):
        super().__init__({"value": In(8), "copies": Out(8).array(copies)})

    def elaborate(self, platform):
        m = Module()
        copies = spread(m, "value", self.value, 1, 3, len(self.copies))
        m.d.comb += [port.eq(copy) for port, copy in zip(self.copies, copies, strict=True)]
        return m


@pytest.mark.parametrize("copies", [1, 2, 4, 8])
def test_all_copies_are_three_cycles_late(copies):
    dut = Spread(copies)

    async def bench(ctx):
        values = [(37 * t) % 256 for t in range(12)]
        for t, value in enumerate(values):
            ctx.set(dut.value, value)
            if t >= 3:
                assert [ctx.get(copy) for copy in dut.copies] == [values[t - 3]] * copies
            await ctx.tick()

    simulate(dut, bench)
