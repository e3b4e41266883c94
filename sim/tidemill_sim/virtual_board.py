"""The full board top in Verilator, its UART a pseudo-terminal: a board for whoever has none.

`benches/board.cpp` moves bytes between terminal and pins and says when the clock runs. A bit takes
`DIVISOR` clock cycles, few, so that loading a program is quick.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tidemill.chip import Chip
from tidemill_sim.merge import merge_byte_writes
from tidemill_sim.verilator import (
    ARGUMENTS,
    BENCHES,
    MAKE_VARIABLES,
    SimulatorError,
    cached,
    environment,
    failure,
    jobs,
)

__all__ = ["BAUD", "CLOCK_HZ", "VirtualBoard"]

BAUD = 3_000_000
#: Clock cycles of a bit.
DIVISOR = 4
CLOCK_HZ = BAUD * DIVISOR
TOP = "tidemill_top"


class VirtualBoard:
    """A board that has power inside a `with` block.

    verilog: text with module `tidemill_top` in place of the generated one (fault injection).
    plusargs: arguments of the simulation.
    """

    def __init__(self, chip: Chip, *, verilog: str | None = None, plusargs: tuple[str, ...] = ()):
        self._chip = chip
        self._verilog = verilog
        self._plusargs = plusargs
        self._process: subprocess.Popen[str] | None = None
        #: Name of the terminal, for `open_port`.
        self.port = ""

    def build(self) -> Path:
        """Compile the board, or take it from the cache; its program."""
        if self._verilog is None:
            from tidemill_hdl.verilog import generate_board

            self._verilog = generate_board(self._chip, CLOCK_HZ, BAUD)
        verilog = merge_byte_writes(self._verilog)
        bench = (BENCHES / "board.cpp").read_text()
        args = [*ARGUMENTS, "--no-timing", "--x-initial", "fast"]
        folder = cached(
            (verilog, bench, args), "board", lambda folder: _compile(folder, verilog, bench, args)
        )
        return folder / f"V{TOP}"

    def __enter__(self) -> VirtualBoard:
        """Switch it on. Raises `SimulatorError` if it cannot be built or started."""
        self._process = subprocess.Popen(
            [self.build(), str(DIVISOR), *self._plusargs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.port = self._process.stdout.readline().strip()
        if not self.port:
            self.__exit__()
            raise SimulatorError("the virtual board found no pseudo-terminal")
        return self

    def __exit__(self, *exc: object) -> None:
        """Switch it off."""
        assert self._process
        with self._process:  # closes the pipes and waits
            self._process.kill()


def _compile(folder: Path, verilog: str, bench: str, args: list[str]) -> None:
    (folder / "board.v").write_text(verilog)
    (folder / "board.cpp").write_text(bench)
    log = folder / "build.log"
    verilate = ["verilator", "--cc", "--exe", "--top-module", TOP, *args]
    make = ["make", "-C", str(folder), "-j", jobs(), "-f", f"V{TOP}.mk", f"V{TOP}"]
    try:
        with log.open("w") as out:
            for command in (
                [*verilate, "-Mdir", str(folder), str(folder / "board.v"), "board.cpp"],
                [*make, *MAKE_VARIABLES],
            ):
                subprocess.run(
                    command,
                    env=os.environ | environment(),
                    cwd=folder,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    check=True,
                )
    except subprocess.CalledProcessError as e:
        raise failure("Verilator could not build the board", log, e) from None
