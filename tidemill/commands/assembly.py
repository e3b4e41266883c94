"""`tidemill asm` and `tidemill disasm`: programs as text and back."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.commands.common import UserError, note, write_file
from tidemill.program import load_program

__all__ = ["asm", "disasm"]


@click.command(short_help="Assembler text to a program file.")
@click.argument("source", metavar="FILE.TASM", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "out",
    metavar="OUT.TIDE",
    required=True,
    type=click.Path(path_type=Path),
    help="Program to write.",
)
@click.option(
    "--image",
    metavar="BASE.TIDE",
    type=click.Path(path_type=Path),
    help="Program whose memories, tables and facts are taken over (default: empty memories).",
)
def asm(*, source: Path, out: Path, image: Path | None) -> None:
    """Assemble FILE.TASM, the text that `tidemill disasm` writes.

    docs/isa.md lists queues, operations and fields. Weights are no part of the text: they come from
    --image.

    \b
    tidemill disasm td260k.tide -o td260k.tasm
    tidemill asm td260k.tasm --image td260k.tide -o again.tide
    """  # noqa: D301
    from tidemill.compiler.assembler import AssemblyError, assemble

    try:
        text = source.read_text(encoding="utf-8")
    except OSError as e:
        raise UserError(f"cannot read {str(source)!r}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{str(source)!r} is not UTF-8 text") from None
    base = load_program(image) if image is not None else None
    try:
        program = assemble(text, base)
    except AssemblyError as e:
        raise UserError(f"{source}: {e}") from None
    try:
        program.save(out)
    except OSError as e:
        raise UserError(f"cannot write {str(out)!r}: {e.strerror}") from None
    note(f"wrote {out} [{program.hash}]")


@click.command(short_help="A program file to assembler text.")
@click.argument("program", metavar="FILE.TIDE", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File to write (default: standard output).",
)
def disasm(*, program: Path, out: Path | None) -> None:
    """Print the program FILE.TIDE as text: chip, registers, templates, tide table, every word.

    `tidemill asm` turns it back into the same program, to the bit.
    """
    from tidemill.compiler.disassembler import disassemble

    text = disassemble(load_program(program))
    if out is None:
        click.echo(text, nl=False)
    else:
        write_file(out, text)
        note(f"wrote {out}")
