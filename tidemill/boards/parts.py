"""FPGAs that open tools can build for, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILIES", "PARTS", "Part"]

#: What the flow knows: tools, form of the constraints file, PLL.
FAMILIES = ("ecp5", "ice40", "gowin")


@dataclass(frozen=True)
class Part:
    """One device; counts as in the device tables of nextpnr 0.11.

    `device` is what nextpnr calls it: `12k`, `up5k`, or the whole name (Gowin).
    """

    name: str
    family: str
    device: str
    luts: int
    flip_flops: int
    block_rams: int
    block_ram_bits: int
    multipliers: int


def _ecp5(size: str, luts: int, block_rams: int, multipliers: int) -> Part:
    # an LFE5U-25F and a 12F are the same silicon
    device = f"{size}k"
    return Part(f"LFE5U-{size}F", "ecp5", device, luts, luts, block_rams, 18 * 1024, multipliers)


PARTS: dict[str, Part] = {
    p.name: p
    for p in (
        _ecp5("12", 24288, 56, 28),
        _ecp5("25", 24288, 56, 28),
        _ecp5("45", 43848, 108, 72),
        _ecp5("85", 83640, 208, 156),
        Part("iCE40UP5K", "ice40", "up5k", 5280, 5280, 30, 4 * 1024, 8),
        Part(
            name="GW2AR-LV18QN88C8/I7",
            family="gowin",
            device="GW2A-18C",
            luts=20736,
            flip_flops=15552,
            block_rams=46,
            block_ram_bits=18 * 1024,
            multipliers=48,
        ),
    )
}
