"""Compiled programs.

Legal for every n, the same size for any number of layers, refused with numbers.
"""

import dataclasses

import pytest

from support.chips import SIZES, roomy_chip
from support.models import ODD, odd_model
from tidemill import isa
from tidemill.chip import CHIPS
from tidemill.compiler.checker import check_program
from tidemill.compiler.compile import compile_model
from tidemill.compiler.emit import EmitError, encode_control, encode_op
from tidemill.compiler.layout import CompileError
from tidemill.isa import QUEUE_INDEX, QUEUES, Config, Kind, Seg
from tidemill.program import ProgramError, load_program
from tidemill.timeline import expand_segment
from tidemill.trace import Hazard, trace_segment


@pytest.fixture(scope="module")
def quantised():
    return {name: odd_model(name) for name in ODD}


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", ODD)
def test_programs_pass_the_checker(quantised, size, name):
    program = compile_model(roomy_chip(*size), quantised[name])
    assert check_program(program) > 0
    assert len(program.tide) == -(-48 // size[0])


def test_program_does_not_grow_with_layers():
    two, twelve = (odd_model("3x6", layers=n) for n in (2, 12))
    a, b = (compile_model(roomy_chip(4, 2), q) for q in (two, twelve))
    assert [len(w) for w in a.queues] == [len(w) for w in b.queues]
    assert a.tide == b.tide
    assert b.config[Config.LAYERS] == 12


def test_cycles_are_the_sum_of_segments(quantised):
    p = compile_model(roomy_chip(4, 2), quantised["3x6"])
    for position in (0, 3, 4, 47):
        n = position // 4 + 1
        layer = expand_segment(p, Seg.LAYER, n)[1]
        embed, head = p.config[Config.EMBED_LENGTH], p.config[Config.HEAD_LENGTH]
        assert p.cycles(position, head=True) == embed + 2 * layer + head
        assert p.cycles(position, head=False) == embed + 2 * layer


def test_same_input_same_program(quantised, tmp_path):
    paths = [tmp_path / name for name in ("a.tide", "b.tide")]
    for path in paths:
        compile_model(roomy_chip(4, 2), quantised["3x6"], info={"model": "odd"}).save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    again = load_program(paths[0])
    assert (
        again.hash == compile_model(roomy_chip(4, 2), quantised["3x6"], info={"model": "odd"}).hash
    )
    assert check_program(again) > 0


def test_damaged_program_files(quantised, tmp_path):
    path = tmp_path / "p.tide"
    compile_model(roomy_chip(4, 2), quantised["2x10"]).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ProgramError, match=r"not an intact \.tide program"):
        load_program(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(ProgramError, match=r"not an intact \.tide program"):
        load_program(path)
    with pytest.raises(ProgramError, match="cannot read program"):
        load_program(tmp_path / "none.tide")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mem_w_depth": 300}, r"MEM_W needs \d+ rows, this chip has 300 \("),
        ({"mem_a_depth": 100}, r"MEM_A needs \d+ rows, this chip has 100 \("),
        ({"act_depth": 8}, r"activation file needs \d+ vectors .* this chip has 8 \(act_depth\)"),
        ({"queue_depth": 64}, r"queue VXM needs \d+ words, this chip has 64 \(queue_depth\)"),
        ({"tide_depth": 32}, r"tide table needs 12 rows of \d+ words, .* has 32 \(tide_depth\)"),
        ({"vocab": 256}, r"vocabulary has 257 tokens, this chip numbers 256 \(vocab\)"),
        ({"temp_depth": 4}, r"VXM needs more than 4 temporaries \(temp_depth\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(quantised, changes, text):
    with pytest.raises(CompileError, match=text):
        compile_model(roomy_chip(4, 2, **changes), quantised["3x6"])


def test_context_is_bounded(quantised):
    with pytest.raises(CompileError, match=r"context must be from 1 to 48 .* not 49"):
        compile_model(roomy_chip(4, 2), quantised["3x6"], context=49)
    assert compile_model(roomy_chip(4, 2), quantised["3x6"], context=5).context == 5


def test_run_requests_are_checked(quantised):
    p = compile_model(roomy_chip(4, 2), quantised["3x6"])
    for request, text in (
        (([], 1), "the prompt is empty"),
        (([1] * 49, 1), "prompt has 49 tokens, the context of this program holds 48"),
        (([257], 1), "token 257 is outside the vocabulary of 257"),
        (([1], 0), "number of tokens must be at least 1, not 0"),
        (([1], 1, 99.0), r"temperature must be from 0 to \d+\.\d+ for this program, not 99"),
        (([1], 1, 0.0, -1), "seed must be from 0 to 4294967295, not -1"),
    ):
        with pytest.raises(ProgramError, match=text):
            p.run_writes(*request)


def test_words_refuse_what_they_cannot_hold():
    q = QUEUES[QUEUE_INDEX["MXM.C"]]
    tiny = CHIPS["tiny"]
    with pytest.raises(EmitError, match=r"MXM\.C ROWS: abc=256 does not fit 8 bits"):
        encode_op(q, tiny, "ROWS", {"abc": 256})
    with pytest.raises(EmitError, match=r"MXM\.C ROWS: no field named x"):
        encode_op(q, tiny, "ROWS", {"x": 1})
    with pytest.raises(EmitError, match=r"REPEAT: stride=32 does not fit 6 bits"):
        encode_control(q, tiny, Kind.REPEAT, 1, stride=32)


def shifted(program, queue, segment, cycles=1):
    """The program with an extra NOP at the start of a queue's segment."""
    i = QUEUE_INDEX[queue]
    words = list(program.queues[i])
    starts = list(program.starts[i])
    words.insert(starts[segment], encode_control(QUEUES[i], program.chip, Kind.NOP, cycles))
    starts = [s + (k > segment) for k, s in enumerate(starts)]
    queues, all_starts = list(program.queues), list(program.starts)
    queues[i], all_starts[i] = tuple(words), tuple(starts)
    return dataclasses.replace(program, queues=tuple(queues), starts=tuple(all_starts))


@pytest.mark.parametrize("queue", [q.name for q in QUEUES if q.name != "MEMW.W"])
def test_one_cycle_late_is_seen(quantised, queue):
    """Every queue's timing matters: one cycle more anywhere breaks a rule."""
    program = compile_model(roomy_chip(4, 2), quantised["3x6"])
    with pytest.raises(ProgramError):
        check_program(shifted(program, queue, Seg.LAYER))


def test_late_swap_names_queue_and_cycle(quantised):
    program = compile_model(roomy_chip(4, 2), quantised["3x6"])
    with pytest.raises(Hazard, match=r"VXM, LAYER cycle \d+ \(n = 1\): samples W_s, which carries"):
        trace_segment(shifted(program, "SXM", Seg.LAYER), Seg.LAYER, 1)


def test_segment_too_short_for_a_queue(quantised):
    program = compile_model(roomy_chip(4, 2), quantised["3x6"])
    config = program.config | {int(Config.HEAD_LENGTH): program.config[Config.HEAD_LENGTH] - 60}
    with pytest.raises(ProgramError, match=r"parked in cycle \d+ of HEAD|lands in cycle"):
        check_program(dataclasses.replace(program, config=config))


def test_tide_row_must_be_loaded_before_layers(quantised):
    program = compile_model(roomy_chip(4, 2), quantised["3x6"])
    config = program.config | {int(Config.EMBED_LENGTH): isa.TOKEN_CYCLES + 5}
    with pytest.raises(ProgramError, match=r"EMBED has 13 cycles, loading a tide row of \d+ words"):
        check_program(dataclasses.replace(program, config=config))
