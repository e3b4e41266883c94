"""Block RAM: one read port, one write port, two registers on the way out.

    t              t + 1             t + 2
    r_en, r_addr   memory register   r_data
    w_en, w_addr   row is written: a read of t + 1 sees it

Timing rule: a row asked for in cycle t is in `r_data` in cycle t + 2.
"""

from amaranth import *
from amaranth.hdl import Assert, Format, MemoryData
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tidemill.chip import FAMILIES

__all__ = ["Sram"]

#: log2 of the rows of an 18 kbit ECP5 block RAM at its narrowest useful width, a byte lane.
CHUNK_BITS = 11


class Sram(wiring.Component):
    """A 1R1W memory of any depth.

    The `ecp5` form is cut by depth into chunks of 2048 rows; the last one holds what is left, so
    that synthesis takes the blocks `Chip.block_rams` counts (2048 x 9, 1024 x 18 or 512 x 36 bits).
    The `generic` and `ice40` forms are one array. All behave alike. Enables are one per chunk,
    `enables` of the address: a user with a register for the address decodes in front of it, and no
    logic stands between that register and the blocks.

    There is no emulation of collisions: reading and writing one row in one cycle reads undefined
    data (the old row in simulation) and raises `collision`. Beyond `depth`, a read gives undefined
    data and a write must not be made. `r_data` keeps its value when there is no read.

    Parameters
    ----------
    depth : int
        Number of rows.
    shape : shape-like
        Shape of a row.
    granularity : int or None
        Elements of an `ArrayLayout` row (or bits of an unsigned row) that one bit of `w_en` writes;
        None: the whole row.
    family : str
        `generic`, `ecp5` or `ice40`.
    check : bool
        Also stop a simulation at a collision, by an `Assert`.

    Members
    -------
    r_en, r_addr : In
        Read row `r_addr`; `r_en` has one bit per chunk, that of the row's chunk is set.
    r_data : Out
        The row, two cycles later.
    w_en : In, array
        For each chunk, one bit per granule.
    w_addr, w_data : In
        Row and value, written where `w_en` is set.
    collision : Out(1)
        The row being read has a granule being written, in this cycle.
    """

    #: Cycles from `r_addr` to `r_data`.
    latency = 2

    def __init__(self, depth, shape, *, granularity=None, family="generic", check=False):
        if family not in FAMILIES:
            raise ValueError(f"Sram family must be one of {', '.join(FAMILIES)}, not {family!r}")
        addr_width = ceil_log2(depth)
        self.chunk_bits = CHUNK_BITS if family == "ecp5" else addr_width
        chunk = 1 << self.chunk_bits
        self.chunks = [
            MemoryData(depth=min(chunk, depth - start), shape=shape, init=[])
            for start in range(0, depth, chunk)
        ]
        self.granularity = granularity
        self.check = check
        port = memory.WritePort.Signature(
            addr_width=addr_width, shape=shape, granularity=granularity
        )
        super().__init__(
            {
                "r_en": In(len(self.chunks)),
                "r_addr": In(addr_width),
                "r_data": Out(shape),
                "w_en": In(port.members["en"].shape).array(len(self.chunks)),
                "w_addr": In(addr_width),
                "w_data": In(shape),
                "collision": Out(1),
            }
        )

    def enables(self, address):
        """One bit per chunk: `address` is in it."""
        chunk = address[self.chunk_bits :]
        return Cat(chunk == k for k in range(len(self.chunks)))

    def row(self, address):
        """The stored row, for `ctx.get` and `ctx.set` of a simulation."""
        return self.chunks[address >> self.chunk_bits][address & ((1 << self.chunk_bits) - 1)]

    def elaborate(self, platform):
        m = Module()

        reads = []
        for k, chunk in enumerate(self.chunks):
            mem = memory.Memory(chunk, attrs={"no_rw_check": 1, "ram_style": "block"})
            m.submodules[f"chunk_{k}"] = mem
            read, write = mem.read_port(), mem.write_port(granularity=self.granularity)
            reads.append(read.data)
            m.d.comb += [
                read.en.eq(self.r_en[k]),
                read.addr.eq(self.r_addr),
                write.en.eq(self.w_en[k]),
                write.addr.eq(self.w_addr),
                write.data.eq(self.w_data),
            ]

        # a block keeps its word until it is read again, so the row stays without an enable
        s1_chunk = Signal(range(len(reads)), reset_less=True)
        s2_data = Signal.like(self.r_data, reset_less=True)
        for k in range(len(reads)):
            with m.If(self.r_en[k]):
                m.d.sync += s1_chunk.eq(k)
        m.d.sync += s2_data.eq(Array(reads)[s1_chunk])
        m.d.comb += [
            self.r_data.eq(s2_data),
            self.collision.eq(
                self.r_en.any() & Cat(self.w_en).any() & (self.r_addr == self.w_addr)
            ),
        ]
        if self.check:
            m.d.sync += Assert(~self.collision, Format("SRAM collision in row {}", self.r_addr))

        return m
