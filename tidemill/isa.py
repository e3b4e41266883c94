"""The instruction set as one table: queues, fields, encodings, timing.

Encoder, decoder, assembler text, RTL layouts, simulator, checker, scheduler and `docs/isa.md`
derive from it. No other file contains a latency. It is long because it is the one table.

Word of every queue, least significant bit first:

    payload | wait (6 bits) | kind (2 bits)

kind OP issues the payload to the slice, NOP idles, REPEAT re-issues the last OP, CTRL is ICU
control. OP and REPEAT are followed by `wait` idle cycles. The first payload field of an OP is the
one that a REPEAT steps (`stride`, modulo its width).

Time rule. `t` is the cycle in which the slice sees the instruction (dispatch). A result is first
visible at `t + d_func` (+ hops, for a stream, at another slice). An operand is sampled at
`t + skew`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from tidemill.chip import Chip, _log2

__all__ = [
    "QUEUES",
    "QUEUE_INDEX",
    "Base",
    "Config",
    "Ctrl",
    "Fault",
    "Field",
    "Kind",
    "Mask",
    "Op",
    "Queue",
    "Red",
    "Seg",
    "Space",
    "Template",
    "Timing",
    "base_bits",
    "config_bits",
]

WAIT_BITS = 6
COUNT_BITS = 14
INTERVAL_BITS = 7
STRIDE_BITS = 6
#: Tide-table columns of one queue.
TIDE_COLUMNS = 32
#: Width of a tide value (counts, waits, segment length).
TIDE_VALUE_BITS = 20
#: Destination number of the sequencer's LAYER length in the tide table; queues are 0..8.
TIDE_SEQUENCER = 15
#: A queue must be parked at SYNC this many cycles before its segment ends.
PARK_CYCLES = 3
#: Cycles after the start of EMBED from which token-dependent operands (base TOKEN, GATHER's bank,
#: BCAST's lane) are defined; the tide row of this token is loaded in the background, one word a
#: cycle, from then on.
TOKEN_CYCLES = 8


#: Cycles from a host read to its data.
HOST_READ_LATENCY = 6


class Kind(IntEnum):
    """Top two bits of a word."""

    OP = 0
    NOP = 1
    REPEAT = 2
    CTRL = 3


class Ctrl(IntEnum):
    """Payload of a CTRL word. All but SYNC are reserved: the assembler refuses, the ICU faults."""

    SYNC = 0
    NOTIFY = 1
    IFETCH = 2
    CONFIG = 3


class Seg(IntEnum):
    """Segments the sequencer issues for a token: EMBED, LAYER times the number of layers, HEAD."""

    EMBED = 0
    LAYER = 1
    HEAD = 2


class Base(IntEnum):
    """Address base a memory instruction adds, kept by the sequencer (`docs/architecture.md`)."""

    ZERO = 0
    #: layer * W_LAYER_STRIDE (MEM_W) or layer * A_LAYER_STRIDE (MEM_A)
    LAYER = 1
    #: MEM_W: LAYER + (p div S) * K_STRIDE;  MEM_A: p * A_POS_STRIDE
    POS = 2
    #: MEM_W: LAYER + (p div L) * V_STRIDE;  MEM_A: reserved (reads as ZERO)
    POS_V = 3
    #: MEM_W: (token div S) * EMB_STRIDE;  MEM_A: token div L
    TOKEN = 4


class Mask(IntEnum):
    """Lane mask of a VXM pass; `i` = element counter * lanes + lane."""

    NONE = 0
    #: lanes with i > p read as -32767
    POS_MIN = 1
    #: lanes with i > p read as 0
    POS_ZERO = 2
    #: lanes with i >= VOCAB read as -32767
    VOCAB_MIN = 3


class Red(IntEnum):
    """Reduction of a VXM pass over all lanes and, since `first`, over vectors."""

    NONE = 0
    #: sum of products pre*B (40 bits), + EPS, 1/sqrt -> scalar file [sx]
    SUMSQ = 1
    #: sum of results (40 bits), 1/x -> scalar file [sx]
    SUM = 2
    #: maximum of results -> maximum file [mx]
    MAX = 3
    #: maximum and lowest index i of results -> token register
    ARGMAX = 4


class ASrc(IntEnum):
    """Operand A of the VXM, 32 bits signed."""

    ACC = 0
    T = 1
    WA = 2
    WS = 3
    BYTE = 4
    NOISE = 5


class BSrc(IntEnum):
    """Operand B of the VXM, 18 bits signed."""

    ONE = 0
    T = 1
    WA = 2
    WS = 3
    SCALAR = 4
    SELF = 5
    #: T times 4: row multipliers and cosines above one
    T4 = 6
    #: W_a times 4
    WA4 = 7


class Func(IntEnum):
    """Table function of a VXM pass; NONE multiplies A by B."""

    NONE = 0
    EXP = 1
    SILU = 2
    GUMBEL = 3


class Fault(IntEnum):
    """Kinds in the sticky fault register."""

    NONE = 0
    #: a queue was notified while not parked, or was not parked PARK_CYCLES before a segment's end
    UNDERRUN = 1
    #: read and write of one SRAM address in one cycle
    COLLISION = 2
    #: an address beyond the memory's depth
    ADDRESS = 3
    #: a reserved or unknown encoding
    ILLEGAL = 4


@dataclass(frozen=True)
class Field:
    """A field of an OP payload; `bits` is a function of the chip."""

    name: str
    bits: Callable[[Chip], int]
    doc: str
    enum: type[IntEnum] | None = None


@dataclass(frozen=True)
class Op:
    """An instruction: `d_func` cycles from dispatch to visible result, `skew` to its operands."""

    mnemonic: str
    code: int
    d_func: Callable[[Chip], int]
    skew: int
    doc: str


@dataclass(frozen=True)
class Queue:
    """An in-order instruction queue and the instructions it may hold."""

    name: str
    slice: str
    fields: tuple[Field, ...]
    ops: tuple[Op, ...]
    #: Names of operations whose code is taken but which this machine does not build yet.
    reserved: tuple[str, ...] = ()
    doc: str = ""
    index: int = field(default=-1)

    @property
    def op_bits(self) -> int:
        """Width of the operation code (0 when the queue has one operation)."""
        return _log2(len(self.ops) + len(self.reserved))

    def layout(self, chip: Chip) -> list[tuple[str, int]]:
        """(name, width) of the payload of an OP, least significant first; `op` comes last."""
        items = [(f.name, f.bits(chip)) for f in self.fields]
        return [*items, ("op", self.op_bits)]

    def payload_bits(self, chip: Chip) -> int:
        """Payload width: enough for an OP and for a REPEAT."""
        control = 1 + COUNT_BITS + INTERVAL_BITS + STRIDE_BITS
        return max(control, sum(w for _, w in self.layout(chip)))

    def word_bits(self, chip: Chip) -> int:
        """Width of a word of this queue."""
        return self.payload_bits(chip) + WAIT_BITS + 2

    def op(self, mnemonic: str) -> Op:
        """The operation of that name; KeyError if there is none."""
        return {o.mnemonic: o for o in self.ops}[mnemonic]


#: Payload of NOP and REPEAT. `count`: cycles to idle / times to re-issue (or, with `tide`, a tide
#: column); `interval`: cycles from issue to issue, 0 for the duration of the OP; `stride`: signed
#: step.
CONTROL_LAYOUT = [
    ("tide", 1),
    ("count", COUNT_BITS),
    ("interval", INTERVAL_BITS),
    ("stride", STRIDE_BITS),
]


def _const(n: int) -> Callable[[Chip], int]:
    return lambda chip: n


class Timing:
    """Latencies that are not simply one instruction's d_func; all in cycles from dispatch."""

    #: VXM: stream and T operands (A, B), scalar mantissa and exponent are read at t + 1.
    VXM_AB = 1
    #: VXM: maximum file is read at t + 4.
    VXM_MAX_READ = 4
    #: VXM: operand C (T) is read at t + 8.
    VXM_C = 8
    #: VXM: the result is on streams E_v and W_v at t + 11 and written to T at that cycle's end.
    VXM_RESULT = 11
    #: VXM: first cycle in which the T entry reads as the result.
    VXM_T = 12

    @staticmethod
    def vxm_max(chip: Chip) -> int:
        """First cycle in which the maximum file (or token register) holds the running result."""
        return 12 + chip.tree_latency

    @staticmethod
    def vxm_scalar(chip: Chip) -> int:
        """First cycle in which the scalar file holds the running 1/x or 1/sqrt(x)."""
        return 21 + chip.tree_latency


