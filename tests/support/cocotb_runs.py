"""Emitted Verilog under cocotb, in either simulator."""

from __future__ import annotations

from pathlib import Path

from cocotb_tools import runner

from tidemill_sim.verilator import MAKE_VARIABLES, WARNINGS

#: Compiled in half the time of a model for long runs.
QUICK = [*MAKE_VARIABLES, "OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1"]

TESTS = Path(__file__).parents[1]


class Verilator(runner.Verilator):
    """cocotb's runner with what the Python package's Verilator needs to compile.

    Only the ports of the top module can be seen: a model in which everything can be is slow.
    """

    def _build_command(self):
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        return [verilate, make + QUICK]


class Bench:
    """Verilog `text` with top module `top`, compiled in `folder` for `simulator`."""

    def __init__(self, text: str, top: str, ports: list[str], folder: Path, simulator: str):
        self._top, self._folder = top, folder
        self._runner = Verilator() if simulator == "verilator" else runner.get_runner(simulator)
        sources = [folder / f"{top}.v"]
        sources[0].write_text(text)
        arguments = []
        if simulator == "verilator":
            visible = "".join(f'public_flat_rw -module "{top}" -var "{p}"\n' for p in ports)
            (folder / "visible.vlt").write_text("`verilator_config\n" + visible)
            sources.insert(0, folder / "visible.vlt")
            arguments = ["--timing", *(f"-Wno-{name}" for name in WARNINGS)]
        self._runner.build(
            sources=sources,
            hdl_toplevel=top,
            build_dir=folder,
            build_args=arguments,
            timescale=("1ns", "1ps"),
            always=True,
            log_file=folder / "build.log",
        )

    def run(self, module: str, name: str, env: dict[str, str]) -> Path:
        """Run the cocotb tests of `module` whose names match `name`; the results file."""
        return self._runner.test(
            test_module=module,
            test_filter=name,
            hdl_toplevel=self._top,
            hdl_toplevel_lang="verilog",
            build_dir=self._folder,
            test_dir=self._folder,
            results_xml=str(self._folder / "results.xml"),
            extra_env={"PYTHONPATH": str(TESTS), "COCOTB_REWRITE_ASSERTION_FILES": "", **env},
            log_file=self._folder / "sim.log",
        )
