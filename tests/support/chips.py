"""Chips that tests of several folders use; `sized_chip` in tests/conftest.py has the matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

from tidemill.chip import CHIPS, Chip

#: Sizes at which programs are compiled, checked and run: lanes x weight streams.
SIZES = [(1, 1), (2, 1), (4, 2), (4, 4), (8, 2), (8, 8), (16, 8), (16, 16), (16, 1), (32, 4)]


def small_chip(**changes: Any) -> Chip:
    """4 x 2 with memories that just hold a small odd model."""
    fields = {
        "name": "small",
        "lanes": 4,
        "weight_streams": 2,
        "mem_w_depth": 1200,
        "mem_a_depth": 180,
        "act_depth": 32,
        "acc_depth": 16,
        "queue_depth": 256,
        "tide_depth": 320,
        "context": 24,
        "vocab": 40,
    }
    return Chip(**(fields | changes))


def bare_chip(lanes: int, streams: int) -> Chip:
    """`tiny` with small memories, for programs made by hand."""
    return dataclasses.replace(
        CHIPS["tiny"],
        name=f"{lanes}x{streams}",
        lanes=lanes,
        weight_streams=streams,
        mem_w_depth=256,
        mem_a_depth=256,
        queue_depth=64,
        tide_depth=64,
        context=20,
    )


def roomy_chip(lanes: int, streams: int, context: int = 48, **changes: Any) -> Chip:
    """Memories and files large enough for every odd model at this size."""
    few = lanes < 4
    fields = {
        "mem_w_depth": 1 << 17,
        "mem_a_depth": 1 << 15 if few else 1 << 13,
        "act_depth": 512 if few else 256,
        "acc_depth": 128 if few else 64,
        "queue_depth": 1 << 14,
        "tide_depth": 1 << 14,
    }
    return dataclasses.replace(
        CHIPS["tiny"],
        name=f"{lanes}x{streams}",
        lanes=lanes,
        weight_streams=streams,
        context=context,
        **(fields | changes),
    )
