"""A model that takes a second, and ways to run a command on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tidemill.cli import cli
from tidemill.model.checkpoint import ModelConfig, random_checkpoint, save_checkpoint
from tidemill.model.tokenizer import save_tokenizer
from tidemill.program import load_program

VOCAB = 272
CONTEXT = 24
Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, programs and a cache that the tests of this folder share."""
    root = tmp_path_factory.mktemp("cli")
    model = root / "rand"
    model.mkdir()
    config = ModelConfig(
        dim=12, hidden=20, layers=2, heads=2, kv_heads=1, vocab=VOCAB, context=CONTEXT
    )
    save_checkpoint(random_checkpoint(config, seed=1), model / "model.bin")
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % b for b in range(256))]
    pieces += [
        b" ",
        b"a",
        b"b",
        b"c",
        b" a",
        b" b",
        b"ab",
        b" ab",
        b"ca",
        b"\xc3\xa9",
        b"bc",
        b"cab",
        b" c",
    ]
    save_tokenizer(model / "tokenizer.bin", pieces, [0.0] * 259 + [-float(i) for i in range(13)])
    (root / "my.toml").write_text('base = "tiny"\ncontext = 24\nmem_w_depth = 2048\n')
    return root


@pytest.fixture(autouse=True)
def _cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_CACHE", str(folder / "cache"))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def td(folder: Path) -> Cli:
    """Run a command with MODEL, CHIP and DIR replaced; see `folder`."""

    def run(*args: str) -> Result:
        words = {"MODEL": str(folder / "rand"), "CHIP": str(folder / "my.toml"), "DIR": str(folder)}
        given = [re.sub("MODEL|CHIP|DIR", lambda m: words[m[0]], a) for a in args]
        return CliRunner().invoke(cli, given, prog_name="tidemill")

    return run


@pytest.fixture
def ok(td: Cli) -> Cli:
    """The same, and it must succeed."""

    def run(*args: str) -> Result:
        result = td(*args)
        assert result.exit_code == 0, result.stderr
        return result

    return run


@pytest.fixture
def refused(td: Cli) -> Callable[..., str]:
    """The same, and it must be refused: nothing on standard output, the sentence is returned."""

    def run(*args: str, code: int = 1) -> str:
        result = td(*args)
        assert result.exit_code == code, (result.stdout, result.stderr)
        assert result.stdout == ""
        *before, sentence = result.stderr.splitlines()
        work = ("quantising", "compiling", "building", "generating", "the same")
        assert all(line.startswith(work) for line in before)
        assert "Traceback" not in result.stderr
        assert "bug" not in sentence
        return sentence.partition(": ")[2]

    return run


@pytest.fixture(scope="session")
def tide(folder: Path) -> Path:
    """A compiled program."""
    path = folder / "rand.tide"
    args = ["compile", str(folder / "rand"), "--chip", str(folder / "my.toml"), "-o", str(path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_CACHE", str(folder / "cache"))
        assert CliRunner().invoke(cli, args).exit_code == 0
    return path


@pytest.fixture
def fake_rtl(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An `rtl` engine that answers with the simulator's results, and can be told to differ."""
    rtl = pytest.importorskip("tidemill_sim.rtl")
    from tidemill_sim.engine import Machine

    told = SimpleNamespace(late=0, token=0, fault=None, byte=0, wave=None, program=None)

    class Engine:
        seconds = 1.0

        def __init__(self, chip: Any):
            self.chip = chip

        def build(self, *, waves: bool = False) -> None:
            pass

        def run(self, boot: Any, runs: Any, *, dump: bool, progress: Any, wave: Any) -> list[Any]:
            told.wave = wave
            program = load_program(told.program)
            assert list(boot) == list(program.boot_writes())
            machine = Machine(program)
            events = machine.run([1], 4)
            ends = np.cumsum([e.cycles for e in events])
            ends[-1] += told.late
            result = rtl.RunResult(finished=True, fault=told.fault)
            for e, end in zip(events, ends.tolist(), strict=True):
                last = int(end == ends[-1])
                token = e.token + told.token * last
                cycles = e.cycles + told.late * last
                result.tokens.append(rtl.RtlToken(token, e.generated, cycles, end))
                if progress:
                    progress(0, result.tokens[-1])
            result.mem_w, result.mem_a = machine.mem_w, machine.mem_a
            result.mem_a[0, 0] += told.byte
            return [result]

    monkeypatch.setattr(rtl, "RtlEngine", Engine)
    return told
