"""llama2.c version 0 files: what comes in is what was written, and every fault has its sentence."""

import struct

import numpy as np
import pytest

from tidemill.model.checkpoint import (
    ModelConfig,
    ModelError,
    load_checkpoint,
    random_checkpoint,
    save_checkpoint,
)

SHAPE = {"dim": 12, "hidden": 7, "layers": 2, "heads": 3, "kv_heads": 1, "vocab": 9, "context": 8}


@pytest.mark.parametrize("tied", [True, False])
def test_round_trip(tmp_path, tied):
    checkpoint = random_checkpoint(ModelConfig(**SHAPE, tied=tied), seed=5)
    save_checkpoint(checkpoint, tmp_path / "m.bin")
    again = load_checkpoint(tmp_path / "m.bin")
    assert again.config == checkpoint.config
    for name in (*checkpoint.config.shapes(), "head"):
        np.testing.assert_array_equal(getattr(again, name), getattr(checkpoint, name))


def header(**changes):
    return struct.pack("<7i", *{**SHAPE, **changes}.values())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"abc", "is truncated: 3 bytes, the header alone has 28"),
        (header(), r"is truncated: its header needs \d+ bytes, it has 28"),
        (header(dim=0), "not a llama2.c version 0 file: .*dim must be from 1 to 16384, not 0"),
        (header(heads=5), "dim 12 is not a multiple of heads 5"),
        (header(kv_heads=2), "heads 3 is not a multiple of kv_heads 2"),
        (header(dim=9), "head dimension 3 .* is odd, RoPE needs pairs"),
        (header(layers=1 << 30), "layers must be from 1 to 256"),
    ],
)
def test_impossible_files(tmp_path, data, text):
    (tmp_path / "m.bin").write_bytes(data)
    with pytest.raises(ModelError, match=text):
        load_checkpoint(tmp_path / "m.bin")


def test_missing_long_and_infinite(tmp_path):
    path = tmp_path / "m.bin"
    with pytest.raises(ModelError, match="cannot read model"):
        load_checkpoint(path)
    save_checkpoint(random_checkpoint(ModelConfig(**SHAPE)), path)
    data = path.read_bytes()
    path.write_bytes(data + b"\0" * 4)
    with pytest.raises(ModelError, match="is longer than its header says"):
        load_checkpoint(path)
    broken = bytearray(data)
    broken[28 + 8 : 28 + 12] = struct.pack("<f", float("nan"))
    path.write_bytes(broken)
    with pytest.raises(ModelError, match=r"embed\[0, 2\] is nan, not a finite number"):
        load_checkpoint(path)


def test_what_the_file_cannot_hold(tmp_path):
    with pytest.raises(ModelError, match="cannot hold theta = 500000"):
        save_checkpoint(random_checkpoint(ModelConfig(**SHAPE, theta=5e5)), tmp_path / "m.bin")
