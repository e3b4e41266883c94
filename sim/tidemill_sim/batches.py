"""What every slice does with many instructions at once: the arithmetic of the numpy engine.

A builder takes the events of one kind that do not depend on one another and returns a batch, which
gathers their operands from the buffers of a `Machine`, computes by `tidemill.numerics` and stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidemill import numerics as nx
from tidemill.isa import ASrc, BSrc, Config, Func, Mask, Red
from tidemill.trace import Event, Hazard, Macro

if TYPE_CHECKING:
    from tidemill_sim.engine import Machine

__all__ = ["BUILDERS", "Batch"]

Ints = NDArray[np.int64]


@dataclass
class Batch:
    """Events that are done together."""

    run: Callable[[Machine, dict[str, Any]], None]
    args: dict[str, Any]


def _ix(items: list[Event], name: str) -> Ints:
    return np.array([e.ins[name][1] for e in items], np.int64)


def _out(items: list[Event]) -> Ints:
    return np.array([e.index for e in items], np.int64)


def _field(items: list[Event], name: str) -> Ints:
    return np.array([e.fields[name] for e in items], np.int64)


def _mac(machine: Machine, key: tuple[Any, ...], items: list[Macro]) -> Batch:
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

    return Batch(run, args)


def _copy(
    target: str, source: str, transform: Callable[[Machine, Any], Any] | None = None
) -> Callable[[list[Event]], Batch]:
    def build(items: list[Event]) -> Batch:
        args = {"i": _ix(items, "value"), "o": _out(items)}

        def run(m: Machine, a: dict[str, Any]) -> None:
            v = m.buffers[source][a["i"]]
            m.buffers[target][a["o"]] = transform(m, v) if transform else v
            if m.check:
                ok = m.ok[source][a["i"]]
                m.ok[target][a["o"]] = np.abs(transform(m, ok)) != 0 if transform else ok

        return Batch(run, args)

    return build


def _mema_r(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
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

    return Batch(run, args)


def _gather(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
    args = {"addr": _field(items, "addr"), "base": _field(items, "base"), "o": _out(items)}

    def run(m: Machine, a: dict[str, Any]) -> None:
        rows = a["addr"] + np.array([m.w_base(b) for b in range(5)])[a["base"]]
        bank = m.token % m.chip.weight_streams
        m.buffers["E_b"][a["o"]] = m.mem_w[rows, bank]
        if m.check:
            m.ok["E_b"][a["o"]] = m.mem_w_ok[rows, bank]

    return Batch(run, args)


def _drain(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
    subs = machine.chip.subs
    args = {
        "g": np.array([[e.ins[f"g{s}"][1] for s in range(subs)] for e in items], np.int64),
        "o": _out(items),
    }

    def run(m: Machine, a: dict[str, Any]) -> None:
        m.buffers["E_acc"][a["o"]] = m.buffers["acc"][a["g"]].reshape(len(a["o"]), -1)
        if m.check:
            m.ok["E_acc"][a["o"]] = m.ok["acc"][a["g"]].reshape(len(a["o"]), -1)

    return Batch(run, args)


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


def _sxm(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
    move = {"SWAP": _swap, "DUPE": _dup(0), "DUPO": _dup(1), "BCAST": _bcast}[key[1].split()[1]]
    return _copy("W_s", "W_a" if key[2] else "ev", move)(items)


def _load(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
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

    return Batch(run, args)


def _memw_w(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
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

    return Batch(run, {})


def _vxm(machine: Machine, key: tuple[Any, ...], items: list[Event]) -> Batch:
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

    return Batch(run, {})


def _reduce(machine: Machine, key: tuple[Any, ...], items: list[list[int]]) -> Batch:
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

    return Batch(run, {})


#: Kind of an event, without its mnemonic -> builder of its batches.
BUILDERS: dict[str, Callable[..., Batch]] = {
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
