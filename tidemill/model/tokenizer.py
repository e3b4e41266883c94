"""Text to tokens and back: tokenizer files of llama2.c.

File: int32 longest piece in bytes, then per token float32 score, int32 length, bytes. Tokens 0, 1,
2 are
unknown, BOS, EOS; 3..258 are the bytes 0..255, written `<0x0A>`. Encoding merges neighbours by
highest score, as llama2.c and SentencePiece BPE do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tidemill.model.checkpoint import ModelError

__all__ = ["BOS", "EOS", "Tokenizer", "load_tokenizer", "save_tokenizer"]

BOS, EOS = 1, 2
#: Token of byte 0.
BYTE0 = 3


@dataclass(frozen=True)
class Tokenizer:
    """Pieces (bytes) and merge scores, by token number."""

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        ids: dict[bytes, int] = {}
        for i, piece in enumerate(self.pieces):
            if i > EOS:
                ids.setdefault(piece, i)
        return ids

    def encode(self, text: str) -> list[int]:
        """Tokens of `text`, BOS first. A space is put before the first word."""
        tokens: list[int] = []
        for char in (" " + text) if text else "":
            raw = char.encode()
            known = self._ids.get(raw)
            if known is None and len(self.pieces) < BYTE0 + 256:
                raise ModelError(f"the tokenizer has no token for {char!r} and none for bytes")
            tokens += [known] if known is not None else [BYTE0 + b for b in raw]
        while True:
            best: tuple[float, int, int] | None = None
            for i in range(len(tokens) - 1):
                merged = self._ids.get(self.pieces[tokens[i]] + self.pieces[tokens[i + 1]])
                if merged is not None and (best is None or self.scores[merged] > best[0]):
                    best = self.scores[merged], i, merged
            if best is None:
                return [BOS, *tokens]
            tokens[best[1] : best[1] + 2] = [best[2]]

    def piece(self, token: int, previous: int | None = None) -> bytes:
        """Bytes that `token` adds to the text; the space after BOS is dropped."""
        if not 0 <= token < len(self.pieces):
            raise ModelError(f"token {token} is outside the tokenizer's {len(self.pieces)}")
        if token <= EOS:
            return b""
        if BYTE0 <= token < BYTE0 + 256 and self.pieces[token].startswith(b"<0x"):
            return bytes([token - BYTE0])
        raw = self.pieces[token]
        return raw[1:] if previous == BOS and raw.startswith(b" ") else raw

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD."""
        out = b""
        previous: int | None = None
        for token in tokens:
            out += self.piece(token, previous)
            previous = token
        return out.decode(errors="replace")


def load_tokenizer(path: str | Path, vocab: int) -> Tokenizer:
    """Read a llama2.c tokenizer file of `vocab` tokens. Raises `ModelError` for anything else."""
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise ModelError(f"cannot read tokenizer {str(path)!r}: {e.strerror}") from None
    pieces: list[bytes] = []
    scores: list[float] = []
    at = 4
    while at < len(data):
        if at + 8 > len(data):
            raise ModelError(f"tokenizer {str(path)!r} is truncated after {len(pieces)} tokens")
        score, size = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= size <= len(data) - at:
            raise ModelError(
                f"tokenizer {str(path)!r}: token {len(pieces)} claims {size} bytes, "
                f"{len(data) - at} are left"
            )
        pieces.append(data[at : at + size])
        scores.append(score)
        at += size
    if len(pieces) != vocab:
        raise ModelError(f"tokenizer {str(path)!r} has {len(pieces)} tokens, the model {vocab}")
    return Tokenizer(tuple(pieces), tuple(scores))


def save_tokenizer(path: str | Path, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
    """Write a llama2.c tokenizer file."""
    out = struct.pack("<i", max(len(p) for p in pieces))
    for piece, score in zip(pieces, scores, strict=True):
        out += struct.pack("<fi", score, len(piece)) + piece
    Path(path).write_bytes(out)
