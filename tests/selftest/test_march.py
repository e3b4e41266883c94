"""The march test on a board of Python whose memory has faults."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from support.chips import bare_chip
from support.fake_board import FakeBoard, FakePort
from tidemill.chip import Chip
from tidemill.host.link import Link
from tidemill.isa import Space
from tidemill.selftest.march import march

Fault = Callable[[dict[tuple[int, int], int], tuple[int, int], int], int]


class Memory(dict):
    """Words of a board; `fault` says what a write leaves behind."""

    def __init__(self, fault, bits):
        super().__init__()
        self.fault, self.bits = fault, bits

    def __ior__(self, words):
        for place, data in words.items():
            place, data = self.fault(place, data)
            self[place] = data & self.bits[place[0]]
        return self


def marched(chip: Chip, space: Space, fault=lambda place, data: (place, data)):
    board = FakeBoard(chip.hash, lambda memory: [])
    w, a = 8 * min(chip.lanes, 8), 16 * min(chip.lanes, 4)
    board.memory = Memory(fault, {Space.MEM_W: (1 << w) - 1, Space.MEM_A: (1 << a) - 1})
    port, told = FakePort(board), []
    part = march(Link(port, port.clock), chip, space, told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    return part


CHIPS = [bare_chip(4, 2), bare_chip(16, 2), bare_chip(1, 1)]


@pytest.mark.parametrize("space", [Space.MEM_W, Space.MEM_A])
@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_a_good_memory(chip, space):
    part = marched(chip, space)
    assert part.wrong == {}
    banks = chip.weight_streams if space == Space.MEM_W else 1
    assert part.elements == 2 * 256 * banks * chip.lanes
    assert part.name == space.name


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    ("chip", "space", "word", "bit", "place", "row"),
    [
        # 4 x 2: a word is a row of a bank
        (CHIPS[0], Space.MEM_W, 77, 19, "bank 1, lane 2", 38),
        (CHIPS[0], Space.MEM_A, 255, 63, "lane 3", 255),
        # 16 x 2: two words a row and bank; four words a vector
        (CHIPS[1], Space.MEM_W, 4 * 9 + 2 + 1, 8, "bank 1, lane 9", 9),
        (CHIPS[1], Space.MEM_A, 4 * 9 + 3, 0, "lane 12", 9),
        (CHIPS[2], Space.MEM_A, 0, 15, "lane 0", 0),
    ],
)
def test_a_stuck_bit_is_named(chip, space, word, bit, place, row, level):
    def stuck(at, data):
        if at == (space, word):
            data = data | 1 << bit if level else data & ~(1 << bit)
        return at, data

    part = marched(chip, space, stuck)
    assert list(part.wrong) == [place]
    # the word or its inverse: one of two reads is wrong
    assert part.wrong[place][0] == 1
    [sentence] = part.sentences()
    text = rf"{space.name} {place}: 1 wrong, first row {row}: -?\d+ expected, -?\d+ found"
    assert re.fullmatch(text, sentence)


@pytest.mark.parametrize("word", [0, 1, 100, 511])
def test_an_address_that_reaches_another_word(word):
    """Two addresses, one cell, in one frame or far apart."""
    for other in (word ^ 1, word ^ 256):

        def alias(at, data, other=other):
            return ((at[0], other), data) if at == (Space.MEM_W, word) else (at, data)

        assert marched(CHIPS[0], Space.MEM_W, alias).wrong


def test_an_address_bit_that_is_stuck():
    def stuck(at, data):
        return (at[0], at[1] & ~8), data

    part = marched(CHIPS[0], Space.MEM_A, stuck)
    assert set(part.wrong) == {f"lane {n}" for n in range(4)}
