"""The FPGA tools of the `dev` extra as fixtures.

They are WebAssembly: the first start compiles them (about a minute), and they do not see the
machine's /tmp. So they run in the folder of their files and get bare names.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tool():
    """`tool(name, *arguments, folder)`: run `yowasp-<name>`; RuntimeError if it fails."""

    def run(name, *arguments, folder):
        program = Path(sys.executable).with_name(f"yowasp-{name}")
        if not program.exists():
            pytest.skip(f"no {program.name} beside {sys.executable}: pip install -e '.[dev]'")
        done = subprocess.run(
            [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
            raise RuntimeError(f"{program.name} failed in {folder}:\n{tail}")

    return run


@pytest.fixture(scope="session")
def synthesise(tool):
    """`synthesise(text, top, folder)`: Verilog for an ECP5; cell counts and the log.

    Leaves the netlist `{top}.json` in `folder`. Two to five minutes for a large chip. `purge`
    drops unused names before the LUTs are mapped: yosys 0.70 stops at an assertion in abc9 with
    some designs otherwise (docs/pitfalls.md).
    """

    def run(text, top, folder, purge=False):
        (folder / f"{top}.v").write_text(text)
        synth = f"tee -q -a {top}.log synth_ecp5 -top {top}"
        halves = (f"{synth} -run :map_luts", "opt_clean -purge", f"{synth} -run map_luts:")
        script = (
            f"read_verilog {top}.v",
            *(halves if purge else (synth,)),
            f"write_json {top}.json",
            f"tee -q -o {top}.stat stat -json",
        )
        tool("yosys", "-q", "-p", "; ".join(script), folder=folder)
        stat = json.loads((folder / f"{top}.stat").read_text())
        return stat["design"]["num_cells_by_type"], (folder / f"{top}.log").read_text()

    return run
