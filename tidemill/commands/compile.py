"""`tidemill compile`: a model to a program file, and where its cycles go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidemill.commands.common import (
    Chosen,
    UserError,
    chip_option,
    emit_json,
    json_option,
    note,
    say_line,
    show,
    tokenizer_option,
    write_file,
)
from tidemill.commands.models import open_program
from tidemill.program import Program

__all__ = ["compile_command"]

#: Waits that the report names one by one.
WAITS = 12
#: Largest tensors named for each memory.
LARGEST = 4


@click.command("compile", short_help="A model to a program file, and where its cycles go.")
@click.argument("model", default="td260k")
@click.option(
    "-o",
    "out",
    metavar="OUT.TIDE",
    type=click.Path(path_type=Path),
    help="Write the program (default: only report).",
)
@chip_option
@click.option("--context", metavar="N", type=int, help="Positions to compile for (default: all).")
@tokenizer_option
@click.option(
    "--listing",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the program as assembler text too.",
)
@json_option
@click.pass_context
def compile_command(
    ctx: click.Context,
    *,
    model: str,
    out: Path | None,
    chip: str,
    context: int | None,
    tokenizer: Path | None,
    listing: Path | None,
    as_json: bool,
) -> None:
    """Compile MODEL for a chip, and say how long every token will take.

    MODEL is a named model (default td260k), a folder with model.bin and tokenizer.bin, a llama2.c
    .bin file, or a .tide program to report on.

    The roofline is the number of cycles in which the matrix unit could do the work if it never
    waited. The report says where the others went: to padding, to the two segments around the
    layers, and, by name, to what the matrix unit waited for within a layer.

    \b
    tidemill compile td260k -o td260k.tide
    tidemill compile td260k --chip tiny --context 64 --json
    """  # noqa: D301
    from tidemill.compiler.disassembler import disassemble
    from tidemill.compiler.report import report

    program = open_program(
        model, chip, chip_given=Chosen(ctx)("chip"), context=context, tokenizer=tokenizer
    )
    if "geometry" not in program.info:
        raise UserError(f"{model} says nothing about its model, so there is nothing to report")
    facts = {"model": program.info.get("model", {}).get("name", model), **report(program)}
    if out is not None:
        try:
            program.save(out)
        except OSError as e:
            raise UserError(f"cannot write {str(out)!r}: {e.strerror}") from None
        facts["file"] = str(out)
    if listing is not None:
        write_file(listing, disassemble(program))
        facts["listing"] = str(listing)
    if as_json:
        emit_json(facts)
    else:
        _print(program, facts)
        for path in (out, listing):
            if path is not None:
                note(f"wrote {path}")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _print(program: Program, facts: dict[str, Any]) -> None:
    say_line(f"program  {facts['model']} [{facts['program_hash']}]")
    say_line(f"chip     {program.chip.describe()}")
    rows: list[list[Any]] = [
        [int(c), int(c) - 1, facts["cycles"][c], facts["roofline"][c], _percent(f)]
        for c, f in facts["roofline_fraction"].items()
    ]
    columns = ("context", "position", "cycles", "roofline", "fraction")
    show("\nCycles of one generated token", columns, rows)
    total = sum(facts["cycles_went_to"].values())
    rows = [[k, v, _percent(v / total)] for k, v in facts["cycles_went_to"].items()]
    show(f"\nWhere they go at context {facts['close_context']}", ("", "cycles", ""), rows)
    waits = facts["layer_waits"]
    rows = [[w["op"], w["waits_for"], w["cycles"]] for w in waits[:WAITS]]
    rest = sum(w["cycles"] for w in waits[WAITS:])
    rows += [["others", "", rest]] if rest else []
    title = f"\nWhat the matrix unit waited for in a layer of {facts['layer_length']} cycles"
    show(title, ("next for the MXM", "waits for", "cycles"), rows)
    words = facts["program_words"]
    rows = [[q, n, _percent(facts["layer_use"][q])] for q, n in words.items()]
    title = (
        f"\nProgram: {sum(words.values()):,} words, {facts['program_bytes']:,} bytes; tide table: "
        f"{facts['tide_words']:,} words, {facts['tide_bytes']:,} bytes"
    )
    show(title, ("queue", "words", "busy in a layer"), rows)
    banks = f"each of {program.chip.weight_streams} banks of MEM_W"
    rows = [
        [label, m["needed"], m["available"], m["unit"], _largest(m["tensors"])]
        for label, m in ((banks, facts["memory"]["MEM_W.0"]), ("MEM_A", facts["memory"]["MEM_A"]))
    ]
    show("\nMemory", ("", "needed", "available", "", "largest"), rows)
    account = facts["chip_account"]
    items = ", ".join(f"{k} {v}" for k, v in account["block_rams"].items() if k != "total")
    say_line(
        f"\nChip: {account['block_rams']['total']} block RAMs ({items}), "
        f"{account['multipliers']['total']} multipliers"
    )


def _largest(tensors: dict[str, int]) -> str:
    return ", ".join(f"{name} {size:,}" for name, size in list(tensors.items())[:LARGEST])
