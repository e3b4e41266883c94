"""Programs as text: round trips, and every way a text can be wrong."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chips import small_chip
from tidemill import isa
from tidemill.chip import CHIPS, Chip
from tidemill.compiler.assembler import AssemblyError, assemble
from tidemill.compiler.compile import compile_model
from tidemill.compiler.disassembler import disassemble, instruction
from tidemill.compiler.emit import encode_control, encode_op
from tidemill.isa import QUEUES, Config, Kind, Queue, Seg, Template
from tidemill.model.checkpoint import ModelConfig, random_checkpoint
from tidemill.model.quantise import quantise
from tidemill.program import Program, ProgramError, register_name
from tidemill.timeline import decode_word

SMALL = small_chip(mem_w_depth=600)
#: One lane: fields of no width.
ONE_LANE = dataclasses.replace(SMALL, name="one lane; odd=name", lanes=1, weight_streams=1)

SKELETON = ".tide 1 SEQ.0=100\n" + "".join(
    f".queue {q.name}\n" + "".join(f".segment {s.name}\n SYNC\n" for s in Seg) for q in QUEUES
)
HEAD = ".chip " + " ".join(
    f"{k}={v}" for k, v in SMALL.as_dict().items() if k not in ("hops", "family")
)


@pytest.fixture(scope="module")
def program() -> Program:
    config = ModelConfig(dim=12, hidden=18, layers=2, heads=2, kv_heads=1, vocab=33, context=24)
    model = quantise(random_checkpoint(config), calibration_sequences=2)
    return compile_model(SMALL, model, info={"model": {"name": "random"}})


def words_of(chip: Chip, queue: Queue) -> st.SearchStrategy[int]:
    """Any legal word of a queue, OPs with any value of every field."""
    wait = st.integers(0, (1 << isa.WAIT_BITS) - 1)
    fields = {
        f.name: st.integers(int(f.name == "ni"), (1 << f.bits(chip)) - 1) for f in queue.fields
    }
    control = dict(isa.CONTROL_LAYOUT)
    half = 1 << (control["stride"] - 1)
    count = st.one_of(
        st.tuples(st.just(True), st.integers(0, isa.TIDE_COLUMNS - 1)),
        st.tuples(st.just(False), st.integers(1, (1 << control["count"]) - 1)),
    )
    return st.one_of(
        st.builds(
            lambda op, values, w: encode_op(queue, chip, op, values, w),
            st.sampled_from([o.mnemonic for o in queue.ops]),
            st.fixed_dictionaries(fields),
            wait,
        ),
        st.builds(
            lambda kind, c, i, s, w: encode_control(
                queue, chip, kind, c[1], tide=c[0], interval=i, stride=s, wait=w
            ),
            st.sampled_from([Kind.NOP, Kind.REPEAT]),
            count,
            st.integers(0, (1 << control["interval"]) - 1),
            st.integers(-half, half - 1),
            wait,
        ),
        st.builds(lambda w: encode_control(queue, chip, Kind.CTRL, 0, wait=w), wait),
    )


@pytest.mark.parametrize("chip", [SMALL, ONE_LANE, CHIPS["ulx3s-85f"]], ids=lambda c: c.name[:5])
@given(data=st.data())
@settings(max_examples=25)
def test_any_words_survive(chip: Chip, data: st.DataObject) -> None:
    """Words of every queue, segments anywhere: text and back gives the same bits."""
    empty = assemble(HEAD + "\n" + SKELETON)
    queues, starts = [], []
    for queue in QUEUES:
        words = data.draw(st.lists(words_of(chip, queue), min_size=1, max_size=8), label=queue.name)
        at = data.draw(st.tuples(*[st.integers(0, len(words))] * 3))
        queues.append(tuple(words))
        starts.append(at)
    program = dataclasses.replace(
        empty, chip=chip, queues=tuple(queues), starts=tuple(starts), templates=()
    )
    again = assemble(disassemble(program), program)
    assert again.queues == program.queues
    assert again.starts == program.starts
    assert again.hash == program.hash


@pytest.mark.parametrize("queue", QUEUES, ids=lambda q: q.name)
def test_every_operation_shows_every_field(queue: Queue) -> None:
    chip = CHIPS["ulx3s-85f"]
    for op in queue.ops:
        word = decode_word(queue, chip, encode_op(queue, chip, op.mnemonic, {}, 3))
        text = instruction(queue, chip, word)
        assert text.split()[0] == op.mnemonic
        shown = [item.partition("=")[0] for item in text.split()[1:]]
        assert shown == [*(f.name for f in queue.fields if f.bits(chip)), "wait"]


templates = st.builds(
    Template,
    a=st.sampled_from(isa.ASrc),
    b=st.sampled_from(isa.BSrc),
    c=st.booleans(),
    shift=st.integers(-64, 63),
    dyn=st.booleans(),
    func=st.sampled_from(isa.Func),
    mask=st.sampled_from(isa.Mask),
    red=st.sampled_from(isa.Red),
    wt=st.booleans(),
)
cells = st.tuples(
    st.sampled_from([*range(len(QUEUES)), isa.TIDE_SEQUENCER]),
    st.integers(0, isa.TIDE_COLUMNS - 1),
    st.integers(0, (1 << isa.TIDE_VALUE_BITS) - 1),
)


@given(
    some=st.lists(templates, max_size=32),
    table=st.lists(st.lists(cells, min_size=4, max_size=4, unique_by=lambda c: c[:2]),
                   min_size=1, max_size=6),
    registers=st.fixed_dictionaries({}, optional={
        r: st.integers(0, (1 << bits) - 1) for r, bits in isa.config_bits(SMALL).items()
    }),
)  # fmt: skip
@settings(max_examples=40)
def test_any_templates_tide_table_and_registers_survive(
    some: list[Template], table: list[list[tuple[int, int, int]]], registers: dict[int, int]
) -> None:
    program = dataclasses.replace(
        assemble(HEAD + "\n" + SKELETON),
        templates=tuple(some),
        tide=tuple(tuple(row) for row in table),
        config=registers,
    )
    again = assemble(disassemble(program), program)
    assert again.templates == program.templates
    assert again.tide == program.tide
    assert again.config == program.config
    assert again.hash == program.hash


def test_a_compiled_program_survives(program: Program) -> None:
    text = disassemble(program)
    assert assemble(text, program).hash == program.hash
    # and by itself, without memories
    bare = assemble(text)
    assert bare.chip == program.chip
    assert (bare.queues, bare.starts, bare.tide) == (
        program.queues,
        program.starts,
        program.tide,
    )
    assert not bare.mem_w_used.any()
    assert not bare.mem_a_used.any()
    assert disassemble(bare) == text


def test_the_text_reads_well(program: Program) -> None:
    text = disassemble(program)
    assert text.startswith(f"; {SMALL.describe()}\n.chip name=small lanes=4 ")
    assert re.search(r"^  ROWS abc=0 acc=\d+ ni=3 fresh=1( wait=\d+)?$", text, re.M)
    assert re.search(r"^  NOP tide=\d+$", text, re.M)
    assert re.search(r"^  REPEAT count=\d+ interval=1 stride=1( wait=\d+)?$", text, re.M)
    assert re.search(r"^  PASS ta=.* tmpl=0 .*; move$", text, re.M)
    assert re.search(r"^\.template 0 a=WA wt=1  ; move$", text, re.M)
    assert "hops=1,1,1,1" in text


def test_an_edit_changes_the_word_and_nothing_else(program: Program) -> None:
    text = disassemble(program)
    changed = assemble(text.replace("ACC slot=0", "ACC slot=0x3 ; edited", 1), program)
    before, after = sum(program.queues, ()), sum(changed.queues, ())
    different = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert [b ^ a for a, b in different] == [3]
    assert changed.hash != program.hash


def with_line(queue: str, line: str) -> str:
    """The skeleton with a line put before the first SYNC of a queue's LAYER."""
    return HEAD + "\n" + SKELETON.replace(
        f".queue {queue}\n.segment EMBED\n SYNC\n.segment LAYER\n",
        f".queue {queue}\n.segment EMBED\n SYNC\n.segment LAYER\n{line}\n",
    )  # fmt: skip


