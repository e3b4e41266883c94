"""Stories to a tokenizer and to tokens: `python train/prepare.py TEXT... -o FOLDER`.

FOLDER then holds `tokenizer.model` (SentencePiece), `tokenizer.bin` (llama2.c), one shard of
little-endian uint16 tokens per text (`train-000.u16`, ...; the held-out stories in `val-*.u16`)
and `data.json`, which says what the shards hold. In a shard every story begins with BOS.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import sentencepiece
from numpy.typing import NDArray

from tidemill.model.checkpoint import ModelError
from tidemill.model.tokenizer import BOS, BYTE0, load_tokenizer, save_tokenizer

__all__ = ["Data", "Part", "load_data", "prepare", "read_stories", "save_llama2c"]

#: Unknown, BOS, EOS and the 256 bytes come before the first piece that is learned.
FIXED = BYTE0 + 256
#: What `--ascii` writes for the signs of a word processor.
PLAIN = str.maketrans("\u201c\u201d\u2018\u2019\u2013\u2014", "\"\"''--") | {0x2026: "..."}


@dataclass(frozen=True, kw_only=True)
class Part:
    """The training or the held-out part: shard files, and what is in them."""

    shards: tuple[str, ...]
    stories: int
    tokens: int
    #: UTF-8 bytes of the stories; bits per byte divides by them.
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Data:
    """Contents of `data.json`, and the tokens (uint16, one dimension) of the two parts."""

    vocab: int
    #: SHA-256 over all shards: a run goes on with the data it began with.
    digest: str
    train: Part
    val: Part
    train_tokens: NDArray[np.uint16]
    val_tokens: NDArray[np.uint16]


def read_stories(path: Path, separator: str = "\n\n", ascii_only: bool = False) -> list[str]:
    """Stories of a text file, in order, without empty and repeated ones.

    Runs of spaces and of line ends become one. With `ascii_only`, typographic quotes and dashes
    become plain and a story with any other character outside printable ASCII is left out.

    Raises `ModelError` if the file cannot be read or holds no story.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ModelError(f"cannot read text {path}: {getattr(e, 'strerror', None) or e}") from None
    stories: dict[str, None] = {}
    for block in text.split(separator):
        story = re.sub(r" *\n\s*", "\n", re.sub(" +", " ", block)).strip()
        if ascii_only:
            story = story.translate(PLAIN)
            if not re.fullmatch(r"[\n -~]*", story):
                continue
        if story:
            stories[story] = None
    if not stories:
        raise ModelError(f"text {path} holds no story that can be used")
    return list(stories)


def _lines(stories: Iterable[str]) -> Iterator[str]:
    for story in stories:
        yield from story.split("\n")


def _train_tokenizer(stories: Iterable[str], vocab: int) -> bytes:
    """A SentencePiece BPE model of `vocab` pieces with byte fallback; text is taken as it is."""
    if not FIXED < vocab <= 1 << 16:
        raise ModelError(f"the vocabulary must be from {FIXED + 1} to {1 << 16}, not {vocab}")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(stories),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab,
            byte_fallback=True,
            character_coverage=1.0,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=1,  # more would make the order of equal pieces a matter of luck
            minloglevel=2,
        )
    except RuntimeError as e:
        # The reason is the sentence after the place in the C++ source.
        reason = str(e).rpartition("] ")[2].strip() or str(e)
        raise ModelError(f"no tokenizer of {vocab} pieces from this text: {reason}") from None
    return model.getvalue()


def save_llama2c(judge: sentencepiece.SentencePieceProcessor, path: Path) -> None:
    """Write the pieces of `judge` as a llama2.c tokenizer, with spaces for SentencePiece's sign."""
    ids = range(judge.vocab_size())
    pieces = [judge.id_to_piece(i).replace("▁", " ").encode() for i in ids]
    save_tokenizer(path, pieces, [judge.get_score(i) for i in ids])