def _w_addr(c: Chip) -> int:
    return _log2(c.mem_w_depth)


def _a_addr(c: Chip) -> int:
    return _log2(c.mem_a_depth)


def _t_bits(c: Chip) -> int:
    return _log2(c.temp_depth)


QUEUES: tuple[Queue, ...] = tuple(
    Queue(q.name, q.slice, q.fields, q.ops, q.reserved, q.doc, i)
    for i, q in enumerate(
        (
            Queue(
                "MEMW.R",
                "MEM_W",
                (
                    Field("addr", _w_addr, "row of every bank"),
                    Field("base", _const(3), "address base", Base),
                ),
                (
                    Op("READ", 0, _const(3), 0, "row of all banks -> weight streams E0..S-1"),
                    Op("GATHER", 1, _const(5), 0, "row of bank (token mod S) -> byte stream E_b"),
                ),
                doc="weight-plane reads",
            ),
            Queue(
                "MEMW.W",
                "MEM_W",
                (
                    Field("addr", _w_addr, "row"),
                    Field("base", _const(3), "address base", Base),
                    Field("sub", lambda c: c.lane_bits, "SCATTER: group of S lanes to take"),
                ),
                (
                    Op("WRITE", 0, _const(2), 0, "W_v as bytes -> all lanes of bank (p mod S)"),
                    Op(
                        "SCATTER",
                        1,
                        _const(2),
                        0,
                        "lane sub*S+s of W_v as a byte -> lane (p mod L) of every bank s",
                    ),
                ),
                doc="K and transposed V append; int16 becomes int8 by round(y/256), saturated",
            ),
            Queue(
                "MXM.C",
                "MXM",
                (
                    Field("abc", lambda c: _log2(c.act_depth), "activation vector"),
                    Field("acc", lambda c: _log2(c.acc_groups), "accumulator group"),
                    Field("ni", _const(10), "inner iterations, at least 1"),
                    Field("fresh", _const(1), "start the sum instead of adding to it"),
                ),
                (
                    Op(
                        "ROWS",
                        0,
                        lambda c: 7 + c.lane_bits,
                        1,
                        "ni cycles: install weights, activation abc+i, add to group acc "
                        "(fresh at i = 0); a re-issue goes on with group acc+1",
                    ),
                    Op(
                        "COLS",
                        1,
                        lambda c: 7 + c.lane_bits,
                        1,
                        "ni cycles: install weights, activation abc, add to group acc+i; "
                        "a re-issue goes on with activation abc+1 and is not fresh",
                    ),
                ),
                doc="IW, ABC and ACC in one: every cycle a weight plane meets an activation vector",
            ),
            Queue(
                "MXM.L",
                "MXM",
                (
                    Field("dst", lambda c: _log2(c.act_depth), "activation vector"),
                    Field("src", _const(1), "0: stream W_a, 1: stream W_v"),
                    Field("mlog", _const(3), "lane block of 2**mlog lanes"),
                    Field("midx", lambda c: c.lane_bits, "which block"),
                    Field("zero", _const(1), "1: other lanes become 0, 0: they keep their value"),
                ),
                (Op("LW", 0, _const(1), 0, "stream -> activation file"),),
                doc="activation loads",
            ),
            Queue(
                "MXM.A",
                "MXM",
                (Field("slot", lambda c: _log2(c.acc_depth), "accumulator vector"),),
                (Op("ACC", 0, _const(1), 0, "accumulator vector -> stream E_acc (SG4)"),),
                doc="accumulator drain",
            ),
            Queue(
                "VXM",
                "VXM",
                (
                    Field("ta", _t_bits, "T entry of operand A"),
                    Field("tb", _t_bits, "T entry of operand B"),
                    Field("tc", _t_bits, "T entry of addend C"),
                    Field("td", _t_bits, "T entry of the result"),
                    Field("tmpl", _const(5), "template: what this pass does"),
                    Field("first", _const(1), "reset element counter and reduction"),
                    Field("sx", _const(3), "scalar file index"),
                    Field("mx", _const(2), "maximum file index"),
                ),
                (
                    Op(
                        "PASS",
                        0,
                        _const(Timing.VXM_RESULT),
                        Timing.VXM_AB,
                        "one vector through the compound pipeline -> E_v, W_v, T, reduction",
                    ),
                ),
                doc="pre-shift, table, multiply, add, saturate, reduce",
            ),
            Queue(
                "SXM",
                "SXM",
                (Field("src", _const(1), "0: stream E_v (from VXM), 1: stream W_a (from MEM_A)"),),
                (
                    Op("SWAP", 0, _const(1), 0, "out[2i] = -in[2i+1], out[2i+1] = in[2i] -> W_s"),
                    Op("DUPE", 1, _const(1), 0, "out[2i] = out[2i+1] = in[2i] -> W_s"),
                    Op("DUPO", 2, _const(1), 0, "out[2i] = out[2i+1] = in[2i+1] -> W_s"),
                    Op("BCAST", 3, _const(1), 0, "every lane = in[token mod L] -> W_s"),
                ),
                ("SHIFT", "ROTATE", "PERMUTE", "TRANSPOSE"),
                doc="moves between lanes",
            ),
            Queue(
                "MEMA.R",
                "MEM_A",
                (
                    Field("addr", _a_addr, "vector"),
                    Field("base", _const(3), "address base", Base),
                ),
                (Op("READ", 0, _const(2), 0, "vector -> stream W_a (SG2)"),),
                doc="vector reads",
            ),
            Queue(
                "MEMA.W",
                "MEM_A",
                (
                    Field("addr", _a_addr, "vector"),
                    Field("base", _const(3), "address base", Base),
                ),
                (Op("WRITE", 0, _const(1), 0, "stream E_v -> vector"),),
                doc="vector writes",
            ),
        )
    )
)

