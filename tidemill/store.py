"""Models by name or path, and compiled programs kept in the user's cache directory."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tidemill.cache import cache_dir
from tidemill.chip import Chip
from tidemill.compiler.compile import compile_model, geometry
from tidemill.model.checkpoint import Checkpoint, ModelError, load_checkpoint
from tidemill.model.quantise import quantise
from tidemill.model.quantmodel import CONTEXT_LIMIT, QuantModel
from tidemill.model.tokenizer import EOS, Tokenizer, load_tokenizer
from tidemill.program import Program, ProgramError, load_program

__all__ = [
    "DEFAULT_MODEL",
    "Model",
    "find_model",
    "model_names",
    "program_for",
    "tokenizer_of",
]

DEFAULT_MODEL = "td260k"
PACKAGE = Path(__file__).resolve().parent
#: Models that come with the checkout; a wheel has none.
MODELS = PACKAGE.parent / "models"
#: Parts of the package that decide what a program contains.
SOURCES = ("chip.py", "isa.py", "numerics.py", "program.py", "store.py", "compiler", "model")


@dataclass(frozen=True)
class Model:
    """A checkpoint and the tokenizer it was trained with, and the files they come from."""

    name: str
    path: Path
    checkpoint: Checkpoint
    tokenizer_path: Path
    tokenizer: Tokenizer


def model_names() -> list[str]:
    """Names of the models of this checkout."""
    return sorted(p.parent.name for p in MODELS.glob("*/model.bin"))


def _checkpoint_path(spec: str) -> Path:
    path = Path(spec)
    bare = path.name == spec and not path.suffix
    if bare and (MODELS / spec / "model.bin").is_file():
        return MODELS / spec / "model.bin"
    if path.is_dir():
        if not (path / "model.bin").is_file():
            raise ModelError(f"the model folder {spec!r} holds no model.bin")
        return path / "model.bin"
    if path.exists():
        return path
    if not bare:
        raise ModelError(f"there is no model file {spec!r}")
    if not model_names():
        raise ModelError(
            f"no model named {spec!r}: this installation of tidemill has no folder models/ beside "
            "it; run from a source checkout, or give a folder or a .bin file"
        )
    raise ModelError(
        f"no model named {spec!r}; named models are {', '.join(model_names())}, or give a folder "
        "with model.bin and tokenizer.bin, a llama2.c .bin file or a .tide program"
    )


def find_model(spec: str, tokenizer: str | Path | None = None) -> Model:
    """A named model, a folder with model.bin and tokenizer.bin, or a .bin file with a tokenizer.

    Raises `ModelError` in one sentence.
    """
    path = _checkpoint_path(spec)
    checkpoint = load_checkpoint(path)
    words = Path(tokenizer) if tokenizer else path.parent / "tokenizer.bin"
    if not words.exists():
        hint = "" if tokenizer else "; give one with --tokenizer FILE"
        raise ModelError(f"model {spec!r}: there is no tokenizer {str(words)!r}{hint}")
    name = path.resolve().parent.name if path.name == "model.bin" else path.stem
    return Model(name, path, checkpoint, words, load_tokenizer(words, checkpoint.config.vocab))


def program_for(
    model: Model,
    chip: Chip,
    context: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Program:
    """The compiled program, from the cache when nothing that shapes it has changed.

    progress: told what takes time. Raises `CompileError`, `EmitError` or `ModelError`.
    """
    path = cache_dir() / "programs" / f"{_key(model, chip, context)}.tide"
    if path.is_file():
        with contextlib.suppress(ProgramError):
            return load_program(path)
    config = model.checkpoint.config
    # what needs no numbers is refused before the numbers are worked out
    shape = SimpleNamespace(config=config, max_context=min(config.context, CONTEXT_LIMIT))
    geometry(chip, cast(QuantModel, shape), context)
    progress(f"quantising {model.name} ({config.parameters:,} parameters; once)")
    qm = quantise(model.checkpoint)
    progress(f"compiling {model.name} for {chip.name}")
    info = {
        "model": {"name": model.name, **dataclasses.asdict(config)},
        "tokenizer": base64.b64encode(model.tokenizer_path.read_bytes()).decode(),
    }
    eos = EOS if config.vocab > EOS else None
    program = compile_model(chip, qm, context=context, eos=eos, info=info)
    # a folder that cannot be written costs time, not the program
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            program.save(Path(folder) / path.name)
            os.replace(Path(folder) / path.name, path)
    return program


def _key(model: Model, chip: Chip, context: int | None) -> str:
    h = hashlib.sha256()
    for name in SOURCES:
        part = PACKAGE / name
        for file in [part] if part.is_file() else sorted(part.rglob("*.py")):
            h.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    for file in (model.path, model.tokenizer_path):
        h.update(hashlib.sha256(file.read_bytes()).digest())
    h.update(json.dumps([model.name, chip.as_dict(), context], sort_keys=True).encode())
    return h.hexdigest()[:24]


def tokenizer_of(program: Program) -> Tokenizer:
    """The tokenizer that a program carries. Raises `ProgramError` if it has none."""
    try:
        data = base64.b64decode(program.info["tokenizer"], validate=True)
        vocab = int(program.info["model"]["vocab"])
    except (KeyError, TypeError, binascii.Error):
        raise ProgramError(
            "the program carries no tokenizer; make it with `tidemill compile`, or assemble it "
            "with the --image of one that was"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.bin"
        path.write_bytes(data)
        return load_tokenizer(path, vocab)
