"""`tidemill run`: a model writes, and every token's cycles are compared with the prediction."""

from __future__ import annotations

import codecs
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.commands.common import (
    Chosen,
    UserError,
    chip_option,
    emit_json,
    json_option,
    model_option,
    note,
    say_line,
    show,
    tokenizer_option,
    working,
)
from tidemill.commands.engines import (
    Outcome,
    Request,
    memories_equal,
    predicted_cycles,
    run_rtl,
    run_sim,
)
from tidemill.commands.models import open_program
from tidemill.program import Program

if TYPE_CHECKING:
    from tidemill.model.tokenizer import Tokenizer
    from tidemill_sim.waves import Wave

__all__ = ["run"]

#: Tokens shown at each end of a run when not all are.
ENDS = 3

#: Cycles of waves after the first, if the last is not chosen.
WINDOW = 2000


class _Printer:
    """Writes text as tokens come, the prompt first; holds back half a UTF-8 character."""

    def __init__(self, tokenizer: Tokenizer, prompt: list[int]):
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._previous: int | None = None

    def _put(self, token: int) -> None:
        sys.stdout.write(self._decoder.decode(self._tokenizer.piece(token, self._previous)))
        sys.stdout.flush()
        self._previous = token

    def __call__(self, token: int, generated: bool) -> None:
        if generated:
            while self._prompt:
                self._put(self._prompt.pop(0))
            self._put(token)

    def close(self) -> None:
        sys.stdout.write(self._decoder.decode(b"", True) + "\n\n")
        sys.stdout.flush()


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


def _rows(predicted: list[int], made: Outcome, every: bool) -> list[tuple[str, str, str, str]]:
    """Lines (positions, predicted, measured, verdict); `every`: equal neighbours stay apart."""
    lines = [
        (p, m, "equal" if p == m else "DIFFERENT")
        for p, m in itertools.zip_longest(predicted, made.cycles, fillvalue=-1)
    ]
    if every:
        return [(str(i), f"{p:,}", f"{m:,}", v) for i, (p, m, v) in enumerate(lines)]
    out, at = [], 0
    for (p, m, verdict), group in itertools.groupby(lines):
        size = len(list(group))
        where = str(at) if size == 1 else f"{at}-{at + size - 1}"
        out.append((where, f"{p:,}", f"{m:,}", verdict))
        at += size
    if len(out) > 2 * ENDS + 1 and all(r[3] == "equal" for r in out):
        gap = len(out) - 2 * ENDS
        out = [*out[:ENDS], (f"... {gap} more ...", "", "", "equal"), *out[-ENDS:]]
    return out


def _report(program: Program, made: Outcome, facts: dict[str, Any], verbose: bool) -> None:
    predicted = facts["cycles_predicted"]
    columns = ("position", "cycles predicted", "cycles measured", "")
    show("", columns, _rows(predicted, made, verbose))
    total, count = sum(made.cycles), len(made.cycles)
    verdict = "equal for every token" if predicted == made.cycles else "DIFFERENT"
    rows = [
        ("program", f"{facts['model']} [{facts['program_hash']}]"),
        ("chip", program.chip.describe()),
        ("positions", f"{count} ({len(facts['prompt_tokens'])} of them prompt)"),
        ("cycles predicted / measured", f"{sum(predicted):,} / {total:,}: {verdict}"),
        ("cycles per token", f"{total / count:,.1f}"),
        (
            f"speed of this simulation ({facts['engine']})",
            f"{count / made.seconds:,.1f} simulated tokens/s, {total / made.seconds:,.0f} cycles/s",
        ),
    ]
    if "equal_sim" in facts:
        rows.append(("tokens and cycles of the sim engine", _word(facts["equal_sim"])))
    if "equal_memories" in facts:
        rows.append(("memories of the sim engine", _word(facts["equal_memories"])))
    say_line()
    for name, value in rows:
        say_line(f"{name:36} {value}")


def _word(equal: bool) -> str:
    return "equal" if equal else "DIFFERENT"


@click.command(short_help="Let a model write; compare predicted and measured cycles.")
@model_option
@chip_option
@click.option(
    "--engine",
    type=click.Choice(["sim", "rtl"]),
    default="sim",
    show_default=True,
    help="sim: numpy simulator; rtl: the Verilog under Verilator, checked against sim as well.",
)
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
    help="Follow uninitialised memory and overflow in sim; with rtl also compare both memories.",
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
    """Let a model write on a simulated chip, token by token, and compare every token's cycles.

    Without options our own model writes a story on the chip ulx3s-85f in the simulator. The run
    ends at the end of the story, after --tokens, or when the context is full. The exit code is 1 if
    a token took another number of cycles than predicted, or if the chip reported a fault.

    \b
    tidemill run --prompt "Tom had a red ball" --temperature 0.8 --seed 3
    tidemill run --engine rtl --tokens 20 -v
    tidemill run --engine rtl --tokens 2 --wave first.vcd --from 0 --to 2000
    """  # noqa: D301
    from tidemill.store import tokenizer_of

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
    printer = None if as_json else _Printer(words, list(start))
    if engine == "rtl":
        made = run_rtl(program, request, printer, waves)
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
        "fault": made.fault or None,
    }
    good = facts["cycles_predicted"] == made.cycles and not made.fault
    if engine == "rtl":
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
        _report(program, made, facts, verbose)
    if waves:
        note(f"waves written to {waves.path}; open them with gtkwave {waves.save_file}")
    if not good:
        reason = f"the chip reported a fault: {made.fault}" if made.fault else ""
        raise UserError(reason or "the run differs from its prediction")
