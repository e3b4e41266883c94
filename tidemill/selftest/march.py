"""March test of MEM_W and MEM_A over the link.

MATS+ { up (w d); up (r d, w ~d); down (r ~d, w d) }: it finds every stuck cell and every fault of
address decoding. `d` differs from word to word, since a step takes as many words as a frame holds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidemill.chip import Chip
from tidemill.host.link import Link
from tidemill.isa import Space
from tidemill.link import MAX_WORDS
from tidemill.program import memory_words, unpack_memory
from tidemill.selftest.findings import Part

__all__ = ["march"]

#: Odd, so that no two words of a memory are equal; the upper half is folded onto the lower.
GOLDEN = 0x9E3779B97F4A7C15


def march(link: Link, chip: Chip, space: Space, progress: Callable[[float], None]) -> Part:
    """Test MEM_W or MEM_A; what it held is lost. progress: told the part that is done, 0 to 1."""
    count, part = memory_words(chip, space), Part(space.name)
    data = _background(chip, space, count)
    blocks = [slice(at, min(at + MAX_WORDS, count)) for at in range(0, count, MAX_WORDS)]

    def write(block: slice, words: NDArray[np.uint64]) -> None:
        link.write((space, block.start + k, w) for k, w in enumerate(words[block].tolist()))

    write(slice(0, count), data)
    done = 0
    for expected, order in ((data, blocks), (_inverse(chip, space, data), blocks[::-1])):
        found = np.zeros(count, np.uint64)
        opposite = _inverse(chip, space, expected)
        for block in order:
            found[block] = link.read(space, block.start, block.stop - block.start)
            write(block, opposite)
            done += 1
            progress(done / (2 * len(blocks)))
        _judge(part, chip, space, found, expected)
    return part


def _bits(chip: Chip, space: Space) -> int:
    """Those of a host word that the memory has."""
    used = 8 * min(chip.lanes, 8) if space == Space.MEM_W else 16 * min(chip.lanes, 4)
    return (1 << used) - 1


def _background(chip: Chip, space: Space, count: int) -> NDArray[np.uint64]:
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    words ^= words >> np.uint64(32)
    return words & np.uint64(_bits(chip, space))


def _inverse(chip: Chip, space: Space, data: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return data ^ np.uint64(_bits(chip, space))


def _judge(
    part: Part, chip: Chip, space: Space, found: NDArray[np.uint64], expected: NDArray[np.uint64]
) -> None:
    got, want = (unpack_memory(chip, space, words) for words in (found, expected))
    part.elements += got.size
    for place in np.argwhere(got != want).tolist():
        bank = f"bank {place[1]}, " if space == Space.MEM_W else ""
        at = tuple(place)
        part.elements -= 1  # counted above
        part.judge(f"{bank}lane {place[-1]}", int(got[at]), int(want[at]), f"row {place[0]}")