def prepare(
    train: Sequence[Sequence[str]], val: Sequence[Sequence[str]], vocab: int, out: Path
) -> Data:
    """Train a tokenizer of `vocab` pieces on `train` and write everything to the folder `out`.

    `train` and `val` are lists of stories, one list per shard. Raises `ModelError` if the text
    does not give so many pieces, or if the two tokenizer files disagree on a story.
    """
    out.mkdir(parents=True, exist_ok=True)
    model = _train_tokenizer((s for stories in train for s in stories), vocab)
    (out / "tokenizer.model").write_bytes(model)
    judge = sentencepiece.SentencePieceProcessor(model_proto=model)
    save_llama2c(judge, out / "tokenizer.bin")
    ours = load_tokenizer(out / "tokenizer.bin", vocab)
    digest = hashlib.sha256()

    def write(name: str, shards: Sequence[Sequence[str]]) -> Part:
        tokens = 0
        for number, stories in enumerate(shards):
            rows = [[BOS, *row] for row in judge.encode(list(stories))]
            if ours.encode(stories[0]) != rows[0]:
                raise ModelError(f"the two tokenizers disagree on the story {stories[0][:60]!r}")
            shard = np.concatenate([np.array(row, "<u2") for row in rows])
            shard.tofile(out / f"{name}-{number:03}.u16")
            digest.update(shard.tobytes())
            tokens += len(shard)
        return Part(
            shards=tuple(f"{name}-{number:03}.u16" for number in range(len(shards))),
            stories=sum(map(len, shards)),
            tokens=tokens,
            bytes=sum(len(s.encode()) for stories in shards for s in stories),
        )

    parts = {"train": asdict(write("train", train)), "val": asdict(write("val", val))}
    facts = {"vocab": vocab, "digest": digest.hexdigest(), **parts}
    (out / "data.json").write_text(json.dumps(facts, indent=2) + "\n")
    return load_data(out)


def load_data(folder: Path) -> Data:
    """What `prepare` wrote. Raises `ModelError` if the folder is not such a one or incomplete."""
    path = folder / "data.json"

    def read(facts: dict[str, Any]) -> tuple[Part, NDArray[np.uint16]]:
        part = Part(**(facts | {"shards": tuple(facts["shards"])}))
        tokens = np.concatenate([np.fromfile(folder / name, "<u2") for name in part.shards])
        if len(tokens) != part.tokens:
            raise ModelError(
                f"{', '.join(part.shards)} in {folder} hold {len(tokens)} tokens, data.json says "
                f"{part.tokens}"
            )
        return part, tokens

    try:
        facts = json.loads(path.read_text())
        train, train_tokens = read(facts["train"])
        val, val_tokens = read(facts["val"])
        return Data(
            vocab=facts["vocab"],
            digest=facts["digest"],
            train=train,
            val=val,
            train_tokens=train_tokens,
            val_tokens=val_tokens,
        )
    except ModelError:
        raise
    except OSError as e:
        raise ModelError(f"cannot read {e.filename}: {e.strerror}; run train/prepare.py") from None
    except (ValueError, KeyError, TypeError) as e:
        raise ModelError(f"{path} was not written by train/prepare.py: {e!r}") from None


@click.command()
@click.argument("texts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--val",
    "held_out",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Text of the held-out stories; without one, every 20th story is held out.",
)
@click.option("-o", "--out", required=True, metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--vocab", metavar="N", default=512, show_default=True, help="Number of tokens.")
@click.option(
    "--separator", metavar="TEXT", help="What stands between stories (default: a blank line)."
)
@click.option(
    "--ascii", "ascii_only", is_flag=True, help="Plain quotes; leave out stories beyond ASCII."
)
def main(
    texts: tuple[Path, ...],
    held_out: tuple[Path, ...],
    out: Path,
    vocab: int,
    separator: str | None,
    ascii_only: bool,
) -> None:
    """Train a tokenizer on TEXTS and write it and the tokens of the stories to a folder."""
    try:
        train = [read_stories(path, separator or "\n\n", ascii_only) for path in texts]
        val = [read_stories(path, separator or "\n\n", ascii_only) for path in held_out]
        if not val:
            val = [stories[19::20] for stories in train if len(stories) >= 20]
            train = [[s for i, s in enumerate(stories) if i % 20 != 19] for stories in train]
        if not val:
            raise ModelError("every 20th story is held out, and no text has 20: use --val FILE")
        data = prepare(train, val, vocab, out)
    except ModelError as e:
        raise click.ClickException(str(e)) from None
    for name, part in (("train", data.train), ("val", data.val)):
        click.echo(
            f"{name}: {part.stories:,} stories, {part.tokens:,} tokens, "
            f"{part.bytes / part.tokens:.3f} bytes per token"
        )


if __name__ == "__main__":
    main()
