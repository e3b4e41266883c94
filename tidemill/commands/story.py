"""What `tidemill run` prints: the story as it comes, and the report under it."""

from __future__ import annotations

import codecs
import itertools
import sys
from typing import TYPE_CHECKING, Any

from tidemill.commands.common import say_line, show
from tidemill.commands.engines import Outcome
from tidemill.program import Program

if TYPE_CHECKING:
    from tidemill.model.tokenizer import Tokenizer

__all__ = ["Printer", "report"]

#: Tokens shown at each end of a run when not all are.
ENDS = 3


class Printer:
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
        """The next token."""
        if generated:
            while self._prompt:
                self._put(self._prompt.pop(0))
            self._put(token)

    def close(self) -> None:
        """The end, and an empty line."""
        sys.stdout.write(self._decoder.decode(b"", True) + "\n\n")
        sys.stdout.flush()


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


def report(program: Program, made: Outcome, facts: dict[str, Any], verbose: bool) -> None:
    """Print cycles predicted and measured, what ran, and how fast; verbose: every position."""
    predicted = facts["cycles_predicted"]
    columns = ("position", "cycles predicted", "cycles measured", "")
    show("", columns, _rows(predicted, made, verbose))
    total, count = sum(made.cycles), len(made.cycles)
    verdict = "equal for every token" if predicted == made.cycles else "DIFFERENT"
    clock = made.clock_hz
    if clock:
        speed = [
            (f"speed of the chip at {clock / 1e6:g} MHz", f"{count * clock / total:,.0f} tokens/s"),
            ("speed seen by the host", f"{count / made.seconds:,.1f} tokens/s"),
        ]
    else:
        text = (
            f"{count / made.seconds:,.1f} simulated tokens/s, {total / made.seconds:,.0f} cycles/s"
        )
        speed = [(f"speed of this simulation ({facts['engine']})", text)]
    rows = [
        ("program", f"{facts['model']} [{facts['program_hash']}]"),
        ("chip", program.chip.describe()),
        ("positions", f"{count} ({len(facts['prompt_tokens'])} of them prompt)"),
        ("cycles predicted / measured", f"{sum(predicted):,} / {total:,}: {verdict}"),
        ("cycles per token", f"{total / count:,.1f}"),
        *speed,
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
