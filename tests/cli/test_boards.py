"""boards, constraints, fit, build, flash, doctor: what they print, refuse and return."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from support.fake_board import FakeBoard
from support.fake_tools import FakeTools, short_verilog
from support.terminal import Terminal
from tidemill.boards.catalog import BOARDS
from tidemill.boards.doctor import PACKAGES, PROGRAMS
from tidemill.boards.tools import TOOLS

Cli = Callable[..., Result]
CONSTRAINTS = Path(__file__).parents[2] / "constraints"

MINE = """
from tidemill.boards.board import PORTS, Board, Pin
from tidemill.boards.parts import PARTS
BOARD = Board(
    name="mine", title="My board", part=PARTS["LFE5U-25F"], package="CABGA256", speed="6",
    clock_hz=48_000_000, baud=3_000_000, mhz=(60, 48), loader=("-c", "ft2232"),
    usb=("0403", "6010"),
    pins={port: Pin(site) for port, site in zip(PORTS, "P6 R1 T2 T3 R4 T4 R5".split())},
)
"""
SMALL = """
base = "tiny"
lanes = 1
weight_streams = 1
mem_w_depth = 64
mem_a_depth = 64
act_depth = 64
acc_depth = 32
queue_depth = 16
tide_depth = 16
context = 8
"""
#: Holds the model of the tests, and fits a part with 56 block RAMs.
ROOMY = """
base = "tiny"
mem_w_depth = 2048
mem_a_depth = 512
queue_depth = 1024
tide_depth = 1024
context = 24
"""


@pytest.fixture
def fakes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTools:
    """Tools that answer at once, a board and a chip of one's own."""
    (folder / "mine.py").write_text(MINE)
    (folder / "small.toml").write_text(SMALL)
    (folder / "roomy.toml").write_text(ROOMY)
    return FakeTools(tmp_path, monkeypatch)


