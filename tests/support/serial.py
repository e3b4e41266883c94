"""A host's end of a UART beside Amaranth's simulator."""

from __future__ import annotations

import zlib
from typing import Any

from tidemill.link import SYNC

#: Cycles of a bit in tests.
DIVISOR = 4


class Line:
    """Bytes to `rx` and from `tx`, both seen from the device.

    `listen` is a background bench that keeps every byte in `heard`.
    """

    def __init__(self, rx: Any, tx: Any) -> None:
        self._rx, self._tx = rx, tx
        self.heard = bytearray()

    async def send(self, ctx: Any, data: bytes) -> None:
        """All bits of `data`, back to back."""
        for byte in data:
            bits = 1 << 9 | byte << 1
            while bits:
                ctx.set(self._rx, bits & 1)
                bits >>= 1
                await ctx.tick().repeat(DIVISOR)

    async def listen(self, ctx: Any) -> None:
        """Never returns."""
        while True:
            await ctx.negedge(self._tx)
            await ctx.tick().repeat(DIVISOR // 2)
            byte = 0
            for k in range(8):
                await ctx.tick().repeat(DIVISOR)
                byte |= ctx.get(self._tx) << k
            await ctx.tick().repeat(DIVISOR)
            assert ctx.get(self._tx) == 1, "no stop bit"
            self.heard.append(byte)

    def frames(self) -> list[tuple[int, int, bytes]]:
        """(kind, sequence, payload) of all that was heard; every byte belongs to a good frame."""
        found, at = [], 0
        while at < len(self.heard):
            assert self.heard[at] == SYNC
            end = at + 4 + self.heard[at + 3]
            body = bytes(self.heard[at + 1 : end])
            assert zlib.crc32(body).to_bytes(4, "little") == self.heard[end : end + 4]
            found.append((body[0], body[1], body[3:]))
            at = end + 4
        self.heard.clear()
        return found
