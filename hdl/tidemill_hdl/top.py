"""The chip: slices in a row, streams between them, ICU and HOST.

Timing rule: a value visible at its producer in cycle c is visible `Chip.hop(producer, consumer)`
cycles later at the consumer; each consumer taps the stream at its own distance.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from tidemill import isa
from tidemill_hdl.delay import Delay
from tidemill_hdl.host import FaultRegister, HostDecode, PromptBuffer, TokenFifo
from tidemill_hdl.mem_a import MemA
from tidemill_hdl.mem_w import MemW
from tidemill_hdl.mxm import Mxm
from tidemill_hdl.queue import InstructionQueue
from tidemill_hdl.sequencer import Sequencer
from tidemill_hdl.sxm import Sxm
from tidemill_hdl.tide import Tide
from tidemill_hdl.vxm import Vxm

__all__ = ["PORTS", "Tidemill"]

#: Ports of the chip in the order of `docs/architecture.md`.
PORTS = {
    "host_en": In(1),
    "host_we": In(1),
    "host_space": In(4),
    "host_addr": In(24),
    "host_wdata": In(64),
    "host_rdata": Out(64),
    "start": In(1),
    "abort": In(1),
    "busy": Out(1),
    "done": Out(1),
    "token_valid": Out(1),
    "token": Out(16),
    "token_generated": Out(1),
    "token_cycles": Out(24),
    "fifo_seek": In(1),
    "fifo_at": In(16),
    "fifo_pop": In(1),
    "fifo_valid": Out(1),
    "fifo_data": Out(36),
    "fifo_index": Out(16),
    "fifo_count": Out(16),
    "fault": Out(1),
    "fault_kind": Out(3),
    "fault_queue": Out(4),
    "fault_cycle": Out(32),
    "chip_id": Out(64),
}

#: (driving slice, its port, reading slice, its port): every stream of the floor plan.
STREAMS = (
    ("MEM_W", "planes", "MXM", "planes"),
    ("MEM_W", "e_b", "VXM", "e_b"),
    ("MXM", "e_acc", "VXM", "e_acc"),
    ("VXM", "e_v", "SXM", "e_v"),
    ("VXM", "e_v", "MEM_A", "e_v"),
    ("VXM", "w_v", "MXM", "w_v"),
    ("VXM", "w_v", "MEM_W", "w_v"),
    ("SXM", "w_s", "VXM", "w_s"),
    ("MEM_A", "w_a", "SXM", "w_a"),
    ("MEM_A", "w_a", "VXM", "w_a"),
    ("MEM_A", "w_a", "MXM", "w_a"),
)

#: Queue -> (slice, instruction port).
ISSUE = {
    "MEMW.R": ("MEM_W", "r"),
    "MEMW.W": ("MEM_W", "w"),
    "MXM.C": ("MXM", "c"),
    "MXM.L": ("MXM", "l"),
    "MXM.A": ("MXM", "a"),
    "VXM": ("VXM", "i"),
    "SXM": ("SXM", "i"),
    "MEMA.R": ("MEM_A", "r"),
    "MEMA.W": ("MEM_A", "w"),
}

#: Queue index of the sequencer in the fault register.
SEQUENCER = 15


class Tidemill(wiring.Component):
    """The whole chip.

    Parameters
    ----------
    chip : Chip
    primitives : bool
        Use the vendor's multiplier cells of `chip.family`; same function and latency.

    Members
    -------
    See `docs/architecture.md`, Host port and top-level ports.
    """

    def __init__(self, chip, primitives=False):
        self._chip = chip
        self._primitives = primitives
        super().__init__(PORTS)

    def elaborate(self, platform):
        m = Module()
        chip = self._chip
        m.submodules.mem_w = MemW(chip)
        m.submodules.mxm = Mxm(chip, self._primitives)
        m.submodules.vxm = Vxm(chip, self._primitives)
        m.submodules.sxm = Sxm(chip)
        m.submodules.mem_a = MemA(chip)
        slices = {
            "MEM_W": m.submodules.mem_w,
            "MXM": m.submodules.mxm,
            "VXM": m.submodules.vxm,
            "SXM": m.submodules.sxm,
            "MEM_A": m.submodules.mem_a,
        }
        m.submodules.sequencer = sequencer = Sequencer(chip)
        m.submodules.tide = tide = Tide(chip)
        m.submodules.host = host = HostDecode(chip)
        m.submodules.prompt = prompt = PromptBuffer(chip)
        m.submodules.fifo = fifo = TokenFifo(chip)

        self._streams(m, slices)
        queues = self._queues(m, slices, sequencer, tide, host)
        begin = Signal()  # a start, legal or not: FIFO and fault register are those of a new run
        self._faults(m, slices, sequencer, queues, begin)

        connect(m, sequencer.run, slices["MEM_W"].run)
        connect(m, sequencer.run, slices["VXM"].run)
        connect(m, sequencer.run, slices["SXM"].run)
        connect(m, host.config, sequencer.config)
        connect(m, host.mem_w, slices["MEM_W"].host)
        connect(m, host.mem_a, slices["MEM_A"].host)
        for name in ("lane_table", "scalar_table", "template", "scalar_init"):
            connect(m, getattr(host, name), getattr(slices["VXM"], name))
        connect(m, host.tide, tide.words)
        connect(m, host.prompt, prompt.words)
        connect(m, tide.bus, sequencer.tide)
        connect(m, sequencer.event, fifo.event)
        m.d.comb += [
            sequencer.start.eq(self.start),
            sequencer.abort.eq(self.abort),
            sequencer.head_token.eq(slices["VXM"].token),
            prompt.addr.eq(sequencer.prompt_addr),
            sequencer.prompt_data.eq(prompt.data),
            tide.row.eq(host.config.tide_row),
            tide.clear.eq(sequencer.tide_clear),
            tide.step.eq(sequencer.tide_step),
            tide.load.eq(sequencer.tide_load),
            tide.flush.eq(sequencer.flush),
            begin.eq(self.start & ~sequencer.busy),
            fifo.clear.eq(begin),
            fifo.seek.eq(self.fifo_seek),
            fifo.at.eq(self.fifo_at),
            fifo.pop.eq(self.fifo_pop),
        ]
        m.d.comb += [
            host.en.eq(self.host_en),
            host.we.eq(self.host_we),
            host.space.eq(self.host_space),
            host.addr.eq(self.host_addr),
            host.wdata.eq(self.host_wdata),
            self.host_rdata.eq(host.rdata),
            self.busy.eq(sequencer.busy),
            self.done.eq(sequencer.done),
            self.token_valid.eq(sequencer.event.valid),
            self.token.eq(sequencer.event.token),
            self.token_generated.eq(sequencer.event.generated),
            self.token_cycles.eq(sequencer.event.cycles),
            self.fifo_valid.eq(fifo.valid),
            self.fifo_data.eq(fifo.data),
            self.fifo_index.eq(fifo.index),
            self.fifo_count.eq(fifo.count),
            self.chip_id.eq(int(chip.hash, 16)),
        ]
        return m

    def _streams(self, m, slices):
        for producer, source, consumer, sink in STREAMS:
            o, i = getattr(slices[producer], source), getattr(slices[consumer], sink)
            hops = Delay(o.shape(), self._chip.hop(producer, consumer))
            m.submodules[f"{source}_to_{consumer.lower()}"] = hops
            m.d.comb += [hops.i.eq(o), i.eq(hops.o)]

    def _queues(self, m, slices, sequencer, tide, host):
        queues = []
        for spec in isa.QUEUES:
            queue = InstructionQueue(spec, self._chip)
            m.submodules[f"queue_{spec.name.lower().replace('.', '_')}"] = queue
            queues.append(queue)
            slice_name, port = ISSUE[spec.name]
            connect(m, queue.issue, getattr(slices[slice_name], port))
            connect(m, host.queue, queue.words)
            connect(m, host.start, queue.starts)
            connect(m, tide.bus, queue.tide)
            if queue.memory_depth is not None:
                connect(m, sequencer.w if spec.slice == "MEM_W" else sequencer.a, queue.bases)
            m.d.comb += [
                queue.notify.eq(sequencer.notify),
                queue.segment.eq(sequencer.segment),
                queue.check.eq(sequencer.check),
                queue.flush.eq(sequencer.flush),
            ]
        return queues

    def _faults(self, m, slices, sequencer, queues, begin):
        # (fault port, queue index, cycles from dispatch to report). A memory's queues check their
        # own addresses, so what is left for the slice is a collision, and that is the read's.
        sources = [(queue.fault, index, 0) for index, queue in enumerate(queues)]
        sources += [
            (slices["MEM_W"].fault, isa.QUEUE_INDEX["MEMW.R"], 2),
            (slices["SXM"].fault, isa.QUEUE_INDEX["SXM"], 1),
            (slices["MEM_A"].fault, isa.QUEUE_INDEX["MEMA.R"], 1),
            (sequencer.fault, SEQUENCER, 0),
        ]
        _, indices, lags = zip(*sources, strict=True)
        m.submodules.faults = faults = FaultRegister(indices, lags)
        for k, (source, _, _) in enumerate(sources):
            connect(m, source, faults.sources[k])
        m.d.comb += [
            faults.clear.eq(begin),
            faults.cycle.eq(sequencer.cycle),
            self.fault.eq(faults.fault),
            self.fault_kind.eq(faults.kind),
            self.fault_queue.eq(faults.queue),
            self.fault_cycle.eq(faults.at),
        ]