WRONG_WORDS = {
    ("MXM.C", "ROW ni=1"): "MXM.C has no operation 'ROW'; it has ROWS, COLS, NOP, REPEAT, SYNC",
    ("MXM.C", "ROWS abd=1 ni=1"): "MXM.C ROWS has no field 'abd'; it has abc, acc, ni, fresh, wait",
    ("MXM.C", "ROWS abc=32 ni=1"): "MXM.C ROWS: abc must be from 0 to 31, not 32",
    ("MXM.C", "ROWS abc=-1 ni=1"): "MXM.C ROWS: abc must be from 0 to 31, not -1",
    ("MXM.C", "ROWS abc=0"): "MXM.C ROWS needs ni, at least 1",
    ("MXM.C", "ROWS ni=0"): "MXM.C ROWS: ni must be from 1 to 1023, not 0",
    ("MXM.C", "ROWS ni=two"): "'two' is not a whole number",
    ("MXM.C", "ROWS ni=1 ni=2"): "ni is given twice",
    ("MXM.C", "ROWS ni"): "'ni' is not of the form name=value",
    ("MXM.C", "ROWS ni=1 wait=64"): "MXM.C ROWS: wait must be from 0 to 63, not 64",
    ("SXM", "ROTATE src=0"): "SXM ROTATE is reserved, not built",
    ("SXM", "NOTIFY"): "SXM NOTIFY is reserved, not built",
    ("MEMW.R", "READ addr=0 base=LAYERS"): (
        "MEMW.R READ: base must be one of ZERO, LAYER, POS, POS_V, TOKEN, not 'LAYERS'"
    ),
    ("MEMW.R", "READ addr=0 base=8"): "MEMW.R READ: base must be from 0 to 7, not 8",
    ("VXM", "NOP 0"): "VXM NOP: count must be from 1 to 16383, not 0",
    ("VXM", "NOP"): "VXM NOP needs either count or tide",
    ("VXM", "NOP tide=32"): "VXM NOP: tide must be from 0 to 31, not 32",
    ("VXM", "REPEAT count=1 tide=1"): "VXM REPEAT needs either count or tide",
    ("VXM", "REPEAT times=1"): (
        "VXM REPEAT has no field 'times'; it has count, tide, interval, stride, wait"
    ),
    ("VXM", "REPEAT count=1 interval=128"): "VXM REPEAT: interval must be from 0 to 127, not 128",
    ("VXM", "REPEAT count=1 stride=32"): "VXM REPEAT: stride must be from -32 to 31, not 32",
    ("VXM", "SYNC count=1"): "VXM SYNC has no field 'count'; it has wait",
    ("VXM", ".segment LAYER"): "VXM has a second segment LAYER",
    ("VXM", ".segment LAYERS"): "no segment 'LAYERS'; there are EMBED, LAYER, HEAD",
    ("VXM", ".queue VX"): (
        "no queue 'VX'; there are MEMW.R, MEMW.W, MXM.C, MXM.L, MXM.A, VXM, SXM, MEMA.R, MEMA.W"
    ),
}


