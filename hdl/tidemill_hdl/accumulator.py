"""The accumulators of one weight stream.

    stage  P             O                  X
           file is read  old value, chosen  sum into the file, readable in X + 1

Timing rule: control of a MAC cycle comes in stage P, its sum two cycles later; one per cycle, the
same group in consecutive cycles too. The read port for ACC answers in the cycle of its address.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from .regfile import RegFile

__all__ = ["Accumulator", "control_layout"]


def control_layout(chip):
    """What a MAC cycle does to accumulators: `fresh` starts a sum, else `group` is added to."""
    return data.StructLayout({"valid": 1, "fresh": 1, "group": ceil_log2(chip.acc_groups)})


class Accumulator(wiring.Component):
    """One int32 per group; sums are modulo 2**32.

    Group g is in file g mod subs, row g div subs, so that ACC has a row of all files at once.
    Nothing is reset: a sum that was under way is of no use to a new run.

    Parameters
    ----------
    chip : Chip
        Number of groups and files.
    width : int
        Bits of `sum`.

    Members
    -------
    p : In(control_layout(chip))
        Control of the MAC cycle that is in stage P.
    sum : In(signed(width))
        Dot product of the one in stage X.
    slot : In
        Row for ACC.
    values : Out(subs int32)
        That row of every file, in the same cycle.
    """

    def __init__(self, chip, width):
        # read ports: 0 to add, 1 for ACC
        self.files = [
            RegFile(chip.acc_depth, signed(32), reads=2, family=chip.family)
            for _ in range(chip.subs)
        ]
        super().__init__(
            {
                "p": In(control_layout(chip)),
                "sum": In(signed(width)),
                "slot": In(ceil_log2(chip.acc_depth)),
                "values": Out(data.ArrayLayout(signed(32), chip.subs)),
            }
        )

    def elaborate(self, platform):
        m = Module()

        for b, file in enumerate(self.files):
            m.submodules[f"file_{b}"] = file

        file_bits = exact_log2(len(self.files))
        p = self.p
        o = Signal.like(p, reset_less=True)
        x = Signal.like(p, reset_less=True)
        # the group is also that of the sum one or two places ahead, which the file has not yet
        o_next = Signal()
        o_second = Signal()
        o_file = Signal(signed(32), reset_less=True)
        x_old = Signal(signed(32), reset_less=True)
        x_new = Signal(signed(32))
        y_new = Signal(signed(32), reset_less=True)

        m.d.comb += x_new.eq(x_old + self.sum)
        m.d.sync += [
            o.eq(p),
            x.eq(o),
            o_next.eq(o.valid & (o.group == p.group)),
            o_second.eq(x.valid & (x.group == p.group)),
            o_file.eq(Array(file.r_data[0] for file in self.files)[p.group[:file_bits]]),
            y_new.eq(x_new),
        ]
        with m.If(o.fresh):
            m.d.sync += x_old.eq(0)
        with m.Elif(o_next):
            m.d.sync += x_old.eq(x_new)
        with m.Elif(o_second):
            m.d.sync += x_old.eq(y_new)
        with m.Else():
            m.d.sync += x_old.eq(o_file)
        for b, file in enumerate(self.files):
            m.d.comb += [
                file.r_addr[0].eq(p.group[file_bits:]),
                file.w_en.eq(x.valid & (x.group[:file_bits] == b)),
                file.w_addr.eq(x.group[file_bits:]),
                file.w_data.eq(x_new),
                file.r_addr[1].eq(self.slot),
                self.values[b].eq(file.r_data[1]),
            ]

        return m
