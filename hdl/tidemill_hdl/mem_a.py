"""MEM_A: the activation memory.

    t           t + 1             t + 2
    READ        memory register   w_a
    WRITE       a READ dispatched now sees it
    host        as an instruction one cycle later; read data at t + 6

Timing rule: one READ and one WRITE per cycle, dispatched at t.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tidemill.isa import QUEUE_INDEX, QUEUES, Fault

from .layouts import FaultSignature, HostSignature, IssueSignature, vector
from .sram import Sram

__all__ = ["MemA"]

#: Lanes of a host word.
HALVES = 4


class MemA(wiring.Component):
    """Activations and tables, one vector of int16 per row.

    READ puts a vector on `w_a`, WRITE stores `e_v`; `base` is already in `addr` and is not looked
    at. A write beyond the last vector is dropped, a read there gives undefined data; both fault.
    Reading and writing one vector in one cycle is a collision.

    Parameters
    ----------
    chip : Chip
        Shape, depth and family.

    Members
    -------
    r : In(IssueSignature), w : In(IssueSignature)
        Instruction ports of queues MEMA.R and MEMA.W.
    host : In(HostSignature)
        4 lanes a word, layout `isa.Space.MEM_A`. Legal only while no program runs.
    e_v : In(vector)
        Sampled in the dispatch cycle of WRITE.
    w_a : Out(vector)
        The vector, 2 cycles after READ; keeps its value until the next one.
    fault : Out(FaultSignature)
        ADDRESS or COLLISION, one cycle after it happens.
    """

    def __init__(self, chip):
        self.chip = chip
        self.sram = Sram(
            chip.mem_a_depth,
            vector(chip),
            granularity=min(HALVES, chip.lanes),
            family=chip.family,
        )
        super().__init__(
            {
                "r": In(IssueSignature(QUEUES[QUEUE_INDEX["MEMA.R"]], chip)),
                "w": In(IssueSignature(QUEUES[QUEUE_INDEX["MEMA.W"]], chip)),
                "host": In(HostSignature()),
                "e_v": In(vector(chip)),
                "w_a": Out(vector(chip)),
                "fault": Out(FaultSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth, lanes = self.chip.mem_a_depth, self.chip.lanes

        m.submodules.sram = sram = self.sram

        # host address = {row, word}
        h0_word = Signal(ceil_log2(-(-lanes // HALVES)))
        h0_row = Signal(24 - len(h0_word))
        h0_legal = Signal()
        h1_read = Signal()
        h1_write = Signal()
        h1_word = Signal.like(h0_word, reset_less=True)
        h1_row = Signal.like(self.r.addr, reset_less=True)
        h1_data = Signal(64, reset_less=True)
        m.d.comb += [
            Cat(h0_word, h0_row).eq(self.host.addr),
            h0_legal.eq(h0_row < depth),
        ]
        m.d.sync += [
            h1_read.eq(self.host.en & ~self.host.we & h0_legal),
            h1_write.eq(self.host.en & self.host.we & h0_legal),
            h1_word.eq(h0_word),
            h1_row.eq(h0_row),
            h1_data.eq(self.host.wdata),
        ]

        w0_valid = Signal()
        w0_words = Signal(-(-lanes // HALVES))
        w0_chunks = Signal(len(sram.w_en))
        m.d.comb += [
            w0_valid.eq(self.w.valid & (self.w.addr < depth)),
            sram.w_addr.eq(Mux(h1_write, h1_row, self.w.addr)),
            *(w0_words[k].eq(Mux(h1_write, h1_word == k, w0_valid)) for k in range(len(w0_words))),
            w0_chunks.eq(sram.enables(sram.w_addr)),
            *(sram.w_en[k].eq(Mux(chunk, w0_words, 0)) for k, chunk in enumerate(w0_chunks)),
            *(
                sram.w_data[n].eq(
                    Mux(h1_write, h1_data.word_select(n % HALVES, 16).as_signed(), self.e_v[n])
                )
                for n in range(lanes)
            ),
        ]

        r1_word = Signal.like(h1_word, reset_less=True)
        r2_word = Signal.like(h1_word, reset_less=True)
        r3_data = Signal(64, reset_less=True)
        r4_data = Signal(64, reset_less=True)
        r5_data = Signal(64, reset_less=True)  # as late as MEM_W's
        m.d.comb += [
            sram.r_en.eq(Mux(h1_read | self.r.valid, sram.enables(sram.r_addr), 0)),
            sram.r_addr.eq(Mux(h1_read, h1_row, self.r.addr)),
            self.w_a.eq(sram.r_data),
            self.host.rdata.eq(r5_data),
        ]
        words = [Cat(sram.r_data[n : n + HALVES]) for n in range(0, lanes, HALVES)]
        m.d.sync += [
            r1_word.eq(h1_word),
            r2_word.eq(r1_word),
            r3_data.eq(Array(words)[r2_word]),
            r4_data.eq(r3_data),
            r5_data.eq(r4_data),
        ]

        f0_beyond = Signal()
        m.d.comb += f0_beyond.eq(
            (self.r.valid & (self.r.addr >= depth))
            | (self.w.valid & (self.w.addr >= depth))
            | (self.host.en & ~h0_legal)
        )
        m.d.sync += self.fault.kind.eq(
            Mux(f0_beyond, Fault.ADDRESS, Mux(sram.collision, Fault.COLLISION, Fault.NONE))
        )

        return m
