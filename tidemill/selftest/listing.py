"""Programs by hand: instructions by queue and cycle, in one HEAD segment.

Timing rule: cycle 0 is the dispatch cycle of the segment's first words. `Listing` knows when a
value arrives where (`isa`, `Chip.hop`); the caller says when it sets out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import isa, numerics
from tidemill.chip import Chip
from tidemill.compiler.emit import encode_control, encode_op
from tidemill.isa import QUEUE_INDEX, QUEUES, Config, Ctrl, Kind, Queue, Template, Timing
from tidemill.program import Program

__all__ = ["Listing"]

#: Entry of the scalar file that run options may set.
TEMPERATURE = 7
#: Cycles behind the last instruction until its result is where it belongs, reductions included.
DRAIN = 64


class Listing:
    """Instructions for `chip`, added in any order."""

    def __init__(self, chip: Chip):
        self.chip = chip
        self._issues: dict[str, list[tuple[int, str, int, int, dict[str, int]]]] = {
            q.name: [] for q in QUEUES
        }

    def at(
        self, cycle: int, queue: str, mnemonic: str, count: int = 1, stride: int = 0, **fields: int
    ) -> None:
        """`count` issues, one a cycle; the first field steps by `stride`."""
        self._issues[queue].append((cycle, mnemonic, count, stride, fields))

    # Paths: each takes the cycle of its first dispatch and returns that of the next link --------

    def to_vxm(self, cycle: int, row: int, count: int = 1) -> int:
        """Rows of MEM_A onto W_a; the PASS that takes the first as WA."""
        self.at(cycle, "MEMA.R", "READ", count, 1, addr=row)
        return cycle + self._after("MEMA.R", "READ") + self._hop("MEM_A", "VXM") - Timing.VXM_AB

    def from_vxm(self, cycle: int, row: int, count: int = 1) -> None:
        """Results of the passes from `cycle` on into rows of MEM_A."""
        arrives = cycle + Timing.VXM_RESULT + self._hop("VXM", "MEM_A")
        self.at(arrives, "MEMA.W", "WRITE", count, 1, addr=row)

    def through_sxm(self, cycle: int, mnemonic: str, src: int) -> int:
        """A vector from MEM_A (src 1, the READ's cycle) or VXM (0, the PASS's) through the SXM.

        The PASS that takes it as WS.
        """
        if src:
            moves = cycle + self._after("MEMA.R", "READ") + self._hop("MEM_A", "SXM")
        else:
            moves = cycle + Timing.VXM_RESULT + self._hop("VXM", "SXM")
        self.at(moves, "SXM", mnemonic, src=src)
        return moves + self._after("SXM", mnemonic) + self._hop("SXM", "VXM") - Timing.VXM_AB

    def gather(self, cycle: int, row: int) -> int:
        """A row of bank (token mod S) onto E_b; the PASS that takes it as BYTE."""
        self.at(cycle, "MEMW.R", "GATHER", addr=row)
        return cycle + self._after("MEMW.R", "GATHER") + self._hop("MEM_W", "VXM") - Timing.VXM_AB

    def to_mem_w(self, cycle: int, mnemonic: str, row: int, sub: int = 0) -> None:
        """The result of the PASS of `cycle` into MEM_W."""
        arrives = cycle + Timing.VXM_RESULT + self._hop("VXM", "MEM_W")
        self.at(arrives, "MEMW.W", mnemonic, addr=row, sub=sub)

    def to_mxm(self, cycle: int, row: int, count: int) -> int:
        """Rows of MEM_A into the activation file from 0 on; first cycle in which all are there."""
        self.at(cycle, "MEMA.R", "READ", count, 1, addr=row)
        loads = cycle + self._after("MEMA.R", "READ") + self._hop("MEM_A", "MXM")
        whole = {"src": 0, "mlog": self.chip.lane_bits, "midx": 0, "zero": 0}
        self.at(loads, "MXM.L", "LW", count, 1, dst=0, **whole)
        return loads + count

    def multiply(self, cycle: int, row: int, count: int) -> int:
        """Plane row + k times activation k into group k; the cycle in which ACC may read."""
        for k in range(count):
            self.at(cycle + k, "MXM.C", "ROWS", abc=k, acc=k, ni=1, fresh=1)
        planes = self._after("MEMW.R", "READ") + self._hop("MEM_W", "MXM") - 1
        self.at(cycle - planes, "MEMW.R", "READ", count, 1, addr=row)
        return cycle + count + self._after("MXM.C", "ROWS")

    def drain(self, cycle: int, slots: int) -> int:
        """Accumulator vectors from 0 on onto E_acc; the PASS that takes the first as ACC."""
        self.at(cycle, "MXM.A", "ACC", slots, 1, slot=0)
        return cycle + self._after("MXM.A", "ACC") + self._hop("MXM", "VXM") - Timing.VXM_AB

    def _after(self, queue: str, mnemonic: str) -> int:
        return QUEUES[QUEUE_INDEX[queue]].op(mnemonic).d_func(self.chip)

    def _hop(self, a: str, b: str) -> int:
        return self.chip.hop(a, b)

    # The program ---------------------------------------------------------------------------------

    def program(
        self,
        templates: tuple[Template, ...],
        *,
        mem_w: NDArray[Any] | None = None,
        mem_a: NDArray[Any] | None = None,
    ) -> Program:
        """With rows of both memories from 0 on: int8 [rows, S, L] and int16 [rows, L]."""
        chip = self.chip
        words, last = [], 0
        for queue in QUEUES:
            head, end = self._words(queue)
            words.append((_sync(queue, chip), *head, _sync(queue, chip)))
            last = max(last, end)
        config = dict.fromkeys((int(c) for c in Config if c < Config.PROMPT_LENGTH), 0)
        config |= {
            Config.TIDE_ROW: 1,
            Config.EPS: 1,
            Config.VOCAB: chip.vocab,
            Config.EMBED_LENGTH: isa.TOKEN_CYCLES + 1 + 4,
            Config.HEAD_LENGTH: last + DRAIN,
            Config.EOS: 0xFFFF,
        }
        w = np.zeros((chip.mem_w_depth, chip.weight_streams, chip.lanes), np.int8)
        a = np.zeros((chip.mem_a_depth, chip.lanes), np.int16)
        w_rows = a_rows = 0
        if mem_w is not None:
            w_rows = len(mem_w)
            w[:w_rows] = mem_w
        if mem_a is not None:
            a_rows = len(mem_a)
            a[:a_rows] = mem_a
        info = {"context": chip.context, "layers": 0, "temperature_scalar": TEMPERATURE}
        return Program(
            chip=chip,
            queues=tuple(words),
            starts=((0, 0, 1),) * len(QUEUES),
            tide=(((isa.TIDE_SEQUENCER, 0, 10),),) * chip.tide_rows,
            config=config,
            templates=templates,
            lane_table=numerics.build_lane_table(8 / 32768, 8 / 32768),
            scalar_table=numerics.build_scalar_table(),
            mem_w=w,
            mem_w_used=np.arange(chip.mem_w_depth) < w_rows,
            mem_a=a,
            mem_a_used=np.arange(chip.mem_a_depth) < a_rows,
            info=info | {"temperature_max": 1.0, "temperature_unit": 1.0},
        )

    def _words(self, queue: Queue) -> tuple[list[int], int]:
        """Words of a queue, and the cycle in which the last one is done."""
        words, now = [], 0
        for cycle, mnemonic, count, stride, fields in sorted(
            self._issues[queue.name], key=lambda issue: issue[0]
        ):
            if cycle < now:
                raise ValueError(f"{queue.name}: {mnemonic} in cycle {cycle}, busy until {now}")
            if cycle > now:
                words.append(encode_control(queue, self.chip, Kind.NOP, cycle - now))
            words.append(encode_op(queue, self.chip, mnemonic, fields))
            if count > 1:
                words.append(
                    encode_control(
                        queue, self.chip, Kind.REPEAT, count - 1, interval=1, stride=stride
                    )
                )
            now = cycle + count
        return words, now


def _sync(queue: Queue, chip: Chip) -> int:
    return int(Kind.CTRL) << (queue.payload_bits(chip) + isa.WAIT_BITS) | int(Ctrl.SYNC)
