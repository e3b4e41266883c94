"""`tidemill verilog`: a chip as one Verilog file and a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidemill.chip import load_chip
from tidemill.commands.common import (
    UserError,
    chip_option,
    emit_json,
    json_option,
    note,
    working,
    write_file,
)

__all__ = ["verilog"]


@click.command(short_help="A chip as Verilog.")
@chip_option
@click.option(
    "-o", "folder", metavar="DIR", type=click.Path(path_type=Path), required=True, help="Folder."
)
@click.option(
    "--primitives",
    is_flag=True,
    help="Instantiate the multiplier cells of the chip's family; for synthesis only.",
)
@json_option
def verilog(*, chip: str, folder: Path, primitives: bool, as_json: bool) -> None:
    """Write DIR/tidemill.v, one self-contained module `tidemill`, with .json and .vlt beside it.

    The JSON manifest lists ports, shape, latencies, hashes and versions. The .vlt file names, for
    `verilator --lint-only -Wall tidemill.vlt tidemill.v`, the warnings that say nothing. The same
    chip gives the same bytes, run after run.
    """
    target = load_chip(chip)
    if primitives and target.family != "ecp5":
        raise UserError(
            f"chip {target.name!r} is of family {target.family}, which has no primitives"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(f"cannot make the folder {str(folder)!r}: {e.strerror}") from None
    with working() as say:
        say(f"generating {target.name}")
        from tidemill_hdl.verilog import WAIVERS, generate, manifest

        text = generate(target, primitives)
        facts = manifest(target, text, primitives)
    contents = {
        folder / "tidemill.v": text,
        folder / "tidemill.json": json.dumps(facts, indent=1) + "\n",
        folder / "tidemill.vlt": WAIVERS.read_text(),
    }
    for path, content in contents.items():
        write_file(path, content)
    if as_json:
        emit_json(facts)
    else:
        note(f"wrote {', '.join(map(str, contents))}")
