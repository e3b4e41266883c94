"""The worked example of `docs/timing.md`: one matrix-vector product, from the machine itself.

`docs/matvec.tasm` is assembled and run by the numpy engine; issue times come from the words,
dataflow from the trace, numbers from the engine's buffers. `python -m tidemill_sim.timing_doc`
writes the part of the page between the two marks anew; a test compares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tidemill.compiler.assembler import assemble
from tidemill.isa import QUEUE_INDEX, QUEUES, Seg, Timing
from tidemill.program import Program
from tidemill.timeline import expand_segment
from tidemill.trace import Event, Macro, Trace, trace_segment
from tidemill_sim.engine import Machine, TokenEvent

__all__ = ["MULTIPLIERS", "PAGE", "WEIGHTS", "Example", "X", "matvec", "on_page", "render", "run"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "timing.md"
MARKS = ("<!-- written by python -m tidemill_sim.timing_doc -->\n", "<!-- end -->\n")

#: W, 4 rows of 8 inputs; x; what every row's sum is multiplied by, in 1/65536.
WEIGHTS = np.array(
    [
        [10, 20, -30, 40, 5, -15, 25, 35],
        [-7, 14, 21, 28, -35, 42, 49, 56],
        [100, -90, 80, -70, 60, -50, 40, -30],
        [1, 2, 3, 4, 5, 6, 7, 8],
    ]
)
X = np.array([3, -1, 4, 1, -5, 9, 2, -6])
MULTIPLIERS = np.array([16384, 8192, 32767, 4096])

#: Lines of the diagram: a queue's dispatches, or where and when what it drives is visible.
LINES: tuple[tuple[str, str, tuple[str, str] | None], ...] = (
    ("MEMA.R", "MEMA.R", None),
    ("W_a, at MXM", "MEMA.R", ("MEM_A", "MXM")),
    ("W_a, at VXM", "MEMA.R", ("MEM_A", "VXM")),
    ("MXM.L", "MXM.L", None),
    ("MEMW.R", "MEMW.R", None),
    ("E0.., at MXM", "MEMW.R", ("MEM_W", "MXM")),
    ("MXM.C", "MXM.C", None),
    ("new sum", "MXM.C", ("MXM", "MXM")),
    ("MXM.A", "MXM.A", None),
    ("E_acc, at VXM", "MXM.A", ("MXM", "VXM")),
    ("VXM", "VXM", None),
    ("E_v, at MEM_A", "VXM", ("VXM", "MEM_A")),
    ("MEMA.W", "MEMA.W", None),
)


def matvec() -> Program:
    """`docs/matvec.tasm` with the memories of the example."""
    program = assemble((DOCS / "matvec.tasm").read_text())
    lanes, streams = program.chip.lanes, program.chip.weight_streams
    mem_w, mem_a = program.mem_w.copy(), program.mem_a.copy()
    used_w, used_a = program.mem_w_used.copy(), program.mem_a_used.copy()
    # plane of group g, chunk c: rows g*S.. of W, columns c*L..
    cube = WEIGHTS.reshape(-1, streams, X.size // lanes, lanes)
    planes = cube.transpose(0, 2, 1, 3).reshape(-1, streams, lanes)
    vectors = np.vstack([X.reshape(-1, lanes), MULTIPLIERS])
    mem_w[: len(planes)], used_w[: len(planes)] = planes, True
    mem_a[: len(vectors)], used_a[: len(vectors)] = vectors, True
    return dataclasses.replace(
        program, mem_w=mem_w, mem_w_used=used_w, mem_a=mem_a, mem_a_used=used_a
    )


@dataclasses.dataclass(frozen=True)
class Example:
    """The engine after a run of two positions; LAYER's dataflow and every value in it."""

    machine: Machine
    trace: Trace
    #: of position 0, which has no HEAD
    buffers: dict[str, np.ndarray]


def run() -> Example:
    """Run the example."""
    machine = Machine(matvec(), check=True)
    buffers: list[dict[str, np.ndarray]] = []

    def keep(event: TokenEvent) -> None:
        buffers.append({name: values.copy() for name, values in machine.buffers.items()})

    machine.run([0, 0], 1, progress=keep)
    return Example(machine, trace_segment(machine.program, Seg.LAYER, 1), buffers[0])


def _diagram(program: Program, last: int) -> Iterator[str]:
    """`LINES` over cycles; the number in a cell is the instruction's stepped field."""
    bursts, _ = expand_segment(program, Seg.LAYER, 1)
    yield f"{'cycle':14}" + "".join(f"{c:3}" for c in range(last + 1))
    for label, queue, way in LINES:
        cells = ["  ."] * (last + 1)
        for b in bursts[queue]:
            late = 0
            if way is not None:
                late = b.queue.op(b.mnemonic).d_func(program.chip) + program.chip.hop(*way)
            letter = b.mnemonic[0].lower() if way else b.mnemonic[0]
            for i, value in enumerate(b.stepped(program.chip)):
                for k in range(b.duration):
                    cells[b.start + i * b.interval + k + late] = f"{letter:>2}{value}"
        yield f"{label:14}" + "".join(cells)


