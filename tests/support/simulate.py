"""Running an Amaranth component."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator


def simulate(dut: Elaboratable, bench: Callable[[Any], Coroutine]) -> None:
    """Run `bench` to its end beside `dut`, on a clock for the domain sync."""
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
