"""`tidemill run` and `bench` with engine `rtl`: a stand-in, the real one has tests of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

Cli = Callable[..., Result]


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
