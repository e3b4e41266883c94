"""Fault register of the HOST slice alone: the first fault stays, whatever comes later."""

import cocotb
import numpy as np

from tidemill.isa import Fault
from tidemill_sim.benches.slice_base import Slice

#: What the register under test was built with: queue and lag of every source.
QUEUES = (4, 2, 9)
LAGS = (0, 0, 1)


@cocotb.test()
async def random_faults(dut):
    """Of several faults of one cycle that of the first source wins; `clear` forgets."""
    s = await Slice(dut).start()
    rng = np.random.default_rng(5)
    outputs = ["fault", "kind", "queue", "at"]
    worst, seen_sources = max(LAGS), set()
    for _ in range(60):
        reports = {}  # (cycle of the fault, source) -> kind
        for _ in range(int(rng.integers(1, 5))):
            source = int(rng.integers(len(QUEUES)))
            reports[int(rng.integers(6)), source] = int(rng.integers(1, len(Fault)))
        plan = []
        for t in range(10):
            kinds = {
                f"sources__{k}__kind": reports.get((t - lag, k), 0) for k, lag in enumerate(LAGS)
            }
            plan.append({"cycle": 1000 + t, "clear": 0, **kinds})
        seen = await s.play(plan, outputs)
        at, source = min(reports)
        want = [1, reports[at, source], QUEUES[source], 1000 + at]
        assert [seen[name][-1] for name in outputs] == want, reports
        # not visible before it is known, and unchanged from then on
        assert seen["fault"] == [int(t > at + worst) for t in range(10)], reports
        seen_sources.add(source)
        after = await s.play([{"clear": 1}, {"clear": 0}, {}, {}], ["fault"])
        assert after["fault"][1:] == [0, 0, 0]
    assert seen_sources == set(range(len(QUEUES)))
