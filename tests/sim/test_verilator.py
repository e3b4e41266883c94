"""What cannot be built or run is said in one sentence, with the place of the log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from amaranth.lib.wiring import Out

from tidemill.chip import CHIPS
from tidemill_hdl.top import PORTS
from tidemill_sim.rtl import RtlEngine, SimulatorError

pytestmark = pytest.mark.rtl


def stub(chip_id: int) -> str:
    """A chip that does nothing but say what it is."""
    ports = ["input clk", "input rst"]
    for name, port in PORTS.items():
        way = "output" if port.flow is Out else "input"
        ports.append(f"{way} [{port.shape - 1}:0] {name}")
    outputs = [n for n, p in PORTS.items() if p.flow is Out]
    assigns = [f"assign {n} = {chip_id if n == 'chip_id' else 0};" for n in outputs]
    return (
        f"module tidemill({', '.join(ports)});\n{' '.join(assigns)}\nsequencer sequencer();\n"
        "endmodule\nmodule sequencer;\nwire tide_load = 0;\nendmodule\n"
    )


def log_of(error: SimulatorError) -> str:
    """Text of the log that the one sentence names."""
    assert "\n" not in str(error)
    return Path(re.search(r"\(the whole log is (.+)\)$", str(error))[1]).read_text()


def test_a_build_that_fails(verilator):
    text = stub(0).replace("sequencer sequencer();", "wrong here;")
    with pytest.raises(SimulatorError, match=r"could not build the chip: %Error: .*'wrong'") as e:
        RtlEngine(CHIPS["tiny"], verilog=text).build()
    assert "Exiting due to" in log_of(e.value)


@pytest.mark.slow
def test_a_simulation_that_fails(verilator):
    chip, other = CHIPS["tiny"], CHIPS["ulx3s-85f"]
    text = stub(int(chip.hash, 16))
    assert RtlEngine(chip, verilog=text).run([], []) == []
    sentence = f"the simulation failed: AssertionError: the chip says it is {chip.hash}, not "
    with pytest.raises(SimulatorError, match=sentence + other.hash) as e:
        RtlEngine(other, verilog=text).run([], [])
    assert "FAIL=1" in log_of(e.value)
