"""A quantised decoder to the ops of three segments: EMBED, LAYER, HEAD.

The order of the calls is the priority of the list scheduler; what an op waits for follows from the
cells it touches. One LAYER serves every layer: all that differs between layers is data at
LAYER-relative addresses. The three segments share one file because they share their helpers and
their places in activation and accumulator files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.chip import Chip
from tidemill.compiler.layout import CompileError, Geometry
from tidemill.compiler.memory import Memory
from tidemill.compiler.ops import Address, Builder, Dest, Load
from tidemill.compiler.schedule import Region, Schedule, Slot
from tidemill.isa import QUEUE_INDEX, QUEUES, TOKEN_CYCLES, Base, Timing

__all__ = ["k_outer", "lower_embed", "lower_head", "lower_layer"]

#: Scalar-file entries.
SCORE, TEMPERATURE, NORM_A, NORM_B, HEAD0 = 0, 1, 2, 3, 4

Row = NDArray[np.int64]


def k_outer(chip: Chip, geo: Geometry) -> bool:
    """Whether Wo and W2 run k outer: the residual's accumulators fit in half the file."""
    return geo.dim_vecs <= chip.acc_depth // 2


class _Segment:
    """Shared helpers of the three segments."""

    def __init__(self, chip: Chip, geo: Geometry, mem: Memory, sizes: int, reference: int):
        self.chip, self.geo, self.mem = chip, geo, mem
        self.b = Builder(chip, sizes, reference)
        self.whole = chip.lane_bits
        self.x = [self.vector(mem.x + v, "x", v) for v in range(geo.dim_vecs)]
        self._next_acc = 0

    def vector(self, addr: int, name: str, i: int = 0) -> Address:
        """A vector of MEM_A that the program writes."""
        return Address(addr, Base.ZERO, Region([("a", name, i)]))

    def raw(self, v: int) -> Load:
        """Activation-file place of residual vector v."""
        return Load(v, self.b.act[v], self.whole, 0)

    def slots(self, vectors: int, limit: int) -> int:
        """First of `vectors` accumulator vectors, in rotation below `limit`."""
        if self._next_acc + vectors > limit:
            self._next_acc = 0
        at = self._next_acc
        self._next_acc += vectors
        return at

    def square(self, sx: int) -> None:
        """Sum of squares of the residual in MEM_A -> 1/sqrt in scalar `sx`."""
        for v, x in enumerate(self.x):
            self.b.vxm(f"square {v}", "square", mem=x, sx=sx, first=v == 0, chain="SUMSQ")

    def scaled(self, name: str, addr: int, base: Base, sx: int) -> int:
        """Row multipliers times 1/rms -> a T entry."""
        td = self.b.take_t()
        self.b.vxm(f"{name} multipliers", "scale", mem=Address(addr, base), sx=sx, td=td)
        return td

    def rows(self, name: str, row: int, base: Base, first_abc: int, vecs: int, slot: int) -> Region:
        """One vector of a matrix-vector product, k inner; returns the accumulator cells."""
        region = self.b.acc[slot : slot + 1]
        self.b.mac(
            name, "ROWS", row, base, self.b.act[first_abc : first_abc + vecs], first_abc,
            region, slot * self.chip.subs, vecs, self.chip.subs, True,
        )  # fmt: skip
        return region

    def done(self, parked: int) -> Schedule:
        """Schedule the segment."""
        return self.b.sched.schedule(parked)


def lower_embed(chip: Chip, geo: Geometry, mem: Memory) -> _Segment:
    """Token -> residual in MEM_A and the activation file; cosines and sines of this position."""
    s = _Segment(chip, geo, mem, 1, 1)
    # GATHER, BCAST and the multiplier's READ may not dispatch before the token is known
    gather, read = (
        QUEUES[QUEUE_INDEX[queue]].op(name).d_func(chip)
        for queue, name in (("MEMW.R", "GATHER"), ("MEMA.R", "READ"))
    )
    first = TOKEN_CYCLES + max(
        gather - Timing.VXM_AB + chip.hop("MEM_W", "VXM"),
        read + chip.hop("MEM_A", "SXM") + chip.hop("SXM", "VXM"),
    )
    for v in range(geo.dim_vecs):
        s.b.vxm(
            f"embed {v}", "embed", gather=mem.embedding + v, mem=Address(mem.embed_m, Base.TOKEN),
            mem_at="SXM", sxm="BCAST", dest=Dest(s.x[v], s.raw(v)), earliest=first,
        )  # fmt: skip
    if chip.lanes > 1:
        for i in range(mem.rope_vecs):
            packed = Address(mem.rope + i, Base.POS)
            for name, move, addr in (("cos", "DUPE", mem.cos), ("sin", "DUPO", mem.sin)):
                s.b.vxm(
                    f"{name} {i}", "move_s", mem=packed, mem_at="SXM", sxm=move,
                    dest=Dest(s.vector(addr + i, name, i)),
                )  # fmt: skip
    return s


