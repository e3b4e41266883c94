"""The independent checker: replays a program's words against the machine's rules, for every n.

It knows the program and the ISA table only (`tidemill.timeline`, `tidemill.trace`): queues that
park in time, operands that arrive in their cycle, sums complete before they are read, no
collision, addresses inside their memories, nothing in flight across a segment's end, the tide row
loaded before it is used.
"""

from __future__ import annotations

from tidemill import isa
from tidemill.isa import Base, Config, Seg
from tidemill.program import Program, ProgramError
from tidemill.trace import Macro, Trace, trace_segment

__all__ = ["check_program"]


def check_program(program: Program) -> int:
    """Cycles checked. Raises `ProgramError` (or its kind `Hazard`) at the first broken rule."""
    chip = program.chip
    row = program.config[Config.TIDE_ROW]
    if any(len(words) != row for words in program.tide):
        raise ProgramError(f"a tide row does not have the {row} words that TIDE_ROW says")
    need = isa.TOKEN_CYCLES + row + 4
    if program.config[Config.EMBED_LENGTH] < need:
        raise ProgramError(
            f"EMBED has {program.config[Config.EMBED_LENGTH]} cycles, "
            f"loading a tide row of {row} words needs {need}"
        )
    if len(program.tide) < -(-program.context // chip.lanes):
        raise ProgramError(
            f"the tide table has {len(program.tide)} rows, the context needs "
            f"{-(-program.context // chip.lanes)}"
        )
    cycles = 0
    for n in range(1, len(program.tide) + 1):
        for seg in Seg:
            if seg is Seg.LAYER or n == 1:
                trace = trace_segment(program, seg, n)
                _addresses(program, trace)
                cycles += trace.length
    return cycles


def _addresses(program: Program, trace: Trace) -> None:
    """Every address of the segment at the largest value of its base."""
    chip, c = program.chip, program.config
    layer, last = c[Config.LAYERS] - 1, program.context - 1
    p = min(trace.n * chip.lanes - 1, last)
    k, v = p // chip.weight_streams, p // chip.lanes
    w_layer, a_layer = layer * c[Config.W_LAYER_STRIDE], layer * c[Config.A_LAYER_STRIDE]
    token = c[Config.VOCAB] - 1
    w = {
        Base.ZERO: 0,
        Base.LAYER: w_layer,
        Base.POS: w_layer + k * c[Config.K_STRIDE],
        Base.POS_V: w_layer + v * c[Config.V_STRIDE],
        Base.TOKEN: token // chip.weight_streams * c[Config.EMB_STRIDE],
    }
    a = {
        Base.ZERO: 0,
        Base.LAYER: a_layer,
        Base.POS: p * c[Config.A_POS_STRIDE],
        Base.TOKEN: token // chip.lanes,
    }

    def inside(what: str, row: int, depth: int) -> None:
        if row >= depth:
            raise ProgramError(
                f"{what} in {trace.seg.name} (n = {trace.n}) reaches row {row} of {depth}"
            )

    for e in trace.events:
        if isinstance(e, Macro):
            for base in set(e.bases.tolist()):
                top = int(e.rows[e.bases == base].max()) + w[Base(base)]
                inside("MEMW.R READ", top, chip.mem_w_depth)
        elif e.kind.startswith("MEMW"):
            inside(e.kind, e.fields["addr"] + w[Base(e.fields["base"])], chip.mem_w_depth)
        elif e.kind.startswith("MEMA.R"):
            inside(e.kind, e.fields["addr"] + a.get(Base(e.fields["base"]), 0), chip.mem_a_depth)
