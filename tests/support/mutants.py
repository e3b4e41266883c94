"""RTL with mutations: edits of sources of `tidemill_hdl`, switched on by `+mutant=N`.

One build serves all mutants; with N = 0 it is the RTL as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tidemill_hdl
from tidemill.chip import Chip


@dataclass(frozen=True)
class Mutation:
    """`old`, which stands exactly once in `file`, becomes `new`; there `ON` is 1 in this mutant."""

    name: str
    file: str
    old: str
    new: str


#: What a mutated source may use.
HELPERS = '''"""Which mutant this is."""

from amaranth import *

SELECT = Signal(8, name="mutant")


def late(m, value, on):
    """`value`, or a cycle later."""
    value = Value.cast(value)
    later = Signal.like(value, name="late")
    m.d.sync += later.eq(value)
    return Mux(on, later, value)
'''

SELECT = """
module mutant_select (output reg [7:0] id);
  initial if (!$value$plusargs("mutant=%d", id)) id = 0;
endmodule
"""

#: Verilog from the package in the current folder; `CALL` makes it from `chip`.
GENERATE = """
import json, sys
from tidemill.chip import Chip
from tidemill_hdl.verilog import generate, generate_board
fields = json.load(sys.stdin)
chip = Chip(**(fields | {"hops": tuple(fields["hops"])}))
open("mutants.v", "w").write(CALL)
"""


def mutants(
    chip: Chip, folder: Path, mutations: Sequence[Mutation], call: str = "generate(chip)"
) -> str:
    """Verilog of a chip with every mutation in it, all of them off; `folder` is empty."""
    package = folder / "tidemill_hdl"
    shutil.copytree(
        Path(tidemill_hdl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "mutant.py").write_text(HELPERS)
    instance = 'm.submodules.mutant = Instance("mutant_select", o_id=SELECT)'
    edits = [("top", "        m.submodules.mem_w = MemW(chip)", f"        {instance}\n")]
    for number, mutation in enumerate(mutations, 1):
        new = mutation.new.replace("ON", f"(SELECT == {number})")
        edits.append((mutation.file, mutation.old, new))
    for file, old, new in edits:
        path = package / f"{file}.py"
        text = path.read_text()
        assert text.count(old) == 1, f"{file}.py has {text.count(old)} times {old!r}, not once"
        text = text.replace(old, new + old if file == "top" else new)
        if "hdl.mutant" not in text:
            first = "from amaranth import *\n"
            text = text.replace(first, f"{first}from tidemill_hdl.mutant import SELECT, late\n", 1)
        path.write_text(text)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, "-c", GENERATE.replace("CALL", call)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        input=json.dumps(chip.as_dict()),
        text=True,
        check=True,
    )
    return (folder / "mutants.v").read_text() + SELECT