@pytest.mark.parametrize(("queue", "line"), WRONG_WORDS)
def test_wrong_words_are_named(queue: str, line: str) -> None:
    text = with_line(queue, line)
    number = text.splitlines().index(line) + 1 + (line == ".segment LAYER" and 0)
    if line == ".segment LAYER":
        number = len(text.split(f".queue {queue}\n")[0].splitlines()) + 5
    with pytest.raises(AssemblyError) as e:
        assemble(text)
    assert str(e.value) == f"line {number}: {WRONG_WORDS[queue, line]}"


WRONG_LINES = {
    ".chips": r"unknown directive '\.chips'; there are \.chip, \.config, ",
    ".chip lanes=4": r"\.chip needs name",
    ".chip colour=4": r"\.chip has no field 'colour'; it has name, lanes, ",
    HEAD.replace("lanes=4", "lanes=3"): (
        r"chip 'small': lanes must be a power of two from 1 to 64, not 3"
    ),
    ".config LAYERS=5": r"the text has to begin with \.chip, or be given a --image",
    ".template": r"\.template needs a number",
    ".template 32 a=WA": r"template must be from 0 to 31, not 32",
    ".template 0": r"template 0 needs a=, one of ACC, T, WA, WS, BYTE, NOISE",
    ".template 0 a=WB": r"a must be one of ACC, T, WA, WS, BYTE, NOISE, not 'WB'",
    ".template 0 a=WA d=1": r"a template has no field 'd'; it has a, b, c, shift, ",
    ".template 0 a=WA shift=64": r"shift must be from -64 to 63, not 64",
    ".template 0 a=WA c=2": r"c must be from 0 to 1, not 2",
    "SYNC": r"SYNC comes before any \.queue",
    ".segment EMBED": r"\.segment comes before any \.queue",
}


