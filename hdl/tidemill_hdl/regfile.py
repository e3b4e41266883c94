"""Register file: one write port, any number of read ports that answer at once.

Timing rule: a row written in cycle t reads as written from t + 1 on; a read answers in the cycle
of its address. In the `ice40` form the address must be settled by the middle of the cycle and the
row appears there, so that half a cycle is left on either side.
"""

from amaranth import *
from amaranth.hdl import MemoryData
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["RegFile"]


class RegFile(wiring.Component):
    """A small memory that answers in the cycle of the address.

    Synthesis makes one copy of the memory per read port (ECP5: TRELLIS_DPR16X4, 16 rows x 4 bits).
    The iCE40 has no LUT RAM, so its form is a block RAM that writes on the rising edge and reads on
    the falling one: the same function in the same cycle.

    A row read in the cycle it is written gives its old value. All rows are 0 at configuration.

    Parameters
    ----------
    depth : int
        Number of rows; addresses are taken as they are, so a power of two wraps by itself.
    shape : shape-like
        Shape of a row.
    reads : int
        Number of read ports.
    granularity : int or None
        Elements of an `ArrayLayout` row (or bits of an unsigned row) that one bit of `w_en` writes;
        None: the whole row. LUT RAM wants granules of a multiple of 4 bits.
    family : str
        `generic`, `ecp5` or `ice40`.

    Members
    -------
    w_en : In
        One bit per granule.
    w_addr, w_data : In
        Row and value, used where `w_en` is set.
    r_addr : In, array of `reads`
        Row to read.
    r_data : Out, array of `reads`
        Value of that row, in the same cycle.
    """

    def __init__(self, depth, shape, *, reads=1, granularity=None, family="generic"):
        self.data = MemoryData(depth=depth, shape=shape, init=[])
        self.granularity = granularity
        self.family = family
        addr_width = ceil_log2(depth)
        port = memory.WritePort.Signature(
            addr_width=addr_width, shape=shape, granularity=granularity
        )
        super().__init__(
            {
                "w_en": In(port.members["en"].shape),
                "w_addr": In(addr_width),
                "w_data": In(shape),
                "r_addr": In(addr_width).array(reads),
                "r_data": Out(shape).array(reads),
            }
        )

    def elaborate(self, platform):
        m = Module()

        falling = self.family == "ice40"
        style = "block" if falling else "distributed"
        m.submodules.mem = mem = memory.Memory(self.data, attrs={"ram_style": style})
        write = mem.write_port(granularity=self.granularity)

        m.d.comb += [
            write.en.eq(self.w_en),
            write.addr.eq(self.w_addr),
            write.data.eq(self.w_data),
        ]
        if falling:
            m.domains.fall = ClockDomain(clk_edge="neg", reset_less=True, local=True)
            m.d.comb += ClockSignal("fall").eq(ClockSignal())
        for r_addr, r_data in zip(self.r_addr, self.r_data, strict=True):
            read = mem.read_port(domain="fall" if falling else "comb")
            m.d.comb += [read.addr.eq(r_addr), r_data.eq(read.data)]

        return m
