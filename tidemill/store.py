"""Models by name or path, and compiled programs kept in the user's cache directory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tidemill.chip import Chip
from tidemill.compiler.compile import compile_model
from tidemill.model.checkpoint import Checkpoint, ModelError, load_checkpoint
from tidemill.model.quantise import quantise
from tidemill.model.tokenizer import EOS, Tokenizer, load_tokenizer
from tidemill.program import Program, ProgramError, load_program

__all__ = ["DEFAULT_MODEL", "Model", "cache_dir", "find_model", "program_for"]

DEFAULT_MODEL = "td260k"
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Model:
    """A checkpoint file and its tokenizer."""

    name: str
    path: Path
    checkpoint: Checkpoint
    tokenizer: Tokenizer


def cache_dir() -> Path:
    """`$TIDEMILL_CACHE`, else `~/.cache/tidemill`."""
    base = os.environ.get("TIDEMILL_CACHE")
    return Path(base) if base else Path.home() / ".cache" / "tidemill"


def model_names() -> list[str]:
    """Names of the models of this checkout."""
    return sorted(p.parent.name for p in (ROOT / "models").glob("*/model.bin"))


def find_model(spec: str, tokenizer: str | None = None) -> Model:
    """A named model, a directory with model.bin and tokenizer.bin, or a .bin file with a tokenizer.

    Raises `ModelError` in one sentence.
    """
    named = ROOT / "models" / spec
    path = named / "model.bin" if (named / "model.bin").is_file() else Path(spec)
    if path.is_dir():
        path = path / "model.bin"
    if not path.exists():
        known = ", ".join(model_names()) or "none (models/ comes with the source checkout)"
        raise ModelError(
            f"no model {spec!r}: give one of {known}, a directory with model.bin, or a .bin file"
        )
    checkpoint = load_checkpoint(path)
    words = Path(tokenizer) if tokenizer else path.parent / "tokenizer.bin"
    if not words.exists():
        raise ModelError(f"model {spec!r} has no tokenizer at {str(words)!r}: give one with --tokenizer")
    name = path.parent.name if path.name == "model.bin" else path.stem
    return Model(name, path, checkpoint, load_tokenizer(words, checkpoint.config.vocab))


def _sources() -> bytes:
    """Digest of everything that decides what a program looks like."""
    h = hashlib.sha256()
    for part in sorted((ROOT / "tidemill").rglob("*.py")):
        h.update(part.read_bytes())
    return h.digest()


def program_for(model: Model, chip: Chip, context: int | None = None) -> Program:
    """The compiled program, from the cache when nothing that shapes it has changed."""
    key = hashlib.sha256(
        _sources() + model.path.read_bytes() + f"{chip.hash} {chip.name} {context}".encode()
    ).hexdigest()[:24]
    path = cache_dir() / "programs" / f"{key}.tide"
    if path.exists():
        try:
            return load_program(path)
        except ProgramError:
            path.unlink()
    program = compile_model(
        chip, quantise(model.checkpoint), context=context, eos=EOS, info={"model": model.name}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    program.save(part)
    part.replace(path)
    return program
