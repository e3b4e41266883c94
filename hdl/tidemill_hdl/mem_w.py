"""MEM_W: the weight memory, S banks side by side.

    t        t + 1                t + 2             t + 3              t + 4        t + 5
    READ     registers of a bank  memory register   planes
    GATHER   registers of a bank  memory register   output register    a pair of    e_b
                                                                       banks
    WRITE    bytes                registers of a    (SRAM is written at the end of t + 2)
                                  bank; a READ dispatched now sees it
    host     as an instruction one cycle later; read data at t + 6

Timing rule: one READ or GATHER and one WRITE or SCATTER per cycle, dispatched at t.
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from tidemill.isa import QUEUE_INDEX, QUEUES, Fault

from .layouts import (
    FaultSignature,
    HostSignature,
    IssueSignature,
    RunSignature,
    byte_vector,
    vector,
)
from .reduce import pipe
from .sram import Sram

__all__ = ["MemW"]

READS = QUEUES[QUEUE_INDEX["MEMW.R"]]
WRITES = QUEUES[QUEUE_INDEX["MEMW.W"]]


#: Lanes of a host word.
BYTES = 8


def to_byte(y):
    """int16 to int8 as `numerics.to_byte`: the high byte, rounded half up, +-127 at the ends."""
    high = y[8:16].as_signed()
    return Mux(high == 127, 127, Mux(high == -128, -127, high + y[7]))


class MemW(wiring.Component):
    """Weight planes, K and transposed V.

    Row `addr` of all S banks is read or written; `base` is already in `addr` and is not looked at.
    READ puts the row of every bank on `planes`, GATHER the row of bank `run.token_bank` on `e_b`.
    WRITE puts `w_v` into bank `run.pos_bank`; SCATTER puts lane sub*S + s into lane `run.pos_lane`
    of every bank s. int16 becomes int8 on the way. A write beyond the last row is dropped, a read
    there gives undefined data; both fault. A bank's row that is read
    while it is written collides. `run.abort` drops a write dispatched in its cycle.

    Parameters
    ----------
    chip : Chip
        Shape, depth and family.

    Members
    -------
    r : In(IssueSignature), w : In(IssueSignature)
        Instruction ports of queues MEMW.R and MEMW.W.
    run : In(RunSignature)
        Position and token, sampled at dispatch.
    host : In(HostSignature)
        8 lanes a word, layout `isa.Space.MEM_W`. Legal only while no program runs.
    w_v : In(vector)
        Sampled in the dispatch cycle of WRITE and SCATTER.
    planes : Out(ArrayLayout(byte_vector, S))
        Row of every bank, 3 cycles after READ; keeps its value until the next READ or GATHER.
    e_b : Out(byte_vector)
        Row of one bank, 5 cycles after GATHER; keeps its value until the next one.
    fault : Out(FaultSignature)
        Two cycles after the READ, GATHER or access that is to blame.
    """

    def __init__(self, chip):
        self.chip = chip
        self.planes_layout = data.ArrayLayout(byte_vector(chip), chip.weight_streams)
        self.banks = [
            Sram(
                chip.mem_w_depth,
                byte_vector(chip),
                granularity=1,
                family=chip.family,
            )
            for _ in range(chip.weight_streams)
        ]
        super().__init__(
            {
                "r": In(IssueSignature(READS, chip)),
                "w": In(IssueSignature(WRITES, chip)),
                "run": In(RunSignature(chip)),
                "host": In(HostSignature()),
                "w_v": In(vector(chip)),
                "planes": Out(self.planes_layout),
                "e_b": Out(byte_vector(chip)),
                "fault": Out(FaultSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()

        for s, bank in enumerate(self.banks):
            m.submodules[f"bank_{s}"] = bank

        # host address = {row, bank, word}
        h0_word = Signal(ceil_log2(-(-self.chip.lanes // BYTES)))
        h0_bank = Signal(self.chip.stream_bits)
        h0_row = Signal(24 - len(h0_word) - len(h0_bank))
        h0_legal = Signal()
        h1_read = Signal()
        h1_bank = Signal.like(h0_bank, reset_less=True)
        h1_word = Signal.like(h0_word, reset_less=True)
        m.d.comb += [
            Cat(h0_word, h0_bank, h0_row).eq(self.host.addr),
            h0_legal.eq(h0_row < self.chip.mem_w_depth),
        ]
        m.d.sync += [
            h1_read.eq(self.host.en & ~self.host.we & h0_legal),
            h1_bank.eq(h0_bank),
            h1_word.eq(h0_word),
        ]

        w1_addr = self._write(m, h0_row, h0_bank, h0_word, h0_legal)
        self._read(m, h1_read, w1_addr, h1_bank, h1_word)

        f0_beyond = Signal()
        f1_beyond = Signal()
        f1_collision = Signal()
        m.d.comb += [
            f0_beyond.eq(
                (self.r.valid & (self.r.addr >= self.chip.mem_w_depth))
                | (self.w.valid & (self.w.addr >= self.chip.mem_w_depth))
                | (self.host.en & ~h0_legal)
            ),
            f1_collision.eq(Cat(bank.collision for bank in self.banks).any()),
        ]
        m.d.sync += [
            f1_beyond.eq(f0_beyond),
            self.fault.kind.eq(
                Mux(f1_beyond, Fault.ADDRESS, Mux(f1_collision, Fault.COLLISION, Fault.NONE))
            ),
        ]

        return m

    def _write(self, m, h0_row, h0_bank, h0_word, h0_legal):
        """Write port: lanes and banks are chosen in t, a bank's registers hold its row in t + 2."""
        lanes, streams = self.chip.lanes, self.chip.weight_streams

        w0_valid = Signal()
        w0_scatter = Signal()
        w0_banks = Signal(streams)
        w0_bytes = Signal(byte_vector(self.chip))
        w1_addr = Signal.like(self.w.addr, reset_less=True)
        w1_scatter = Signal(reset_less=True)
        w1_banks = Signal(streams)
        w1_lanes = Signal(lanes, reset_less=True)
        # a row for one bank; the lanes of a SCATTER, one for every bank
        w1_row = Signal(byte_vector(self.chip), reset_less=True)
        w1_column = Signal(data.ArrayLayout(signed(8), streams), reset_less=True)

        m.d.comb += [
            w0_valid.eq(self.w.valid & (self.w.addr < self.chip.mem_w_depth) & ~self.run.abort),
            w0_scatter.eq(self.w.op == WRITES.op("SCATTER").code),
            *(w0_bytes[n].eq(to_byte(self.w_v[n])) for n in range(lanes)),
        ]
        with m.If(self.host.en):
            m.d.comb += [
                w0_banks[s].eq(self.host.we & h0_legal & (h0_bank == s)) for s in range(streams)
            ]
            m.d.sync += [
                w1_addr.eq(h0_row),
                w1_scatter.eq(0),
                *(w1_row[n].eq(self.host.wdata.word_select(n % BYTES, 8)) for n in range(lanes)),
                *(w1_lanes[n].eq(h0_word == n // BYTES) for n in range(lanes)),
            ]
        with m.Else():
            m.d.comb += [
                w0_banks[s].eq(w0_valid & (w0_scatter | (self.run.pos_bank == s)))
                for s in range(streams)
            ]
            m.d.sync += [
                w1_addr.eq(self.w.addr),
                w1_scatter.eq(w0_scatter),
                w1_row.eq(w0_bytes),
                *(w1_lanes[n].eq(~w0_scatter | (self.run.pos_lane == n)) for n in range(lanes)),
            ]
        m.d.sync += w1_banks.eq(w0_banks)
        sub = self.w.sub[: exact_log2(self.chip.subs)] if self.chip.lane_bits else Const(0, 0)
        for s, bank in enumerate(self.banks):
            w2_en = Signal.like(Cat(bank.w_en), name=f"w2_en_{s}")
            w2_addr = Signal.like(w1_addr, name=f"w2_addr_{s}")
            w2_row = Signal.like(w1_row, name=f"w2_row_{s}")
            w1_chunks = Mux(w1_banks[s], bank.enables(w1_addr), 0)
            m.d.sync += [
                w1_column[s].eq(Array(w0_bytes[s::streams])[sub]),
                w2_en.eq(Cat(Mux(chunk, w1_lanes, 0) for chunk in w1_chunks)),
            ]
            with m.If(w1_banks[s]):
                m.d.sync += w2_addr.eq(w1_addr)
                for n in range(lanes):
                    m.d.sync += w2_row[n].eq(Mux(w1_scatter, w1_column[s], w1_row[n]))
            m.d.comb += [
                Cat(bank.w_en).eq(w2_en),
                bank.w_addr.eq(w2_addr),
                bank.w_data.eq(w2_row),
            ]
        return w1_addr

    def _read(self, m, h1_read, h1_addr, h1_bank, h1_word):
        """Read port and gather; a host read comes in one cycle after its access.

        Every bank has registers for its address, near its blocks; they load only when the bank is
        read, so that synthesis does not make one of them.
        """
        r0_en = Signal()
        r0_gather = Signal()
        r0_addr = Signal.like(self.r.addr)
        r0_bank = Signal.like(h1_bank)
        m.d.comb += [
            r0_en.eq(h1_read | self.r.valid),
            r0_gather.eq(h1_read | (self.r.op == READS.op("GATHER").code)),
            r0_addr.eq(Mux(h1_read, h1_addr, self.r.addr)),
            r0_bank.eq(Mux(h1_read, h1_bank, self.run.token_bank)),
        ]
        picked = []
        for s, bank in enumerate(self.banks):
            here = Signal(name=f"r0_bank_{s}_en")
            r1_en = Signal.like(bank.r_en, name=f"r1_en_{s}")
            r1_addr = Signal.like(r0_addr, name=f"r1_addr_{s}", reset_less=True)
            m.d.comb += [
                here.eq(r0_en & (~r0_gather | (r0_bank == s))),
                bank.r_en.eq(r1_en),
                bank.r_addr.eq(r1_addr),
                self.planes[s].eq(bank.r_data),
            ]
            m.d.sync += r1_en.eq(Mux(here, bank.enables(r0_addr), 0))
            with m.If(here):
                m.d.sync += r1_addr.eq(r0_addr)
            pick = pipe(m, f"pick_{s}", here & r0_gather, 1, 3)[3]
            picked.append(Mux(pick, Value.cast(bank.r_data), 0))

        r4_gather = pipe(m, "gather", r0_en & r0_gather, 1, 4)[4]
        r5_word = pipe(m, "word", h1_word, 1, 5)[5]
        r4_pairs = Signal(data.ArrayLayout(len(picked[0]), -(-len(picked) // 2)), reset_less=True)
        r5_row = Signal(byte_vector(self.chip), reset_less=True)
        for k, pair in enumerate(r4_pairs):
            m.d.sync += pair.eq(reduce(or_, picked[2 * k : 2 * k + 2]))
        with m.If(r4_gather):
            m.d.sync += r5_row.eq(reduce(or_, r4_pairs))
        words = [Cat(r5_row[n : n + BYTES]) for n in range(0, self.chip.lanes, BYTES)]
        m.d.comb += [
            self.e_b.eq(r5_row),
            self.host.rdata.eq(Array(words)[r5_word]),
        ]
