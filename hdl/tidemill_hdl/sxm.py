"""SXM: moves between lanes.

    t            t + 1
    e_v or w_a   w_s

Timing rule: the source is sampled in the dispatch cycle t, the result is on `w_s` from t + 1.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tidemill.isa import QUEUE_INDEX, QUEUES, Fault

from .layouts import FaultSignature, IssueSignature, RunSignature, vector

__all__ = ["Sxm"]

QUEUE = QUEUES[QUEUE_INDEX["SXM"]]


class Sxm(wiring.Component):
    """Pair swap, pair duplication and broadcast.

    SWAP  out[2i] = -in[2i+1], out[2i+1] = in[2i]: the partner of a rotation of pairs
    DUPE  out[2i] = out[2i+1] = in[2i]
    DUPO  out[2i] = out[2i+1] = in[2i+1]
    BCAST every lane = in[run.token_lane]

    With one lane every operation copies its input. The machine's numbers are within +-32767; should
    a -32768 come in, its negation is -32768 again. Reserved operations leave `w_s` as it is and
    fault.

    Parameters
    ----------
    chip : Chip
        Shape.

    Members
    -------
    i : In(IssueSignature)
        Instruction port of queue SXM.
    e_v, w_a : In(vector)
        Sources, sampled at dispatch: `src` 0 is `e_v`, 1 is `w_a`.
    run : In(RunSignature)
        `token_lane`, sampled at dispatch.
    w_s : Out(vector)
        Result, one cycle after dispatch; keeps its value until the next one.
    fault : Out(FaultSignature)
        ILLEGAL one cycle after a reserved operation.
    """

    def __init__(self, chip):
        self.chip = chip
        super().__init__(
            {
                "i": In(IssueSignature(QUEUE, chip)),
                "e_v": In(vector(chip)),
                "w_a": In(vector(chip)),
                "run": In(RunSignature(chip)),
                "w_s": Out(vector(chip)),
                "fault": Out(FaultSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = range(self.chip.lanes)

        s0_x = Signal(vector(self.chip))
        s0_one = Signal(signed(16))
        s1_y = Signal(vector(self.chip), reset_less=True)
        m.d.comb += [
            s0_x.eq(Mux(self.i.src, self.w_a, self.e_v)),
            s0_one.eq(Array(s0_x)[self.run.token_lane]),
            self.w_s.eq(s1_y),
        ]

        even = [s0_x[n & ~1] for n in lanes]
        odd = [s0_x[min(n | 1, lanes[-1])] for n in lanes]
        results = {
            "SWAP": [even[n] if n & 1 else -odd[n] for n in lanes] if len(lanes) > 1 else even,
            "DUPE": even,
            "DUPO": odd,
            "BCAST": [s0_one for _ in lanes],
        }
        m.d.sync += self.fault.kind.eq(Fault.NONE)
        with m.If(self.i.valid), m.Switch(self.i.op):
            for mnemonic, result in results.items():
                with m.Case(QUEUE.op(mnemonic).code):
                    m.d.sync += [s1_y[n].eq(result[n]) for n in lanes]
            with m.Default():
                m.d.sync += self.fault.kind.eq(Fault.ILLEGAL)

        return m
