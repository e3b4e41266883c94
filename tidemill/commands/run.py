"""`tidemill run`: a model writes, and every token's cycles are compared with the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.commands.board import BOARDS, board_options, connection, run_board
from tidemill.commands.common import (
    Chosen,
    UserError,
    chip_option,
    emit_json,
    json_option,
    model_option,
    note,
    tokenizer_option,
    working,
)
from tidemill.commands.engines import (
    Request,
    memories_equal,
    predicted_cycles,
    run_rtl,
    run_sim,
)
from tidemill.commands.models import open_program
from tidemill.commands.story import Printer, report

if TYPE_CHECKING:
    from tidemill_sim.waves import Wave

__all__ = ["run"]

#: Cycles of waves after the first, if the last is not chosen.
WINDOW = 2000


def _prompt_text(prompt: str | None, prompt_file: Path | None) -> str:
    if prompt is not None and prompt_file is not None:
        raise UserError("--prompt and --prompt-file exclude each other")
    if prompt_file is None:
        return prompt or ""
    try:
        return prompt_file.read_text(encoding="utf-8").rstrip("\n")
    except OSError as e:
        raise UserError(f"cannot read prompt file {str(prompt_file)!r}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"prompt file {str(prompt_file)!r} is not UTF-8 text") from None


def _wave(engine: str, wave: Path | None, first: int, last: int | None) -> Wave | None:
    if wave is None:
        if first or last is not None:
            raise UserError("--from and --to choose the cycles of --wave, which is not given")
        return None
    if engine != "rtl":
        raise UserError(f"--wave needs --engine rtl; the {engine} engine has no signals")
    from tidemill_sim.waves import Wave

    try:
        return Wave(wave, first, first + WINDOW if last is None else last)
    except ValueError as e:
        raise UserError(str(e)) from None


@click.command(short_help="Let a model write; compare predicted and measured cycles.")
@model_option
@chip_option
@click.option(
    "--engine",
    type=click.Choice(["sim", "rtl", *BOARDS]),
    default="sim",
    show_default=True,
    help="sim: numpy simulator; rtl: the Verilog under Verilator; board: an FPGA on a serial port; "
    "virtual-board: the whole board in Verilator. All but sim are checked against sim as well.",
)
@board_options
@click.option("--verify", is_flag=True, help="Read MEM_W and MEM_A back after loading (boards).")
@click.option("--prompt", metavar="P", help="Text to go on from (default: none, a fresh story).")
@click.option(
    "--prompt-file", metavar="F", type=click.Path(path_type=Path), help="The same from a file."
)
@click.option(
    "--tokens",
    metavar="N",
    type=int,
    help="Tokens to generate at most (default: fill the context).",
)
@click.option(
    "--temperature",
    metavar="T",
    type=float,
    default=0.0,
    show_default=True,
    help="0: always the likeliest token; higher: sampled, on the chip.",
)
@click.option(
    "--seed", metavar="S", type=int, default=0, show_default=True, help="Seed of the sampling."
)
@click.option("--context", metavar="N", type=int, help="Positions to compile for (default: all).")
@tokenizer_option
@click.option(
    "--check",
    is_flag=True,
    help="Follow uninitialised memory and overflow in sim; else also compare both memories.",
)
@click.option(
    "--wave",
    metavar="OUT.VCD",
    type=click.Path(path_type=Path),
    help="Write waves and a save file for GTKWave (rtl; needs a build of its own, once). "
    ".fst in place of .vcd needs GTKWave's vcd2fst.",
)
@click.option(
    "--from",
    "first",
    metavar="C",
    type=int,
    default=0,
    help="First cycle of the waves, counted from the start of the run (default: 0).",
)
@click.option(
    "--to", "last", metavar="C", type=int, help=f"Last cycle (default: {WINDOW} after the first)."
)
@click.option("-v", "--verbose", is_flag=True, help="A line for every position.")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    *,
    model: str,
    chip: str,
    engine: str,
    port: str | None,
    baud: int | None,
    bitstream: Path | None,
    verify: bool,
    prompt: str | None,
    prompt_file: Path | None,
    tokens: int | None,
    temperature: float,
    seed: int,
    context: int | None,
    tokenizer: Path | None,
    check: bool,
    wave: Path | None,
    first: int,
    last: int | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Let a model write on a chip, token by token, and compare every token's cycles.

    Without options our own model writes a story on the chip ulx3s-85f in the simulator. The run
    ends at the end of the story, after --tokens, or when the context is full. The exit code is 1 if
    a token took another number of cycles than predicted, or if the chip reported a fault.

    \b
    tidemill run --prompt "Tom had a red ball" --temperature 0.8 --seed 3
    tidemill run --engine rtl --tokens 20 -v
    tidemill run --engine rtl --tokens 2 --wave first.vcd --from 0 --to 2000
    tidemill run --engine board --port /dev/ttyUSB0 --bitstream build/top.json
    """  # noqa: D301
    from tidemill.store import tokenizer_of

    reach = connection(engine, port, baud, bitstream)
    if verify and not reach:
        raise UserError(f"--verify needs --engine board or virtual-board, not {engine}")
    text = _prompt_text(prompt, prompt_file)
    waves = _wave(engine, wave, first, last)
    program = open_program(
        model, chip, chip_given=Chosen(ctx)("chip"), context=context, tokenizer=tokenizer
    )
    words = tokenizer_of(program)
    start = words.encode(text)
    request = Request(
        start, program.context if tokens is None else tokens, temperature, seed, check
    )
    program.run_writes(start, request.tokens, temperature, seed)  # refuses what cannot be
    printer = None if as_json else Printer(words, list(start))
    if engine == "rtl":
        made = run_rtl(program, request, printer, waves)
    elif reach:
        made = run_board(program, request, printer, reach, verify=verify)
    else:
        made = run_sim(program, request, printer)
    if printer:
        printer.close()
    new = [t for t, g in zip(made.tokens, made.generated, strict=True) if g]
    facts: dict[str, Any] = {
        "model": program.info.get("model", {}).get("name", model),
        "chip": program.chip.name,
        "engine": engine,
        "chip_hash": program.chip.hash,
        "program_hash": program.hash,
        "temperature": temperature,
        "seed": seed,
        "prompt_tokens": start,
        "tokens": new,
        "text": words.decode([*start, *new]),
        "cycles_predicted": predicted_cycles(program, len(start), len(made.cycles)),
        "cycles": made.cycles,
        "seconds": round(made.seconds, 3),
        "clock_hz": made.clock_hz,
        "fault": made.fault or None,
    }
    good = facts["cycles_predicted"] == made.cycles and not made.fault
    if engine != "sim":
        with working() as say:
            say("the same run in the sim engine")
            again = run_sim(program, request)
        facts["equal_sim"] = (again.tokens, again.generated, again.cycles) == (
            made.tokens,
            made.generated,
            made.cycles,
        )
        good &= facts["equal_sim"]
        if check:
            facts["equal_memories"] = memories_equal(again, made)
            good &= facts["equal_memories"]
    facts["equal"] = good
    if as_json:
        emit_json(facts)
    else:
        report(program, made, facts, verbose)
    if waves:
        note(f"waves written to {waves.path}; open them with gtkwave {waves.save_file}")
    if not good:
        reason = f"the chip reported a fault: {made.fault}" if made.fault else ""
        raise UserError(reason or "the run differs from its prediction")