def test_a_register_wider_than_the_chip_has_it_is_refused() -> None:
    """The host port would drop the upper bits: the chip and the simulator would differ."""
    for register, bits in isa.config_bits(SMALL).items():
        name, top = register_name(register), (1 << bits) - 1
        text = f"{HEAD}\n.config {name}={{}}\n{SKELETON}"
        assert assemble(text.format(top)).config == {register: top}
        told = f"{name} must be from 0 to {top}"
        for wrong in (-5, top + 1):
            with pytest.raises(AssemblyError, match=f"^line 2: {told}, not {wrong}$"):
                assemble(text.format(wrong))
            with pytest.raises(ProgramError, match=f"^register {told} on this chip, not {wrong}$"):
                dataclasses.replace(assemble(text.format(top)), config={register: wrong})


def test_an_unknown_register_is_refused() -> None:
    told = r"^line 2: no register 'LAYER'; there are LAYERS, W_LAYER_STRIDE, .*, SCALAR7$"
    with pytest.raises(AssemblyError, match=told):
        assemble(f"{HEAD}\n.config LAYER=5\n{SKELETON}")


@pytest.mark.parametrize("line", WRONG_LINES, ids=range(len(WRONG_LINES)))
def test_wrong_directives_are_named(line: str) -> None:
    with pytest.raises(AssemblyError, match=rf"^line 1: {WRONG_LINES[line]}"):
        assemble(line + "\n" + SKELETON)


WRONG_TIDES = {
    ".tide": r"\.tide needs the number of its row, 1 first",
    ".tide 2 SEQ.0=1": r"row 2 of the tide table comes after row 0",
    ".tide 7 SEQ.0=1": r"row must be from 1 to 6, not 7",
    ".tide 1 SEK.0=1": r"no tide destination 'SEK' in SEK\.0; there are MEMW\.R, .*, SEQ, written ",
    ".tide 1 SEQ.32=1": r"SEQ column must be from 0 to 31, not 32",
    ".tide 1 MXM.C.0=1048576": r"MXM\.C\.0 must be from 0 to 1048575, not 1048576",
}


@pytest.mark.parametrize("line", WRONG_TIDES)
def test_wrong_tide_rows_are_named(line: str) -> None:
    with pytest.raises(AssemblyError, match=rf"^line 2: {WRONG_TIDES[line]}"):
        assemble(f"{HEAD}\n{line}\n{SKELETON}")


def test_what_is_missing_is_named(program: Program) -> None:
    with pytest.raises(AssemblyError, match=r"has to begin with \.chip, or be given a --image"):
        assemble(SKELETON)
    with pytest.raises(AssemblyError, match=r"^queue MEMA\.W lacks \.segment HEAD$"):
        assemble(f"{HEAD}\n{SKELETON.rpartition('.segment')[0]}")
    with pytest.raises(AssemblyError, match="the tide table needs rows, all of the same length"):
        assemble(f"{HEAD}\n{SKELETON}.tide 2\n")
    with pytest.raises(AssemblyError, match=r"^template 0 is missing$"):
        assemble(f"{HEAD}\n{SKELETON}.template 1 a=WA\n")
    with pytest.raises(AssemblyError, match=r"line \d+: \.chip comes once"):
        assemble(f"{HEAD}\n{SKELETON}{HEAD}\n")
    other = HEAD.replace("mem_a_depth=180", "mem_a_depth=181")
    with pytest.raises(
        AssemblyError, match=r"the text is for small \[\w+\].* 181 .*, the image for small .* 180 "
    ):
        assemble(f"{other}\n{SKELETON}", program)


def test_a_full_queue_is_named() -> None:
    full = with_line("VXM", " NOP 1\n" * (SMALL.queue_depth - 3))
    assemble(full)
    with pytest.raises(
        AssemblyError, match=r"VXM is full: this chip has 256 words \(queue_depth\)"
    ):
        assemble(full.replace(" NOP 1\n", " NOP 1\n NOP 1\n", 1))
    rows = "".join(f".tide {n} SEQ.0=1 " + " ".join(f"VXM.{c}=1" for c in range(32))
                   + " " + " ".join(f"SXM.{c}=1" for c in range(32)) + "\n"
                   for n in range(1, 7))  # fmt: skip
    with pytest.raises(AssemblyError, match="the tide table has 390 words, this chip 320"):
        assemble(f"{HEAD}\n{rows}{SKELETON.partition(chr(10))[2]}")


def test_a_number_may_stand_for_a_name() -> None:
    """Bases beyond the named ones have an encoding too."""
    text = with_line("MEMW.R", "READ addr=1 base=7")
    program = assemble(text)
    assert "READ addr=1 base=7" in disassemble(program)
    assert program.config == {}
    assert Config.LAYERS not in program.config
