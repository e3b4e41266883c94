"""`tidemill run` on the numpy engine."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tidemill.program import load_program

Cli = Callable[..., Result]
RUN = ("run", "--model", "MODEL", "--chip", "CHIP")
#: Of the chip of these tests.
CONTEXT = 24


KEYS = {
    *("model", "chip", "engine", "chip_hash", "program_hash", "prompt_tokens", "tokens", "text"),
    *("cycles_predicted", "cycles", "equal", "seconds"),
}


def test_run_json(ok: Cli) -> None:
    result = ok(*RUN, "--prompt", "ab cab", "--json")
    facts = json.loads(result.stdout)
    assert set(facts) >= KEYS
    assert (facts["model"], facts["chip"], facts["engine"]) == ("rand", "my", "sim")
    assert facts["prompt_tokens"][0] == 1
    assert len(facts["prompt_tokens"]) > 1
    assert facts["cycles"] == facts["cycles_predicted"]
    assert facts["equal"] is True
    positions = len(facts["prompt_tokens"]) - 1 + len(facts["tokens"])
    assert len(facts["cycles"]) == positions <= CONTEXT
    assert positions == CONTEXT or facts["tokens"][-1] == 2
    assert facts["text"].startswith("ab cab")
    # the prompt's positions have no HEAD, and later ones attend to more
    assert facts["cycles"][0] < facts["cycles"][len(facts["prompt_tokens"]) - 1]
    assert json.loads(ok(*RUN, "--prompt", "ab cab", "--json").stdout)["tokens"] == facts["tokens"]


def test_run_prints_text_and_cycles(ok: Cli, folder: Path) -> None:
    facts = json.loads(ok(*RUN, "--prompt", "ab", "--tokens", "9", "--json").stdout)
    (folder / "prompt.txt").write_text("ab\n")
    for prompt in (("--prompt", "ab"), ("--prompt-file", "DIR/prompt.txt")):
        text = ok(*RUN, *prompt, "--tokens", "9").stdout
        assert text.startswith(facts["text"])
        assert "equal for every token" in text
        assert f"{sum(facts['cycles']):,} / {sum(facts['cycles']):,}" in text
        assert re.search(r"simulated tokens/s", text)
        assert "\x1b" not in text
    lines = ok(*RUN, "--tokens", "9", "-v").stdout.splitlines()
    shown = [line.split() for line in lines if re.match(r"\d+ +[\d,]+ +[\d,]+ +equal", line)]
    assert [int(s[0]) for s in shown] == list(range(len(shown)))
    assert all(s[1] == s[2] for s in shown)


def test_run_options_reach_the_chip(ok: Cli) -> None:
    def tokens(*args: str) -> Any:
        return json.loads(ok(*RUN, *args, "--json").stdout)["tokens"]

    assert len(tokens("--tokens", "3")) <= 3
    sampled = [tokens("--temperature", "0.9", "--seed", str(s)) for s in (1, 2, 1)]
    assert sampled[0] == sampled[2] != sampled[1]
    assert tokens("--check") == tokens()
    facts = json.loads(ok(*RUN, "--context", "7", "--json").stdout)
    assert len(facts["cycles"]) <= 7


def test_run_takes_a_program(ok: Cli, tide: Path) -> None:
    direct = json.loads(ok(*RUN, "--json").stdout)
    for more in ((), ("--chip", "CHIP")):
        facts = json.loads(ok("run", "--model", str(tide), *more, "--json").stdout)
        same = KEYS - {"seconds"}
        assert {k: facts[k] for k in same} == {k: direct[k] for k in same}


def test_a_checkpoint_with_its_tokenizer(
    ok: Cli, refused: Callable[..., str], folder: Path
) -> None:
    lone = folder / "lone"
    lone.mkdir(exist_ok=True)
    shutil.copy(folder / "rand" / "model.bin", lone / "net.bin")
    args = ("run", "--model", "DIR/lone/net.bin", "--chip", "CHIP", "--tokens", "1", "--json")
    assert refused(*args) == (
        f"model '{lone}/net.bin': there is no tokenizer '{lone}/tokenizer.bin'; "
        "give one with --tokenizer FILE"
    )
    facts = json.loads(ok(*args, "--tokenizer", "DIR/rand/tokenizer.bin").stdout)
    assert facts["model"] == "net"


def test_programs_are_cached(td: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_CACHE", str(folder / "other"))
    first = td(*RUN, "--tokens", "1", "--json")
    assert "quantising rand" in first.stderr
    files = list((folder / "other" / "programs").iterdir())
    assert [f.suffix for f in files] == [".tide"]
    assert td(*RUN, "--tokens", "1", "--json").stderr == ""
    files[0].write_bytes(files[0].read_bytes()[:-30])  # a damaged one is made again
    again = td(*RUN, "--tokens", "1", "--json")
    assert "quantising rand" in again.stderr
    assert json.loads(again.stdout)["tokens"] == json.loads(first.stdout)["tokens"]
    assert load_program(files[0])
    # a folder that cannot be written costs time only
    (folder / "blocked").write_text("")
    monkeypatch.setenv("TIDEMILL_CACHE", str(folder / "blocked"))
    assert td(*RUN, "--tokens", "1", "--json").exit_code == 0
