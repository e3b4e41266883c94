"""A quantised model and a chip to a program."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tidemill import isa
from tidemill.chip import Chip
from tidemill.compiler.analysis import gaps
from tidemill.compiler.emit import TideColumns, emit_segment
from tidemill.compiler.layout import CompileError, Geometry
from tidemill.compiler.lower import (
    SCORE,
    TEMPERATURE,
    k_outer,
    lower_embed,
    lower_head,
    lower_layer,
)
from tidemill.compiler.memory import build_memory
from tidemill.compiler.ops import TEMPLATES
from tidemill.isa import QUEUES, Config
from tidemill.model.quantmodel import QuantModel
from tidemill.program import Program

__all__ = ["compile_model", "geometry"]

NO_EOS = 0xFFFF


def geometry(chip: Chip, qm: QuantModel, context: int | None = None) -> Geometry:
    """Padded shapes. Raises `CompileError` for a vocabulary or context the chip cannot number."""
    c = qm.config
    limit = min(chip.context, qm.max_context)
    if context is not None and not 1 <= context <= limit:
        raise CompileError(
            f"the context must be from 1 to {limit} (chip {chip.context}, model {qm.max_context}), "
            f"not {context}"
        )
    if c.vocab > chip.vocab:
        raise CompileError(
            f"the vocabulary has {c.vocab} tokens, this chip numbers {chip.vocab} (vocab)"
        )
    return Geometry(
        chip, c.dim, c.hidden, c.heads, c.kv_heads, c.head_dim, c.vocab, context or limit
    )


def _templates(qm: QuantModel) -> tuple[isa.Template, ...]:
    """The passes with this model's shifts."""
    shifts = {n: getattr(qm, n).shift for n in ("wq", "wk", "wv", "wo", "w1", "w2", "w3")}
    shifts = {
        n.replace("wq", "q").replace("wk", "k").replace("wv", "v"): s for n, s in shifts.items()
    }
    shifts |= {
        "logit": qm.head.shift,
        "embed": qm.embed_shift,
        "score": qm.score_shift,
        "attend": qm.attn_shift,
    }
    return tuple(
        dataclasses.replace(t, shift=shifts.get(name, t.shift)) for name, t in TEMPLATES.items()
    )


def compile_model(
    chip: Chip,
    qm: QuantModel,
    *,
    context: int | None = None,
    eos: int | None = None,
    info: dict[str, Any] | None = None,
) -> Program:
    """Place, schedule and encode.

    Raises `CompileError` or `EmitError` with the need and the limit.
    """
    geo = geometry(chip, qm, context)
    mem = build_memory(chip, geo, qm, k_outer(chip, geo), _needs_clear(geo))
    embed = lower_embed(chip, geo, mem).done(isa.PARK_CYCLES)
    reference = max(1, min(geo.n_max, -(-geo.context // (2 * chip.lanes))))
    layer = lower_layer(chip, geo, mem, reference).done(isa.PARK_CYCLES)
    head = lower_head(chip, geo, mem).done(isa.PARK_CYCLES)

    tide = TideColumns(geo.n_max)
    tide.column(isa.TIDE_SEQUENCER, layer.length)
    words: list[list[int]] = [[] for _ in QUEUES]
    starts: list[list[int]] = [[] for _ in QUEUES]
    for schedule in (embed, layer, head):
        columns = tide if schedule is layer else None
        for q, part in enumerate(emit_segment(chip, schedule, columns)):
            starts[q].append(len(words[q]))
            words[q] += part
    rows = tide.rows()
    for q, queue in enumerate(QUEUES):
        if len(words[q]) > chip.queue_depth:
            raise CompileError(
                f"queue {queue.name} needs {len(words[q])} words, "
                f"this chip has {chip.queue_depth} (queue_depth)"
            )
    if len(rows) * len(rows[0]) > chip.tide_depth:
        raise CompileError(
            f"the tide table needs {len(rows)} rows of {len(rows[0])} words, "
            f"this chip has {chip.tide_depth} (tide_depth)"
        )
    embed_length = max(int(embed.length[0]), isa.TOKEN_CYCLES + len(rows[0]) + 4)
    config = {
        Config.LAYERS: qm.config.layers,
        Config.W_LAYER_STRIDE: mem.w_stride,
        Config.K_STRIDE: mem.k_stride,
        Config.V_STRIDE: mem.v_stride,
        Config.EMB_STRIDE: geo.dim_vecs,
        Config.A_LAYER_STRIDE: mem.a_stride,
        Config.A_POS_STRIDE: mem.rope_stride,
        Config.TIDE_ROW: len(rows[0]),
        Config.EPS: qm.eps,
        Config.VOCAB: geo.vocab,
        Config.EMBED_LENGTH: embed_length,
        Config.HEAD_LENGTH: int(head.length[0]),
        Config.EOS: NO_EOS if eos is None else eos,
    }
    registers = {int(k): int(v) for k, v in config.items()}
    registers[Config.SCALAR0 + SCORE] = qm.score_mul
    registers[Config.SCALAR0 + TEMPERATURE] = 0
    return Program(
        chip=chip,
        queues=tuple(tuple(w) for w in words),
        starts=tuple(tuple(s) for s in starts),  # type: ignore[misc]
        tide=rows,
        config=registers,
        templates=_templates(qm),
        lane_table=np.asarray(qm.lane_table),
        scalar_table=np.asarray(qm.scalar_table),
        mem_w=mem.mem_w,
        mem_w_used=mem.mem_w_used,
        mem_a=mem.mem_a,
        mem_a_used=mem.mem_a_used,
        info={
            "context": geo.context,
            "layers": qm.config.layers,
            "temperature_scalar": TEMPERATURE,
            "temperature_max": qm.max_temperature,
            "temperature_unit": 65535 / qm.max_temperature,
            "memory_map": {"MEM_W": mem.w.map, "MEM_A": mem.a.map},
            "geometry": {
                f.name: getattr(geo, f.name) for f in dataclasses.fields(geo) if f.name != "chip"
            },
            "gaps": gaps(layer, min(geo.n_max, -(-64 // chip.lanes))),
            **(info or {}),
        },
    )


def _needs_clear(geo: Geometry) -> bool:
    return geo.heads * geo.head_pad != geo.q_vecs * geo.chip.lanes
