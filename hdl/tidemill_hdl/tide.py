"""Tide table: the waits and counts that depend on n, one row for each n.

    load (EMBED cycle 0) -> wait -> RAM, a word a cycle -> bus (from TOKEN_CYCLES on) -> queues

Timing rule: word k of the row stands on `bus` in EMBED cycle TOKEN_CYCLES + k and is in the queue's
column register in the cycle after.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tidemill import isa
from tidemill_hdl.layouts import HostSignature

__all__ = ["Tide", "TideSignature"]

_WORD = data.StructLayout(
    {
        "value": isa.TIDE_VALUE_BITS,
        "column": ceil_log2(isa.TIDE_COLUMNS),
        "queue": 4,
    }
)


class TideSignature(wiring.Signature):
    """One word of a tide row on its way to a column register; valid for one cycle."""

    def __init__(self):
        super().__init__(
            {
                "valid": Out(1),
                "queue": Out(4),
                "column": Out(ceil_log2(isa.TIDE_COLUMNS)),
                "value": Out(isa.TIDE_VALUE_BITS),
            }
        )


class Tide(wiring.Component):
    """Tide RAM and the copier that puts one row on the bus.

    Parameters
    ----------
    chip : Chip

    Members
    -------
    words : In(HostSignature())
        Host writes, `isa.Space.TIDE`.
    row : In(isa.TIDE_ROW_BITS)
        Words of a row; constant during a run.
    clear : In(1)
        A run starts: the next row is row 0.
    step : In(1)
        n grows by one: the next row is the next one. At least two cycles before the copying starts.
    load : In(1)
        EMBED cycle 0.
    flush : In(1)
        Abort: stop copying.
    bus : Out(TideSignature())
        Valid in EMBED cycles TOKEN_CYCLES to TOKEN_CYCLES + row - 1.
    """

    def __init__(self, chip):
        self._chip = chip
        super().__init__(
            {
                "words": In(HostSignature()),
                "row": In(isa.TIDE_ROW_BITS),
                "clear": In(1),
                "step": In(1),
                "load": In(1),
                "flush": In(1),
                "bus": Out(TideSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Memory(
            shape=_WORD, depth=self._chip.tide_depth, init=[], attrs={"no_rw_check": 1}
        )
        write = ram.write_port()
        read = ram.read_port()

        m.d.comb += [
            write.addr.eq(self.words.addr),
            write.data.eq(_WORD(self.words.wdata[: _WORD.size])),
            write.en.eq(self.words.en & self.words.we),
        ]

        base = Signal(read.addr.shape())
        wait = Signal(range(isa.TOKEN_CYCLES))
        left = Signal(isa.TIDE_ROW_BITS)
        a_active = Signal()  # address stage, EMBED cycle TOKEN_CYCLES - 2 + k
        d_valid = Signal()  # RAM output stage
        m.d.comb += [a_active.eq((wait == 0) & (left != 0)), read.en.eq(a_active)]

        with m.If(self.clear):
            m.d.sync += base.eq(0)
        with m.Elif(self.step):
            m.d.sync += base.eq(base + self.row)

        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(a_active):
            m.d.sync += [read.addr.eq(read.addr + 1), left.eq(left - 1)]
        with m.If(self.load):
            m.d.sync += [read.addr.eq(base), wait.eq(isa.TOKEN_CYCLES - 3), left.eq(self.row)]
        m.d.sync += [
            d_valid.eq(a_active),
            self.bus.valid.eq(d_valid),
            self.bus.queue.eq(read.data.queue),
            self.bus.column.eq(read.data.column),
            self.bus.value.eq(read.data.value),
        ]
        with m.If(self.flush):
            m.d.sync += [left.eq(0), d_valid.eq(0), self.bus.valid.eq(0)]
        return m
