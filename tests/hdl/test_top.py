"""The whole chip: a hand-made program under Verilator."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.chips import bare_chip
from tidemill import isa, numerics
from tidemill.isa import QUEUE_INDEX, QUEUES, Base, Config, Kind, Red, Seg, Space, Template
from tidemill_hdl.top import SEQUENCER

ONE, SMALL = bare_chip(1, 1), bare_chip(4, 2)


# A hand-made program ---------------------------------------------------------------------------
# EMBED: x = MEM_A[TOKENS + token div L], copied by the VXM to MEM_A[STATE + p].
# LAYER: x as bytes into MEM_W, K append. HEAD: the next token is the lane of the largest x.

TOKENS, STATE, VOCAB = 16, 64, 40
LAYERS, STRIDE, LENGTHS = 3, 40, (60, 30)


def word(queue, chip, kind, wait=0, **values):
    layout = queue.layout(chip) if kind == Kind.OP else isa.CONTROL_LAYOUT
    payload = at = 0
    for name, width in layout:
        payload |= (values.get(name, 0) & ((1 << width) - 1)) << at
        at += width
    bits = queue.payload_bits(chip)
    return payload | wait << bits | int(kind) << (bits + isa.WAIT_BITS)


def to_vxm(chip):
    """Cycles from a READ of MEM_A to the VXM pass of its vector."""
    return 2 + chip.hop("MEM_A", "VXM") - isa.Timing.VXM_AB


def to_mem_a(chip):
    """Cycles from that READ to the WRITE of the pass's result."""
    return to_vxm(chip) + isa.Timing.VXM_RESULT + chip.hop("VXM", "MEM_A")


def program(chip):
    """Host writes of the program."""
    at_vxm = to_vxm(chip)
    at_mem_w = at_vxm + isa.Timing.VXM_RESULT + chip.hop("VXM", "MEM_W")
    begin = isa.TOKEN_CYCLES
    ops = {  # (segment, queue): [(cycle, fields)]
        (Seg.EMBED, "MEMA.R"): [(begin, {"addr": TOKENS, "base": Base.TOKEN})],
        (Seg.EMBED, "VXM"): [(begin + at_vxm, {"tmpl": 0})],
        (Seg.EMBED, "MEMA.W"): [(begin + to_mem_a(chip), {"addr": STATE, "base": Base.POS})],
        (Seg.LAYER, "MEMA.R"): [(4, {"addr": STATE, "base": Base.POS})],
        (Seg.LAYER, "VXM"): [(4 + at_vxm, {"tmpl": 0})],
        (Seg.LAYER, "MEMW.W"): [(4 + at_mem_w, {"base": Base.POS})],
        (Seg.HEAD, "MEMA.R"): [(0, {"addr": STATE, "base": Base.POS})],
        (Seg.HEAD, "VXM"): [(at_vxm, {"tmpl": 1, "first": 1})],
    }
    writes = []
    for q, queue in enumerate(QUEUES):
        at = 0
        for seg in Seg:
            writes.append((Space.START, q << 2 | seg, at))
            words, cycle = [], 0
            for when, fields in ops.get((seg, queue.name), []):
                if seg == Seg.LAYER and queue.name == "MEMA.R":
                    words.append(word(queue, chip, Kind.NOP, tide=1, count=9))
                elif when > cycle:
                    words.append(word(queue, chip, Kind.NOP, count=when - cycle))
                words.append(word(queue, chip, Kind.OP, **fields))
                cycle = when + 1
            words.append(word(queue, chip, Kind.CTRL))
            writes += [(Space.QUEUE, q << 16 | at + k, w) for k, w in enumerate(words)]
            at += len(words)
    row = [(QUEUE_INDEX["MEMA.R"], 9, 4), (isa.TIDE_SEQUENCER, 0, None)]
    for n in range(chip.tide_rows):
        for k, (q, column, value) in enumerate(row):
            value = LENGTHS[0] + n if value is None else value
            writes.append((Space.TIDE, len(row) * n + k, q << 25 | column << 20 | value))
    templates = [Template(isa.ASrc.WA), Template(isa.ASrc.WA, red=Red.ARGMAX)]
    writes += [(Space.TEMPLATE, k, t.encode()) for k, t in enumerate(templates)]
    config = {
        Config.LAYERS: LAYERS,
        Config.W_LAYER_STRIDE: STRIDE,
        Config.K_STRIDE: 1,
        Config.A_POS_STRIDE: 1,
        Config.TIDE_ROW: len(row),
        Config.EPS: 1,
        Config.VOCAB: VOCAB,
        Config.EMBED_LENGTH: LENGTHS[0],
        Config.HEAD_LENGTH: LENGTHS[1],
        Config.EOS: 0xFFFF,
    }
    return writes + [(Space.CONFIG, k, v) for k, v in config.items()]


