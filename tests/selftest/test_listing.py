"""A listing that no queue could issue."""

from __future__ import annotations

import pytest

from support.chips import small_chip
from tidemill.selftest.listing import Listing


def test_a_queue_that_is_busy():
    listing = Listing(small_chip())
    listing.at(0, "MEMA.R", "READ", 5, 1, addr=0)
    listing.at(4, "MEMA.R", "READ", addr=9)
    with pytest.raises(ValueError, match=r"^MEMA\.R: READ in cycle 4, busy until 5$"):
        listing.program(())
