"""Byte writes merged for Verilator: only where the result means the same."""

from __future__ import annotations

import pytest

from tidemill.chip import CHIPS
from tidemill_hdl.verilog import generate
from tidemill_sim.merge import merge_byte_writes

MEMORY = """\
module m(clk);
  reg [15:0] ram [3:0];
  always @(posedge clk) begin
    if (\\en$7 [0])
      ram[at[1:0]][7:0] <= data[7:0];
    if (\\en$7 [1])
      ram[at[1:0]][15:8] <= data[15:8];
  end
endmodule
"""
MERGED = """\
  always @(posedge clk) begin
    if (\\en$7  != 0)
      ram[at[1:0]] <= { \\en$7 [1] ? data[15:8] : ram[at[1:0]][15:8], \
\\en$7 [0] ? data[7:0] : ram[at[1:0]][7:0] };
  end
"""


def test_a_word_is_written_at_once():
    text = merge_byte_writes(MEMORY)
    assert MERGED in text
    assert text.count("always") == 1
    assert text.startswith("module m(clk);\n  reg [15:0] ram [3:0];\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("reg [15:0]", "reg [23:0]"),  # a part of the word is never written
        ("[7:0] <=", "[6:0] <="),  # a gap
        ("    if (\\en$7 [1])", "    if (other[1])"),
        ("ram[at[1:0]][15:8]", "ram[by[1:0]][15:8]"),
        ("ram[at[1:0]][15:8]", "rom[at[1:0]][15:8]"),
        (
            "endmodule",
            "  always @(posedge clk) begin\n    if (e2)\n      ram[b] <= 0;\n  end\nendmodule",
        ),
    ],
)
def test_anything_else_stays(old, new):
    text = MEMORY.replace(old, new)
    assert text != MEMORY
    assert merge_byte_writes(text) == text


def test_every_bank_of_a_chip_is_merged():
    text = merge_byte_writes(generate(CHIPS["tiny"]))
    assert text.count("!= 0)\n") >= CHIPS["tiny"].weight_streams
    assert "][15:8] <= " not in text
