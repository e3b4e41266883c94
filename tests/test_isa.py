from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import isa
from tidemill.chip import CHIPS
from tidemill.isa import ASrc, BSrc, Func, Mask, Red, Template, Timing

#: A queue's words sit in one 512 x 36 block RAM.
WORD_BITS = 36

QUEUE_IDS = [q.name for q in isa.QUEUES]
queues = pytest.mark.parametrize("queue", isa.QUEUES, ids=QUEUE_IDS)


def test_nine_queues_in_order():
    assert len(isa.QUEUES) == 9
    assert [q.index for q in isa.QUEUES] == list(range(9))
    assert {name: isa.QUEUES[i].name for name, i in isa.QUEUE_INDEX.items()} == {
        name: name for name in QUEUE_IDS
    }
    assert isa.TIDE_SEQUENCER >= len(isa.QUEUES)


@queues
def test_words_fit_a_block_ram(queue, named_chip):
    assert queue.word_bits(named_chip) <= WORD_BITS
    assert queue.word_bits(named_chip) == queue.payload_bits(named_chip) + isa.WAIT_BITS + 2


@queues
def test_words_of_the_size_matrix_fit(queue, size_chip):
    assert queue.word_bits(size_chip) <= WORD_BITS


@queues
def test_payload_holds_operation_repeat_and_nop(queue, named_chip):
    payload = queue.payload_bits(named_chip)
    assert sum(width for _, width in queue.layout(named_chip)) <= payload
    assert sum(width for _, width in isa.CONTROL_LAYOUT) <= payload
    assert payload >= max(isa.Ctrl).bit_length()


@queues
def test_operation_codes_are_unique_and_dense(queue):
    assert [op.code for op in queue.ops] == list(range(len(queue.ops)))
    names = [op.mnemonic for op in queue.ops] + list(queue.reserved)
    assert len(set(names)) == len(names)
    assert len(names) <= 1 << queue.op_bits
    assert all(queue.op(op.mnemonic) is op for op in queue.ops)
    with pytest.raises(KeyError):
        queue.op("NOSUCH")


@queues
def test_fields(queue, named_chip):
    names = [name for name, _ in queue.layout(named_chip)]
    assert len(set(names)) == len(names)
    assert names[-1] == "op"
    for field in queue.fields:
        width = field.bits(named_chip)
        assert width >= 0
        assert field.doc
        if field.enum is not None:
            assert max(field.enum).bit_length() <= width


@queues
def test_addresses_reach_every_row(queue, named_chip):
    depth = {
        "MEMW.R": named_chip.mem_w_depth,
        "MEMW.W": named_chip.mem_w_depth,
        "MXM.C": named_chip.act_depth,
        "MXM.L": named_chip.act_depth,
        "MXM.A": named_chip.acc_depth,
        "VXM": named_chip.temp_depth,
        "MEMA.R": named_chip.mem_a_depth,
        "MEMA.W": named_chip.mem_a_depth,
    }.get(queue.name)
    if depth is not None:
        first = queue.fields[0].bits(named_chip)
        assert 1 << first >= depth > 1 << (first - 1)


@queues
def test_latencies(queue, size_chip):
    for op in queue.ops:
        assert op.d_func(size_chip) >= 1
        assert 0 <= op.skew < op.d_func(size_chip)
        assert op.doc


def test_vxm_stages_are_in_order(size_chip):
    stages = [
        Timing.VXM_AB,
        Timing.VXM_MAX_READ,
        Timing.VXM_C,
        Timing.VXM_RESULT,
        Timing.VXM_T,
        Timing.vxm_max(size_chip),
        Timing.vxm_scalar(size_chip),
    ]
    assert stages[0] >= 1
    assert stages == sorted(stages)
    assert isa.QUEUES[isa.QUEUE_INDEX["VXM"]].op("PASS").d_func(size_chip) == Timing.VXM_RESULT


def test_one_queue_drives_a_stream_at_one_latency():
    """Two values can meet on a stream only if operations of different latency drive it."""
    for queue in isa.QUEUES:
        drives: dict[str, set[int]] = {}
        for op in queue.ops:
            if "->" in op.doc:
                target = op.doc.rsplit("->", 1)[1].strip()
                drives.setdefault(target, set()).add(op.d_func(CHIPS["ulx3s-85f"]))
        assert all(len(latencies) == 1 for latencies in drives.values())


def test_enumerations_start_at_zero_without_gaps():
    for enum in (isa.Kind, isa.Ctrl, isa.Seg, isa.Base, Mask, Red, ASrc, BSrc, Func, isa.Fault):
        assert issubclass(enum, IntEnum)
        assert [m.value for m in enum] == list(range(len(enum)))
    assert len(isa.Kind) <= 4
    assert len(isa.Fault) <= 8


def test_count_of_a_nop_covers_what_a_tide_value_can_say():
    assert isa.TIDE_VALUE_BITS >= isa.COUNT_BITS
    assert 1 << isa.COUNT_BITS >= isa.TIDE_COLUMNS


# Templates ---------------------------------------------------------------------------------------


def decode(word):
    """The fields of an encoded template, `shift` with its sign."""
    values = {}
    for name, width in Template.LAYOUT:
        value = word & ((1 << width) - 1)
        if name == "shift" and value >> (width - 1):
            value -= 1 << width
        values[name] = value
        word >>= width
    assert word == 0
    return Template(
        a=ASrc(values["a"]),
        b=BSrc(values["b"]),
        c=bool(values["c"]),
        shift=values["shift"],
        dyn=bool(values["dyn"]),
        func=Func(values["func"]),
        mask=Mask(values["mask"]),
        red=Red(values["red"]),
        wt=bool(values["wt"]),
    )


templates = st.builds(
    Template,
    a=st.sampled_from(ASrc),
    b=st.sampled_from(BSrc),
    c=st.booleans(),
    shift=st.integers(-64, 63),
    dyn=st.booleans(),
    func=st.sampled_from(Func),
    mask=st.sampled_from(Mask),
    red=st.sampled_from(Red),
    wt=st.booleans(),
)


@given(templates)
def test_template_round_trip(template):
    assert decode(template.encode()) == template


def test_template_layout_holds_its_enumerations():
    widths = dict(Template.LAYOUT)
    assert sum(widths.values()) == 23
    for name, enum in {"a": ASrc, "b": BSrc, "func": Func, "mask": Mask, "red": Red}.items():
        assert max(enum).bit_length() <= widths[name]
    assert list(widths) == list(Template.__dataclass_fields__)


def test_template_encoding_by_hand():
    everything = Template(ASrc.NOISE, BSrc.SELF, True, -1, True, Func.GUMBEL, Mask.VOCAB_MIN)
    want = 5 | 5 << 3 | 1 << 6 | 0x7F << 7 | 1 << 14 | 3 << 15 | 3 << 17
    assert everything.encode() == want
    assert Template(ASrc.ACC).encode() == 0
    assert Template(ASrc.ACC, red=Red.ARGMAX, wt=True).encode() == 4 << 19 | 1 << 22
