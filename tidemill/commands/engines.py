"""One run of a program in an engine, in the same terms for all; boards are in `board`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.commands.common import working
from tidemill.isa import QUEUES, TIDE_SEQUENCER, Fault
from tidemill.program import Program

if TYPE_CHECKING:
    from tidemill_sim.waves import Wave

__all__ = [
    "Outcome",
    "Request",
    "fault_text",
    "memories_equal",
    "predicted_cycles",
    "run_rtl",
    "run_sim",
]

#: Called with every token as it comes: (token, generated).
Listener = Callable[[int, bool], None]


@dataclass(frozen=True)
class Request:
    """What the host asks of one run."""

    prompt: list[int]
    tokens: int
    temperature: float
    seed: int
    check: bool = False


@dataclass(frozen=True)
class Outcome:
    """What an engine made of a request: one entry per position."""

    tokens: list[int]
    generated: list[bool]
    cycles: list[int]
    seconds: float
    fault: str = ""
    memories: tuple[Any, ...] | None = None
    #: Clock of a board of silicon.
    clock_hz: int | None = None


def fault_text(kind: int, queue: int, cycle: int) -> str:
    """What the chip's fault register says."""
    where = "the sequencer" if queue == TIDE_SEQUENCER else QUEUES[queue].name
    return f"{Fault(kind).name} in {where}, cycle {cycle} of the run"


def predicted_cycles(program: Program, prompt: int, positions: int) -> list[int]:
    """Cycles the compiler announces for every position of a run."""
    return [program.cycles(p, p >= prompt - 1) for p in range(positions)]


def run_sim(
    program: Program, request: Request, listen: Listener | None = None, *, warm: bool = False
) -> Outcome:
    """The run in the numpy engine; `warm`: the second run of one machine."""
    from tidemill_sim.engine import Machine

    machine = Machine(program, check=request.check)
    if warm:
        machine.run(request.prompt, request.tokens, request.temperature, request.seed)
    begin = time.perf_counter()
    events = machine.run(
        request.prompt,
        request.tokens,
        request.temperature,
        request.seed,
        progress=(lambda e: listen(e.token, e.generated)) if listen else None,
    )
    seconds = time.perf_counter() - begin
    memories = (machine.mem_w, machine.mem_w_ok, machine.mem_a, machine.mem_a_ok)
    return Outcome(
        [e.token for e in events],
        [e.generated for e in events],
        [e.cycles for e in events],
        seconds,
        memories=memories if request.check else None,
    )


def run_rtl(
    program: Program,
    request: Request,
    listen: Listener | None = None,
    wave: Wave | None = None,
) -> Outcome:
    """The run in the Verilog under Verilator. Raises `SimulatorError` if that cannot be."""
    from tidemill_sim.rtl import RtlEngine, RunRequest

    engine = RtlEngine(program.chip)
    with working() as say:
        say(f"building {program.chip.name} with Verilator (the first time takes a minute or more)")
        engine.build(waves=wave is not None)
    writes = program.run_writes(request.prompt, request.tokens, request.temperature, request.seed)
    result = engine.run(
        program.boot_writes(),
        [RunRequest(writes)],
        dump=request.check,
        progress=(lambda _, t: listen(t.token, t.generated)) if listen else None,
        wave=wave,
    )[0]
    fault = ""
    if result.fault is not None:
        fault = fault_text(result.fault.kind, result.fault.queue, result.fault.cycle)
    # the bench counts clock edges from the start of the run on, the chip from token to token
    ends = [0, *(t.measured for t in result.tokens)]
    measured = [b - a for a, b in itertools.pairwise(ends)]
    for at, (t, edges) in enumerate(zip(result.tokens, measured, strict=True)):
        if t.cycles != edges and not fault:
            fault = f"position {at}: the chip counted {t.cycles} cycles, the bench {edges} edges"
    return Outcome(
        [t.token for t in result.tokens],
        [t.generated for t in result.tokens],
        measured,
        engine.seconds,
        fault,
        (result.mem_w, result.mem_a) if request.check else None,
    )


def memories_equal(sim: Outcome, made: Outcome) -> bool:
    """Whether every byte that the program defined is the same in both."""
    assert sim.memories
    assert made.memories
    w, w_ok, a, a_ok = sim.memories
    made_w, made_a = made.memories
    return bool((w == made_w)[w_ok].all() and (a == made_a)[a_ok].all())
