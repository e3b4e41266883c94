"""The command line: what it prints, what it refuses and how, on a model that takes a second."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tidemill import store
from tidemill.chip import CHIPS
from tidemill.cli import COMMANDS, cli
from tidemill.model.checkpoint import ModelConfig, random_checkpoint, save_checkpoint
from tidemill.model.tokenizer import save_tokenizer
from tidemill.program import load_program

VOCAB = 272
CONTEXT = 24
Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, programs and a cache that the tests of this file share."""
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
    """Run a command with MODEL, CHIP and DIR replaced; the results of this file's folder."""

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
        assert all(
            line.startswith(("quantising", "compiling", "building", "the same")) for line in before
        )
        assert "Traceback" not in result.stderr
        assert "bug" not in sentence
        return sentence.partition(": ")[2]

    return run


@pytest.fixture(scope="module")
def tide(folder: Path) -> Path:
    """A compiled program."""
    path = folder / "rand.tide"
    args = ["compile", str(folder / "rand"), "--chip", str(folder / "my.toml"), "-o", str(path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_CACHE", str(folder / "cache"))
        assert CliRunner().invoke(cli, args).exit_code == 0
    return path


RUN = ("run", "--model", "MODEL", "--chip", "CHIP")


# Help --------------------------------------------------------------------------------------------


def test_help_names_every_command(ok: Cli) -> None:
    text = ok("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", text, re.M), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(ok: Cli, name: str) -> None:
    text = ok(name, "--help").stdout
    assert text.startswith(f"Usage: tidemill {name} ")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "\b" not in text


def test_version(ok: Cli) -> None:
    assert re.fullmatch(r"tidemill, version \d+\.\d+\.\d+\n", ok("--version").stdout)


def test_no_command_shows_the_help(td: Cli) -> None:
    result = td()
    assert result.exit_code == 2
    assert "Commands:" in result.output


# run ---------------------------------------------------------------------------------------------

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


# run, engine rtl (a stand-in: the real one has tests of its own) ----------------------------------


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


RTL = ("--engine", "rtl", "--tokens", "4", "--check")


def test_rtl_is_compared_with_sim(ok: Cli, fake_rtl: SimpleNamespace, tide: Path) -> None:
    fake_rtl.program = tide
    facts = json.loads(ok("run", "--model", str(tide), *RTL, "--json").stdout)
    assert facts["equal"] is facts["equal_sim"] is facts["equal_memories"] is True
    assert facts["cycles"] == facts["cycles_predicted"]
    text = ok("run", "--model", str(tide), *RTL).stdout
    assert re.search(r"tokens and cycles of the sim engine +equal\n", text)
    assert re.search(r"memories of the sim engine +equal\n", text)


@pytest.mark.parametrize(
    ("what", "value", "keys"),
    [
        ("late", 1, {"equal", "equal_sim"}),
        ("token", 1, {"equal", "equal_sim"}),
        ("byte", 1, {"equal", "equal_memories"}),
    ],
)
def test_a_difference_is_an_error(
    td: Cli, fake_rtl: SimpleNamespace, tide: Path, what: str, value: int, keys: set[str]
) -> None:
    fake_rtl.program = tide
    setattr(fake_rtl, what, value)
    result = td("run", "--model", str(tide), *RTL, "--json")
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert {k for k in ("equal", "equal_sim", "equal_memories") if not facts[k]} == keys
    differ = [a - b for a, b in zip(facts["cycles"], facts["cycles_predicted"], strict=True)]
    assert differ[-1] == (value if what == "late" else 0)
    assert result.stderr.splitlines()[-1] == "tidemill: the run differs from its prediction"
    text = td("run", "--model", str(tide), *RTL).stdout
    assert "DIFFERENT" in text


def test_a_fault_is_an_error(td: Cli, fake_rtl: SimpleNamespace, tide: Path) -> None:
    from tidemill_sim.rtl import RtlFault

    fake_rtl.program, fake_rtl.fault = tide, RtlFault(kind=2, queue=7, cycle=99)
    result = td("run", "--model", str(tide), *RTL, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["fault"] == "COLLISION in MEMA.R, cycle 99 of the run"
    assert result.stderr.splitlines()[-1] == (
        "tidemill: the chip reported a fault: COLLISION in MEMA.R, cycle 99 of the run"
    )


def test_waves(ok: Cli, fake_rtl: SimpleNamespace, tide: Path, folder: Path) -> None:
    fake_rtl.program = tide
    args = ("run", "--model", str(tide), *RTL, "--wave", "DIR/w.vcd", "--from", "5", "--to", "9")
    assert "w.gtkw" in ok(*args).stderr
    wave = fake_rtl.wave
    assert (wave.path, wave.first, wave.last) == (folder / "w.vcd", 5, 9)


def test_bench(ok: Cli, fake_rtl: SimpleNamespace, tide: Path) -> None:
    fake_rtl.program = tide
    args = ("bench", "--model", str(tide), "--engine", "both", "--tokens", "4")
    facts = json.loads(ok(*args, "--json").stdout)
    assert facts["command"] == f"tidemill bench --model {tide} --engine both --tokens 4"
    sim, rtl = facts["results"]
    assert (sim["engine"], rtl["engine"]) == ("sim", "rtl")
    assert sim["cycles"] == rtl["cycles"]
    assert rtl["cycles_per_second"] == rtl["cycles"]
    assert sim["tokens_per_second"] > 0
    assert ok(*args).stdout.startswith("tidemill bench --model ")


# Other commands ----------------------------------------------------------------------------------


def test_compile_json(ok: Cli, tide: Path) -> None:
    facts = json.loads(ok("compile", "MODEL", "--chip", "CHIP", "--json").stdout)
    program = load_program(tide)
    assert facts["program_hash"] == program.hash
    assert facts["cycles"] == {"1": program.cycles(0, True)}
    assert set(facts["roofline"]) == set(facts["roofline_fraction"]) == {"1"}
    assert list(facts["program_words"].values()) == [len(w) for w in program.queues]
    assert all(m["needed"] <= m["available"] for m in facts["memory"].values())
    assert json.loads(ok("compile", str(tide), "--json").stdout) == facts


def test_compile_prints_a_report(ok: Cli, tide: Path) -> None:
    text = ok("compile", "MODEL", "--chip", "CHIP").stdout
    for part in ("roofline", "waited for", "busy in a layer", "banks of MEM_W", "block RAMs"):
        assert part in text
    assert "\x1b" not in text


def test_assembler_round_trip(ok: Cli, tide: Path, folder: Path) -> None:
    ok("compile", "MODEL", "--chip", "CHIP", "-o", "DIR/b.tide", "--listing", "DIR/b.tasm")
    assert (folder / "b.tide").read_bytes() == tide.read_bytes()
    text = ok("disasm", "DIR/b.tide").stdout
    assert text == (folder / "b.tasm").read_text()
    ok("disasm", "DIR/b.tide", "-o", "DIR/c.tasm")
    assert (folder / "c.tasm").read_text() == text
    ok("asm", "DIR/c.tasm", "--image", "DIR/b.tide", "-o", "DIR/d.tide")
    assert (folder / "d.tide").read_bytes() == tide.read_bytes()
    ok("asm", "DIR/c.tasm", "-o", "DIR/bare.tide")
    assert load_program(folder / "bare.tide").queues == load_program(tide).queues


def test_chips(ok: Cli) -> None:
    text = ok("chips").stdout
    assert all(name in text for name in CHIPS)
    listed = json.loads(ok("chips", "--json").stdout)["chips"]
    assert [c["name"] for c in listed] == list(CHIPS)
    one = json.loads(ok("chips", "ulx3s-85f", "--json").stdout)
    assert one["block_rams"] == CHIPS["ulx3s-85f"].block_rams()
    assert one["chip_hash"] == CHIPS["ulx3s-85f"].hash
    assert "208 in an LFE5U-85F" in ok("chips", "ulx3s-85f").stdout
    assert json.loads(ok("chips", "CHIP", "--json").stdout)["mem_w_depth"] == 2048


def test_verilog(ok: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tidemill_hdl.verilog

    monkeypatch.setattr(
        tidemill_hdl.verilog, "generate", lambda chip, primitives: f"module {chip.name}"
    )
    ok("verilog", "--chip", "CHIP", "-o", "DIR/v/w")
    assert (folder / "v" / "w" / "tidemill.v").read_text() == "module my"
    facts = json.loads((folder / "v" / "w" / "tidemill.json").read_text())
    assert facts["chip"]["mem_w_depth"] == 2048
    again = json.loads(ok("verilog", "--chip", "CHIP", "-o", "DIR/v/w", "--json").stdout)
    assert again == facts


def test_eval(ok: Cli, refused: Callable[..., str], folder: Path) -> None:
    args = ("eval", "--model", "MODEL", "--stories", "3", "--tokens", "12")
    assert refused(*args) == (
        f"model '{folder}/rand' comes without a text ({folder}/rand/eval.txt); "
        "give one with --text FILE"
    )
    (folder / "text.txt").write_text("ab cab ab\n\nbc a b\n\nca ca ab\n")
    facts = json.loads(ok(*args, "--text", "DIR/text.txt", "--json").stdout)
    keys = {"bits_per_byte_float", "bits_per_byte", "top1_agreement", "loss_percent"}
    assert set(facts) >= keys
    assert facts["bits_per_byte"] == pytest.approx(facts["bits_per_byte_float"], rel=0.1)
    assert "bits per byte, integer" in ok(*args, "--text", "DIR/text.txt").stdout


# Refusals ----------------------------------------------------------------------------------------

REFUSED = {
    "run --chip nope": "no chip named 'nope'; named chips are tiny, ulx3s-85f, or give a ",
    "run --chip DIR/no.toml": "cannot read chip file 'DIR/no.toml': No such file or directory",
    "run --chip DIR/bad.toml": "chip file 'DIR/bad.toml' is not valid TOML: ",
    "run --chip DIR/odd.toml": "chip 'odd': lanes must be a power of two from 1 to 64, not 3",
    "run --chip DIR/key.toml": "chip file 'DIR/key.toml': unknown key 'lane'; known keys are ",
    "run --model nope": "no model named 'nope'; named models are ",
    "run --model DIR/no.bin": "there is no model file 'DIR/no.bin'",
    "run --model DIR": "the model folder 'DIR' holds no model.bin",
    "run --model DIR/cut.bin": "model DIR/cut.bin is truncated: its header needs ",
    "run --model DIR/my.toml --tokenizer DIR/my.toml": (
        "DIR/my.toml is not a llama2.c version 0 file: "
    ),
    "run --model MODEL --tokenizer DIR/cut.bin": "tokenizer 'DIR/cut.bin'",
    "run --model MODEL --tokenizer DIR/no.bin": (
        "model 'MODEL': there is no tokenizer 'DIR/no.bin'"
    ),
    "run --model MODEL --context 25": (
        "the context must be from 1 to 24 (chip 192, model 24), not 25"
    ),
    "run --model MODEL --context 0": "the context must be from 1 to 24 ",
    "run --model MODEL --chip DIR/few.toml": (
        "the vocabulary has 272 tokens, this chip numbers 270 (vocab)"
    ),
    "run --model MODEL --chip DIR/low.toml": "MEM_W needs ",
    "run --model DIR/no.tide": "cannot read program 'DIR/no.tide': No such file or directory",
    "run --model DIR/cut.tide": "DIR/cut.tide: not an intact .tide program ",
    "run --model TIDE --chip tiny": (
        "TIDE was compiled for my [HASH]: 4 lanes x 2 weight streams, context 24, MEM_W 2048 rows, "
        "MEM_A 4096 vectors, not for tiny [HASH]: 4 lanes x 2 weight streams, context 256, "
    ),
    "run --model TIDE --context 8": (
        "TIDE was compiled for a context of 24, not of 8; compile the model again"
    ),
    "run --model TIDE --tokens 0": "the number of tokens must be at least 1, not 0",
    "run --model TIDE --tokens -3": "the number of tokens must be at least 1, not -3",
    "run --model TIDE --seed -1": "the seed must be from 0 to 4294967295, not -1",
    "run --model TIDE --seed 4294967296": "the seed must be from 0 to 4294967295, not 4294967296",
    "run --model TIDE --temperature -1": "the temperature must be from 0 to ",
    "run --model TIDE --temperature nan": "the temperature must be from 0 to ",
    "run --model TIDE --temperature inf": "the temperature must be from 0 to ",
    "run --model TIDE --prompt-file DIR/no.txt": (
        "cannot read prompt file 'DIR/no.txt': No such file or directory"
    ),
    "run --model TIDE --prompt-file DIR": "cannot read prompt file 'DIR': Is a directory",
    "run --model TIDE --prompt-file DIR/cut.tide": "prompt file 'DIR/cut.tide' is not UTF-8 text",
    "run --model TIDE --prompt-file DIR/long.txt": (
        "the prompt has 52 tokens, the context of this program holds 24"
    ),
    "run --model TIDE --prompt a --prompt-file b": "--prompt and --prompt-file exclude each other",
    "run --model TIDE --wave w.fst": "--wave needs --engine rtl; the sim engine has no signals",
    "run --model TIDE --from 3": "--from and --to choose the cycles of --wave, which is not given",
    "run --model TIDE --engine rtl --wave w.vcd --from 9 --to 3": "there are no cycles from 9 to 3",
    "run --model TIDE --engine rtl --wave w.vcd --from -1": "there are no cycles from -1 to 1999",
    "run --model TIDE --engine rtl --wave w.ghw": (
        "waves are written as .vcd or .fst, not as 'w.ghw'"
    ),
    "run --model TIDE --engine rtl --wave w.fst": (
        "writing 'w.fst' needs vcd2fst of GTKWave on PATH (Debian: apt install gtkwave); "
        ".vcd needs nothing"
    ),
    "run --model TIDE --engine rtl --wave DIR/x/w.vcd": (
        "cannot write 'DIR/x/w.vcd': its folder does not exist"
    ),
    "compile TIDE -o DIR/x/y.tide": "cannot write 'DIR/x/y.tide': No such file or directory",
    "compile TIDE --listing DIR": "cannot write 'DIR': Is a directory",
    "compile DIR/empty.tide": (
        "DIR/empty.tide says nothing about its model, so there is nothing to report"
    ),
    "run --model DIR/empty.tide": (
        "the program carries no tokenizer; make it with `tidemill compile`, or assemble it with "
        "the --image of one that was"
    ),
    "disasm DIR/no.tide": "cannot read program 'DIR/no.tide': No such file or directory",
    "asm DIR/no.tasm -o DIR/x.tide": "cannot read 'DIR/no.tasm': No such file or directory",
    "asm DIR/cut.tide -o DIR/x.tide": "'DIR/cut.tide' is not UTF-8 text",
    "asm DIR/bad.tasm --image TIDE -o DIR/x.tide": "DIR/bad.tasm: line 2: no queue 'X'; there ",
    "asm DIR/bad.tasm --image DIR/no.tide -o DIR/x.tide": "cannot read program 'DIR/no.tide': ",
    "asm DIR/my.tasm --image TIDE -o DIR/x/y.tide": "cannot write 'DIR/x/y.tide': No such file ",
    "chips nope": "no chip named 'nope'; named chips are ",
    "verilog --chip nope -o DIR/x": "no chip named 'nope'; named chips are ",
    "verilog --chip tiny -o DIR/my.toml": "cannot make the folder 'DIR/my.toml': File exists",
    "verilog --chip tiny --primitives -o DIR/x": (
        "chip 'tiny' is of family generic, which has no primitives"
    ),
    "eval --model TIDE": "eval compares with the float model, which a .tide program does not hold",
    "eval --model MODEL --text DIR/no.txt": "cannot read stories DIR/no.txt: No such file or ",
    "eval --model MODEL --text DIR/long.txt": "DIR/long.txt holds 1 stories, 60 are needed",
    "bench --model TIDE --tokens 0": "the number of tokens must be at least 1, not 0",
}

MISTYPED = {
    "runn": "no command 'runn'; commands are run, compile, eval, bench, chips, verilog, asm, ",
    "run --engine fpga": "Invalid value for '--engine': 'fpga' is not one of 'sim', 'rtl'.",
    "run --tokens many": "Invalid value for '--tokens': 'many' is not a valid integer.",
    "run --temperature hot": "Invalid value for '--temperature': 'hot' is not a valid float.",
    "run --seed 1.5": "Invalid value for '--seed': '1.5' is not a valid integer.",
    "run --speed 3": "No such option",
    "run --prompt": "Option '--prompt' requires an argument.",
    "run story": "Got unexpected extra argument (story)",
    "asm DIR/bad.tasm": "Missing option '-o'.",
    "disasm": "Missing argument 'FILE.TIDE'.",
    "verilog --chip tiny": "Missing option '-o'.",
    "eval --stories 0": "Invalid value for '--stories': 0 is not in the range x>=1.",
    "--bogus": "No such option",
}


@pytest.fixture(scope="module")
def bad_files(folder: Path, tide: Path) -> None:
    """Files of the refusals below."""
    model, program = (folder / "rand" / "model.bin").read_bytes(), tide.read_bytes()
    (folder / "cut.bin").write_bytes(model[: len(model) // 2])
    (folder / "cut.tide").write_bytes(program[: len(program) // 2])
    (folder / "bad.toml").write_text("base = tiny")
    (folder / "odd.toml").write_text('base = "tiny"\nlanes = 3')
    (folder / "key.toml").write_text('base = "tiny"\nlane = 4')
    (folder / "few.toml").write_text('base = "tiny"\nvocab = 270')
    (folder / "low.toml").write_text('base = "tiny"\nmem_w_depth = 64')
    (folder / "long.txt").write_text("ba" * 50)
    (folder / "bad.tasm").write_text("; nothing\n.queue X\n")
    assert (
        CliRunner().invoke(cli, ["disasm", str(tide), "-o", str(folder / "my.tasm")]).exit_code == 0
    )
    args = ["asm", str(folder / "my.tasm"), "-o", str(folder / "empty.tide")]
    assert CliRunner().invoke(cli, args).exit_code == 0


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize("command", REFUSED)
def test_refusals(
    refused: Callable[..., str],
    folder: Path,
    tide: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.chdir(folder)
    sentence = refused(*(a.replace("TIDE", str(tide)) for a in command.split()))
    plain = sentence.replace(str(tide), "TIDE").replace(str(folder / "rand"), "MODEL")
    plain = re.sub(r"\[[0-9a-f]{16}\]", "[HASH]", plain.replace(str(folder), "DIR"))
    assert plain.startswith(REFUSED[command]), plain


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize("command", MISTYPED)
def test_mistyped_commands(refused: Callable[..., str], command: str) -> None:
    assert refused(*command.split(), code=2).startswith(MISTYPED[command])


def test_a_wheel_has_no_models(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MODELS", Path("/nowhere/models"))
    assert refused("run") == (
        "no model named 'td260k': this installation of tidemill has no folder models/ beside it; "
        "run from a source checkout, or give a folder or a .bin file"
    )


def test_a_missing_simulator_package(
    refused: Callable[..., str], tide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tidemill_sim.rtl", "tidemill_sim.verilator"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "cocotb_tools", None)
    assert refused("run", "--model", str(tide), "--engine", "rtl") == (
        "the rtl engine needs the Python package cocotb_tools: pip install 'tidemill[sim]'"
    )


def test_a_missing_tool(
    refused: Callable[..., str], tide: Path, fake_rtl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tidemill_sim.rtl as rtl

    def build(self: Any, *, waves: bool = False) -> None:
        raise rtl.SimulatorError("the rtl engine needs g++ on PATH (Debian: apt install g++)")

    monkeypatch.setattr(rtl.RtlEngine, "build", build)
    assert refused("run", "--model", str(tide), "--engine", "rtl").startswith(
        "the rtl engine needs g++ on PATH"
    )


def test_a_bug_is_one_line_too(td: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: str) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tidemill.commands.chips.load_chip", broken)
    result = td("chips", "tiny")
    assert result.exit_code == 1
    assert result.stderr == (
        "tidemill: this is a bug, please report it: KeyError: 'x' "
        "(TIDEMILL_TRACEBACK=1 shows where)\n"
    )
    monkeypatch.setenv("TIDEMILL_TRACEBACK", "1")
    assert isinstance(td("chips", "tiny").exception, KeyError)


# Signals and pipes -------------------------------------------------------------------------------


def test_interrupt_in_a_command(td: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(spec: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidemill.commands.chips.load_chip", interrupted)
    result = td("chips", "tiny")
    assert result.exit_code == 130
    assert result.output == "tidemill: interrupted\n"


def _start(*args: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join(
        str(Path(__file__).resolve().parents[1] / p) for p in (".", "hdl", "sim")
    )
    return subprocess.Popen(
        [sys.executable, "-m", "tidemill.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )


def test_a_closed_pipe_is_no_error_message(tide: Path) -> None:
    with _start("disasm", str(tide)) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == ""
