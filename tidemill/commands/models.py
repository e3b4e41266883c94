"""From a model's name to a program: where its files are, and the cache of compiled programs."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tidemill.chip import Chip, load_chip
from tidemill.commands.common import UserError, cache_dir, note, working
from tidemill.program import Program, ProgramError, load_program

if TYPE_CHECKING:
    from tidemill.model.checkpoint import Checkpoint
    from tidemill.model.quantise import QuantModel
    from tidemill.model.tokenizer import Tokenizer

__all__ = ["ModelFiles", "find_model", "model_names", "open_program", "tokenizer_of"]

PACKAGE = Path(__file__).resolve().parents[1]
#: Models that come with the checkout; a wheel has none.
MODELS = PACKAGE.parent / "models"
#: Parts of the package that decide what a program contains.
SOURCES = (
    "chip.py",
    "isa.py",
    "numerics.py",
    "program.py",
    "compiler",
    "model",
    "commands/models.py",
)


@dataclass(frozen=True)
class ModelFiles:
    """A checkpoint and the tokenizer it was trained with."""

    name: str
    checkpoint: Path
    tokenizer: Path

    def load(self) -> tuple[Checkpoint, Tokenizer]:
        """Read both. Raises `ModelError`."""
        from tidemill.model.checkpoint import load_checkpoint
        from tidemill.model.tokenizer import load_tokenizer

        checkpoint = load_checkpoint(self.checkpoint)
        return checkpoint, load_tokenizer(self.tokenizer, checkpoint.config.vocab)


def model_names() -> list[str]:
    """Named models of this installation."""
    if not MODELS.is_dir():
        return []
    return sorted(p.name for p in MODELS.iterdir() if (p / "model.bin").is_file())


def find_model(spec: str, tokenizer: Path | None = None) -> ModelFiles:
    """Files of a named model, a folder or a checkpoint. Raises `UserError` if there are none."""
    named, path = MODELS / spec, Path(spec)
    bare = path.name == spec and not path.suffix
    if bare and (named / "model.bin").is_file():
        path = named
    elif bare and not path.exists():
        names = model_names()
        if not names:
            raise UserError(
                f"no model named {spec!r}: this installation of tidemill has no folder models/ beside "
                "it; run from a checkout, or give a folder or a .bin file"
            )
        raise UserError(
            f"no model named {spec!r}; named models are {', '.join(names)}, or give a folder with "
            "model.bin and tokenizer.bin, a llama2.c .bin file or a .tide program"
        )
    if not path.exists():
        raise UserError(f"there is no model {spec!r}")
    if path.is_dir():
        checkpoint = path / "model.bin"
        if not checkpoint.is_file():
            raise UserError(f"the model folder {spec!r} holds no model.bin")
        name = path.resolve().name
    else:
        checkpoint, name = path, path.stem
    beside = tokenizer or checkpoint.parent / "tokenizer.bin"
    if not beside.is_file():
        what = (
            "--tokenizer names" if tokenizer else f"model {spec!r} needs a tokenizer and there is"
        )
        hint = "" if tokenizer else "; give one with --tokenizer FILE"
        raise UserError(f"{what} no file {str(beside)!r}{hint}")
    return ModelFiles(name, checkpoint, beside)


def open_program(
    model: str,
    chip: str,
    *,
    chip_given: bool,
    context: int | None = None,
    tokenizer: Path | None = None,
) -> Program:
    """A program for `model` on `chip`: a .tide file as it is, anything else compiled (or from the cache).

    chip_given: the user named the chip, so a .tide file for another one is refused.
    """
    if Path(model).suffix == ".tide":
        return _from_file(model, chip if chip_given else None, context)
    target = load_chip(chip)
    files = find_model(model, tokenizer)
    cached = _cache_file(files, target, context)
    if cached is not None and cached.is_file():
        with contextlib.suppress(ProgramError):
            return load_program(cached)
    program = _compile(files, target, context)
    if cached is not None:
        _store(program, cached)
    return program


def _from_file(path: str, chip: str | None, context: int | None) -> Program:
    program = load_program(path)
    if chip is not None:
        wanted = load_chip(chip)
        if wanted.hash != program.chip.hash:
            raise UserError(
                f"{path} was compiled for {program.chip.describe()}, not for {wanted.describe()}"
            )
    if context not in (None, program.context):
        raise UserError(
            f"{path} was compiled for a context of {program.context}, not of {context}; "
            "compile the model again"
        )
    return program


def _compile(files: ModelFiles, chip: Chip, context: int | None) -> Program:
    from tidemill.compiler.compile import compile_model, geometry
    from tidemill.compiler.report import model_info
    from tidemill.model.quantise import CONTEXT_LIMIT, quantise
    from tidemill.model.tokenizer import EOS

    checkpoint, _ = files.load()
    config = checkpoint.config
    # what needs no numbers is refused before the numbers are worked out
    shape = SimpleNamespace(config=config, max_context=min(config.context, CONTEXT_LIMIT))
    geometry(chip, cast("QuantModel", shape), context)
    with working(f"quantising {files.name} ({config.parameters:,} parameters)") as update:
        qm = quantise(checkpoint)
        update(f"compiling {files.name} for {chip.name}")
        eos = EOS if config.vocab > EOS else None
        info = model_info(files.name, config) | {
            "tokenizer": base64.b64encode(files.tokenizer.read_bytes()).decode()
        }
        return compile_model(chip, qm, context=context, eos=eos, info=info)


# Cache -------------------------------------------------------------------------------------------


def _sources_hash() -> str:
    h = hashlib.sha256()
    for name in SOURCES:
        path = PACKAGE / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            h.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return h.hexdigest()


def _cache_file(files: ModelFiles, chip: Chip, context: int | None) -> Path | None:
    """Place of the program in the cache; None when a file cannot be read (loading it will say so)."""
    h = hashlib.sha256()
    try:
        for path in (files.checkpoint, files.tokenizer):
            h.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError:
        return None
    key = [files.name, chip.as_dict(), context, _sources_hash()]
    h.update(json.dumps(key, sort_keys=True).encode())
    return cache_dir() / "programs" / f"{h.hexdigest()[:24]}.tide"


def _store(program: Program, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            program.save(Path(folder) / path.name)
            os.replace(Path(folder) / path.name, path)
    except OSError as e:
        note(f"the compiled program could not be cached in {path.parent}: {e.strerror}")


def tokenizer_of(program: Program) -> Tokenizer:
    """The tokenizer that a program carries. Raises `UserError` if it has none."""
    from tidemill.model.tokenizer import load_tokenizer

    text = program.info.get("tokenizer")
    if not isinstance(text, str):
        raise UserError("the program carries no tokenizer; compile it with `tidemill compile`")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError("the program's tokenizer is damaged") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.bin"
        path.write_bytes(data)
        return load_tokenizer(path, int(program.info["model"]["vocab"]))
