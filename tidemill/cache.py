"""Where things that took time are kept between runs: compiled programs, Verilator builds."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """`$TIDEMILL_CACHE`, else `~/.cache/tidemill`."""
    return Path(os.environ.get("TIDEMILL_CACHE") or Path.home() / ".cache" / "tidemill")
