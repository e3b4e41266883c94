"""What all commands share: options, refusing in one sentence, talking on the right stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "Chosen",
    "UserError",
    "chip_option",
    "emit_json",
    "json_option",
    "model_option",
    "note",
    "say_line",
    "show",
    "tokenizer_option",
    "working",
    "write_file",
]

#: Width of reports that nobody looks at in a terminal.
PIPE_WIDTH = 100


class UserError(click.ClickException):
    """Something the user asked for that cannot be done; the text is one sentence."""


def _output() -> Console:
    """Results: standard output."""
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, width=None if terminal else PIPE_WIDTH, highlight=False)


def _notes() -> Console:
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """A remark for the person at the terminal, on standard error."""
    _notes().print(Text(text, style="dim"))


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """Yields `say(text)` for what takes time: a spinner in a terminal, else a line each."""
    console = _notes()
    if not console.is_terminal:
        yield lambda text: console.print(Text(text))
        return
    status = console.status("")
    started = False

    def say(text: str) -> None:
        nonlocal started
        status.update(Text(text))
        if not started:
            status.start()
            started = True

    try:
        yield say
    finally:
        status.stop()


def emit_json(data: dict[str, Any]) -> None:
    """The one object of `--json`."""
    click.echo(json.dumps(data))


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a plain table on standard output; columns of numbers are right-aligned."""
    console = _output()
    if title:
        console.print(Text(title), soft_wrap=True)
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for i, name in enumerate(columns):
        numeric = all(isinstance(r[i], (int, float)) or str(r[i]).endswith("%") for r in rows)
        out.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        out.add_row(*(Text(f"{c:,}" if isinstance(c, int) else str(c)) for c in row))
    console.print(out)


def say_line(text: str = "") -> None:
    """Print a line of a report on standard output, however long it is."""
    _output().print(Text(text), soft_wrap=True)


def write_file(path: Path, data: str | bytes) -> None:
    """Write a result. Raises `UserError` if that is impossible."""
    try:
        if isinstance(data, str):
            path.write_text(data, encoding="utf-8")
        else:
            path.write_bytes(data)
    except OSError as e:
        raise UserError(f"cannot write {str(path)!r}: {e.strerror}") from None


class Chosen:
    """Whether the user gave an option, rather than its default."""

    def __init__(self, context: click.Context):
        self._context = context

    def __call__(self, name: str) -> bool:
        """Of the option with that parameter name."""
        source = self._context.get_parameter_source(name)
        return source not in (None, click.core.ParameterSource.DEFAULT)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else."
)
chip_option = click.option(
    "--chip",
    metavar="C",
    default="ulx3s-85f",
    show_default=True,
    help="Named chip (see `tidemill chips`) or a .toml file.",
)
model_option = click.option(
    "--model",
    metavar="M",
    default="td260k",
    show_default=True,
    help="Named model, folder (model.bin, tokenizer.bin), llama2.c .bin file or .tide program.",
)
tokenizer_option = click.option(
    "--tokenizer",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="llama2.c tokenizer of a .bin model (default: tokenizer.bin beside it).",
)