@pytest.fixture
def built(ok: Cli, fakes: FakeTools, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build for an own board."""
    short_verilog(monkeypatch)
    args = ("--board-file", "DIR/mine.py", "--chip", "DIR/small.toml", "-o", "DIR/built")
    ok("build", *args, "--freq", "60")
    return folder / "built"


def test_boards(ok: Cli) -> None:
    text = ok("boards").stdout
    facts = json.loads(ok("boards", "--json").stdout)["boards"]
    assert [b["name"] for b in facts] == [*BOARDS]
    for b in facts:
        assert re.search(rf"^{b['name']} .* {b['block_rams']} ", text, re.M)
    assert facts[0]["pins"]["clk"] == "G2"


def test_constraints_rewrites_the_folder(ok: Cli, folder: Path) -> None:
    files = json.loads(ok("constraints", "-o", "DIR/constraints", "--json").stdout)["files"]
    assert {Path(f).name for f in files} == {p.name for p in CONSTRAINTS.iterdir()}
    for path in CONSTRAINTS.iterdir():
        assert (folder / "constraints" / path.name).read_text() == path.read_text()


def test_constraints_of_one_board(ok: Cli, fakes: FakeTools, folder: Path) -> None:
    result = ok("constraints", "--board-file", "DIR/mine.py", "-o", "DIR/one")
    assert sorted(p.name for p in (folder / "one").iterdir()) == ["mine.lpf", "mine.sdc"]
    assert "mine.lpf" in result.stderr


def test_fit(ok: Cli, td: Cli, fakes: FakeTools) -> None:
    mine = ("fit", "--board-file", "DIR/mine.py", "--model", "MODEL")
    facts = json.loads(ok(*mine, "--chip", "DIR/roomy.toml", "--json").stdout)
    assert facts["fits"] is True
    assert [n["unit"] for n in facts["needs"]] == [
        *("block RAMs", "multipliers", "rows", "vectors", "words", "words")
    ]
    # the rows are those that the compiler takes
    compiled = json.loads(ok("compile", "MODEL", "--chip", "DIR/roomy.toml", "--json").stdout)
    assert facts["needs"][2]["needed"] == compiled["memory"]["MEM_W.0"]["needed"]
    assert facts["needs"][4]["needed"] == max(compiled["program_words"].values())
    assert facts["needs"][5]["needed"] == compiled["tide_words"]
    result = td(*mine, "--chip", "ulx3s-85f")
    assert result.exit_code == 1
    assert re.search(r"multipliers +TOO MUCH", result.stdout)
    assert "needs 198 block RAMs, 56 are there; chip ulx3s-85f on the LFE5U-25F needs 146 " in (
        result.stderr
    )


def test_fit_names_what_the_model_lacks(td: Cli, fakes: FakeTools) -> None:
    mine = ("fit", "--board-file", "DIR/mine.py", "--model", "MODEL")
    result = td(*mine, "--chip", "DIR/small.toml", "--context", "8")
    assert result.exit_code == 1
    assert re.search(r"each of 1 banks of MEM_W needs [\d,]+ rows, 64 are there", result.stderr)
    assert re.search(r"instruction queue \S+ needs [\d,]+ words, 16 are there", result.stderr)


def test_build(ok: Cli, built: Path) -> None:
    args = ("--board-file", "DIR/mine.py", "--chip", "DIR/small.toml", "-o", "DIR/built")
    result = ok("build", *args)
    assert re.search(r"^LUT +5 +24,288 +0 %", result.stdout, re.M)
    assert re.search(r"^60 +1 +router1 +1000\.00 +60\.00 +PASS", result.stdout, re.M)
    assert "PASS: clock 60,000,000 Hz, 3,000,000 baud" in result.stderr
    record = json.loads(ok("build", *args, "--json", "--seeds", "2", "--router", "both").stdout)
    assert len(record["attempts"]) == 4
    assert record == json.loads((built / "mine.json").read_text())


def test_a_build_that_fails_prints_its_numbers(
    td: Cli, fakes: FakeTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_verilog(monkeypatch)
    fakes.tell(default=40.0)
    args = ("--board-file", "DIR/mine.py", "--chip", "DIR/small.toml", "-o", "DIR/slow")
    result = td("build", *args)
    assert result.exit_code == 1
    assert re.search(r"^48 +1 +router1 +40\.00 +48\.00 +FAIL", result.stdout, re.M)
    assert "reaches 40.00 MHz, 48.00 MHz are needed" in result.stderr
    result = td("build", *args, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["timing"]["verdict"] == "FAIL"


def test_flash_dry_run(ok: Cli, built: Path, folder: Path) -> None:
    args = ("flash", "--board-file", "DIR/mine.py", "DIR/built", "--dry-run")
    words = ok(*args).stdout.split()
    assert words[1:] == ["-c", "ft2232", "--write-sram", str(built / "mine.bit")]
    command = json.loads(ok(*args, "--persist", "--json").stdout)["command"]
    assert command[1:] == ["-c", "ft2232", "--write-flash", str(built / "mine.bit")]


def test_flash(ok: Cli, built: Path, tmp_path: Path) -> None:
    loader = tmp_path / "openFPGALoader"
    loader.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    loader.chmod(0o755)
    result = ok("flash", "--board-file", "DIR/mine.py", "DIR/built")
    assert "loaded" in result.stderr
    assert (tmp_path / "called").read_text().split()[-1] == str(built / "mine.bit")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"part": "LFE5U-12F"}, "was built for the part LFE5U-12F, board mine has LFE5U-25F"),
        (
            {"sha256": "0" * 64},
            "mine.bit' is not the bitstream that .* describes: its SHA-256 begi",
        ),
        ({"timing": {"verdict": "FAIL"}}, "failed its timing"),
        ({"build_id": None}, "is not the .json file of a build"),
    ],
)
def test_flash_looks_at_the_record(
    refused: Callable[..., str], built: Path, change: dict[str, object], sentence: str
) -> None:
    record = built / "mine.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    text = refused("flash", "--board-file", "DIR/mine.py", "DIR/built", "--dry-run")
    assert re.search(sentence, text)


def test_flash_without_a_bitstream(refused: Callable[..., str], built: Path) -> None:
    (built / "mine.bit").unlink()
    args = ("--board-file", "DIR/mine.py", "DIR/built")
    assert "cannot read bitstream" in refused("flash", *args)
    (built / "mine.json").unlink()
    assert "cannot read build" in refused("flash", *args)
    assert "--persist needs --port: the ID is read back" in refused("flash", *args, "--persist")


def holding(built: Path, **changes: object) -> FakeBoard:
    """A board that holds the build, but for what changes in its record."""
    record = built / "mine.json"
    facts = json.loads(record.read_text())
    board = FakeBoard(facts["chip_hash"], lambda memory: [])
    identity = {"clock_hz": board.identity.clock_hz, "baud": 1_000_000}
    identity["build_id"] = f"{board.identity.build_id:016x}"
    record.write_text(json.dumps(facts | identity | changes))
    return board


@pytest.fixture
def flash(td: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`tidemill flash`, with an openFPGALoader that does nothing and a hand at the switch."""
    loader = tmp_path / "openFPGALoader"
    loader.write_text("#!/bin/sh\n")
    loader.chmod(0o755)
    monkeypatch.setattr("click.confirm", lambda text, **options: click.echo(text, err=True))
    return lambda *args: td("flash", "--board-file", "DIR/mine.py", "DIR/built", *args)


def test_flash_reads_the_id_back(flash: Callable[..., Result], built: Path) -> None:
    with Terminal(holding(built)) as terminal:
        result = flash("--persist", "--port", terminal.port)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"Switch the board off .*\ndone: mine holds build 0+b11d", result.stderr, re.S)


