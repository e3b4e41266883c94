"""Checkpoint to program: lowering, list schedule, emission, checker, assembler text."""
