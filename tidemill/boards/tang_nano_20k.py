"""Pins of the Sipeed Tang Nano 20K, which amaranth-boards does not have."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, Pins, Resource
from amaranth.vendor import GowinPlatform
from amaranth_boards.resources import LEDResources, UARTResource

__all__ = ["TangNano20kPlatform"]


class TangNano20kPlatform(GowinPlatform):
    """Clock, UART of the BL616 and LEDs; from Sipeed's schematic and examples."""

    part = "GW2AR-LV18QN88C8/I7"
    family = "GW2AR-18C"
    default_clk = "clk27"
    resources = [  # noqa: RUF012 (the form that Amaranth wants)
        Resource("clk27", 0, Pins("4", dir="i"), Clock(27e6), Attrs(IO_TYPE="LVCMOS33")),
        UARTResource(0, rx="70", tx="69", attrs=Attrs(IO_TYPE="LVCMOS33", PULL_MODE="UP")),
        *LEDResources(pins="15 16 17 18 19 20", invert=True, attrs=Attrs(IO_TYPE="LVCMOS33")),
    ]
    connectors = ()
