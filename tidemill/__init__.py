"""Tidemill: an open tensor streaming processor for open-toolchain FPGAs, and its toolchain."""

__version__ = "0.1.0"
