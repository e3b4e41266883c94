"""Models: checkpoints in, exact integers out.

`checkpoint` reads and checks files, `reference` runs them in floating point, `quantise` turns them
into a `QuantModel`, `integer` runs that to the bit, `evaluate` compares the two, `tokenizer` turns
text into tokens.
"""
