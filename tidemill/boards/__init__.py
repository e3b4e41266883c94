"""Boards: what they are, what fits, and the way from Verilog to a flashed one."""
