"""Frames: layout, and a parser that finds every intact one among damaged bytes."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.host.frames import (
    LONGEST,
    Frame,
    Identity,
    Kind,
    Parser,
    Status,
    Token,
    encode,
)

frames = st.builds(
    Frame, st.integers(0, 255), st.integers(0, 255), st.binary(min_size=0, max_size=64)
)
#: Without the sync byte, so that none of it can be taken for the beginning of a frame.
noise = st.lists(st.integers(0, 0xA4)).map(bytes)


def test_the_layout_is_that_of_the_document():
    data = encode(Frame(Kind.START, 7, b"\x01"))
    assert data[:5] == b"\xa5\x04\x07\x01\x01"
    assert int.from_bytes(data[5:], "little") == zlib.crc32(b"\x04\x07\x01\x01")
    assert len(encode(Frame(2, 0, bytes(64)))) == LONGEST == 72
    with pytest.raises(ValueError, match="a payload holds 64 bytes at most, not 65"):
        encode(Frame(2, 0, bytes(65)))


def test_payloads_have_the_sizes_of_the_document():
    identity = Identity(1, "0123456789abcdef", 90_000_000, 1 << 63)
    status = Status(True, False, 3, 190, 4, 15, 77, 1 << 40)
    token = Token(3, 191, True, 511, 3150)
    assert [len(p.encode()) for p in (identity, status, token)] == [21, 18, 10]
    for payload in (identity, status, token):
        assert type(payload).decode(payload.encode()) == payload
    assert Status.decode(b"\x06" + bytes(17)).aborted
    # the kind of a fault means nothing without its flag
    assert Status.decode(bytes(4) + b"\x02" + bytes(13)).fault == 0


@given(st.lists(st.tuples(noise, frames)), st.integers(1, 20))
def test_frames_among_noise_in_pieces(items, size):
    data = b"".join(n + encode(f) for n, f in items)
    parser, found = Parser(), []
    for at in range(0, len(data), size):
        found += parser.feed(data[at : at + size])
    assert found == [f for _, f in items]
    assert not parser.inside


@given(frames, frames, st.data())
def test_a_damaged_frame_takes_no_intact_one_with_it(bad, good, data):
    raw = bytearray(encode(bad))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    parser = Parser()
    assert parser.feed(bytes(raw) + encode(good)) + parser.gap() == [good]


@given(frames, frames, st.data())
def test_a_gap_ends_a_frame(cut, good, data):
    raw = encode(cut)
    parser = Parser()
    assert parser.feed(raw[: data.draw(st.integers(1, len(raw) - 1))]) == []
    assert parser.inside
    assert parser.gap() == []
    assert not parser.inside
    assert parser.feed(encode(good)) == [good]
