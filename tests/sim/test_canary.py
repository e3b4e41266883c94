"""The canary: a cocotb test that fails, crashes, quits or does not exist must turn the suite red.

cocotb has had several ways to end with exit code 0 after a failure. If one of these tests fails, no
green RTL test means anything.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

# The builds are shared, so one process of a parallel run takes them all.
pytestmark = pytest.mark.xdist_group("canary")

TIMESCALE = ("1ns", "1ps")

VERILOG = """
module canary (input clk, input [7:0] d, output reg [7:0] q);
  initial q = 0;
  always @(posedge clk) q <= d;
endmodule
"""

BENCH = """
import os

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge


async def pass_through(dut, value):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.d.value = value
    await RisingEdge(dut.clk)
    await ReadOnly()
    return int(dut.q.value)


@cocotb.test()
async def right(dut):
    assert await pass_through(dut, 7) == 7


@cocotb.test()
async def wrong(dut):
    assert await pass_through(dut, 7) == 8


@cocotb.test()
async def raises(dut):
    await pass_through(dut, 7)
    raise RuntimeError("on purpose")


@cocotb.test()
async def quits(dut):
    await pass_through(dut, 7)
    os._exit(0)


@cocotb.test()
async def no_signal(dut):
    await RisingEdge(dut.never)


@cocotb.test(timeout_time=200, timeout_unit="ns")
async def too_late(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    while True:
        await RisingEdge(dut.clk)
"""


@pytest.fixture(scope="module")
def run(simulator, tmp_path_factory):
    """Run one named cocotb test; returns the results file, as the runner does."""
    # One build serves all tests: it is what takes the time.
    folder = tmp_path_factory.mktemp(f"canary_{simulator}")
    (folder / "canary.v").write_text(VERILOG)
    (folder / "canary_bench.py").write_text(BENCH)
    runner = get_runner(simulator)
    runner.build(
        sources=[folder / "canary.v"],
        hdl_toplevel="canary",
        build_dir=folder / "build",
        timescale=TIMESCALE,
        always=True,
        log_file=folder / "build.log",
    )

    def test(name: str, module: str = "canary_bench") -> Path:
        return runner.test(
            hdl_toplevel="canary",
            test_module=module,
            testcase=name,
            build_dir=folder / "build",
            test_dir=folder,
            timescale=TIMESCALE,
            log_file=folder / "test.log",
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield test


def test_success_is_reported(run, passed):
    passed(run("right"), tests=1)


@pytest.mark.parametrize("name", ["wrong", "raises", "no_signal", "too_late"])
def test_failure_is_reported(run, name):
    with pytest.raises(SystemExit) as end:
        run(name)
    assert end.value.code not in (0, None)


def test_simulator_that_quits_without_results_is_reported(run):
    # Its exit code is 0, and so is the runner's: pytest counts that as a failure, a shell does not.
    with pytest.raises(SystemExit):
        run("quits")


def test_bench_that_does_not_exist_is_reported(run):
    with pytest.raises(SystemExit):
        run("right", module="no_such_bench")


def test_no_test_at_all_is_no_success(run, passed):
    # A name that matches nothing leaves the runner content: only the count tells.
    results = run("nosuch")
    assert get_results(results) == (0, 0)
    with pytest.raises(AssertionError, match=r"0 cocotb tests ran, at least 1 should have"):
        passed(results)


def test_results_file_that_is_missing_is_an_error(tmp_path, passed):
    with pytest.raises(RuntimeError, match="terminated abnormally"):
        passed(tmp_path / "results.xml")


@pytest.mark.parametrize("code", ["0", "1", "None"])
def test_exit_from_a_test_is_a_failure(tmp_path, code):
    """What the runner does on failure, `sys.exit`, is red in pytest whatever the code."""
    path = tmp_path / "test_inner.py"
    path.write_text(f"import sys\n\n\ndef test_leaves():\n    sys.exit({code})\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 failed" in done.stdout
