"""One cache directory; the builds in it. Programs in it are tested with `tidemill run`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidemill.cache import cache_dir


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_variable(cache: Path) -> None:
    assert cache_dir() == cache


@pytest.mark.parametrize("value", [None, ""])
def test_default(value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if value is None:
        monkeypatch.delenv("TIDEMILL_CACHE", raising=False)
    else:
        monkeypatch.setenv("TIDEMILL_CACHE", value)
    assert cache_dir() == tmp_path / ".cache" / "tidemill"


@pytest.mark.rtl
def test_builds(cache: Path, verilator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second build with the same text compiles nothing; the compiler proper is left out."""
    from tidemill_sim import verilator as builder

    compiled: list[str] = []

    def fake(folder: Path, verilog: str, *args: object, **more: object) -> None:
        compiled.append(verilog)
        (folder / "verilated.o").touch()

    monkeypatch.setattr(builder, "_compile", fake)
    one, again, other = (builder.build(text) for text in ("one", "one", "other"))
    assert compiled == ["one", "other"]
    assert one.folder == again.folder != other.folder
    assert one.folder.parent == cache / "verilator"
    shutil.rmtree(one.folder)
    builder.build("one")
    assert compiled == ["one", "other", "one"]
