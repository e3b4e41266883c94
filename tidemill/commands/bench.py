"""`tidemill bench`: how fast the engines simulate the chip."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from tidemill.commands.common import (
    Chosen,
    UserError,
    chip_option,
    emit_json,
    json_option,
    model_option,
    say_line,
    show,
    tokenizer_option,
    working,
)
from tidemill.commands.engines import Outcome, Request, predicted_cycles, run_rtl, run_sim
from tidemill.commands.models import open_program

__all__ = ["bench"]


@click.command(short_help="Speed of the engines, in tokens and cycles a second.")
@model_option
@chip_option
@click.option(
    "--engine", type=click.Choice(["sim", "rtl", "both"]), default="sim", show_default=True
)
@click.option("--tokens", metavar="N", type=int, default=64, show_default=True, help="Tokens.")
@tokenizer_option
@json_option
@click.pass_context
def bench(
    ctx: click.Context,
    *,
    model: str,
    chip: str,
    engine: str,
    tokens: int,
    tokenizer: Path | None,
    as_json: bool,
) -> None:
    """Time the same story in one engine or both.

    sim is timed in its second run on one machine, when every segment has been traced. rtl is timed
    with the start of the simulation and the loading of the program, but without the build.
    """
    from tidemill.model.tokenizer import BOS

    program = open_program(model, chip, chip_given=Chosen(ctx)("chip"), tokenizer=tokenizer)
    request = Request([BOS], tokens, 0.0, 0)
    program.run_writes(request.prompt, tokens)  # refuses what cannot be
    made: dict[str, Outcome] = {}
    if engine != "rtl":
        with working() as say:
            say(f"{tokens} tokens in the sim engine")
            made["sim"] = run_sim(program, request, warm=True)
    if engine != "sim":
        made["rtl"] = run_rtl(program, request)
    name = program.info.get("model", {}).get("name", model)
    on = "" if Path(model).suffix == ".tide" else f" --chip {shlex.quote(chip)}"
    command = f"tidemill bench --model {shlex.quote(model)}{on} --engine {engine} --tokens {tokens}"
    results: list[dict[str, Any]] = []
    for which, outcome in made.items():
        if outcome.cycles != predicted_cycles(program, 1, len(outcome.cycles)):
            raise UserError(
                f"the {which} engine took other cycles than predicted; see tidemill run"
            )
        count, total = len(outcome.cycles), sum(outcome.cycles)
        results.append(
            {
                "engine": which,
                "tokens": count,
                "cycles": total,
                "seconds": round(outcome.seconds, 3),
                "tokens_per_second": round(count / outcome.seconds, 1),
                "cycles_per_second": round(total / outcome.seconds),
            }
        )
    if as_json:
        emit_json(
            {"command": command, "model": name, "chip": program.chip.name, "results": results}
        )
        return
    say_line(command)
    columns = ("engine", "tokens", "cycles", "seconds", "tokens/s", "cycles/s")
    show("", columns, [list(r.values()) for r in results])