QUEUE_INDEX: dict[str, int] = {q.name: i for i, q in enumerate(QUEUES)}


@dataclass(frozen=True)
class Template:
    """What a VXM pass does. 32 of them are data, loaded with the program.

    pre = sat18(round(A >> clamp(shift + (exp of scalar sx if dyn), 0, 31)));  x = function operand
    result = sat16(round(pre * B / 2**16) + C), or the table function; then the mask; then T if
    `wt`.
    """

    a: ASrc
    b: BSrc = BSrc.ONE
    c: bool = False
    shift: int = 0
    dyn: bool = False
    func: Func = Func.NONE
    mask: Mask = Mask.NONE
    red: Red = Red.NONE
    wt: bool = False

    #: (name, width), least significant first. `shift` is signed.
    LAYOUT = (
        ("a", 3),
        ("b", 3),
        ("c", 1),
        ("shift", 7),
        ("dyn", 1),
        ("func", 2),
        ("mask", 2),
        ("red", 3),
        ("wt", 1),
    )

    def encode(self) -> int:
        """The 23-bit word."""
        word = at = 0
        for name, width in self.LAYOUT:
            word |= (int(getattr(self, name)) & ((1 << width) - 1)) << at
            at += width
        return word


class Space(IntEnum):
    """Address spaces of the host port (64-bit words)."""

    #: address = row << (stream_bits + w) | bank << w | word, w = log2(ceil(lanes / 8)); 8 lanes a
    #: word
    MEM_W = 0
    #: address = vector << a | word, a = log2(ceil(lanes / 4)); 4 lanes (int16) a word
    MEM_A = 1
    #: 512 entries: base in bits 15:0, slope in bits 31:16; the same for every lane
    LANE_TABLE = 2
    #: 512 entries: base (unsigned) in bits 15:0, slope in bits 31:16
    SCALAR_TABLE = 3
    #: 32 entries
    TEMPLATE = 4
    #: address = queue << 16 | word
    QUEUE = 5
    #: address = queue << 2 | segment; data = first word of the segment
    START = 6
    #: value in bits 19:0, column in 24:20, queue in 28:25
    TIDE = 7
    CONFIG = 8
    PROMPT = 9


