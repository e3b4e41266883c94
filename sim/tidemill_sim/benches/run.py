"""cocotb side of the bench: asleep but for token events, which it checks by the bench's own count.

The script that `tidemill_sim.rtl` wrote is played by bench.sv at native speed.
"""

import os

import cocotb
from cocotb.triggers import First, ReadOnly, RisingEdge, Timer, ValueChange

__all__ = ["script"]


@cocotb.test()
async def script(bench):
    """Play the whole script; every token's counter must say what the bench counted."""
    # the ports may start at random (x_seed) and take their first values at time 0: no event
    await Timer(1, unit="ns")
    finished = RisingEdge(bench.finished)
    token = ValueChange(bench.events)
    run, last = 0, 0
    while await First(token, finished) is token:
        # the other ports of the event change in the same time step
        await ReadOnly()
        if bench.run.value.to_unsigned() != run:
            run, last = bench.run.value.to_unsigned(), 0
        measured = bench.measured.value.to_unsigned()
        cycles = bench.token_cycles.value.to_unsigned()
        assert cycles == measured - last, (
            f"run {run}: the chip counted {cycles} cycles for a token, the bench {measured - last}"
        )
        last = measured
    expected = os.environ.get("TIDEMILL_CHIP_ID")
    if expected is not None:
        found = f"{bench.chip_id.value.to_unsigned():016x}"
        assert found == expected, f"the chip says it is {found}, not {expected}"
