"""What is refused, with which sentence; signals and pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidemill import store
from tidemill.cli import cli

Cli = Callable[..., Result]


REFUSED = {
    "run --chip nope": "no chip named 'nope'; named chips are tiny, ulx3s-85f, ",
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
    "run --model TIDE --engine board": "--engine board needs --port; ",
    "run --model TIDE --port /dev/x": "--port needs --engine board, not sim",
    "run --model TIDE --engine virtual-board --baud 9600": (
        "--baud needs --engine board, not virtual-board"
    ),
    "run --model TIDE --engine rtl --bitstream x": "--bitstream needs --engine board, not rtl",
    "run --model TIDE --verify": "--verify needs --engine board or virtual-board, not sim",
    "run --model TIDE --engine board --port DIR/no": "there is no port 'DIR/no'; ",
    "run --model TIDE --engine board --port DIR/cut.tide": (
        "cannot open 'DIR/cut.tide' at 3000000 baud as a serial port: "
    ),
    "run --model TIDE --engine board --port DIR/no --bitstream DIR/no.json": (
        "cannot read build 'DIR/no.json': No such file or directory"
    ),
    "run --model TIDE --engine board --port DIR/no --bitstream DIR/cut.tide": (
        "'DIR/cut.tide' is not the .json file of a build"
    ),
    "run --model TIDE --engine board --port DIR/no --wave w.vcd": (
        "--wave needs --engine rtl; the board engine has no signals"
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
    "verilog --chip DIR/ice.toml --primitives -o DIR/x": (
        "chip 'ice' is of family ice40, which has no primitives"
    ),
    "eval --model TIDE": "eval compares with the float model, which a .tide program does not hold",
    "eval --model MODEL --text DIR/no.txt": "cannot read stories DIR/no.txt: No such file or ",
    "eval --model MODEL --text DIR/long.txt": "DIR/long.txt holds 1 stories, 60 are needed",
    "bench --model TIDE --tokens 0": "the number of tokens must be at least 1, not 0",
}

MISTYPED = {
    "runn": "no command 'runn'; commands are run, compile, eval, bench, selftest, chips, ",
    "run --engine fpga": "Invalid value for '--engine': 'fpga' is not one of 'sim', 'rtl', 'bo",
    "run --baud 0": "Invalid value for '--baud': 0 is not in the range x>=1.",
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
    (folder / "ice.toml").write_text('base = "tiny"\nfamily = "ice40"\n')
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
        str(Path(__file__).resolve().parents[2] / p) for p in (".", "hdl", "sim")
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
