"""Reductions of the VXM over lanes and, since `first`, over passes; the maximum file.

Timing rule: a pass is visible at `results` and `terms` in stage 11 (t + 11); the running sum,
maximum and arg-maximum with it in t + 12 + tree_latency. One pass per cycle.

Sums, maxima and arg-maxima each keep a running register; `first` restarts the one its pass uses.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tidemill.isa import Red

from .layouts import vector
from .reduce import pipe, tree_reduce
from .vxm_scalar import SUM_BITS

__all__ = ["INDEX_BITS", "TERM_BITS", "VxmReduce"]

#: Element index i, as wide as a token.
INDEX_BITS = 16
#: A product of pre and B, 18 bits each; pre is never -2**17.
TERM_BITS = 35


class VxmReduce(wiring.Component):
    """Trees, running registers and maximum file.

    Members
    -------
    s11_valid, s11_red, s11_first, s11_mx, s11_sx, s11_counter : `In`
        The pass in stage 11: reduction (`isa.Red`), restart, file entries, element counter.
    results, terms : `In(vector(chip))`, `In(vector(chip, 35))`
        What MAX and ARGMAX, and what SUM and SUMSQ take.
    s3_mx, s4_max : `In(2)`, `Out(signed(16))`
        Read port of the maximum file: the entry as it is in the cycle after its number.
    token : `Out(16)`
        Element index of the running arg-maximum.
    sum, sum_valid, sum_square, sum_sx : `Out`
        Running sum, in its first cycle, for the scalar unit.
    abort : `In(1)`
        Forget everything in flight.
    """

    def __init__(self, chip):
        self._chip = chip
        super().__init__(
            {
                "s11_valid": In(1),
                "s11_red": In(3),
                "s11_first": In(1),
                "s11_mx": In(2),
                "s11_sx": In(3),
                "s11_counter": In(INDEX_BITS - chip.lane_bits),
                "results": In(vector(chip)),
                "terms": In(vector(chip, TERM_BITS)),
                "s3_mx": In(2),
                "s4_max": Out(signed(16)),
                "token": Out(INDEX_BITS),
                "sum": Out(signed(SUM_BITS)),
                "sum_valid": Out(1),
                "sum_square": Out(1),
                "sum_sx": Out(3),
                "abort": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.max_file = max_file = Memory(shape=signed(16), depth=4, init=[])
        file_read = max_file.read_port(domain="comb")
        file_write = max_file.write_port()

        last = 11 + self._chip.tree_latency

        def arrive(name, *, clear=None):
            """`s11_{name}` where the trees end."""
            value = getattr(self, f"s11_{name}")
            return {11: value, **pipe(m, name, value, 12, last, clear=clear)}[last]

        valid = arrive("valid", clear=self.abort)
        red, first, mx, sx, counter = (arrive(n) for n in ("red", "first", "mx", "sx", "counter"))
        total = self._sum(m)
        top = self._max(m)

        adds = Signal()
        square = Signal()
        m.d.comb += [square.eq(red == Red.SUMSQ), adds.eq(square | (red == Red.SUM))]
        m.d.sync += [
            self.sum_valid.eq(valid & adds & ~self.abort),
            self.sum_square.eq(square),
            self.sum_sx.eq(sx),
        ]
        with m.If(valid & adds):
            m.d.sync += self.sum.eq(Mux(first, 0, self.sum) + total)

        run_max = Signal(signed(16), reset_less=True)
        new_max = Signal(signed(16))
        is_max = Signal()
        m.d.comb += [
            is_max.eq(valid & (red == Red.MAX)),
            new_max.eq(Mux(first | (top.value > run_max), top.value, run_max)),
            file_write.en.eq(is_max),
            file_write.addr.eq(mx),
            file_write.data.eq(new_max),
            file_read.addr.eq(self.s3_mx),
        ]
        # a register behind the file, which sees what is being written
        m.d.sync += self.s4_max.eq(Mux(is_max & (mx == self.s3_mx), new_max, file_read.data))
        with m.If(is_max):
            m.d.sync += run_max.eq(new_max)

        run_arg = Signal(signed(16), reset_less=True)
        with m.If(valid & (red == Red.ARGMAX) & (first | (top.value > run_arg))):
            m.d.sync += [run_arg.eq(top.value), self.token.eq(Cat(top.lane, counter))]
        return m

    def _sum(self, m):
        """Sum of the terms, visible in the trees' last stage."""
        terms = [Signal(signed(TERM_BITS), name=f"s11_term_{k}") for k in range(self._chip.lanes)]
        m.d.comb += [term.eq(self.terms[k]) for k, term in enumerate(terms)]
        return tree_reduce(m, "sum", terms, lambda a, b: a + b)

    def _max(self, m):
        """Largest result and the lowest lane that has it, visible in the trees' last stage."""
        best = data.StructLayout({"value": signed(16), "lane": self._chip.lane_bits})

        def larger(a, b):
            a, b = best(a), best(b)
            return Mux(b.value > a.value, b.as_value(), a.as_value())

        lanes = [Signal(best.size, name=f"s11_best_{k}") for k in range(self._chip.lanes)]
        m.d.comb += [
            lane.eq(Cat(self.results[k], C(k, self._chip.lane_bits)))
            for k, lane in enumerate(lanes)
        ]
        return best(tree_reduce(m, "best", lanes, larger))
