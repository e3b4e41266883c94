"""A small program by hand, and what a board makes of it."""

from __future__ import annotations

import random
import zlib

import numpy as np

from support.chips import bare_chip
from support.fake_board import Event
from tidemill import isa, numerics
from tidemill.isa import QUEUES, ASrc, Config, Template
from tidemill.program import Program

#: Cycles of a position without and with HEAD.
BODY, HEAD = 5_000, 20_000


def hand_made() -> Program:
    """Words that mean nothing, of a program that has every part."""
    chip = bare_chip(4, 2)
    rng = np.random.default_rng(1)
    config = dict.fromkeys((int(c) for c in Config if c < Config.PROMPT_LENGTH), 0)
    config |= {
        Config.VOCAB: 100, Config.EMBED_LENGTH: BODY, Config.HEAD_LENGTH: HEAD, Config.TIDE_ROW: 1,
    }  # fmt: skip
    return Program(
        chip=chip,
        queues=tuple((k, k + 1) for k in range(len(QUEUES))),
        starts=((0, 0, 1),) * len(QUEUES),
        tide=(((isa.TIDE_SEQUENCER, 0, 10),),) * chip.tide_rows,
        config=config,
        templates=(Template(a=ASrc.T),),
        lane_table=numerics.build_lane_table(8 / 32768, 8 / 32768)[:40],
        scalar_table=numerics.build_scalar_table()[:40],
        mem_w=rng.integers(-128, 128, (chip.mem_w_depth, 2, 4)).astype(np.int8),
        mem_w_used=np.arange(chip.mem_w_depth) < 60,
        mem_a=rng.integers(-99, 99, (chip.mem_a_depth, 4)).astype(np.int16),
        mem_a_used=np.arange(chip.mem_a_depth) % 3 == 0,
        info={
            "context": 20, "temperature_scalar": 7, "temperature_max": 1.0, "temperature_unit": 9.0,
        },
    )  # fmt: skip


def story(memory: dict[tuple[int, int], int]) -> list[Event]:
    """Tokens that change with any word that was written, or was not."""
    rng = random.Random(zlib.crc32(repr(sorted(memory.items())).encode()))
    first = memory.get((isa.Space.CONFIG, Config.PROMPT_LENGTH), 1) - 1
    count = first + memory.get((isa.Space.CONFIG, Config.MAX_TOKENS), 1)
    return [
        (rng.randrange(100), p >= first, BODY + HEAD * (p >= first)) for p in range(min(count, 20))
    ]
