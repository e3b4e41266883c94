"""One in-order instruction queue: a word a cycle, each at a cycle known before the program runs.

    F address | M RAM output | P tide column | D counters: issue? advance? | X step | I issue
       B-5          B-4             B-3              B-2                      B-1      B: dispatch

Timing rule: a queue notified in cycle B - NOTIFY_CYCLES dispatches the segment's first word in
cycle B. Every word spends its whole occupation in stage D; F, M and P wait meanwhile, X and I
never do. `docs/architecture.md` (Control) says how long each word takes.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tidemill import isa
from tidemill_hdl.bases import BasesSignature
from tidemill_hdl.layouts import FaultSignature, HostSignature, IssueSignature
from tidemill_hdl.regfile import RegFile
from tidemill_hdl.tide import TideSignature

__all__ = ["NOTIFY_CYCLES", "InstructionQueue"]

#: Cycles from `notify` to the dispatch of the segment's first word.
NOTIFY_CYCLES = 5


class InstructionQueue(wiring.Component):
    """Instruction memory, START table, tide columns and decoder of one queue.

    Parameters
    ----------
    queue : isa.Queue
    chip : Chip

    Members
    -------
    words, starts : In(HostSignature())
        Host writes to the spaces QUEUE and START, of every queue.
    tide : In(TideSignature())
        Tide words, of every queue.
    notify, segment : In(1), In(2)
        In cycle B - NOTIFY_CYCLES: segment `isa.Seg` begins in cycle B.
    check : In(1)
        In cycle E - NOTIFY_CYCLES: a segment ends with cycle E - 1 (and the next may begin).
    flush : In(1)
        Nothing is dispatched in this cycle, the queue is empty in the next.
    bases : In(BasesSignature(...))
        Memory queues only.
    issue : Out(IssueSignature(queue, chip))
        `issue.valid` in the dispatch cycle.
    fault : Out(FaultSignature())
        In the cycle of the word at fault; UNDERRUN in cycle E - PARK_CYCLES.
    """

    def __init__(self, queue, chip):
        self._queue = queue
        self._chip = chip
        self._names = [n for n, w in queue.layout(chip) if w]
        self._layout = data.StructLayout({n: w for n, w in queue.layout(chip) if w})
        members = {
            "words": In(HostSignature()),
            "starts": In(HostSignature()),
            "tide": In(TideSignature()),
            "notify": In(1),
            "segment": In(2),
            "check": In(1),
            "flush": In(1),
            "issue": Out(IssueSignature(queue, chip)),
            "fault": Out(FaultSignature()),
        }
        #: Depth of the memory whose bases this queue adds, or None.
        self.memory_depth = None
        if "base" in self._names:
            self.memory_depth = {"MEM_W": chip.mem_w_depth, "MEM_A": chip.mem_a_depth}[queue.slice]
            members["bases"] = In(BasesSignature(self.memory_depth))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        self._fetch(m)
        self._decode(m)
        self._control(m)
        self._step(m)
        self._issue(m)
        return m

    def _fetch(self, m):
        """Stages F and M: START table and instruction memory."""
        queue, chip = self._queue, self._chip
        m.submodules.ram = ram = Memory(
            shape=queue.word_bits(chip), depth=chip.queue_depth, init=[], attrs={"no_rw_check": 1}
        )
        write = ram.write_port()
        read = ram.read_port()
        m.d.comb += [
            write.addr.eq(self.words.addr),
            write.data.eq(self.words.wdata),
            write.en.eq(self.words.en & self.words.we & (self.words.addr[16:] == queue.index)),
        ]

        starts = [Signal(read.addr.shape(), name=f"start_{s.name.lower()}") for s in isa.Seg]
        for seg, start in zip(isa.Seg, starts, strict=True):
            at = self.starts.en & self.starts.we & (self.starts.addr == (queue.index << 2 | seg))
            with m.If(at):
                m.d.sync += start.eq(self.starts.wdata)

        self.step = step = Signal()  # M, P and D move on
        pc = Signal(read.addr.shape())
        with m.Switch(Cat(self.segment, ~self.notify)):
            for seg, start in zip(isa.Seg, starts, strict=True):
                with m.Case(int(seg)):
                    m.d.comb += read.addr.eq(start)
            with m.Default():
                m.d.comb += read.addr.eq(pc)
        m.d.comb += read.en.eq(self.notify | step)
        with m.If(read.en):
            m.d.sync += pc.eq(read.addr + 1)

        self.m_valid = m_valid = Signal()
        self.p_valid = Signal()
        self.p_word = Signal(queue.word_bits(chip))
        with m.If(step):
            m.d.sync += [self.p_valid.eq(m_valid), self.p_word.eq(read.data)]
        with m.If(self.notify):
            m.d.sync += [m_valid.eq(1), self.p_valid.eq(0)]
        with m.If(self.flush):
            m.d.sync += [m_valid.eq(0), self.p_valid.eq(0)]

    def _decode(self, m):
        """Stage P: word apart, tide column."""
        bits = self._queue.payload_bits(self._chip)
        self.p_payload = self.p_word[:bits]
        self.p_wait = self.p_word[bits : bits + isa.WAIT_BITS]
        self.p_kind = self.p_word[bits + isa.WAIT_BITS :]
        self.p_control = data.StructLayout(dict(isa.CONTROL_LAYOUT))(
            self.p_word[: sum(w for _, w in isa.CONTROL_LAYOUT)]
        )

        m.submodules.columns = columns = RegFile(
            isa.TIDE_COLUMNS, unsigned(isa.TIDE_VALUE_BITS), family=self._chip.family
        )
        self.p_count = Signal(isa.TIDE_VALUE_BITS)
        m.d.comb += [
            columns.w_addr.eq(self.tide.column),
            columns.w_data.eq(self.tide.value),
            columns.w_en.eq(self.tide.valid & (self.tide.queue == self._queue.index)),
            columns.r_addr[0].eq(self.p_control.count),
            self.p_count.eq(Mux(self.p_control.tide, columns.r_data[0], self.p_control.count)),
        ]

    def _control(self, m):
        """Stage D: what happens in this cycle of the word's occupation."""
        has_ni = "ni" in self._names
        dur_bits = self._layout["ni"].width if has_ni else 1
        tail_bits = max(dur_bits, isa.WAIT_BITS) + 1

        d_valid = Signal()
        d_fresh = Signal()  # first cycle of the word
        self.d_op = Signal()
        d_ctrl = Signal()
        d_bad = Signal()
        d_repeating = Signal()  # re-issues are left
        d_gap = Signal(max(dur_bits, isa.INTERVAL_BITS))  # cycles until the next re-issue
        d_reload = Signal.like(d_gap)
        d_times = Signal(isa.TIDE_VALUE_BITS)  # re-issues left
        d_tail = Signal(tail_bits)  # cycles after the last issue
        d_left = Signal(isa.TIDE_VALUE_BITS)  # cycles after this one, nothing to issue in them
        d_dur = Signal(dur_bits, init=1)  # duration of the last OP
        self.d_payload = Signal(self._layout.size)
        self.d_stride = Signal(signed(isa.STRIDE_BITS))

        d_again = Signal()
        d_last = Signal()
        d_done = Signal()
        self.d_issue = Signal()
        m.d.comb += [
            d_again.eq(d_repeating & (d_gap == 0)),
            d_last.eq(d_again & (d_times == 1)),
            d_done.eq(~d_ctrl & Mux(d_repeating, d_last & (d_tail == 0), d_left == 0)),
            self.step.eq(~d_valid | d_done),
            self.d_issue.eq(d_valid & (d_again | (self.d_op & d_fresh))),
        ]

        m.d.sync += d_fresh.eq(0)
        with m.If(d_repeating):
            with m.If(d_again):
                m.d.sync += [d_gap.eq(d_reload), d_times.eq(d_times - 1)]
            with m.Else():
                m.d.sync += d_gap.eq(d_gap - 1)
            with m.If(d_last):
                m.d.sync += [d_repeating.eq(0), d_left.eq(d_tail - 1)]
        with m.Else():
            m.d.sync += d_left.eq(d_left - 1)

        p_dur = Signal(dur_bits)
        if has_ni:
            ni = self._layout(self.p_payload[: self._layout.size]).ni
            m.d.comb += p_dur.eq(Mux(ni == 0, 1, ni))
        else:
            m.d.comb += p_dur.eq(1)
        interval = self.p_control.interval
        with m.If(self.step):
            m.d.sync += [
                d_valid.eq(self.p_valid),
                d_fresh.eq(1),
                self.d_op.eq(self.p_kind == isa.Kind.OP),
                d_ctrl.eq(self.p_kind == isa.Kind.CTRL),
                d_bad.eq(self.p_payload != isa.Ctrl.SYNC),
                d_repeating.eq((self.p_kind == isa.Kind.REPEAT) & (self.p_count != 0)),
                d_gap.eq(Mux(interval > d_dur, interval - d_dur, 0)),
                d_reload.eq(Mux(interval == 0, d_dur - 1, interval - 1)),
                d_times.eq(self.p_count),
                d_tail.eq(d_dur - 1 + self.p_wait),
                self.d_payload.eq(self.p_payload),
                self.d_stride.eq(self.p_control.stride),
            ]
            with m.Switch(self.p_kind):
                with m.Case(isa.Kind.OP):
                    m.d.sync += [d_dur.eq(p_dur), d_left.eq(p_dur - 1 + self.p_wait)]
                with m.Case(isa.Kind.NOP):
                    m.d.sync += d_left.eq(Mux(self.p_count == 0, 0, self.p_count - 1))
                with m.Default():
                    m.d.sync += d_left.eq(self.p_wait)
        with m.If(self.notify | self.flush):
            m.d.sync += d_valid.eq(0)

        self.d_fault = Signal(isa.Fault)
        parked = ~self.m_valid | (d_valid & d_ctrl & ~d_fresh)
        with m.If(self.check & ~parked):
            m.d.comb += self.d_fault.eq(isa.Fault.UNDERRUN)
        with m.Elif(d_valid & d_fresh & d_ctrl & d_bad):
            m.d.comb += self.d_fault.eq(isa.Fault.ILLEGAL)

    def _step(self, m):
        """Stage X: the payload of an OP, or the last one stepped by a REPEAT."""
        self.x_valid = Signal()
        self.x = Signal(self._layout)
        self.x_fault = Signal(isa.Fault)
        first = self._names[0]

        m.d.sync += [self.x_valid.eq(self.d_issue & ~self.flush), self.x_fault.eq(self.d_fault)]
        with m.If(self.d_issue & self.d_op):
            m.d.sync += self.x.as_value().eq(self.d_payload)
        with m.Elif(self.d_issue):
            if self._queue.name == "MXM.C":
                with m.If(self.x.op == self._queue.op("ROWS").code):
                    m.d.sync += self.x.acc.eq(self.x.acc + 1)
                with m.Else():
                    m.d.sync += [self.x.abc.eq(self.x.abc + 1), self.x.fresh.eq(0)]
            else:
                m.d.sync += self.x[first].eq(self.x[first] + self.d_stride)
            if "first" in self._names:
                m.d.sync += self.x.first.eq(0)

    def _issue(self, m):
        """Stage I: base added; the slice sees the instruction."""
        i_valid = Signal()
        i_fault = Signal(isa.Fault)
        m.d.sync += [i_valid.eq(self.x_valid & ~self.flush), i_fault.eq(self.x_fault)]
        m.d.comb += [self.issue.valid.eq(i_valid & ~self.flush), self.fault.kind.eq(i_fault)]
        for name in self._names:
            if name != "addr" or self.memory_depth is None:
                m.d.sync += getattr(self.issue, name).eq(self.x[name])

        if self.memory_depth is not None:
            base = Signal(isa.base_bits(self.memory_depth))
            bad = Signal()
            total = Signal(len(base) + 1)
            with m.Switch(self.x.base):
                for b in isa.Base:
                    with m.Case(int(b)):
                        if b != isa.Base.ZERO:
                            m.d.comb += base.eq(getattr(self.bases, b.name.lower()))
                with m.Default():
                    m.d.comb += bad.eq(1)
            m.d.comb += total.eq(self.x.addr + base)
            i_total = Signal.like(total)
            m.d.sync += i_total.eq(total)
            m.d.comb += self.issue.addr.eq(i_total)
            with m.If(self.x_valid & bad):
                m.d.sync += i_fault.eq(isa.Fault.ILLEGAL)
            with m.If(self.issue.valid & (i_total >= self.memory_depth)):
                m.d.comb += self.fault.kind.eq(isa.Fault.ADDRESS)
        with m.If(self.flush):
            m.d.sync += i_fault.eq(isa.Fault.NONE)
