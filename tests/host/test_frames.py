"""Frames: layout, and a parser that finds every intact one among damaged bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.host.frames import LONGEST, Frame, Identity, Parser, Status, Token
from tidemill.link import STATUS_BYTES, TOKEN_BYTES, frame

frames = st.builds(
    Frame, st.integers(0, 255), st.integers(0, 255), st.binary(min_size=0, max_size=64)
)
#: Without the sync byte, so that none of it can be taken for the beginning of a frame.
noise = st.lists(st.integers(0, 0xA4)).map(bytes)


def encode(f: Frame) -> bytes:
    return frame(f.kind, f.sequence, f.payload)


def test_payloads_have_the_sizes_of_the_document():
    identity = Identity(1, "0123456789abcdef", 90_000_000, 1 << 63)
    status = Status((1 << 32) - 1, 190, 3, True, False, 4, 15, 77)
    token = Token(191, 511, 3150, True)
    sizes = [len(p.encode()) for p in (identity, status, token)]
    assert sizes == [21, STATUS_BYTES, TOKEN_BYTES]
    for payload in (identity, status, token):
        assert type(payload).decode(payload.encode()) == payload
    assert Status.decode(bytes(7) + b"\x04" + bytes(6)).aborted
    assert Token.decode(bytes((1, 2, 3, 4, 5, 6, 7, 1))) == Token(0x201, 0x403, 0x70605, True)
    # the kind of a fault means nothing without its flag
    assert Status.decode(bytes(12) + b"\x02\x03") == Status(0, 0, 0)
    assert len(encode(Frame(2, 0, bytes(64)))) == LONGEST == 72


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