class Config(IntEnum):
    """Registers of `Space.CONFIG`."""

    LAYERS = 0
    W_LAYER_STRIDE = 1
    K_STRIDE = 2
    V_STRIDE = 3
    EMB_STRIDE = 4
    A_LAYER_STRIDE = 5
    A_POS_STRIDE = 6
    #: words of one tide row (one value of n)
    TIDE_ROW = 7
    #: added to a sum of squares before the reciprocal square root; at least 1
    EPS = 8
    VOCAB = 9
    EMBED_LENGTH = 10
    HEAD_LENGTH = 11
    #: end-of-sequence token; a run stops after it. All ones: none.
    EOS = 12
    #: run options
    PROMPT_LENGTH = 13
    #: generated tokens before the run stops; at least 1
    MAX_TOKENS = 14
    SEED = 15
    #: 16..23: initial value of scalar file entry i at the start of a run: mant in 15:0, exp in
    #: 21:16
    SCALAR0 = 16


#: Width of TIDE_ROW: every column of every queue and the segment length.
TIDE_ROW_BITS = _log2(len(QUEUES) * TIDE_COLUMNS + 2)


def base_bits(depth: int) -> int:
    """Width of the address bases of a memory: wide enough that a sum out of range shows."""
    return min(24, _log2(depth) + 8)


def config_bits(chip: Chip) -> dict[int, int]:
    """Bits of every register of `Space.CONFIG`, keyed by its address, in that order.

    The host port drops what lies above them; `Program` refuses a value that has any.
    """
    w, a = base_bits(chip.mem_w_depth), base_bits(chip.mem_a_depth)
    bits: dict[int, int] = {
        Config.LAYERS: 12,
        Config.W_LAYER_STRIDE: w,
        Config.K_STRIDE: w,
        Config.V_STRIDE: w,
        # an unsigned operand of one 18x18 multiplier, and far beyond any embedding
        Config.EMB_STRIDE: min(w, 17),
        Config.A_LAYER_STRIDE: a,
        Config.A_POS_STRIDE: a,
        Config.TIDE_ROW: TIDE_ROW_BITS,
        Config.EPS: 32,
        Config.VOCAB: 17,
        Config.EMBED_LENGTH: TIDE_VALUE_BITS,
        Config.HEAD_LENGTH: TIDE_VALUE_BITS,
        Config.EOS: 16,
        Config.PROMPT_LENGTH: 16,
        Config.MAX_TOKENS: 16,
        Config.SEED: 32,
    }
    return bits | {Config.SCALAR0 + i: 22 for i in range(8)}
