"""Noise: one xorshift32 generator per lane, giving 14-bit Gumbel codes (`numerics.gumbel_code`).

Timing rule: a `step` in cycle t makes `code` the code of the new state from t + 1 on, until the
next step. A `start` in cycle t loads the seeds; steps may follow from t + 1 on.

The register holds the state *after* the next step, so a step only counts leading zeros.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tidemill import numerics

__all__ = ["CODE_BITS", "Noise"]

CODE_BITS = 14


def _xorshift(m, name, state):
    """One `numerics.xorshift32` step of a 32-bit signal."""
    left = Signal(32, name=f"{name}_left")
    right = Signal(32, name=f"{name}_right")
    step = Signal(32, name=f"{name}_step")
    m.d.comb += [
        left.eq(state ^ (state << 13)),
        right.eq(left ^ (left >> 17)),
        step.eq(right ^ (right << 5)),
    ]
    return step


def _step(state):
    """The same on a Python int."""
    state ^= state << 13 & 0xFFFFFFFF
    state ^= state >> 17
    return state ^ (state << 5 & 0xFFFFFFFF)


class Noise(wiring.Component):
    """Noise generators of all lanes.

    Members
    -------
    start, seed : `In(1)`, `In(32)`
        Load `numerics.lane_seeds(seed)`.
    step : `In(1)`
        Step every lane.
    code : `Out(ArrayLayout(14, lanes))`
        Code of the newest state; undefined before the first step.
    """

    def __init__(self, chip):
        self._lanes = chip.lanes
        super().__init__(
            {
                "start": In(1),
                "seed": In(32),
                "step": In(1),
                "code": Out(data.ArrayLayout(CODE_BITS, chip.lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # The step is linear over XOR: step(seed ^ golden) = step(seed) ^ step(golden).
        seed_step = _xorshift(m, "seed", self.seed)
        # Seeds of the run with seed 0 are the lane constants themselves.
        golden = [int(g) for g in numerics.lane_seeds(0, self._lanes)]
        for lane in range(self._lanes):
            # the state the next step makes current
            ahead = Signal(32, name=f"s0_ahead_{lane}", reset_less=True)
            after = _xorshift(m, f"s0_after_{lane}", ahead)
            octave = Signal(4, name=f"s0_octave_{lane}")

            m.d.comb += octave.eq(15)
            for k in reversed(range(15)):
                with m.If(ahead[31 - k]):
                    m.d.comb += octave.eq(k)

            with m.If(self.start):
                with m.If(self.seed == golden[lane]):
                    m.d.sync += ahead.eq(_step(1))
                with m.Else():
                    m.d.sync += ahead.eq(seed_step ^ _step(golden[lane]))
            with m.Elif(self.step):
                m.d.sync += ahead.eq(after)
            with m.If(self.step):
                m.d.sync += self.code[lane].eq(Cat(ahead[:10], octave))

        return m