def load(chip, rng):
    """Token vectors and the host writes for them."""
    rows = rng.integers(-32767, 32768, (-(-VOCAB // chip.lanes), chip.lanes))
    words = -(-chip.lanes // 4)
    writes = []
    for k, row in enumerate(rows):
        for w in range(words):
            part = [int(v) & 0xFFFF for v in row[4 * w : 4 * w + 4]]
            data = sum(v << (16 * i) for i, v in enumerate(part))
            writes.append((Space.MEM_A, (TOKENS + k) * words + w, data))
    return rows, writes


def setup(prompt, max_tokens=1000):
    return [
        *((Space.PROMPT, k, t) for k, t in enumerate(prompt)),
        (Space.CONFIG, Config.PROMPT_LENGTH, len(prompt)),
        (Space.CONFIG, Config.MAX_TOKENS, max_tokens),
    ]


def expect(chip, rows, prompt, max_tokens=1000):
    """(events, vectors by position) of a run."""
    events, vectors, token, measured, generated = [], [], prompt[0], 0, 0
    for p in range(chip.context):
        x = rows[token // chip.lanes]
        vectors.append(x)
        head = p + 1 >= len(prompt)
        token = int(np.argmax(x)) if head else prompt[p + 1]
        cycles = LENGTHS[0] + LAYERS * (LENGTHS[0] + p // chip.lanes) + head * LENGTHS[1]
        measured += cycles
        generated += head
        events.append((token, head, cycles, measured))
        if generated == max_tokens:
            break
    return events, np.array(vectors)


def check(chip, result, events, vectors):
    assert [(t.token, t.generated, t.cycles, t.measured) for t in result.tokens] == events
    assert result.fifo == [event[:3] for event in events]
    assert result.fault is None
    p = np.arange(len(vectors))
    assert (result.mem_a[STATE + p] == vectors).all()
    for layer in range(LAYERS):
        at = STRIDE * layer + p // chip.weight_streams
        assert (result.mem_w[at, p % chip.weight_streams] == numerics.to_byte(vectors)).all()


@pytest.mark.rtl
@pytest.mark.parametrize("chip", [ONE, SMALL], ids=lambda c: c.name)
def test_program_runs_to_the_cycle(chip, verilator):
    from tidemill_sim.rtl import RtlEngine, RunRequest

    rows, vectors = load(chip, np.random.default_rng(5))
    rng = random.Random(4)
    prompts = [[rng.randrange(VOCAB) for _ in range(k)] for k in (3, 1, 20, 2)]
    runs = [
        RunRequest(setup(prompts[0])),
        RunRequest(setup(prompts[1], 4)),
        RunRequest(setup(prompts[2])),
        RunRequest(setup(prompts[0]), abort_at=777),
        RunRequest(setup(prompts[3], 5)),
    ]
    seen = []
    results = RtlEngine(chip).run(
        program(chip) + vectors,
        runs,
        dump=True,
        progress=lambda run, token: seen.append((run, token)),
        x_seed=3,
        limit=5000,
    )
    for k, (prompt, most) in {
        0: (prompts[0], 1000),
        1: (prompts[1], 4),
        2: (prompts[2], 1000),
        4: (prompts[3], 5),
    }.items():
        check(chip, results[k], *expect(chip, rows, prompt, most))
    events, _ = expect(chip, rows, prompts[0])
    assert [t.measured for t in results[3].tokens] == [e[3] for e in events if e[3] < 777]
    assert seen == [(k, t) for k, result in enumerate(results) for t in result.tokens]


@pytest.mark.rtl
def test_faults_are_reported_with_queue_and_cycle(verilator):
    from tidemill_sim.rtl import RtlEngine, RtlFault, RunRequest

    _, vectors = load(SMALL, np.random.default_rng(5))
    a_read, w_read = QUEUE_INDEX["MEMA.R"], QUEUE_INDEX["MEMW.R"]
    over = SMALL.mem_a_depth - TOKENS - 5  # the sixth row of tokens is beyond the memory
    at = isa.TOKEN_CYCLES
    begin = LENGTHS[0] + 3 * LENGTHS[0]
    collision = at + to_mem_a(SMALL)
    kinds = [
        (Kind.NOP, {"count": at}),
        (Kind.OP, {"addr": TOKENS, "base": Base.TOKEN}),
        (Kind.NOP, {"count": collision - at - 1}),
        (Kind.OP, {"addr": STATE, "base": Base.POS}),
        (Kind.CTRL, {}),
    ]
    late = [word(QUEUES[a_read], SMALL, kind, **fields) for kind, fields in kinds]
    cases = {
        # token vectors out of reach at position 1
        RtlFault(isa.Fault.ADDRESS, a_read, begin + at): [
            (
                Space.QUEUE,
                a_read << 16 | 1,
                word(QUEUES[a_read], SMALL, Kind.OP, addr=TOKENS + over, base=Base.TOKEN),
            )
        ],
        # an EMBED too short for MEMA.W
        RtlFault(isa.Fault.UNDERRUN, QUEUE_INDEX["VXM"], 13 - isa.PARK_CYCLES): [
            (Space.CONFIG, Config.EMBED_LENGTH, 13)
        ],
        # reads in the very cycle in which the token's vector is written
        RtlFault(isa.Fault.COLLISION, a_read, collision): [
            (Space.START, a_read << 2 | Seg.EMBED, 40),
            *((Space.QUEUE, a_read << 16 | 40 + k, w) for k, w in enumerate(late)),
        ],
        # no prompt
        RtlFault(isa.Fault.ILLEGAL, SEQUENCER, 0): [(Space.CONFIG, Config.PROMPT_LENGTH, 0)],
        # a reserved control code in the third layer of position 0
        RtlFault(isa.Fault.ILLEGAL, w_read, LENGTHS[0]): [
            (Space.QUEUE, w_read << 16 | 1, 2 | word(QUEUES[w_read], SMALL, Kind.CTRL))
        ],
    }
    prompt = setup([3, 21, 2], 1)
    runs = [RunRequest([*program(SMALL), *prompt, *writes]) for writes in cases.values()]
    runs.append(RunRequest([*program(SMALL), *prompt]))
    results = RtlEngine(SMALL).run(vectors, runs, limit=5000)
    assert [r.fault for r in results] == [*cases, None]
    assert len(results[-1].tokens) == 3


@pytest.mark.rtl
def test_no_end_is_an_error(verilator):
    from tidemill_sim.rtl import RtlEngine, RunRequest, SimulatorError

    with pytest.raises(SimulatorError, match="run 1 of 1 had no token in 900 cycles"):
        RtlEngine(SMALL).run(
            program(SMALL),
            [RunRequest([*setup([1]), (Space.CONFIG, Config.LAYERS, 50)])],
            limit=900,
        )
