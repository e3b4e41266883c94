"""UART: 8 data bits, no parity, one stop bit, least significant bit first.

                 start  d0   d1   ...  d7   stop
    line  ------|     |xxxx|xxxx|     |xxxx|-------
    strobe               ^    ^          ^             every data bit, in the middle
    valid                                      ^       the byte, in the middle of its stop bit

Timing rule: a bit lasts `divisor` cycles; the receiver's line is two cycles late.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["Receiver", "Transmitter", "baud_divisor"]

#: A bit of fewer cycles has no middle to speak of, and the link counts on 40 cycles a byte.
MIN_DIVISOR = 4
#: How far the rate may be from what was asked for.
TOLERANCE = 0.01


def baud_divisor(clock_hz, baud):
    """Clock cycles of a bit.

    Raises ValueError if there are fewer than 4, or the rate is more than 1 % from `baud`.
    """
    divisor = round(clock_hz / baud)
    if divisor < MIN_DIVISOR:
        raise ValueError(
            f"baud {baud} is too fast for a clock of {clock_hz} Hz: a bit would last {divisor} "
            f"cycles and needs {MIN_DIVISOR}; at most {clock_hz // MIN_DIVISOR} baud is possible"
        )
    actual = clock_hz / divisor
    if abs(actual - baud) > TOLERANCE * baud:
        raise ValueError(
            f"baud {baud} cannot be made from a clock of {clock_hz} Hz: {divisor} cycles a bit "
            f"give {actual:.0f}, {abs(actual / baud - 1):.2%} away; at most {TOLERANCE:.0%} is "
            "possible"
        )
    return divisor


def _check(divisor):
    if not isinstance(divisor, int) or divisor < MIN_DIVISOR:
        raise ValueError(
            f"UART divisor must be a whole number of at least {MIN_DIVISOR}, not {divisor!r}"
        )
    return divisor


class Receiver(wiring.Component):
    """Bytes from a line. Every byte must be taken in the cycle of `valid`.

    A byte without stop bit gives `error` in place of `valid`; the next one begins after the line
    was high again, so a break is one error. A start bit that has gone in its middle is noise.

    Parameters
    ----------
    divisor : int
        Clock cycles of a bit, at least 4.

    Members
    -------
    rx : In(1)
        The line, asynchronous.
    data : Out(8), valid : Out(1)
        A byte; `valid` for one cycle.
    error : Out(1)
        For one cycle: the stop bit was low.
    bit : Out(1), strobe : Out(1)
        The data bits one by one, `strobe` for one cycle each; eight before each byte's `valid`.
    """

    def __init__(self, divisor):
        self._divisor = _check(divisor)
        super().__init__(
            {
                "rx": In(1, init=1),
                "data": Out(8),
                "valid": Out(1),
                "error": Out(1),
                "bit": Out(1),
                "strobe": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        line = Signal(init=1)
        m.submodules.synchroniser = FFSynchronizer(self.rx, line, init=1)

        middle = (self._divisor - 1) // 2  # cycles from the first low one to that of the sample
        timer = Signal(range(self._divisor))
        at = Signal(range(10))  # 0: start bit, 1 to 8: data, 9: stop bit
        sample = Signal()
        m.d.comb += [
            sample.eq(timer == 0),
            self.bit.eq(line),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [timer.eq(middle - 1), at.eq(0)]
                with m.If(~line):
                    m.next = "BYTE"
            with m.State("BYTE"):
                m.d.sync += timer.eq(Mux(sample, self._divisor - 1, timer - 1))
                with m.If(sample):
                    m.d.sync += at.eq(at + 1)
                    with m.If(at == 0):
                        with m.If(line):
                            m.next = "IDLE"
                    with m.Elif(at == 9):
                        m.d.comb += [self.valid.eq(line), self.error.eq(~line)]
                        m.next = "BREAK"
                    with m.Else():
                        m.d.comb += self.strobe.eq(1)
                        m.d.sync += self.data.eq(Cat(self.data[1:], line))
            with m.State("BREAK"), m.If(line):
                m.next = "IDLE"
        return m


class Transmitter(wiring.Component):
    """Bytes to a line. One idle cycle lies between two bytes.

    Parameters
    ----------
    divisor : int
        Clock cycles of a bit, at least 4.

    Members
    -------
    data : In(8), valid : In(1), ready : Out(1)
        A byte is taken in a cycle in which both `valid` and `ready` are 1.
    tx : Out(1)
        The line, from a register.
    bit : Out(1), strobe : Out(1)
        The data bits one by one, `strobe` for one cycle each; eight before `ready`.
    """

    def __init__(self, divisor):
        self._divisor = _check(divisor)
        super().__init__(
            {
                "data": In(8),
                "valid": In(1),
                "ready": Out(1),
                "tx": Out(1),
                "bit": Out(1),
                "strobe": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()

        timer = Signal(range(self._divisor))
        shift = Signal(9, init=0x1FF)  # the bit on the line first; ones follow
        left = Signal(range(11))  # bits of this byte that are not over: 10 with the start bit
        over = Signal()
        m.d.comb += [
            over.eq(timer == 0),
            self.ready.eq(left == 0),
            self.tx.eq(shift[0]),
            self.bit.eq(shift[0]),
            self.strobe.eq(over & (left > 1) & (left < 10)),
        ]
        m.d.sync += timer.eq(Mux(over | self.ready, self._divisor - 1, timer - 1))
        with m.If(self.ready):
            with m.If(self.valid):
                m.d.sync += [shift.eq(Cat(C(0, 1), self.data)), left.eq(10)]
        with m.Elif(over):
            m.d.sync += [shift.eq(Cat(shift[1:], C(1, 1))), left.eq(left - 1)]
        return m