def _text(values: np.ndarray) -> str:
    return "(" + ", ".join(map(str, values.tolist())) + ")"


def _steps(example: Example) -> Iterator[tuple[int, str, str, str, str]]:
    """(cycle, queue, instruction, what it takes and when, result and when) of everything."""
    machine, trace, buffers = example.machine, example.trace, example.buffers
    chip = machine.chip
    takers = {
        operand: (e.cycle + (Timing.VXM_AB if e.kind.startswith("VXM") else 0), e.kind.split()[0])
        for e in trace.events
        if isinstance(e, Event)
        for operand in e.ins.values()
    }

    def passed_on(buffer: str, index: int, visible: int) -> str:
        cycle, queue = takers[buffer, index]
        return f"{_text(buffers[buffer][index])}, visible in {visible}, at {queue} in {cycle}"

    for e in trace.events:
        if isinstance(e, Macro):
            yield from _sum(example, e)
            continue
        queue, mnemonic = e.kind.split()
        visible = e.cycle + QUEUES[QUEUE_INDEX[queue]].op(mnemonic).d_func(chip)
        if queue == "MEMA.R":
            name, taken = f"READ addr={e.fields['addr']}", ""
            result = "W_a " + passed_on("W_a", e.index, visible)
        elif queue == "MXM.L":
            name = f"LW dst={e.fields['dst']}"
            taken = f"W_a in {e.cycle}"
            result = f"activation {e.fields['dst']} holds it from {visible}"
        elif queue == "MXM.A":
            groups = [buffers["acc"][e.ins[f"g{s}"][1]] for s in range(chip.subs)]
            name, taken = f"ACC slot={e.fields['slot']}", f"{_text(np.concatenate(groups))}"
            result = "E_acc " + passed_on("E_acc", e.index, visible)
        else:
            at = e.cycle + Timing.VXM_AB
            arrives = visible + chip.hop("VXM", "MEM_A")
            name, taken = f"PASS tmpl={e.fields['tmpl']}", f"A = E_acc, B = W_a in {at}"
            result = f"E_v {_text(buffers['ev'][e.index])}, visible in {visible}"
            result += f", at MEMA.W in {arrives}"
        yield e.cycle, queue, name, taken, result
    for b in expand_segment(machine.program, Seg.LAYER, 1)[0]["MEMA.W"]:
        addr = b.fields["addr"]
        done = f"MEM_A[{addr}] = {_text(machine.mem_a[addr])}, for a READ in {b.start + 1}"
        yield b.start, "MEMA.W", f"WRITE addr={addr}", f"E_v in {b.start}", done


def _sum(example: Example, m: Macro) -> Iterator[tuple[int, str, str, str, str]]:
    """Steps of one accumulator group: planes as they are read, sums as they grow."""
    machine, buffers, chip = example.machine, example.buffers, example.machine.chip
    mac = QUEUES[QUEUE_INDEX["MXM.C"]].op("ROWS").d_func(chip)
    read = QUEUES[QUEUE_INDEX["MEMW.R"]].op("READ").d_func(chip)
    total = np.zeros(chip.weight_streams, np.int64)
    for k, (row, act, at) in enumerate(zip(m.rows, m.acts, m.reads.tolist(), strict=True)):
        plane, x = machine.mem_w[row], buffers["act"][act]
        arrives = at + read + chip.hop("MEM_W", "MXM")
        cycle = arrives - 1
        total = total + plane @ x
        streams = " ".join(map(_text, plane))
        yield at, "MEMW.R", f"READ addr={row}", "", f"E0.. {streams}, at MXM.C in {arrives}"
        taken = f"activation {_text(x)} in {cycle}, plane in {arrives}"
        result = f"group {m.group} = {_text(total)} from {cycle + mac}"
        yield cycle, "MXM.C", "ROWS" if k == 0 else "", taken, result
    assert (total == buffers["acc"][m.index]).all()


def render() -> str:
    """The generated part of the page."""
    example = run()
    steps = sorted(_steps(example), key=lambda s: s[0])
    last = steps[-1][0]
    lines = ["```text", *_diagram(example.machine.program, last), "```", ""]
    lines += ["| cycle | queue | instruction | takes | result |", "|---|---|---|---|---|"]
    lines += [
        f"| {c} | {q} | {f'`{name}`' if name else ''} | {taken} | {result} |"
        for c, q, name, taken, result in steps
    ]
    return "\n".join(lines) + "\n"


def on_page() -> tuple[str, str, str]:
    """The page: before the generated part, that part, after it."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    part, _, after = rest.partition(MARKS[1])
    return before + MARKS[0], part, MARKS[1] + after


def main() -> None:
    """Write the part anew."""
    before, _, after = on_page()
    PAGE.write_text(before + render() + after)


if __name__ == "__main__":
    main()
