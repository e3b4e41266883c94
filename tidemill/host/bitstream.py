"""The file that a build leaves beside its bitstream, and what the driver wants to know of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Bitstream", "BitstreamError", "load_bitstream"]


class BitstreamError(ValueError):
    """A build's .json that says nothing useful, or that its build failed."""


@dataclass(frozen=True)
class Bitstream:
    """chip_hash: 16 hex digits; clock in Hz; baud: of its UART, if the build says so."""

    path: str
    chip_hash: str
    build_id: int
    clock_hz: int
    baud: int | None = None


def load_bitstream(path: str | Path) -> Bitstream:
    """Facts of a build whose timing was met.

    Raises `BitstreamError` for any other build, and for a file that is no build's.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise BitstreamError(f"cannot read build {str(path)!r}: {e.strerror}") from None
    except ValueError:
        raise BitstreamError(f"{str(path)!r} is not the .json file of a build") from None
    try:
        build_id, verdict = data["build_id"], data["timing"]["verdict"]
        made = Bitstream(
            str(path),
            str(data["chip_hash"]),
            int(build_id, 16) if isinstance(build_id, str) else int(build_id),
            int(data["clock_hz"]),
            int(data["baud"]) if "baud" in data else None,
        )
    except (KeyError, TypeError, ValueError) as e:
        raise BitstreamError(
            f"{str(path)!r} is not the .json file of a build (chip_hash, build_id, clock_hz, "
            f"timing.verdict): {type(e).__name__}: {e}"
        ) from None
    if str(verdict).upper() != "PASS":
        raise BitstreamError(
            f"the build {str(path)!r} failed its timing (verdict {verdict!r}): a chip that is too "
            "slow computes wrong results now and then; build it with a lower --freq"
        )
    return made
