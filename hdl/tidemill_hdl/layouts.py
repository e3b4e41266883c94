"""Layouts shared by the slices: instructions, host accesses, run state, faults.

Timing rule: an instruction port carries `valid` in its dispatch cycle t; `Run` is constant during a
segment and is sampled at t.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

__all__ = [
    "FaultSignature",
    "HostSignature",
    "IssueSignature",
    "RunSignature",
    "byte_vector",
    "vector",
]


def vector(chip, bits=16):
    """`lanes` signed elements that move as one."""
    return data.ArrayLayout(signed(bits), chip.lanes)


def byte_vector(chip):
    """`lanes` int8."""
    return vector(chip, 8)


class IssueSignature(wiring.Signature):
    """One queue's instruction port, seen from the ICU.

    Members: `valid` and, one per payload field of the queue, a signal of that name (`op` included
    when the queue has several operations). Memory addresses are final: the base is already added.
    """

    def __init__(self, queue, chip):
        super().__init__(
            {"valid": Out(1), **{name: Out(width) for name, width in queue.layout(chip) if width}}
        )


class RunSignature(wiring.Signature):
    """Where the run stands, seen from the sequencer; constant during a segment."""

    def __init__(self, chip):
        super().__init__(
            {
                # position p and its parts
                "pos": Out(bits_for(chip.context - 1)),
                "pos_lane": Out(chip.lane_bits),
                "pos_bank": Out(chip.stream_bits),
                # parts of the token being embedded, defined from EMBED cycle TOKEN_CYCLES
                "token_lane": Out(chip.lane_bits),
                "token_bank": Out(chip.stream_bits),
                # configuration
                "vocab": Out(17),
                "eps": Out(32),
                "seed": Out(32),
                # pulse: a run starts (noise and scalar file take their initial values)
                "start": Out(1),
                # pulse: abort
                "abort": Out(1),
            }
        )


class HostSignature(wiring.Signature):
    """A host access as a memory sees it, from the HOST slice: `en` only for this memory's space.

    Writes take effect at once; `rdata` of a read is valid `isa.HOST_READ_LATENCY` cycles later.
    """

    def __init__(self):
        super().__init__(
            {
                "en": Out(1),
                "we": Out(1),
                "addr": Out(24),
                "wdata": Out(64),
                "rdata": In(64),
            }
        )


class FaultSignature(wiring.Signature):
    """A slice reports a fault for one cycle: `kind` is an `isa.Fault`, 0 for none."""

    def __init__(self):
        super().__init__({"kind": Out(3)})
