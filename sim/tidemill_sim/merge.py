"""Memory writes in the form that Verilator compiles to fast code.

Yosys writes one conditional assignment for every byte of a word. Verilator makes three tests and
four variables of each, in every cycle, and the banks of MEM_W have hundreds; most cycles write
nothing. As one guarded assignment of the whole word they cost next to nothing.
"""

from __future__ import annotations

import re

__all__ = ["merge_byte_writes"]

_MODULE = re.compile(r"^module .*?^endmodule$", re.M | re.S)
_BLOCK = re.compile(
    r"  always @\(posedge clk\) begin\n"
    r"((?:    if \(\S+ ?\[\d+\]\)\n      \S+\[.+\]\[\d+:\d+\] <= .+;\n){2,})"
    r"  end\n"
)
_PART = re.compile(
    r"    if \((?P<enable>\S+ ?)\[(?P<bit>\d+)\]\)\n"
    r"      (?P<memory>[^\s\[]+)\[(?P<address>.+)\]\[(?P<high>\d+):(?P<low>\d+)\]"
    r" <= (?P<value>.+);\n"
)


def merge_byte_writes(verilog: str) -> str:
    """The same text with one assignment for each memory port that writes parts of a word.

    Only where that means the same: one enable signal, one address, parts that make up the whole
    word, and no other write port of the memory.
    """
    return _MODULE.sub(lambda module: _merge(module[0]), verilog)


def _merge(module: str) -> str:
    def merged(block: re.Match[str]) -> str:
        parts = list(_PART.finditer(block[1]))
        enable, memory, address = parts[0].group("enable", "memory", "address")
        same = all(
            p.group("enable", "memory", "address") == (enable, memory, address) for p in parts
        )
        name = re.escape(memory)
        width = re.search(rf"^  reg \[(\d+):0\] {name} ?\[", module, re.M)
        ends = [-1, *(int(p["high"]) for p in parts)]
        whole = [int(p["low"]) - 1 for p in parts] == ends[:-1]
        writes = len(re.findall(rf"^      {name} ?\[[^;\n]*<=", module, re.M))
        if not (same and whole and width and int(width[1]) == ends[-1] and writes == len(parts)):
            return block[0]
        word = ", ".join(
            f"{enable}[{p['bit']}] ? {p['value']} : {memory}[{address}][{p['high']}:{p['low']}]"
            for p in reversed(parts)
        )
        return (
            f"  always @(posedge clk) begin\n    if ({enable} != 0)\n"
            f"      {memory}[{address}] <= {{ {word} }};\n  end\n"
        )

    return _BLOCK.sub(merged, module)
