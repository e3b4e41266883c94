"""Frames of the host link on a UART (docs/link.md): receiver and sender.

The CRC runs along with the bits on the line: a byte's last data bit has passed before the byte is
known, or the next one asked for.

Timing rule: a byte lasts at least 40 cycles; whoever takes a received frame, or supplies the bytes
of one to be sent, has so much time for each.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tidemill.link import MAX_PAYLOAD, REPLY, SYNC
from tidemill_hdl.uart import Receiver, Transmitter

__all__ = ["CRC_BYTES", "FrameReceiver", "FrameSender"]

#: Bytes of a frame between sync byte and payload: kind, sequence, length.
HEADER_BYTES = 3
CRC_BYTES = 4


class FrameReceiver(wiring.Component):
    """Frames from the line, one at a time.

    Of a frame that begins while one waits nothing is kept. Once the waiting one is taken, a new
    frame may overwrite it from the beginning, one byte in 40 cycles and the first after 40.

    Parameters
    ----------
    divisor : int
        Clock cycles of a bit.

    Members
    -------
    rx : In(1)
        The line, asynchronous.
    tick : In(1)
        A frame in which no byte came between two of these pulses is given up.
    valid : Out(1)
        A frame with a good CRC waits, until `take`.
    take : In(1)
    addr : In(7), data : Out(8)
        Byte of the frame, one cycle after its address: kind, sequence, length, payload.
    """

    def __init__(self, divisor):
        self._divisor = divisor
        super().__init__(
            {
                "rx": In(1, init=1),
                "tick": In(1),
                "valid": Out(1),
                "take": In(1),
                "addr": In(7),
                "data": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.uart = uart = Receiver(self._divisor)
        m.submodules.crc = crc = CRC32_ISO_HDLC(data_width=1).create()
        m.submodules.ram = ram = Memory(shape=8, depth=128, init=[], attrs={"no_rw_check": 1})
        write = ram.write_port()
        read = ram.read_port()

        keep = Signal()  # this frame goes into the buffer
        quiet = Signal()  # a tick has passed since the last byte
        lost = Signal()
        left = Signal(
            range(MAX_PAYLOAD + CRC_BYTES)
        )  # bytes after the next one, from the length on
        m.d.comb += [
            uart.rx.eq(self.rx),
            crc.data.eq(uart.bit),
            crc.valid.eq(uart.strobe),
            lost.eq(uart.error | (self.tick & quiet)),
            write.data.eq(uart.data),
            write.en.eq(uart.valid & keep),
            read.en.eq(1),
            read.addr.eq(self.addr),
            self.data.eq(read.data),
        ]

        with m.If(self.take):
            m.d.sync += self.valid.eq(0)
        with m.If(self.tick):
            m.d.sync += quiet.eq(1)
        with m.If(uart.valid):
            m.d.sync += [quiet.eq(0), write.addr.eq(write.addr + 1), left.eq(left - 1)]
        with m.FSM():
            with m.State("SYNC"):
                m.d.sync += [keep.eq(0), write.addr.eq(0)]
                m.d.comb += crc.start.eq(uart.valid)
                with m.If(uart.valid & (uart.data == SYNC)):
                    m.d.sync += keep.eq(~self.valid)
                    m.next = "HEADER"
            with m.State("HEADER"):
                with m.If(uart.valid & (write.addr == HEADER_BYTES - 1)):
                    m.d.sync += left.eq(uart.data + CRC_BYTES - 1)
                    m.next = "REST"
                    with m.If(uart.data > MAX_PAYLOAD):
                        m.next = "SYNC"
                with m.Elif(lost):
                    m.next = "SYNC"
            with m.State("REST"):
                with m.If(uart.valid & (left == 0)):
                    with m.If(keep & crc.match_detected):
                        m.d.sync += self.valid.eq(1)
                    m.next = "SYNC"
                with m.Elif(lost):
                    m.next = "SYNC"
        return m


class FrameSender(wiring.Component):
    """Frames to the line, one after the other.

    Parameters
    ----------
    divisor : int
        Clock cycles of a bit.

    Members
    -------
    valid : In(1), done : Out(1)
        A frame is to be sent; all of it holds its value until `done`, one cycle, when its last byte
        is on its way.
    kind, sequence : In(8)
        `kind` with or without bit 7, which is sent as 1.
    length : In(6)
        Bytes of payload.
    index : Out(6), data : In(8), step : Out(1)
        `data` is the payload's byte `index`; `step` in the cycle in which it is taken.
    last : Out(1)
        `index` is that of the last byte.
    tx : Out(1)
        The line.
    """

    def __init__(self, divisor):
        self._divisor = divisor
        super().__init__(
            {
                "valid": In(1),
                "done": Out(1),
                "kind": In(8),
                "sequence": In(8),
                "length": In(6),
                "index": Out(6),
                "data": In(8),
                "step": Out(1),
                "last": Out(1),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.uart = uart = Transmitter(self._divisor)
        m.submodules.crc = crc = CRC32_ISO_HDLC(data_width=1).create()

        take = Signal()  # the UART takes a byte
        tail = Signal()  # the byte on the line belongs to the CRC
        m.d.comb += [
            self.tx.eq(uart.tx),
            take.eq(uart.valid & uart.ready),
            uart.valid.eq(1),
            # the CRC's own bits, inverted as in the register, shift it without feedback: the next
            # byte comes down
            crc.data.eq(uart.bit ^ tail),
            crc.valid.eq(uart.strobe),
            self.last.eq(self.index + 1 == self.length),
        ]

        with m.FSM():
            with m.State("SYNC"):
                m.d.comb += [uart.valid.eq(self.valid), uart.data.eq(SYNC)]
                with m.If(take):
                    m.d.sync += tail.eq(0)
                    m.next = "KIND"
            with m.State("KIND"):
                m.d.comb += [uart.data.eq(self.kind | REPLY), crc.start.eq(take)]
                with m.If(take):
                    m.next = "SEQUENCE"
            with m.State("SEQUENCE"):
                m.d.comb += uart.data.eq(self.sequence)
                with m.If(take):
                    m.next = "LENGTH"
            with m.State("LENGTH"):
                m.d.comb += uart.data.eq(self.length)
                with m.If(take):
                    m.next = "CRC"
                    with m.If(self.length != 0):
                        m.next = "PAYLOAD"
            with m.State("PAYLOAD"):
                m.d.comb += [uart.data.eq(self.data), self.step.eq(take)]
                with m.If(take):
                    m.d.sync += self.index.eq(self.index + 1)
                    with m.If(self.last):
                        m.d.sync += self.index.eq(0)
                        m.next = "CRC"
            with m.State("CRC"):
                m.d.comb += uart.data.eq(crc.crc[:8])
                with m.If(take):
                    m.d.sync += [tail.eq(1), self.index.eq(self.index + 1)]
                    with m.If(self.index == CRC_BYTES - 1):
                        m.d.comb += self.done.eq(1)
                        m.d.sync += self.index.eq(0)
                        m.next = "SYNC"
        return m
