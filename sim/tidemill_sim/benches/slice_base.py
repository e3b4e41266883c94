"""What the benches of single slices share: the chip, packed vectors, playing signals by cycle.

A bench module `slice_<name>` tests the emitted Verilog of one slice; the same vectors run in every
simulator. One build holds the slices of a chip side by side, each with ports of its own: port `p`
of slice `s` is `s__p`. `TIDEMILL_SLICES` names a JSON file with the chip and all ports that
`describe` wrote, `TIDEMILL_SLICE` the slice.

Cycle t of a play: inputs are set after a rising edge, outputs are read at the falling edge that
follows, so combinational outputs and registers are those of cycle t. No latency is computed here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from tidemill.chip import Chip
from tidemill.isa import HOST_READ_LATENCY, Queue

__all__ = [
    "Slice",
    "describe",
    "first_cycle",
    "instruction",
    "pack",
    "unpack",
]

#: Values of the inputs in one cycle; what is not named keeps its value.
Cycle = dict[str, int]


def describe(path: Path, chip: Chip, ports: dict[str, dict[str, tuple[str, int]]]) -> None:
    """Write what the benches have to know: `ports` is {slice: {name: ("in" or "out", width)}}."""
    path.write_text(json.dumps({"chip": chip.as_dict(), "ports": ports}))


def pack(values: Any, bits: int) -> int:
    """Elements to one integer, element 0 lowest; nested arrays flattened, last index fastest."""
    word = 0
    for k, v in enumerate(np.asarray(values).ravel().tolist()):
        word |= (int(v) & ((1 << bits) - 1)) << (bits * k)
    return word


def unpack(word: int, bits: int, count: int) -> list[int]:
    """`count` signed elements of `bits` bits, element 0 lowest."""
    half = 1 << (bits - 1)
    return [((word >> bits * k & (2 * half - 1)) ^ half) - half for k in range(count)]


def instruction(port: str, queue: Queue, mnemonic: str | None, **fields: int) -> Cycle:
    """Dispatch an operation at `port` in this cycle; None: nothing is dispatched."""
    if mnemonic is None:
        return {f"{port}__valid": 0}
    values = {f"{port}__valid": 1, **{f"{port}__{name}": v for name, v in fields.items()}}
    if queue.op_bits:
        values[f"{port}__op"] = queue.op(mnemonic).code
    return values


def first_cycle(seen: Sequence[Any], value: Any) -> int:
    """First cycle in which `value` was seen; it must have been seen."""
    found = [t for t, v in enumerate(seen) if v == value]
    assert found, f"{value} never appeared"
    return found[0]


class Slice:
    """The slice under test, with its clock running and out of reset after `start`."""

    def __init__(self, dut: Any):
        about = json.loads(Path(os.environ["TIDEMILL_SLICES"]).read_text())
        hops = tuple(about["chip"]["hops"])
        self.chip = Chip(**(about["chip"] | {"hops": hops}))
        self.name = os.environ["TIDEMILL_SLICE"]
        self.ports: dict[str, tuple[str, int]] = about["ports"][self.name]
        self.dut = dut

    async def start(self) -> Slice:
        """Clock, all inputs 0, three cycles of reset."""
        Clock(self.dut.clk, 10, unit="ns").start()
        idle = {name: 0 for name, (way, _) in self.ports.items() if way == "in"}
        self.dut.rst.value = 1
        await self.play([idle, {}, {}], ())
        self.dut.rst.value = 0
        await self.play([{}], ())
        return self

    def _set(self, name: str, value: int) -> None:
        # a field of no width does not exist
        way, width = self.ports.get(name, ("in", 0))
        assert way == "in", f"{name} is no input"
        assert 0 <= value < 1 << width, f"{name} = {value} does not fit {width} bits"
        if width:
            getattr(self.dut, f"{self.name}__{name}").value = value

    def _get(self, name: str) -> int | None:
        """Value of an output; None if any bit of it is undefined."""
        way, width = self.ports[name]
        assert way == "out", f"{name} is no output"
        if not width:
            return 0
        value = getattr(self.dut, f"{self.name}__{name}").value
        if not value.is_resolvable:
            return None
        return int(value) if width == 1 else value.to_unsigned()

    async def play(
        self, cycles: Iterable[Cycle], watch: Sequence[str]
    ) -> dict[str, list[int | None]]:
        """Set inputs cycle by cycle; what the outputs `watch` were in each of these cycles."""
        seen: dict[str, list[int | None]] = {name: [] for name in watch}
        for cycle in cycles:
            await RisingEdge(self.dut.clk)
            for name, value in cycle.items():
                self._set(name, int(value))
            await FallingEdge(self.dut.clk)
            for name in watch:
                seen[name].append(self._get(name))
        return seen

    async def host_write(self, port: str, words: Iterable[tuple[int, int]]) -> None:
        """Host writes (address, data) at `port`, one a cycle."""
        for address, data in words:
            cycle = {
                f"{port}__en": 1,
                f"{port}__we": 1,
                f"{port}__addr": address,
                f"{port}__wdata": data,
            }
            await self.play([cycle], ())
        await self.play([{f"{port}__en": 0, f"{port}__we": 0}], ())

    async def host_read(self, port: str, addresses: Sequence[int]) -> list[int | None]:
        """Host reads at `port`, one a cycle; each word HOST_READ_LATENCY after its access."""
        cycles = [{f"{port}__en": 1, f"{port}__we": 0, f"{port}__addr": a} for a in addresses]
        cycles += [{f"{port}__en": 0}] + [{}] * HOST_READ_LATENCY
        data = f"{port}__rdata"
        seen = (await self.play(cycles, [data]))[data]
        return seen[HOST_READ_LATENCY : HOST_READ_LATENCY + len(addresses)]
