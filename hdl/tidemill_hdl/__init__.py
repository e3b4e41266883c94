"""Tidemill in gates: one file per slice, streams, sequencer, top.

Built from a `tidemill.chip.Chip`.
"""