class _Layer(_Segment):
    def __init__(self, chip: Chip, geo: Geometry, mem: Memory, reference: int):
        super().__init__(chip, geo, mem, geo.n_max, reference)
        self.n = np.arange(1, geo.n_max + 1, dtype=np.int64)
        dv = geo.dim_vecs
        #: accumulators at the top for k-outer products, when the residual fits in half the file
        self.columns = k_outer(chip, geo)
        self.top = chip.acc_depth - dv if self.columns else chip.acc_depth
        # activation file: residual, queries, (attention output,) P of one or more heads; later h
        self.q_act = dv
        self.p_act = dv + (geo.heads if geo.head_pad < chip.lanes else geo.q_vecs)
        self.o_act = 0
        if geo.q_vecs > dv or not self.columns:
            self.o_act, self.p_act = self.p_act, self.p_act + geo.q_vecs
        need = max(self.p_act + geo.n_max, dv + geo.hidden_vecs)
        if need > chip.act_depth:
            raise CompileError(
                f"the activation file needs {need} vectors for a context of {geo.context}, "
                f"this chip has {chip.act_depth} (act_depth)"
            )
        self.p_count = min(geo.heads, (chip.act_depth - self.p_act) // geo.n_max)

    # RoPE --------------------------------------------------------------------------------------

    def rope(self, kind: str, i: int) -> Address:
        """Cosines or sines for vector i of a head (lanes = 1: by address, sine with its sign)."""
        mem = self.mem
        if self.chip.lanes == 1:
            return Address(mem.rope + 2 * i + (kind == "sin"), Base.POS)
        return self.vector((mem.cos if kind == "cos" else mem.sin) + i, kind, i)

    def rotated(
        self, name: str, acc: list[tuple[Region, int]], tm: list[int], at: int
    ) -> list[tuple[int, int]]:
        """Requantise drained vectors `at`, `at` + 1 .. and multiply their partners by sine.

        Returns the T entries (value, partner * sine) of every vector; with one lane a vector's
        partner is its neighbour, otherwise SXM SWAP brings it.
        """
        b, chip = self.b, self.chip
        values, partners = [], []
        for (region, slot), m in zip(acc, tm, strict=True):
            values.append(b.take_t())
            op = b.vxm(name, name, acc=region, acc_slot=slot, tb=m, td=values[-1], sx=NORM_A)
            b.free_t(m)
            if chip.lanes > 1:
                partners.append(b.take_t())
                turn = Timing.VXM_RESULT + 2 * chip.hop("VXM", "SXM")
                op.slots.append(Slot("SXM", turn - chip.hop("SXM", "VXM"), "SWAP", {"src": 0}))
                b.vxm("", "sin", mem=self.rope("sin", at), td=partners[-1], into=op, at=turn)
        if chip.lanes == 1:
            for i in range(len(values)):
                partners.append(b.take_t())
                b.vxm(
                    f"{name} sin",
                    "sin_t",
                    ta=values[i ^ 1],
                    mem=self.rope("sin", at + i),
                    td=partners[-1],
                )
        return list(zip(values, partners, strict=True))

    def finish(self, name: str, pair: tuple[int, int], at: int, dest: Dest) -> None:
        """value * cosine + partner * sine."""
        cos = self.rope("cos", at % self.geo.head_vecs)
        self.b.vxm(f"{name} cos", "cos", ta=pair[0], tc=pair[1], mem=cos, dest=dest)

    # Parts -------------------------------------------------------------------------------------

    def project(
        self, name: str, row: int, m: int, vectors: range
    ) -> tuple[list[tuple[Region, int]], list[int]]:
        """Products of Wq, Wk or Wv rows, and their multipliers times 1/rms."""
        dv = self.geo.dim_vecs
        acc, tm = [], []
        for r in vectors:
            slot = self.slots(1, self.top)
            region = self.rows(
                f"{name} {r}", row + r * dv * self.chip.subs, Base.LAYER, 0, dv, slot
            )
            acc.append((region, slot))
        for r in vectors:
            tm.append(self.scaled(f"{name} {r}", m + r, Base.LAYER, NORM_A))
        return acc, tm

    @property
    def stride(self) -> int:
        """Vectors that rotate together: one, or with one lane a pair."""
        return 1 if self.chip.lanes > 1 else 2

    def keys(self) -> None:
        """K of this token, rotated, into its row of the cache."""
        geo, mem, b = self.geo, self.mem, self.b
        for r0 in range(0, geo.kv_vecs, self.stride):
            acc, tm = self.project("Wk", mem.wk, mem.mk, range(r0, r0 + self.stride))
            for i, pair in enumerate(self.rotated("k", acc, tm, r0 % geo.head_vecs)):
                unit, c = divmod(r0 + i, geo.head_vecs)
                dest = Dest(mem_w=("WRITE", mem.k[unit] + c, Base.POS, 0, Region([("K", unit)])))
                self.finish("k", pair, r0 + i, dest)
                b.free_t(*pair)

    def queries(self) -> None:
        """q of this token, rotated, into the activation file, one zero-padded vector per head."""
        geo, mem, chip, b = self.geo, self.mem, self.chip, self.b
        mlog = (geo.head_pad - 1).bit_length()
        for r0 in range(0, geo.q_vecs, self.stride):
            acc, tm = self.project("Wq", mem.wq, mem.mq, range(r0, r0 + self.stride))
            for i, pair in enumerate(self.rotated("q", acc, tm, r0 % geo.head_vecs)):
                r = r0 + i
                loads = (
                    [Load(self.q_act + r, b.act[self.q_act + r], self.whole)]
                    if geo.head_pad >= chip.lanes
                    else [
                        Load(self.q_act + h, b.act[self.q_act + h], mlog, offset >> mlog, zero=True)
                        for h, (vec, offset) in enumerate(geo.q_place())
                        if vec == r
                    ]
                )
                for load in loads:  # a stream value passes once
                    self.finish("q", pair, r, Dest(load=load))
                b.free_t(*pair)

    def values(self) -> None:
        geo, mem, chip = self.geo, self.mem, self.chip
        for r in range(geo.kv_vecs):
            acc, tm = self.project("Wv", mem.wv, mem.mv, range(r, r + 1))
            region, slot = acc[0]
            for sub in range(chip.subs):
                group = r * chip.subs + sub
                if group * chip.weight_streams >= geo.kv_heads * geo.head_pad:
                    continue
                unit, j = divmod(group, geo.v_groups)
                dest = Dest(
                    mem_w=("SCATTER", mem.v[unit] + j, Base.POS_V, sub, Region([("V", unit)]))
                )
                self.b.vxm(
                    f"v {group}", "v", acc=region, acc_slot=slot, tb=tm[0], sx=NORM_A, dest=dest
                )
            self.b.free_t(*tm)

    def scores(self, h: int) -> None:
        """Scores of head h over all tokens -> MEM_A, running maximum."""
        geo, mem, chip, b = self.geo, self.mem, self.chip, self.b
        g = geo.kv_head(h)
        vec, _ = geo.q_place()[h]
        abc = self.q_act + (h if geo.head_pad < chip.lanes else vec)
        unit = g if geo.head_pad >= chip.lanes else g * geo.head_pad // chip.lanes
        inner = geo.head_vecs
        per = inner * chip.subs
        room = self.top - geo.heads * geo.head_vecs if self.top > geo.heads * geo.head_vecs else 0
        buffers = room // geo.n_max
        store = self.score_store(h)
        weights = Region([("K", unit)])
        count = self.n * chip.subs
        common: dict[str, Any] = {"sx": SCORE, "mx": h % 4, "first": True, "dest": Dest(store)}
        acts = b.act[abc : abc + inner]
        if buffers:
            slot = h % buffers * geo.n_max
            region = b.acc[slot : slot + geo.n_max]
            b.mac(f"scores {h}", "ROWS", mem.k[unit], Base.LAYER, acts, abc, region,
                  slot * chip.subs,
                  inner, count, True, weights)  # fmt: skip
            b.vxm(
                f"softmax max {h}",
                "score",
                acc=region,
                acc_slot=slot,
                count=self.n,
                interval=1,
                **common,
            )
            return
        op = b.mac(f"scores {h}", "ROWS", mem.k[unit], Base.LAYER, acts, abc, b.acc, 0,
                   inner, count, True, weights)  # fmt: skip
        trail = (
            QUEUES[QUEUE_INDEX["MXM.C"]].op("ROWS").d_func(chip) + per - 1 + chip.hop("MXM", "VXM")
        )
        b.vxm("", "score", acc=b.acc, count=self.n, interval=per, into=op, at=trail, **common)

    def score_store(self, h: int) -> Address:
        i = h % self.mem.score_buffers
        n = self.geo.n_max
        return Address(
            self.mem.scores + i * n, Base.ZERO, Region([("a", "scores", i, k) for k in range(n)])
        )

    def attend(self, h: int) -> None:
        """exp and sum of head h, P x V, and 1/sum folded into the result."""
        geo, mem, chip, b = self.geo, self.mem, self.chip, self.b
        p = self.p_act + h % self.p_count * geo.n_max
        region = b.act[p : p + geo.n_max]
        sx = HEAD0 + h % 4
        b.vxm(f"softmax exp {h}", "exp", mem=self.score_store(h), sx=sx, mx=h % 4, first=True,
              dest=Dest(load=Load(p, region, self.whole)), count=self.n, interval=1)  # fmt: skip
        g = geo.kv_head(h)
        unit = g if geo.head_pad >= chip.weight_streams else g * geo.head_pad // chip.weight_streams
        vec, offset = geo.q_place()[h]
        width = geo.head_vecs
        slot = self.top - width * (1 + h % self.pv_slots())
        sub = offset // chip.weight_streams
        b.mac(f"P x V {h}", "COLS", mem.v[unit], Base.LAYER, region, p, b.acc[slot : slot + width],
              slot * chip.subs + sub, geo.v_groups, self.n, True,
              Region([("V", unit)]))  # fmt: skip
        mlog = min((geo.head_pad - 1).bit_length(), chip.lane_bits)
        block = offset >> mlog if mlog < self.whole else 0
        for c in range(width):
            dst = self.o_act + vec + c
            b.vxm(
                f"attention {h}.{c}", "attend", acc=b.acc[slot + c], acc_slot=slot + c, sx=sx,
                dest=Dest(load=Load(dst, b.act[dst], mlog, block)),
            )  # fmt: skip

    def pv_slots(self) -> int:
        return max(1, min(self.geo.heads, (self.top - 1) // self.geo.head_vecs))

    def clear_padding(self) -> None:
        """Lanes of the attention output that no head fills must be zero, not stale."""
        geo = self.geo
        filled = np.zeros(geo.q_vecs * self.chip.lanes, bool)
        for vec, offset in geo.q_place():
            at = vec * self.chip.lanes + offset
            filled[at : at + geo.head_pad] = True
        for vec in np.flatnonzero(~filled.reshape(geo.q_vecs, -1).all(axis=1)).tolist():
            self.b.vxm(
                f"clear {vec}", "clear", mem=Address(self.mem.zero),
                dest=Dest(load=Load(self.o_act + vec, self.b.act[self.o_act + vec], self.whole)),
            )  # fmt: skip

    def product_to_residual(
        self, name: str, template: str, row: int, m: int, first_abc: int, vecs: int
    ) -> None:
        """x += W * activations: k outer when the accumulators hold the residual, else k inner."""
        geo, chip, b = self.geo, self.chip, self.b
        dv = geo.dim_vecs
        if self.columns:
            region = b.acc[self.top : self.top + dv]
            for c in range(vecs):
                a = first_abc + c
                b.mac(f"{name} column {c}", "COLS", row + c * dv * chip.subs, Base.LAYER,
                      b.act[a : a + 1],
                      a, region, self.top * chip.subs, dv * chip.subs, 1, c == 0)  # fmt: skip
        for v in range(dv):
            if self.columns:
                slot = self.top + v
            else:
                slot = self.slots(1, self.top)
                self.rows(
                    f"{name} {v}", row + v * vecs * chip.subs, Base.LAYER, first_abc, vecs, slot
                )
            t_x = b.take_t()
            b.vxm(f"x {v}", "move", mem=self.x[v], td=t_x)
            td = b.take_t() if template == "wo" else None
            b.vxm(
                f"residual {name} {v}", template, acc=b.acc[slot], acc_slot=slot, tc=t_x, td=td,
                mem=Address(m + v, Base.LAYER), dest=Dest(self.x[v], self.raw(v)),
            )  # fmt: skip
            b.free_t(t_x)
            if td is not None:
                b.vxm(f"square {v}", "square_t", ta=td, sx=NORM_B, first=v == 0, chain="SUMSQ")
                b.free_t(td)

    def mlp(self) -> None:
        geo, mem, b = self.geo, self.mem, self.b
        dv = geo.dim_vecs
        per = 2 * dv * self.chip.subs
        for v in range(geo.hidden_vecs):
            pair = []
            for j, name in enumerate(("W1", "W3")):
                slot = self.slots(1, self.top)
                row = mem.w13 + v * per + j * per // 2
                pair.append((self.rows(f"{name} {v}", row, Base.LAYER, 0, dv, slot), slot))
            t1 = self.scaled(f"W1 {v}", mem.m1 + v, Base.LAYER, NORM_B)
            t_g, t_s, t_u = b.take_t(), b.take_t(), b.take_t()
            b.vxm(f"g {v}", "w1", acc=pair[0][0], acc_slot=pair[0][1], tb=t1, td=t_g, sx=NORM_B)
            t3 = self.scaled(f"W3 {v}", mem.m3 + v, Base.LAYER, NORM_B)
            b.vxm(f"u {v}", "w3", acc=pair[1][0], acc_slot=pair[1][1], tb=t3, td=t_u, sx=NORM_B)
            b.vxm(f"silu {v}", "silu", ta=t_g, td=t_s)
            dst = dv + v
            b.vxm(
                f"h {v}", "gate", ta=t_u, tb=t_s, dest=Dest(load=Load(dst, b.act[dst], self.whole))
            )
            b.free_t(t1, t3, t_g, t_s, t_u)


def lower_layer(chip: Chip, geo: Geometry, mem: Memory, reference: int) -> _Layer:
    """One decoder layer for every n."""
    s = _Layer(chip, geo, mem, reference)
    s.square(NORM_A)
    s.keys()
    s.queries()
    s.values()
    ahead = min(geo.heads, mem.score_buffers, 4)
    for h in range(ahead):
        s.scores(h)
    s.clear_padding()
    for h in range(geo.heads):
        s.attend(h)
        if h + ahead < geo.heads:
            s.scores(h + ahead)
    s.product_to_residual("Wo", "wo", mem.wo, mem.mo, s.o_act, geo.q_vecs)
    s.mlp()
    s.product_to_residual("W2", "w2", mem.w2, mem.m2, geo.dim_vecs, geo.hidden_vecs)
    return s


def lower_head(chip: Chip, geo: Geometry, mem: Memory) -> _Segment:
    """Final norm, LM head, noise, argmax."""
    s = _Segment(chip, geo, mem, 1, 1)
    b = s.b
    dv = geo.dim_vecs
    for v in range(dv):
        t_g = b.take_t()
        b.vxm(f"final gain {v}", "move", mem=Address(mem.gain + v), td=t_g)
        b.vxm(f"final x {v}", "gain", mem=s.x[v], tb=t_g, dest=Dest(load=s.raw(v)))
        b.free_t(t_g)
    s.square(NORM_A)
    for v in range(geo.vocab_vecs):
        slot = s.slots(1, chip.acc_depth)
        region = s.rows(f"head {v}", mem.head + v * dv * chip.subs, Base.ZERO, 0, dv, slot)
        t_m = s.scaled(f"head {v}", mem.head_m + v, Base.ZERO, NORM_A)
        t_n, t_z = b.take_t(), b.take_t()
        b.vxm(f"gumbel {v}", "gumbel", td=t_n, chain="NOISE")
        b.vxm(f"noise {v}", "noise", ta=t_n, td=t_z, sx=TEMPERATURE)
        b.vxm(f"logits {v}", "logit", acc=region, acc_slot=slot, tb=t_m, tc=t_z, sx=NORM_A,
              first=v == 0, chain="ARGMAX")  # fmt: skip
        b.free_t(t_m, t_n, t_z)
    return s