def test_flash_finds_another_build(flash: Callable[..., Result], built: Path) -> None:
    with Terminal(holding(built, build_id="0123456789abcdef")) as terminal:
        result = flash("--port", terminal.port, "--json")
    assert result.exit_code == 1
    assert "its build is 000000000000b11d, that of the build 0123456789abcdef" in result.stderr
    assert result.stdout == ""


def test_doctor(ok: Cli) -> None:
    text = ok("doctor").stdout
    assert f"at {sys.executable}" in text
    for name in (*TOOLS, *PACKAGES, *PROGRAMS, "openFPGALoader"):
        assert re.search(rf"^(ok\??|not tested|missing) +{re.escape(name)} ", text, re.M), name
    facts = json.loads(ok("doctor", "--json").stdout)
    assert {f["name"] for f in facts["tools"]} == {
        *TOOLS,
        *PACKAGES,
        *PROGRAMS,
        "openFPGALoader",
    }
    assert all(f["cost"] for f in facts["tools"])


REFUSED = {
    "build --board nope": "no board named 'nope'; boards are ulx3s-12f, ",
    "build": "give either --board, one of ulx3s-12f, ",
    "build --board icebreaker --board-file x.py": "give either --board, one of ",
    "build --board-file DIR/no.py": "cannot read board file 'DIR/no.py': No such file ",
    "build --board icebreaker": "board icebreaker has no named chip: give one with --chip",
    "build --board ulx3s-12f --chip nope": "no chip named 'nope'; named chips are ",
    "build --board ulx3s-12f -o DIR/my.toml/x": "cannot make the folder 'DIR/my.toml/x': Not a ",
    "constraints --board nope": "no board named 'nope'; boards are ",
    "constraints -o DIR/my.toml": "cannot make the folder 'DIR/my.toml': File exists",
    "fit --board nope": "no board named 'nope'; boards are ",
    "fit --board ulx3s-12f --model nope": "no model named 'nope'; named models are ",
    "flash --board nope": "no board named 'nope'; boards are ",
    "flash --board icebreaker": "the FPGA of board icebreaker cannot be loaded directly, only its ",
    "flash --board ulx3s-12f DIR/no": "cannot read build 'DIR/no/ulx3s-12f.json': No such",
    "doctor --board-file DIR/no.py": "cannot read board file 'DIR/no.py': No such file ",
    "verilog --board nope -o DIR/x": "no board named 'nope'; boards are ",
    "verilog --freq 50 -o DIR/x": "--freq needs --board",
    "verilog --board ulx3s-12f --freq 48 -o DIR/x": "board ulx3s-12f at 48 MHz: the ecp5 PLL ",
}


@pytest.mark.parametrize("line", REFUSED)
def test_refusals(refused: Callable[..., str], folder: Path, line: str) -> None:
    assert refused(*line.split()).startswith(REFUSED[line].replace("DIR", str(folder)))
    assert not (folder / "x").exists()


def test_verilog_of_a_board(ok: Cli, fakes: FakeTools, folder: Path) -> None:
    """The emitted text is the one that `build` gives to yosys."""
    args = ("--board-file", "DIR/mine.py", "--chip", "DIR/small.toml", "-o")
    ok("build", *args, "DIR/b", "--freq", "60")
    facts = json.loads(ok("verilog", *args, "DIR/v", "--freq", "60", "--json").stdout)
    text = (folder / "v/tidemill_top.v").read_bytes()
    assert text == (folder / "b/work/60MHz/tidemill_top.v").read_bytes()
    assert facts["sha256"] == hashlib.sha256(text).hexdigest()
    assert (facts["clock_hz"], facts["baud"]) == (60_000_000, 3_000_000)
    assert facts == json.loads((folder / "v/tidemill_top.json").read_text())
    assert (folder / "v/mine.lpf").exists()
