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
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics as nx
from tidemill.isa import ASrc, Base, BSrc, Config, Func, Mask, Red, Seg
from tidemill.program import Program
from tidemill.trace import Event, Hazard, Macro, Trace, trace_segment

__all__ = ["Machine", "TokenEvent"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TokenEvent:
    """What the chip reports after a position: next token, cycles, whether HEAD chose the token."""

    token: int
    cycles: int
    generated: bool


@dataclass
class _Batch:
    run: Callable[[Machine, dict[str, Any]], None]
    args: dict[str, Any]


@dataclass
class _Plan:
    trace: Trace
    batches: list[_Batch]
    argmax: bool = False
    mem_a_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    mem_a_from: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


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
        self.plans: dict[tuple[Seg, int], _Plan] = {}
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
            plan = self.plans[seg, n] = _plan(self, trace_segment(self.program, seg, n))
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


# Plans: levels of independent events, batches of one kind ---------------------------------------


def _plan(machine: Machine, trace: Trace) -> _Plan:
    """Order a trace into batches. An event's level is one more than the highest of its operands."""
    level: dict[tuple[str, int], int] = {}
    program, chip = machine.program, machine.chip
    reduced: dict[int, tuple[Red, int, list[int]]] = {}
    for item in trace.reductions:
        reduced[item[2][-1]] = item
    groups: dict[tuple[Any, ...], list[Any]] = {}
    written: list[tuple[set[int], int, int]] = []  # relative rows, visible, level
    for e in trace.events:
        if isinstance(e, Macro):
            at = max((level.get(("act", int(a)), 0) for a in np.unique(e.acts)), default=0)
            for rows, visible, lv in written:
                hit = np.isin(e.rows, list(rows)) & (e.bases == Base.LAYER)
                if hit.any():
                    if (e.reads[hit] < visible).any():
                        raise Hazard(
                            f"MEMW.R, {trace.seg.name}: a row is read before this position's "
                            "K or V lands"
                        )
                    at = max(at, lv)
            e.level = at + 1
            level["acc", e.index] = e.level
            groups.setdefault((e.level, "MAC", len(e.rows)), []).append(e)
            continue
        e.level = 1 + max((level.get(i, 0) for i in e.ins.values()), default=0)
        key: tuple[Any, ...] = (e.level, e.kind)
        if e.kind.startswith("VXM"):
            key += (e.fields["tmpl"],)
            level["ev", e.index] = e.level
            if e.index in reduced:
                red, slot, parts = reduced[e.index]
                at = 1 + max(level["ev", i] for i in parts)
                if red is not Red.ARGMAX:
                    level["max" if red is Red.MAX else "scalar", slot] = at
                groups.setdefault((at, "reduce", red, slot), []).append(parts)
        elif e.kind.startswith("MEMA.R"):
            level["W_a", e.index] = e.level
            key += ("value" in e.ins,)
        elif e.kind.startswith("MEMW.R"):
            level["E_b", e.index] = e.level
        elif e.kind.startswith("MXM.A"):
            level["E_acc", e.index] = e.level
        elif e.kind.startswith("SXM"):
            level["W_s", e.index] = e.level
            key += (e.fields["src"],)
        elif e.kind.startswith("MXM.L"):
            level["act", e.index] = e.level
            key += (e.fields["src"],)
        elif e.kind.startswith("MEMW.W"):
            step = Config.K_STRIDE if e.kind.endswith("WRITE") else Config.V_STRIDE
            per = chip.weight_streams if e.kind.endswith("WRITE") else chip.lanes
            first, last = (trace.n - 1) * chip.lanes // per, (trace.n * chip.lanes - 1) // per
            rows = {e.fields["addr"] + program.config[step] * k for k in range(first, last + 1)}
            written.append((rows, e.cycle + 2, e.level))
        groups.setdefault(key, []).append(e)
    batches = [
        _BUILDERS[key[1].split()[0]](machine, key, items)
        for key, items in sorted(groups.items(), key=lambda g: g[0][0])
    ]
    writes = sorted(trace.mem_a_writes.items())
    return _Plan(
        trace,
        batches,
        any(r[0] is Red.ARGMAX for r in trace.reductions),
        np.array([a for a, _ in writes], np.int64),
        np.array([i for _, i in writes], np.int64),
    )


def _ix(items: list[Event], name: str) -> Ints:
    return np.array([e.ins[name][1] for e in items], np.int64)


def _out(items: list[Event]) -> Ints:
    return np.array([e.index for e in items], np.int64)


def _field(items: list[Event], name: str) -> Ints:
    return np.array([e.fields[name] for e in items], np.int64)


def _mac(machine: Machine, key: tuple[Any, ...], items: list[Macro]) -> _Batch:
    bases = np.stack([m.bases for m in items])
    uniform = int(bases.flat[0]) if (bases == bases.flat[0]).all() else None
    args = {
        "rows": np.stack([m.rows for m in items]),
        "bases": bases,
        "base": uniform,
        "acts": np.stack([m.acts for m in items]),
        "out": np.array([m.index for m in items], np.int64),
    }

    def run(m: Machine, a: dict[str, Any]) -> None:
        if a["base"] is not None:
            rows = a["rows"] + m.w_base(a["base"])
        else:
            table = np.array([m.w_base(b) for b in range(5)])
            rows = a["rows"] + table[a["bases"]]
        if rows.max() >= m.chip.mem_w_depth:
            raise Hazard(f"MEMW.R: row {int(rows.max())} is beyond MEM_W's {m.chip.mem_w_depth}")
        acts = m.buffers["act"][a["acts"]]
        weights = m.mem_w[rows]
        sums = np.einsum("eksl,ekl->es", weights, acts)
        if m.check:
            exact = np.einsum("eksl,ekl->es", weights.astype(np.int64), acts.astype(np.int64))
            if (exact != sums).any():
                raise Hazard(f"MXM.C: a sum of {int(np.abs(exact).max())} does not fit int32")
            bad = (~m.mem_w_ok[rows] & (acts != 0)[:, :, None, :]).any(axis=(1, 3))
            bad |= (~m.ok["act"][a["acts"]]).any(axis=(1, 2))[:, None]
            m.ok["acc"][a["out"]] = ~bad
        m.buffers["acc"][a["out"]] = sums

    return _Batch(run, args)


def _copy(
    target: str, source: str, transform: Callable[[Machine, Any], Any] | None = None
) -> Callable[[list[Event]], _Batch]:
    def build(items: list[Event]) -> _Batch:
        args = {"i": _ix(items, "value"), "o": _out(items)}

        def run(m: Machine, a: dict[str, Any]) -> None:
            v = m.buffers[source][a["i"]]
            m.buffers[target][a["o"]] = transform(m, v) if transform else v
            if m.check:
                ok = m.ok[source][a["i"]]
                m.ok[target][a["o"]] = np.abs(transform(m, ok)) != 0 if transform else ok

        return _Batch(run, args)

    return build


def _mema_r(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    if key[2]:
        return _copy("W_a", "ev")(items)
    args = {"addr": _field(items, "addr"), "base": _field(items, "base"), "o": _out(items)}

    def run(m: Machine, a: dict[str, Any]) -> None:
        rows = a["addr"] + np.array([m.a_base(b) for b in range(5)])[a["base"]]
        if rows.max() >= m.chip.mem_a_depth:
            raise Hazard(f"MEMA.R: vector {int(rows.max())} is beyond MEM_A's {m.chip.mem_a_depth}")
        m.buffers["W_a"][a["o"]] = m.mem_a[rows]
        if m.check:
            m.ok["W_a"][a["o"]] = m.mem_a_ok[rows]

    return _Batch(run, args)


def _gather(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    args = {"addr": _field(items, "addr"), "base": _field(items, "base"), "o": _out(items)}

    def run(m: Machine, a: dict[str, Any]) -> None:
        rows = a["addr"] + np.array([m.w_base(b) for b in range(5)])[a["base"]]
        bank = m.token % m.chip.weight_streams
        m.buffers["E_b"][a["o"]] = m.mem_w[rows, bank]
        if m.check:
            m.ok["E_b"][a["o"]] = m.mem_w_ok[rows, bank]

    return _Batch(run, args)


def _drain(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    subs = machine.chip.subs
    args = {
        "g": np.array([[e.ins[f"g{s}"][1] for s in range(subs)] for e in items], np.int64),
        "o": _out(items),
    }

    def run(m: Machine, a: dict[str, Any]) -> None:
        m.buffers["E_acc"][a["o"]] = m.buffers["acc"][a["g"]].reshape(len(a["o"]), -1)
        if m.check:
            m.ok["E_acc"][a["o"]] = m.ok["acc"][a["g"]].reshape(len(a["o"]), -1)

    return _Batch(run, args)


def _swap(m: Machine, v: Ints) -> Ints:
    if m.chip.lanes == 1:
        return v
    out = np.empty_like(v)
    out[:, 0::2] = v[:, 1::2] if v.dtype == bool else -v[:, 1::2]
    out[:, 1::2] = v[:, 0::2]
    return out


def _dup(odd: int) -> Callable[[Machine, Ints], Ints]:
    return lambda m, v: v if m.chip.lanes == 1 else np.repeat(v[:, odd::2], 2, axis=1)


def _bcast(m: Machine, v: Ints) -> Ints:
    return np.repeat(v[:, [m.token % m.chip.lanes]], m.chip.lanes, axis=1)


def _sxm(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    move = {"SWAP": _swap, "DUPE": _dup(0), "DUPO": _dup(1), "BCAST": _bcast}[key[1].split()[1]]
    return _copy("W_s", "W_a" if key[2] else "ev", move)(items)


def _load(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    size = 1 << _field(items, "mlog")
    block = machine.lane[None, :] // size[:, None] == _field(items, "midx")[:, None]
    args = {
        "i": _ix(items, "value"),
        "old": _ix(items, "old"),
        "o": _out(items),
        "block": block,
        "zero": _field(items, "zero")[:, None].astype(bool),
        "source": "ev" if key[2] else "W_a",
        "whole": bool(block.all()),
    }

    def run(m: Machine, a: dict[str, Any]) -> None:
        value = m.buffers[a["source"]][a["i"]]
        if not a["whole"]:
            rest = np.where(a["zero"], 0, m.buffers["act"][a["old"]])
            value = np.where(a["block"], value, rest)
        m.buffers["act"][a["o"]] = value
        if m.check:
            ok = m.ok[a["source"]][a["i"]]
            m.ok["act"][a["o"]] = np.where(a["block"], ok, a["zero"] | m.ok["act"][a["old"]])

    return _Batch(run, args)


def _memw_w(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    def run(m: Machine, a: dict[str, Any]) -> None:
        chip = m.chip
        for e in items:
            row = e.fields["addr"] + m.w_base(e.fields["base"])
            if row >= chip.mem_w_depth:
                raise Hazard(f"{e.kind}: row {row} is beyond MEM_W's {chip.mem_w_depth}")
            index = e.ins["value"][1]
            value = nx.to_byte(m.buffers["ev"][index])
            if m.check and not m.ok["ev"][index].all():
                raise m.poisoned("the value", e)
            if e.kind.endswith("WRITE"):
                bank = m.position % chip.weight_streams
                m.mem_w[row, bank] = value
                m.mem_w_ok[row, bank] = True
            else:
                lane, s = m.position % chip.lanes, chip.weight_streams
                m.mem_w[row, :, lane] = value[e.fields["sub"] * s : (e.fields["sub"] + 1) * s]
                m.mem_w_ok[row, :, lane] = True

    return _Batch(run, {})


def _vxm(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> _Batch:
    t = machine.program.templates[key[2]]
    lanes = machine.chip.lanes
    sources = {ASrc.ACC: "E_acc", ASrc.T: "ev", ASrc.WA: "W_a", ASrc.WS: "W_s", ASrc.BYTE: "E_b"}
    b_sources = {
        BSrc.T: "ev",
        BSrc.T4: "ev",
        BSrc.WA: "W_a",
        BSrc.WA4: "W_a",
        BSrc.WS: "W_s",
    }
    o = _out(items)
    ai = None if t.a is ASrc.NOISE else _ix(items, "a")
    bi = _ix(items, "b") if t.b in b_sources else None
    ci = _ix(items, "c") if t.c else None
    si = _ix(items, "s") if t.dyn or t.b is BSrc.SCALAR else None
    mi = _ix(items, "m") if t.func is Func.EXP else None
    place = np.array([e.element for e in items])[:, None] * lanes + machine.lane

    def operand_a(m: Machine) -> Ints:
        if t.a is ASrc.NOISE:
            rows = []
            for _ in items:
                m.noise = nx.xorshift32(m.noise)
                rows.append(nx.gumbel_code(m.noise))
            return np.stack(rows)
        v = m.buffers[sources[t.a]][ai]
        return v << 8 if t.a is ASrc.BYTE else v

    def run(m: Machine, a: dict[str, Any]) -> None:
        value = operand_a(m)
        scalar = m.buffers["scalar"][si] if si is not None else None
        shift: Any = t.shift + (scalar[:, 1:] if t.dyn and scalar is not None else 0)
        pre = nx.preshift(value, shift)
        product: Ints | None = None
        if t.func is Func.NONE:
            b: Any = nx.ONE
            if bi is not None:
                b = m.buffers[b_sources[t.b]][bi]
                if t.b in (BSrc.T4, BSrc.WA4):
                    b = nx.QUAD * b
            elif t.b is BSrc.SCALAR and scalar is not None:
                b = scalar[:, :1]
            elif t.b is BSrc.SELF:
                b = nx.saturate(value, 16)
            if t.red is Red.SUMSQ:
                product = pre * b
            y = nx.compound(pre, b, m.buffers["ev"][ci] if ci is not None else 0)
        else:
            if t.func is Func.EXP:
                index, frac = nx.exp_address(pre, m.buffers["max"][mi][:, None])
            elif t.func is Func.SILU:
                index, frac = nx.silu_address(pre)
            else:
                index, frac = nx.gumbel_address(pre)
            entry = m.program.lane_table[index]
            y = nx.compound(frac, entry[..., 1], entry[..., 0])
        hidden = None
        if t.mask is Mask.VOCAB_MIN:
            hidden = place >= m.program.config[Config.VOCAB]
        elif t.mask is not Mask.NONE:
            hidden = place > m.position
        if hidden is not None:
            y = np.where(hidden, 0 if t.mask is Mask.POS_ZERO else nx.MASKED, y)
        m.buffers["ev"][o] = y
        if product is not None:
            m.buffers.setdefault("square", np.zeros(0, np.int64))
            if len(m.buffers["square"]) < len(m.buffers["ev"]):
                m.buffers["square"] = np.zeros(len(m.buffers["ev"]), np.int64)
            m.buffers["square"][o] = product.sum(axis=1)
        if m.check:
            ok = np.ones(y.shape, bool) if ai is None else m.ok[sources[t.a]][ai].copy()
            if bi is not None:
                ok &= m.ok[b_sources[t.b]][bi]
            if ci is not None:
                ok &= m.ok["ev"][ci]
            if si is not None:
                ok &= m.ok["scalar"][si][:, None]
            if mi is not None:
                ok &= m.ok["max"][mi][:, None]
            if hidden is not None:
                ok |= hidden
            m.ok["ev"][o] = ok
            if t.red is not Red.NONE and not ok.all():
                raise m.poisoned("an operand", items[int(np.flatnonzero(~ok.all(axis=1))[0])])

    return _Batch(run, {})


def _reduce(machine: Machine, key: tuple[Any, ...], items: list[list[int]]) -> _Batch:
    _, _, red, slot = key
    (parts,) = items
    ix = np.array(parts, np.int64)

    def run(m: Machine, a: dict[str, Any]) -> None:
        if red is Red.MAX:
            m.buffers["max"][slot] = m.buffers["ev"][ix].max()
            m.ok["max"][slot] = True
            return
        if red is Red.ARGMAX:
            m.choice = int(m.buffers["ev"][ix].argmax())
            return
        if red is Red.SUM:
            found = nx.recip(m.program.scalar_table, int(m.buffers["ev"][ix].sum()))
        else:
            total = int(m.buffers["square"][ix].sum()) + m.program.config[Config.EPS]
            found = nx.rsqrt(m.program.scalar_table, total)
        m.buffers["scalar"][slot] = found
        m.ok["scalar"][slot] = True

    return _Batch(run, {})


_BUILDERS: dict[str, Callable[..., _Batch]] = {
    "MAC": _mac,
    "MEMA.R": _mema_r,
    "MEMW.R": _gather,
    "MXM.A": _drain,
    "SXM": _sxm,
    "MXM.L": _load,
    "MEMW.W": _memw_w,
    "VXM": _vxm,
    "reduce": _reduce,
}
