"""Help, version, what is printed without a command."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from click.testing import Result

from tidemill.cli import COMMANDS

Cli = Callable[..., Result]


def test_help_names_every_command(ok: Cli) -> None:
    text = ok("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", text, re.M), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(ok: Cli, name: str) -> None:
    text = ok(name, "--help").stdout
    assert text.startswith(f"Usage: tidemill {name} ")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "\b" not in text


def test_version(ok: Cli) -> None:
    assert re.fullmatch(r"tidemill, version \d+\.\d+\.\d+\n", ok("--version").stdout)


def test_no_command_shows_the_help(td: Cli) -> None:
    result = td()
    assert result.exit_code == 2
    assert "Commands:" in result.output
