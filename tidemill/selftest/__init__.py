"""Self-test of a chip, driven by its host: memories by march tests, the rest by small programs."""
