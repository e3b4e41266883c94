"""compile, asm, disasm, chips, verilog, eval: what they print and write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tidemill.chip import CHIPS
from tidemill.program import load_program

Cli = Callable[..., Result]


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
        "give one with --text FILE: UTF-8, stories that the model was not trained on, "
        "blank lines between them"
    )
    (folder / "text.txt").write_text("ab cab ab\n\nbc a b\n\nca ca ab\n")
    facts = json.loads(ok(*args, "--text", "DIR/text.txt", "--json").stdout)
    keys = {"bits_per_byte_float", "bits_per_byte", "top1_agreement", "loss_percent"}
    assert set(facts) >= keys
    assert facts["bits_per_byte"] == pytest.approx(facts["bits_per_byte_float"], rel=0.1)
    assert "bits per byte, integer" in ok(*args, "--text", "DIR/text.txt").stdout
