"""The program of these tests."""

from __future__ import annotations

import pytest

from support.host_program import hand_made
from tidemill.program import Program


@pytest.fixture(scope="session")
def program() -> Program:
    """`hand_made`."""
    return hand_made()
