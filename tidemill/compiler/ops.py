"""Building blocks of the lowering: one method per rigid chain of instructions through the streams.

Offsets follow from the ISA table and the hops of the floor plan; no other file of the compiler
knows them.
All offsets are relative to the dispatch of the op's main instruction.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemill.chip import Chip
from tidemill.compiler.layout import CompileError
from tidemill.compiler.schedule import Op, Region, Scheduler, Slot
from tidemill.isa import QUEUE_INDEX, QUEUES, ASrc, Base, BSrc, Func, Mask, Red, Template, Timing

__all__ = ["TEMPLATES", "Address", "Builder", "Dest", "Load"]

Count = int | NDArray[np.int64]

#: The passes of a llama-type decoder. `shift` is filled in from the quantised model.
TEMPLATES: dict[str, Template] = {
    "move": Template(ASrc.WA, wt=True),
    "move_s": Template(ASrc.WS),
    "clear": Template(ASrc.WA),
    "embed": Template(ASrc.BYTE, BSrc.WS),
    "square": Template(ASrc.WA, BSrc.SELF, red=Red.SUMSQ),
    "square_t": Template(ASrc.T, BSrc.SELF, red=Red.SUMSQ),
    "scale": Template(ASrc.WA, BSrc.SCALAR, wt=True),
    "q": Template(ASrc.ACC, BSrc.T4, dyn=True, wt=True),
    "k": Template(ASrc.ACC, BSrc.T4, dyn=True, wt=True),
    "v": Template(ASrc.ACC, BSrc.T4, dyn=True),
    "w1": Template(ASrc.ACC, BSrc.T4, dyn=True, wt=True),
    "w3": Template(ASrc.ACC, BSrc.T4, dyn=True, wt=True),
    "sin": Template(ASrc.WS, BSrc.WA4, wt=True),
    "sin_t": Template(ASrc.T, BSrc.WA4, wt=True),
    "cos": Template(ASrc.T, BSrc.WA4, c=True),
    "score": Template(ASrc.ACC, BSrc.SCALAR, mask=Mask.POS_MIN, red=Red.MAX),
    "exp": Template(ASrc.WA, func=Func.EXP, mask=Mask.POS_ZERO, red=Red.SUM),
    "attend": Template(ASrc.ACC, BSrc.SCALAR, shift=-8, dyn=True),
    "wo": Template(ASrc.ACC, BSrc.WA, c=True, wt=True),
    "silu": Template(ASrc.T, func=Func.SILU, wt=True),
    "gate": Template(ASrc.T, BSrc.T),
    "w2": Template(ASrc.ACC, BSrc.WA, c=True),
    "gain": Template(ASrc.WA, BSrc.T),
    "gumbel": Template(ASrc.NOISE, func=Func.GUMBEL, wt=True),
    "noise": Template(ASrc.T, BSrc.SCALAR, wt=True),
    "logit": Template(ASrc.ACC, BSrc.T, c=True, dyn=True, mask=Mask.VOCAB_MIN, red=Red.ARGMAX),
}


@dataclass(frozen=True)
class Address:
    """A vector of MEM_A: how to reach it, and its cell (None for constants)."""

    addr: int
    base: Base = Base.ZERO
    region: Region | None = None


@dataclass(frozen=True)
class Load:
    """Destination in the activation file.

    Vector(s), lane block and whether other lanes become zero.
    """

    dst: int
    region: Region
    mlog: int
    midx: int = 0
    zero: bool = False


@dataclass(frozen=True)
class Dest:
    """Where the result of a pass goes besides T."""

    mem_a: Address | None = None
    load: Load | None = None
    #: MEM_W write: mnemonic, row, base, sub, cell
    mem_w: tuple[str, int, Base, int, Region] | None = None


class Builder:
    """Adds ops to a scheduler; holds the files' cells and rotating allocations."""

    def __init__(self, chip: Chip, sizes: int, reference: int):
        self.chip = chip
        self.sched = Scheduler(sizes, reference)
        self.names = list(TEMPLATES)
        self.t = Region([("T", i) for i in range(chip.temp_depth)])
        self.act = Region([("act", i) for i in range(chip.act_depth)])
        self.acc = Region([("acc", i) for i in range(chip.acc_depth)])
        self._free_t = deque(range(chip.temp_depth))
        self._d = {(q.name, o.mnemonic): o.d_func(chip) for q in QUEUES for o in q.ops}

    def take_t(self) -> int:
        """A free T entry, the longest free first."""
        if not self._free_t:
            raise CompileError(
                f"the VXM needs more than {self.chip.temp_depth} temporaries (temp_depth)"
            )
        return self._free_t.popleft()

    def free_t(self, *entries: int) -> None:
        """Give entries back: every op that reads them has been added."""
        self._free_t.extend(entries)

    def hop(self, a: str, b: str) -> int:
        """Hops between two slices."""
        return self.chip.hop(a, b)

    # MXM ---------------------------------------------------------------------------------------

    def mac(
        self,
        name: str,
        mode: str,
        row: int,
        base: Base,
        abc: Region,
        first_abc: int,
        slots: Region,
        group: int,
        inner: int,
        outer: Count,
        fresh: bool,
        weights: Region | None = None,
    ) -> Op:
        """Weights from `row` on, one plane a cycle, against activations, into accumulator groups.

        ROWS: `outer` groups of `inner` activations each. COLS: `outer` activations, each for
        `inner`
        groups. `slots` are the vectors that hold the groups, `weights` the cells of K or V rows.
        """
        c = self.chip
        skew = QUEUES[QUEUE_INDEX["MXM.C"]].op(mode).skew
        read = skew - self._d["MEMW.R", "READ"] - self.hop("MEM_W", "MXM")
        total = outer * inner
        slots_mac = Slot(
            "MXM.C", 0, mode, {"abc": first_abc, "acc": group, "ni": inner, "fresh": int(fresh)},
            outer, inner, 0, inner,
        )  # fmt: skip
        plane = Slot("MEMW.R", read, "READ", {"addr": row, "base": int(base)}, total, 1, 1)
        op = self.sched.op(name, "MXM", [slots_mac, plane])
        d = self._d["MXM.C", mode]
        if weights is not None:
            self.sched.read(op, weights, read)
        if mode == "ROWS":
            per = inner * c.subs  # cycles of one accumulator vector
            vectors = outer // c.subs
            for i in range(inner):
                self.sched.read(op, abc[i], i)
                last = (outer - 1) * inner + i if isinstance(outer, int) else None
                if last is not None:
                    self.sched.read(op, abc[i], last)
                else:
                    self.sched.read(op, abc[i], i, outer, inner)
            self.sched.write(op, slots, d, vectors, per)
            self.sched.write(op, slots, d + per - 1, vectors, per)
        else:
            self.sched.read(op, abc, 0, outer, inner)
            self.sched.read(op, abc, inner - 1, outer, inner)
            count = len(slots)
            for j in range(count):
                self.sched.write(op, slots[j], d + j * c.subs)
                tail = d + min((j + 1) * c.subs, inner) - 1
                self.sched.write(op, slots[j], tail, outer, inner)
        return op

    # VXM ---------------------------------------------------------------------------------------

    def vxm(
        self,
        name: str,
        template: str,
        *,
        acc: Region | None = None,
        acc_slot: int = 0,
        mem: Address | None = None,
        mem_at: str = "VXM",
        gather: int | None = None,
        sxm: str | None = None,
        ta: int | None = None,
        tb: int | None = None,
        tc: int | None = None,
        td: int | None = None,
        sx: int = 0,
        mx: int = 0,
        first: bool = False,
        dest: Dest | None = None,
        count: Count = 1,
        interval: int = 1,
        chain: str | None = None,
        earliest: int = 0,
        into: Op | None = None,
        at: int = 0,
    ) -> Op:
        """One pass (or a burst of `count`), with its operand fetches and result stores.

        acc: accumulator vectors drained as A; mem: MEM_A operand on W_a (through SXM when `sxm` and
        mem_at is "SXM"); gather: MEM_W row for BYTE; into/at: append to an existing op at an
        offset.
        """
        t = TEMPLATES[template]
        if t.wt != (td is not None):
            raise ValueError(f"{name}: template {template} and T destination {td} disagree")
        hop, d = self.hop, self._d
        slots = [
            Slot(
                "VXM", at, "PASS",
                {
                    "ta": ta or 0, "tb": tb or 0, "tc": tc or 0, "td": td or 0, "first": int(first),
                    "tmpl": self.names.index(template), "sx": sx, "mx": mx,
                },
                count, interval, 0,
            )
        ]  # fmt: skip
        sample = at + Timing.VXM_AB
        drain = sample - d["MXM.A", "ACC"] - hop("MXM", "VXM")
        if acc is not None:
            slots.append(Slot("MXM.A", drain, "ACC", {"slot": acc_slot}, count, interval, 1))
        move = sample - 1 - hop("SXM", "VXM")
        target, arrive = ("SXM", move) if mem_at == "SXM" else ("VXM", sample)
        fetch = arrive - d["MEMA.R", "READ"] - hop("MEM_A", target)
        if mem is not None:
            slots.append(
                Slot(
                    "MEMA.R",
                    fetch,
                    "READ",
                    {"addr": mem.addr, "base": int(mem.base)},
                    count,
                    interval,
                    1,
                )
            )
        if sxm is not None:
            slots.append(Slot("SXM", move, sxm, {"src": int(mem_at == "SXM")}, count, interval, 0))
        if gather is not None:
            at_w = sample - d["MEMW.R", "GATHER"] - hop("MEM_W", "VXM")
            slots.append(Slot("MEMW.R", at_w, "GATHER", {"addr": gather, "base": int(Base.TOKEN)}))
        result = at + Timing.VXM_RESULT
        store, load, append = (
            result + hop("VXM", "MEM_A"), result + hop("VXM", "MXM"), result + hop("VXM", "MEM_W"),
        )  # fmt: skip
        dest = dest or Dest()
        if dest.mem_a is not None:
            a = dest.mem_a
            slots.append(
                Slot(
                    "MEMA.W",
                    store,
                    "WRITE",
                    {"addr": a.addr, "base": int(a.base)},
                    count,
                    interval,
                    1,
                )
            )
        if dest.load is not None:
            ld = dest.load
            slots.append(
                Slot(
                    "MXM.L", load, "LW",
                    {
                        "dst": ld.dst, "src": 1, "mlog": ld.mlog, "midx": ld.midx,
                        "zero": int(ld.zero),
                    },
                    count, interval, 1,
                )
            )  # fmt: skip
        if dest.mem_w is not None:
            mnemonic, row, base, sub, _ = dest.mem_w
            slots.append(
                Slot("MEMW.W", append, mnemonic, {"addr": row, "base": int(base), "sub": sub})
            )

        if into is None:
            op = self.sched.op(name, "VXM", slots, earliest)
        else:
            op = into
            op.slots += slots
        s = self.sched
        if acc is not None:
            s.read(op, acc, drain, count, interval)
        if mem is not None and mem.region is not None:
            s.read(op, mem.region, fetch, count, interval)
        for index, when in ((ta, sample), (tb, sample), (tc, at + Timing.VXM_C)):
            if index is not None:
                s.read(op, self.t[index], when)
        if t.b is BSrc.SCALAR or t.dyn:
            s.read(op, Region([("scalar", sx)]), sample, count, interval)
        if t.func is Func.EXP:
            s.read(op, Region([("max", mx)]), at + Timing.VXM_MAX_READ, count, interval)
        if td is not None:
            s.write(op, self.t[td], at + Timing.VXM_T)
        if t.red is Red.MAX:
            s.write(op, Region([("max", mx)]), at + Timing.vxm_max(self.chip), count, interval)
        elif t.red in (Red.SUM, Red.SUMSQ):
            s.write(
                op, Region([("scalar", sx)]), at + Timing.vxm_scalar(self.chip), count, interval
            )
        elif t.red is Red.ARGMAX:
            s.write(op, Region(["token"]), at + Timing.vxm_max(self.chip))
        if chain:
            s.write(op, Region([("order", chain)]), at + 1)
        if dest.mem_a is not None and dest.mem_a.region is not None:
            s.write(op, dest.mem_a.region, store + d["MEMA.W", "WRITE"], count, interval, clear=2)
        if dest.load is not None:
            if dest.load.mlog < self.chip.lane_bits and not dest.load.zero:
                s.read(op, dest.load.region, load)
            s.write(op, dest.load.region, load + d["MXM.L", "LW"], count, interval)
        if dest.mem_w is not None:
            s.write(op, dest.mem_w[4], append + d["MEMW.W", dest.mem_w[0]])
        return op
