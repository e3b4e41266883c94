"""The host link's board side: requests, replies, pushed frames (docs/link.md).

    line -> FrameReceiver -> args, word -> host port, start, abort, seek
    line <- FrameSender   <- word       <- host port, status, token FIFO

One 64-bit shift register, `word`, carries a WRITE's bytes to the host port and the bytes of every
reply and pushed frame to the sender, eight at a time.

Timing rule: one thing at a time. IDLE takes a request, else pushes; FETCH reads a request from the
buffer, one byte a cycle; EXECUTE, one cycle, does what it asks for; SEND lasts until the last byte
is on the line. A byte on the line lasts 40 cycles or more: longer than a read of the chip.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tidemill.link import (
    ERROR,
    MAX_WORDS,
    STATUS_BYTES,
    TOKEN_BYTES,
    VERSION,
    Push,
    Reason,
    Request,
)
from tidemill_hdl.frames import FrameReceiver, FrameSender
from tidemill_hdl.top import PORTS

__all__ = ["TICK_BITS", "Link"]

#: log2 of the cycles between two ticks; two of them without a byte end a frame.
TICK_BITS = 20

#: Ports of the chip with which the link has nothing to do.
OTHERS = ("done", "token_valid", "token", "token_generated", "token_cycles", "chip_id")

#: Cycles from the end of `busy` until the last token stands at the FIFO's output.
SETTLE_CYCLES = 2


class Link(wiring.Component):
    """Frames on a UART to the host port of a chip.

    Parameters
    ----------
    divisor : int
        Clock cycles of a bit on the line.
    identity : bytes
        What follows the link version in the reply to ID.

    Members
    -------
    rx : In(1), tx : Out(1)
        The lines.
    host_en, host_we, ...
        The ports of `Tidemill` of these names, from the other side.
    cycles : Out(32)
        Cycles since power-up.
    tick : Out(1)
        Every 2**TICK_BITS cycles.
    """

    def __init__(self, divisor, identity):
        self._divisor = divisor
        self._identity = bytes((VERSION,)) + identity
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "cycles": Out(32),
                "tick": Out(1),
                **{name: port.flip() for name, port in PORTS.items() if name not in OTHERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = self._receiver = receiver = FrameReceiver(self._divisor)
        m.submodules.sender = self._sender = sender = FrameSender(self._divisor)

        self._kind = Signal(8)
        self._reason = Signal(Reason, init=0)
        self._refused = Signal()
        self._args = Signal(32)  # a request's first four bytes; if they are fewer, at the top
        self._word = Signal(64)
        self._load = Signal()  # the word that the payload goes on with
        self._shift = Signal()
        self._run = Signal(8)
        self._aborted = Signal()
        half = Signal()
        m.d.comb += [
            self._refused.eq(self._reason != 0),
            receiver.rx.eq(self.rx),
            receiver.tick.eq(self.tick),
            self.tx.eq(sender.tx),
            sender.kind.eq(Mux(self._refused, ERROR, self._kind)),
            self.host_space.eq(self._args[:4]),
            self.host_addr.eq(self._args[8:]),
            self.host_wdata.eq(self._word),
            self.fifo_at.eq(self._args[16:]),
            self.tick.eq(half & ~self.cycles[TICK_BITS - 1]),
        ]
        m.d.sync += [self.cycles.eq(self.cycles + 1), half.eq(self.cycles[TICK_BITS - 1])]
        self._control(m)
        self._payload(m)
        return m

    def _control(self, m):
        """Fetch, do and answer requests; push."""
        receiver, sender, args, run = self._receiver, self._sender, self._args, self._run
        kind, reason, word = self._kind, self._reason, self._word
        at = Signal(7)  # bytes of the request asked for
        length = Signal(7)  # bytes of its payload not yet fetched
        refusal = Signal(Reason, init=0)
        write = Signal()  # `word` is a word to be written
        read = Signal()
        words = Signal(range(MAX_WORDS + 1))
        sequence = Signal(8)
        argument = Signal(8)
        owed = Signal()  # DONE has not been pushed
        late = Signal(SETTLE_CYCLES)  # `busy` of the cycles before
        m.d.comb += [
            receiver.addr.eq(at),
            sender.sequence.eq(sequence),
            argument.eq(args[24:]),
            self.host_en.eq(write | read),
            self.host_we.eq(write),
        ]
        m.d.sync += [write.eq(0), late.eq(Cat(self.busy, late))]
        self._judge(m, length, refusal)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [at.eq(0), reason.eq(0), sequence.eq(run)]
                with m.If(receiver.valid):
                    m.d.comb += receiver.take.eq(1)
                    m.next = "FETCH"
                with m.Elif(self.fifo_valid):
                    m.d.sync += kind.eq(Push.TOKEN)
                    m.next = "SEND"
                with m.Elif(owed & ~self.busy & (late == 0)):
                    m.d.sync += [kind.eq(Push.DONE), owed.eq(0)]
                    m.next = "SEND"

            with m.State("FETCH"):  # one byte a cycle, the cycle after it was asked for
                m.d.sync += at.eq(at + 1)
                with m.If(at == 1):
                    m.d.sync += kind.eq(receiver.data)
                with m.If(at == 2):
                    m.d.sync += sequence.eq(receiver.data)
                with m.If(at == 3):
                    m.d.sync += length.eq(receiver.data)
                with m.If(at == 4):
                    m.d.sync += reason.eq(refusal)
                with m.If(at >= 4):
                    m.d.sync += length.eq(length - 1)
                    with m.If(length == 0):
                        m.next = "EXECUTE"
                    with m.Elif(at < 8):
                        m.d.sync += args.eq(Cat(args[8:], receiver.data))
                    with m.Else():
                        m.d.comb += self._shift.eq(1)
                        m.d.sync += write.eq(
                            (kind == Request.WRITE) & ~self._refused & (at[:3] == 7)
                        )

            with m.State("EXECUTE"):
                m.next = "SEND"
                m.d.sync += words.eq(word[56:])
                with m.If(~self._refused), m.Switch(kind):
                    with m.Case(Request.READ), m.If((word[56:] == 0) | (word[56:] > MAX_WORDS)):
                        m.d.sync += reason.eq(Reason.VALUE)
                    with m.Case(Request.START):
                        with m.If(argument == 0):
                            m.d.sync += reason.eq(Reason.VALUE)
                        with m.Elif(argument == run):
                            pass
                        with m.Elif(self.busy):
                            m.d.sync += reason.eq(Reason.BUSY)
                        with m.Else():
                            m.d.comb += self.start.eq(1)
                            m.d.sync += [run.eq(argument), owed.eq(1), self._aborted.eq(0)]
                    with m.Case(Request.STOP), m.If((argument == run) & self.busy):
                        m.d.comb += self.abort.eq(1)
                        m.d.sync += self._aborted.eq(1)
                    with m.Case(Request.SEEK):
                        m.d.comb += self.fifo_seek.eq(1)
                        m.d.sync += owed.eq(1)

            with m.State("SEND"):
                m.d.comb += [
                    sender.valid.eq(1),
                    read.eq((kind == Request.READ) & ~self._refused),
                    self._shift.eq(sender.step),
                    self._load.eq(sender.index[:3] == 0),
                ]
                with m.If(sender.done):
                    m.d.comb += self.fifo_pop.eq((kind == Push.TOKEN) & ~self._refused)
                    m.next = "IDLE"

        # the address of the word after this one; none after a READ's last, it may not exist
        with m.If(write | (sender.step & (sender.index[:3] == 7) & ~sender.last)):
            m.d.sync += args[8:].eq(args[8:] + 1)

        with m.Switch(Mux(self._refused, ERROR, kind)):
            with m.Case(Request.ID):
                m.d.comb += sender.length.eq(len(self._identity))
            with m.Case(Request.READ):
                m.d.comb += sender.length.eq(words << 3)
            with m.Case(Request.STATUS, Push.DONE):
                m.d.comb += sender.length.eq(STATUS_BYTES)
            with m.Case(Push.TOKEN):
                m.d.comb += sender.length.eq(TOKEN_BYTES)
            with m.Case(ERROR):
                m.d.comb += sender.length.eq(1)

    def _judge(self, m, length, refusal):
        """Why a request is refused before anything is done, 0 if it is not."""
        wrong, blocked = Signal(), Signal()
        with m.Switch(self._kind):
            with m.Case(Request.ID, Request.STATUS):
                m.d.comb += wrong.eq(length != 0)
            with m.Case(Request.WRITE):
                m.d.comb += [wrong.eq((length[:3] != 4) | (length == 4)), blocked.eq(self.busy)]
            with m.Case(Request.READ):
                m.d.comb += [wrong.eq(length != 5), blocked.eq(self.busy)]
            with m.Case(Request.START, Request.STOP):
                m.d.comb += wrong.eq(length != 1)
            with m.Case(Request.SEEK):
                m.d.comb += wrong.eq(length != 2)
            with m.Default():
                m.d.comb += refusal.eq(Reason.KIND)
        with m.If(wrong):
            m.d.comb += refusal.eq(Reason.LENGTH)
        with m.Elif(blocked):
            m.d.comb += refusal.eq(Reason.BUSY)

    def _payload(self, m):
        """What the sender sends: `word`, loaded until its first byte is taken, then shifted."""
        sender, word, kind = self._sender, self._word, self._kind
        source = Signal(64)
        with m.Switch(kind):
            with m.Case(Request.READ):
                m.d.comb += source.eq(self.host_rdata)
            with m.Case(Push.TOKEN):
                cycles, token, generated = (
                    self.fifo_data[:20],
                    self.fifo_data[20:35],
                    self.fifo_data[35],
                )
                m.d.comb += source.eq(
                    Cat(self.fifo_index, token, C(0, 1), cycles, C(0, 4), generated)
                )
            with m.Default():  # STATUS, DONE
                flags = Cat(self.busy, self.fault, self._aborted, C(0, 5))
                first = Cat(self.cycles, self.fifo_count, self._run, flags)
                second = Cat(self.fault_cycle, self.fault_kind, C(0, 5), self.fault_queue)
                m.d.comb += source.eq(Mux(sender.index[3], second, first))
        with m.If(self._shift):
            m.d.sync += word.eq(Cat(word[8:], self._receiver.data))
        with m.Elif(self._load):
            m.d.sync += word.eq(source)

        with m.If(self._refused):
            m.d.comb += sender.data.eq(self._reason)
        with m.Elif(kind == Request.ID), m.Switch(sender.index):
            for index, byte in enumerate(self._identity):
                with m.Case(index):
                    m.d.comb += sender.data.eq(byte)
        with m.Else():
            m.d.comb += sender.data.eq(word[:8])
