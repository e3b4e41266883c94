"""Token FIFO of the HOST slice alone: against a list, first word falls through, latency."""

import cocotb
import numpy as np

from tidemill_sim.benches.slice_base import Slice

#: Cycles from an event to its word at the output.
LATENCY = 2


def event(cycles, token, generated):
    """Inputs of an event."""
    names = {"event__cycles": cycles, "event__token": token, "event__generated": generated}
    return {"event__valid": 1, **names}


@cocotb.test()
async def random_events(dut):
    """Events and pops at random, up to a full run of positions; then `clear` and again."""
    s = await Slice(dut).start()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        cycles, plan, want, queue = 500, [], [], []
        popped = fullest = 0
        rate = (0.2, 0.5, 0.9)[seed]
        for t in range(cycles):
            visible = queue[0][1] if queue and queue[0][0] <= t else None
            want.append(visible)
            inputs = {"event__valid": 0, "clear": 0, "pop": int(rng.random() < rate / 2)}
            if inputs["pop"] and visible is not None:
                queue.pop(0)
                popped += 1
            if rng.random() < rate and len(queue) <= s.chip.context:
                parts = [int(rng.integers(1 << bits)) for bits in (20, 15, 1)]
                inputs |= event(*parts)
                queue.append((t + LATENCY, parts[0] | parts[1] << 20 | parts[2] << 35))
            fullest = max(fullest, len(queue))
            plan.append(inputs)
        seen = await s.play(plan, ["valid", "data"])
        for t, word in enumerate(want):
            assert seen["valid"][t] == (word is not None), f"seed {seed} cycle {t}"
            assert word is None or seen["data"][t] == word, f"seed {seed} cycle {t}"
        assert popped > 20
        assert fullest > s.chip.context or seed == 0
        clear = [{"clear": 1, "event__valid": 0, "pop": 0}, {"clear": 0}, {}, {}]
        assert (await s.play(clear, ["valid"]))["valid"][1:] == [0, 0, 0]


@cocotb.test()
async def latency(dut):
    """One event into the empty FIFO."""
    s = await Slice(dut).start()
    plan = [{}, {}, event((1 << 20) - 1, 5, 1), {"event__valid": 0}, {}, {}, {"pop": 1}, {"pop": 0}]
    seen = await s.play(plan, ["valid", "data"])
    assert seen["valid"] == [0, 0, 0, 0, 1, 1, 1, 0]
    assert seen["data"][4] == (1 << 20) - 1 | 5 << 20 | 1 << 35
