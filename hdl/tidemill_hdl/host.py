"""Host slice: port, configuration, prompt buffer, token FIFO, sticky fault.

Timing rule: an access is decoded in its own cycle; what a memory returns HOST_READ_LATENCY cycles
later goes straight to `rdata`. A prompt word is read one cycle after its address. The FIFO's first
word stands on its output two cycles after it was written.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tidemill import isa
from tidemill_hdl.bases import ConfigSignature
from tidemill_hdl.layouts import FaultSignature, HostSignature
from tidemill_hdl.sequencer import EventSignature

__all__ = ["FaultRegister", "HostDecode", "PromptBuffer", "TokenFifo"]

#: Member of `HostDecode` -> space it serves.
PORTS = {
    "mem_w": isa.Space.MEM_W,
    "mem_a": isa.Space.MEM_A,
    "lane_table": isa.Space.LANE_TABLE,
    "scalar_table": isa.Space.SCALAR_TABLE,
    "template": isa.Space.TEMPLATE,
    "queue": isa.Space.QUEUE,
    "start": isa.Space.START,
    "tide": isa.Space.TIDE,
    "prompt": isa.Space.PROMPT,
    "scalar_init": isa.Space.CONFIG,
}


class HostDecode(wiring.Component):
    """Host port to one `HostSignature` per space, and the configuration registers.

    Parameters
    ----------
    chip : Chip

    Members
    -------
    en, we, space, addr, wdata, rdata
        The host port.
    mem_w, mem_a, ... : Out(HostSignature())
        `en` only for accesses to that space; `scalar_init` gets SCALAR0 + 0..7 as addresses 0..7.
    config : Out(ConfigSignature(chip))
    """

    def __init__(self, chip):
        self._chip = chip
        super().__init__(
            {
                "en": In(1),
                "we": In(1),
                "space": In(4),
                "addr": In(24),
                "wdata": In(64),
                "rdata": Out(64),
                **{name: Out(HostSignature()) for name in PORTS},
                "config": Out(ConfigSignature(chip)),
            }
        )

    def elaborate(self, platform):
        m = Module()

        scalar = (self.addr >> 3) == isa.Config.SCALAR0 >> 3
        for name, space in PORTS.items():
            port = getattr(self, name)
            here = self.en & (self.space == space)
            m.d.comb += [
                port.en.eq(here & scalar if name == "scalar_init" else here),
                port.we.eq(self.we),
                port.addr.eq(self.addr[:3] if name == "scalar_init" else self.addr),
                port.wdata.eq(self.wdata),
            ]

        space = self.space
        for k in range(isa.HOST_READ_LATENCY):
            delayed = Signal(4, name=f"space_{k + 1}")
            m.d.sync += delayed.eq(space)
            space = delayed
        with m.Switch(space):
            with m.Case(isa.Space.MEM_W):
                m.d.comb += self.rdata.eq(self.mem_w.rdata)
            with m.Case(isa.Space.MEM_A):
                m.d.comb += self.rdata.eq(self.mem_a.rdata)

        with m.If(self.en & self.we & (self.space == isa.Space.CONFIG)), m.Switch(self.addr):
            for entry in isa.Config:
                if entry < isa.Config.SCALAR0:
                    with m.Case(int(entry)):
                        m.d.sync += getattr(self.config, entry.name.lower()).eq(self.wdata)
        return m


class PromptBuffer(wiring.Component):
    """Prompt tokens, read by the sequencer.

    Parameters
    ----------
    chip : Chip

    Members
    -------
    words : In(HostSignature())
        Host writes: address = position, data = token.
    addr : In, data : Out(16)
        Token of position `addr`, one cycle later.
    """

    def __init__(self, chip):
        self._chip = chip
        super().__init__(
            {"words": In(HostSignature()), "addr": In(range(chip.context)), "data": Out(16)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Memory(
            shape=16, depth=self._chip.context, init=[], attrs={"no_rw_check": 1}
        )
        write = ram.write_port()
        read = ram.read_port()

        m.d.comb += [
            write.addr.eq(self.words.addr),
            write.data.eq(self.words.wdata),
            write.en.eq(self.words.en & self.words.we),
            read.en.eq(1),
            read.addr.eq(self.addr),
            self.data.eq(read.data),
        ]
        return m


class TokenFifo(wiring.Component):
    """Token events of a run, first word falls through; `seek` goes back to any of them.

    It holds a whole run, can not overflow, and forgets nothing before the next run.

    Parameters
    ----------
    chip : Chip

    Members
    -------
    clear : In(1)
        Empty the FIFO (a run starts).
    event : In(EventSignature())
    seek : In(1), at : In(16)
        Go on with word `at`; with the next one to come if there is none.
    pop : In(1)
        Go on with the word after the one at the output; ignored while `valid` is 0.
    valid, data, index : Out(1), Out(36), Out(16)
        cycles 19:0, token 34:20 (15 bits), generated 35; `index` counts the run's words from 0, and
        is that of the word at the output or to come.
    count : Out(16)
        Words of this run.
    """

    def __init__(self, chip):
        self._depth = 1 << ceil_log2(chip.context + 1)
        super().__init__(
            {
                "clear": In(1),
                "event": In(EventSignature()),
                "seek": In(1),
                "at": In(16),
                "pop": In(1),
                "valid": Out(1),
                "data": Out(36),
                "index": Out(16),
                "count": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Memory(
            shape=36, depth=self._depth, init=[], attrs={"no_rw_check": 1}
        )
        write = ram.write_port()
        read = ram.read_port()

        head = Signal.like(read.addr)
        m.d.comb += [
            write.en.eq(self.event.valid),
            write.data.eq(Cat(self.event.cycles[:20], self.event.token[:15], self.event.generated)),
            read.en.eq(1),
            read.addr.eq(head + (self.pop & self.valid)),
            self.data.eq(read.data),
            self.index.eq(head),
            self.count.eq(write.addr),
        ]
        with m.If(self.seek):
            m.d.comb += read.addr.eq(Mux(self.at < write.addr, self.at, write.addr))
        m.d.sync += [head.eq(read.addr), self.valid.eq(read.addr != write.addr)]
        with m.If(self.event.valid):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(self.clear):
            m.d.sync += [head.eq(0), write.addr.eq(0), self.valid.eq(0)]
        return m


class FaultRegister(wiring.Component):
    """The first fault of a run; of several in one cycle, that of the lowest queue.

    Members
    -------
    clear : In(1)
        Forget it (a start).
    sources : In(FaultSignature()).array(sources)
        Faults, in the order of priority.
    cycle : In(32)
        Cycle of the run.
    fault, kind, queue, at : Out
        `queue` is the number of the source in `queues`.

    Parameters
    ----------
    queues : sequence of int
        Queue index of each source.
    lag : sequence of int
        Cycles by which each source is late.
    """

    def __init__(self, queues, lag):
        self._queues = tuple(queues)
        self._lag = tuple(lag)
        super().__init__(
            {
                "clear": In(1),
                "sources": In(FaultSignature()).array(len(self._queues)),
                "cycle": In(32),
                "fault": Out(1),
                "kind": Out(3),
                "queue": Out(4),
                "at": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()

        worst = max(self._lag)
        ranked = []
        for k, (source, lag) in enumerate(zip(self.sources, self._lag, strict=True)):
            kind = source.kind
            for d in range(worst - lag):
                late = Signal(3, name=f"s{k}_kind_{d + 1}")
                m.d.sync += late.eq(kind)
                with m.If(self.clear):
                    m.d.sync += late.eq(0)
                kind = late
            ranked.append((kind, self._queues[k]))

        kind = Signal(3)
        queue = Signal(4)
        for source, index in reversed(ranked):
            with m.If(source != 0):
                m.d.comb += [kind.eq(source), queue.eq(index)]
        with m.If((kind != 0) & ~self.fault):
            m.d.sync += [self.fault.eq(1), self.kind.eq(kind), self.queue.eq(queue)]
            m.d.sync += self.at.eq(self.cycle - worst)
        with m.If(self.clear):
            m.d.sync += self.fault.eq(0)
        return m
