"""Benches that run inside the simulator."""
