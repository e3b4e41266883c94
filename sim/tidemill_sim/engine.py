"""The numpy engine: runs a program instruction by instruction, cycle-stamped, without the chip.

A segment is traced once per n (`tidemill.trace`: which instruction takes which value, from cycles
alone), then instructions that do not depend on one another are done together, as arrays. Time comes
from the issue times of the words; arithmetic from `tidemill.numerics`.

Memory that nobody wrote is poison: a vector that depends on it and reaches a file, a memory or a
reduction ends the run with its queue and cycle (`check=True`), except where the machine's rules
make it harmless (lanes masked by position, weights times an activation of exactly zero).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics as nx
from tidemill.isa import Base, Config, Seg
from tidemill.program import Program
from tidemill.trace import Event, Hazard, trace_segment
from tidemill_sim.plan import Plan, make_plan

__all__ = ["Machine", "TokenEvent"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TokenEvent:
    """What the chip reports after a position: next token, cycles, whether HEAD chose the token."""

    token: int
    cycles: int
    generated: bool


class Machine:
    """The chip after its host loaded `program`; memories keep their bytes from run to run.

    check: follow poison and check that no int32 sum wraps (about half the speed).
    """

    def __init__(self, program: Program, *, check: bool = False):
        chip = self.chip = program.chip
        self.program, self.check = program, check
        rng = np.random.default_rng(0x7DE)
        self.mem_w = rng.integers(-127, 128, program.mem_w.shape, np.int32)
        self.mem_w[program.mem_w_used] = program.mem_w[program.mem_w_used]
        self.mem_w_ok = np.zeros(program.mem_w.shape, bool)
        self.mem_w_ok[program.mem_w_used] = True
        self.mem_a = rng.integers(-32767, 32768, program.mem_a.shape, np.int64)
        self.mem_a[program.mem_a_used] = program.mem_a[program.mem_a_used]
        self.mem_a_ok = np.zeros(program.mem_a.shape, bool)
        self.mem_a_ok[program.mem_a_used] = True
        lanes = chip.lanes
        self.state: dict[str, NDArray[Any]] = {
            "ev": np.zeros((chip.temp_depth, lanes), np.int64),
            "act": np.zeros((chip.act_depth, lanes), np.int32),
            "acc": np.zeros((chip.acc_groups, chip.weight_streams), np.int64),
            "scalar": np.zeros((8, 2), np.int64),
            "max": np.zeros(4, np.int64),
        }
        self.state_ok = {
            k: np.zeros(v.shape if k not in ("scalar", "max") else len(v), bool)
            for k, v in self.state.items()
        }
        self.plans: dict[tuple[Seg, int], Plan] = {}
        self.buffers: dict[str, NDArray[Any]] = {}
        self.ok: dict[str, NDArray[np.bool_]] = {}
        self.noise = np.zeros(lanes, np.uint32)
        self.position = self.layer = self.token = self.choice = 0
        self.lane = np.arange(lanes)

    # Runs --------------------------------------------------------------------------------------

    def run(
        self,
        prompt: list[int],
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        progress: Callable[[TokenEvent], None] | None = None,
        eos: int | None = None,
    ) -> list[TokenEvent]:
        """One run, prompt in, an event for every position out."""
        p = self.program
        p.run_writes(prompt, max_tokens, temperature, seed)
        config = dict(p.config)
        config[Config.SCALAR0 + int(p.info["temperature_scalar"])] = p.temperature_word(temperature)
        for i in range(8):
            word = config.get(Config.SCALAR0 + i, 0)
            exp = word >> 16 & 63
            self.state["scalar"][i] = word & 0xFFFF, exp - 64 if exp & 32 else exp
            self.state_ok["scalar"][i] = True
        self.noise = nx.lane_seeds(seed, self.chip.lanes)
        stop = config[Config.EOS] if eos is None else eos
        events: list[TokenEvent] = []
        generated = 0
        token = prompt[0]
        for position in range(p.context):
            last = position + 1 >= len(prompt)
            cycles = self._position(position, token, head=last)
            token = self.choice if last else prompt[position + 1]
            generated += last
            events.append(TokenEvent(token, cycles, last))
            if progress:
                progress(events[-1])
            if last and (token == stop or generated >= max_tokens):
                break
        return events

    def _position(self, position: int, token: int, *, head: bool) -> int:
        self.position, self.token = position, token
        n = self.program.rows(position)
        cycles = self._segment(Seg.EMBED, 1)
        for layer in range(self.program.config[Config.LAYERS]):
            self.layer = layer
            cycles += self._segment(Seg.LAYER, n)
        if head:
            cycles += self._segment(Seg.HEAD, n)
        return cycles

    def _segment(self, seg: Seg, n: int) -> int:
        plan = self.plans.get((seg, n))
        if plan is None:
            plan = self.plans[seg, n] = make_plan(self, trace_segment(self.program, seg, n))
        trace, chip = plan.trace, self.chip
        shapes: dict[str, tuple[int, ...]] = {
            "ev": (chip.lanes,), "act": (chip.lanes,), "acc": (chip.weight_streams,),
            "scalar": (2,), "max": (), "W_a": (chip.lanes,), "W_s": (chip.lanes,),
            "E_b": (chip.lanes,), "E_acc": (chip.lanes,),
        }  # fmt: skip
        for name, size in trace.sizes.items():
            have = self.buffers.get(name)
            if have is None or len(have) < size:
                kind = np.int32 if name == "act" else np.int64
                self.buffers[name] = np.zeros((size + 64, *shapes[name]), kind)
                scalar = name in ("scalar", "max")
                self.ok[name] = np.zeros((size + 64, *(() if scalar else shapes[name])), bool)
        for name, values in self.state.items():
            self.buffers[name][: len(values)] = values
            if self.check:
                self.ok[name][: len(values)] = self.state_ok[name]
        for batch in plan.batches:
            batch.run(self, batch.args)
        for name, values in self.state.items():
            values[...] = self.buffers[name][trace.final[name]]
            if self.check:
                self.state_ok[name][...] = self.ok[name][trace.final[name]]
        self.mem_a[plan.mem_a_rows] = self.buffers["ev"][plan.mem_a_from]
        self.mem_a_ok[plan.mem_a_rows] = self.ok["ev"][plan.mem_a_from] if self.check else True
        return trace.length

    # Addresses ---------------------------------------------------------------------------------

    def w_base(self, base: int) -> int:
        """Address base of MEM_W in this segment."""
        c, p, chip = self.program.config, self.position, self.chip
        layer = self.layer * c[Config.W_LAYER_STRIDE]
        return {
            Base.ZERO: 0,
            Base.LAYER: layer,
            Base.POS: layer + p // chip.weight_streams * c[Config.K_STRIDE],
            Base.POS_V: layer + p // chip.lanes * c[Config.V_STRIDE],
            Base.TOKEN: self.token // chip.weight_streams * c[Config.EMB_STRIDE],
        }[Base(base)]

    def a_base(self, base: int) -> int:
        """Address base of MEM_A in this segment."""
        c = self.program.config
        return {
            Base.ZERO: 0,
            Base.LAYER: self.layer * c[Config.A_LAYER_STRIDE],
            Base.POS: self.position * c[Config.A_POS_STRIDE],
            Base.TOKEN: self.token // self.chip.lanes,
        }.get(Base(base), 0)

    def poisoned(self, what: str, e: Event) -> Hazard:
        """The error for a value that depends on memory nobody wrote."""
        return Hazard(
            f"{e.kind} at cycle {e.cycle}, position {self.position}, layer {self.layer}: "
            f"{what} was never written"
        )
