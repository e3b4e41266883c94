"""MXM: every cycle a whole weight plane meets one activation vector.

    stage  0           1            2            3, 4, 5      6         7..        X = 6 + log2 L
    MAC    activation  s1_act,      on the way   multipliers  routing   a register  sum into
           file read   planes in                              register  per level   the file

    The file is read in X - 2 and the old value chosen in X - 1; the new one is readable in X + 1.

    LW     t: stream in    t + 1: a MAC reads the new vector
    ACC    t: file read    t + 1: e_acc

Timing rule: cycle k of a MAC dispatched at t is in stage 0 at t + k; an accumulator has its new
value X + 1 = 7 + log2(lanes) cycles later. One MAC cycle, one LW and one ACC per cycle, always.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tidemill.isa import QUEUE_INDEX, QUEUES

from .accumulator import Accumulator, control_layout
from .delay import Delay
from .layouts import IssueSignature, byte_vector, vector
from .multiplier import Multiplier, mult18x18d
from .reduce import spread
from .regfile import RegFile

__all__ = ["Mxm"]

MAC, LOAD, DRAIN = (QUEUES[QUEUE_INDEX[name]] for name in ("MXM.C", "MXM.L", "MXM.A"))
#: Width of a product int16 x int8.
PRODUCT_WIDTH = 24
#: Stage of the routing register between multipliers and trees.
ROUTE = 2 + Multiplier.latency + 1


class Mxm(wiring.Component):
    """S dot products of L lanes per cycle, with activation and accumulator files.

    A MAC instruction is spread over `ni` cycles here (`ni` 0 counts as 1); a next one that comes
    sooner cuts it short. ROWS walks through activations abc + i into one group, COLS through
    groups acc + i with one activation. Indices wrap modulo the file, sums modulo 2**32. A re-issue
    (REPEAT) arrives with its own `abc`, `acc` and `fresh`: stepping them is the ICU's work. The
    same group may be added to in consecutive cycles.

    There is no abort: a MAC under way ends by itself or by the next one, and what it leaves in the
    accumulators is of no use to a new run.

    Parameters
    ----------
    chip : Chip
        Shape, files, tree latency.
    primitives : bool
        Multipliers as ECP5 MULT18X18D instances; Verilator cannot simulate them.

    Members
    -------
    c, l, a : In(IssueSignature)
        Instruction ports of queues MXM.C, MXM.L and MXM.A.
    w_a, w_v : In(vector)
        Sources of LW, sampled at dispatch: `src` 0 is `w_a`, 1 is `w_v`.
    planes : In(ArrayLayout(byte_vector, S))
        Weights, sampled one cycle after each MAC cycle.
    e_acc : Out(vector of int32)
        Accumulator vector, one cycle after ACC; keeps its value until the next one.
    """

    def __init__(self, chip, primitives=False):
        self.chip = chip
        self.primitives = primitives
        self.act_file = RegFile(chip.act_depth, vector(chip), granularity=1, family=chip.family)
        self.accumulators = [
            Accumulator(chip, PRODUCT_WIDTH + chip.lane_bits) for _ in range(chip.weight_streams)
        ]
        super().__init__(
            {
                "c": In(IssueSignature(MAC, chip)),
                "l": In(IssueSignature(LOAD, chip)),
                "a": In(IssueSignature(DRAIN, chip)),
                "w_a": In(vector(chip)),
                "w_v": In(vector(chip)),
                "planes": In(data.ArrayLayout(byte_vector(chip), chip.weight_streams)),
                "e_acc": Out(vector(chip, 32)),
            }
        )

    def elaborate(self, platform):
        m = Module()

        m.submodules.act_file = self.act_file
        for s, accumulator in enumerate(self.accumulators):
            m.submodules[f"accumulator_{s}"] = accumulator

        self._load(m)
        s0_abc, s0_control = self._expand(m)
        m.d.comb += self.act_file.r_addr[0].eq(s0_abc)
        products = self._products(m)
        controls = self._controls(m, s0_control)
        a1_acc = Signal(vector(self.chip, 32), reset_less=True)
        for s, accumulator in enumerate(self.accumulators):
            m.d.comb += [
                accumulator.p.eq(controls[s]),
                accumulator.sum.eq(self._tree(m, s, products[s])),
                accumulator.slot.eq(self.a.slot),
            ]
            # group g is row g div subs, and the sub-th S lanes of that vector
            with m.If(self.a.valid):
                m.d.sync += [
                    a1_acc[b * self.chip.weight_streams + s].eq(accumulator.values[b])
                    for b in range(self.chip.subs)
                ]
        m.d.comb += self.e_acc.eq(a1_acc)

        return m

    def _load(self, m):
        """LW: lane n is in the block if n >> mlog is midx."""
        lanes = range(self.chip.lanes)
        # one mask per block size; a block of all lanes and more comes last
        midx = self.l.midx if self.chip.lane_bits else Const(0)
        l_masks = Signal(data.ArrayLayout(len(lanes), self.chip.lane_bits + 1))
        l_mask = Signal(len(lanes))
        for k in range(len(l_masks)):
            m.d.comb += l_masks[k].eq(Cat(midx == n >> k for n in lanes))
        with m.Switch(self.l.mlog):
            for k in range(self.chip.lane_bits):
                with m.Case(k):
                    m.d.comb += l_mask.eq(l_masks[k])
            with m.Default():
                m.d.comb += l_mask.eq(l_masks[-1])

        l_data = Signal(vector(self.chip))
        m.d.comb += [
            l_data.eq(Mux(self.l.src, self.w_v, self.w_a)),
            self.act_file.w_en.eq(Mux(self.l.valid, l_mask | self.l.zero.replicate(len(lanes)), 0)),
            self.act_file.w_addr.eq(self.l.dst),
            *(self.act_file.w_data[n].eq(Mux(l_mask[n], l_data[n], 0)) for n in lanes),
        ]

    def _expand(self, m):
        """Stage 0: the instruction's own cycle, then what it left for the cycles after it."""
        s0 = Signal(
            data.StructLayout(
                {
                    "left": self.c.ni.shape(),
                    "cols": 1,
                    "abc": self.c.abc.shape(),
                    "group": self.c.acc.shape(),
                    "fresh": 1,
                }
            )
        )
        rest = Signal.like(s0, reset_less=True)
        more = Signal()
        control = Signal(control_layout(self.chip), name="s0_control")
        with m.If(self.c.valid):
            m.d.comb += [
                s0.left.eq(self.c.ni),
                s0.cols.eq(self.c.op == MAC.op("COLS").code),
                s0.abc.eq(self.c.abc),
                s0.group.eq(self.c.acc),
                s0.fresh.eq(self.c.fresh),
            ]
        with m.Else():
            m.d.comb += s0.eq(rest)
        m.d.comb += [
            control.valid.eq(self.c.valid | more),
            control.fresh.eq(s0.fresh),
            control.group.eq(s0.group),
        ]
        m.d.sync += [
            more.eq(control.valid & (s0.left > 1)),
            rest.left.eq(s0.left - 1),
            rest.cols.eq(s0.cols),
            rest.abc.eq(s0.abc + ~s0.cols),
            rest.group.eq(s0.group + s0.cols),
            rest.fresh.eq(s0.fresh & s0.cols),
        ]
        return s0.abc, control

    def _controls(self, m, s0_control):
        """Control in stage P, a copy for each accumulator."""
        streams = self.chip.weight_streams
        last = ROUTE + self.chip.lane_bits - 2
        first = last - self.chip.stream_bits + 1
        m.submodules.control = control = Delay(s0_control.shape(), first - 1)
        m.d.comb += control.i.eq(s0_control)
        copies = spread(m, "control", control.o, first, last, streams)
        return [control_layout(self.chip)(copy) for copy in copies]

    def _products(self, m):
        """L products per stream, after the routing register; a few streams share a vector."""
        lanes = range(self.chip.lanes)
        streams = self.chip.weight_streams
        acts = spread(m, "act", self.act_file.r_data[0], 1, 2, min(streams, 4))
        s2_acts = [vector(self.chip)(copy) for copy in acts]
        s2_planes = Signal.like(self.planes, reset_less=True)
        m.d.sync += s2_planes.eq(self.planes)

        def product(name):
            return Signal(signed(PRODUCT_WIDTH), name=name, reset_less=True)

        routed = []
        for s in range(streams):
            s2_act = s2_acts[s * len(acts) // streams]
            s5 = [product(f"s5_product_{s}_{n}") for n in lanes]
            s6 = [product(f"s6_product_{s}_{n}") for n in lanes]
            for n in lanes:
                if self.primitives:
                    m.submodules[f"mult_{s}_{n}"] = mult18x18d(s2_act[n], s2_planes[s][n], s5[n])
                else:
                    s3_act = Signal(signed(16), name=f"s3_act_{s}_{n}", reset_less=True)
                    s3_plane = Signal(signed(8), name=f"s3_plane_{s}_{n}", reset_less=True)
                    s4 = product(f"s4_product_{s}_{n}")
                    m.d.sync += [
                        s3_act.eq(s2_act[n]),
                        s3_plane.eq(s2_planes[s][n]),
                        s4.eq(s3_act * s3_plane),
                        s5[n].eq(s4),
                    ]
                m.d.sync += s6[n].eq(s5[n])
            routed.append(s6)
        return routed

    def _tree(self, m, s, terms):
        """Balanced sum of the terms; every level is a register."""
        for level in reversed(range(self.chip.lane_bits)):
            sums = []
            for n in range(1 << level):
                total = Signal(
                    signed(PRODUCT_WIDTH + self.chip.lane_bits - level),
                    name=f"tree_{s}_{level}_{n}",
                    reset_less=True,
                )
                m.d.sync += total.eq(terms[2 * n] + terms[2 * n + 1])
                sums.append(total)
            terms = sums
        return terms[0]
