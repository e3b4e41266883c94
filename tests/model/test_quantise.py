"""The quantiser: deterministic, close to float, and what could overflow is refused."""

import dataclasses

import numpy as np
import pytest

from tidemill.model.checkpoint import ModelConfig, ModelError, random_checkpoint
from tidemill.model.integer import IntegerModel
from tidemill.model.quantise import quantise
from tidemill.model.reference import FloatModel

ODD = ModelConfig(dim=18, hidden=41, layers=2, heads=3, kv_heads=1, vocab=257, context=32)


@pytest.fixture(scope="module")
def checkpoint():
    return random_checkpoint(ODD, seed=3)


@pytest.fixture(scope="module")
def model(checkpoint):
    return quantise(checkpoint, calibration_sequences=8)


def test_same_hash_twice(checkpoint, model):
    assert quantise(checkpoint, calibration_sequences=8).hash == model.hash
    assert quantise(checkpoint, calibration_sequences=8, seed=1).hash != model.hash


def test_integers_follow_float(checkpoint, model):
    tokens = np.random.default_rng(0).integers(3, 257, (4, 32))
    want = FloatModel(checkpoint).forward(tokens)
    found = IntegerModel(model).forward(tokens) * model.units.logit
    assert np.abs(found - want).std() < 0.05 * want.std()


def test_teacher_forcing_equals_stepping(model):
    integer = IntegerModel(model)
    tokens = integer.generate([1, 5], 10)
    sequence = np.array([[1, 5, *tokens]])
    assert integer.forward(sequence)[0].argmax(-1)[1:-1].tolist() == tokens


def test_sums_are_bounded(model):
    for name in ("wq", "wk", "wv", "wo", "w1", "w2", "w3", "head"):
        weight = getattr(model, name).weight.astype(np.int64)
        assert np.abs(weight).sum(-1).max() * 32767 < 1 << 31


def test_too_wide_is_refused():
    wide = dataclasses.replace(ODD, dim=1026, hidden=8, layers=1, vocab=8)
    with pytest.raises(ModelError, match="dim 1026: the sum of squares allows at most 1023"):
        quantise(random_checkpoint(wide))


def test_scores_beyond_the_format_are_refused(checkpoint):
    wq = checkpoint.wq * np.float32(1e6)
    with pytest.raises(ModelError, match=r"wq layer \d head \d channel \d: attention scores would"):
        quantise(dataclasses.replace(checkpoint, wq=wq), calibration_sequences=2)


def test_k_fills_its_byte(checkpoint, model):
    """Rows with small sums too: their multipliers go up to 2."""
    peak = np.zeros_like(model.units.k_byte)

    def observe(what, layer, values):
        if what == "k_byte":
            peak[layer] = np.maximum(peak[layer], np.abs(values).max((0, 2)))

    tokens = FloatModel(checkpoint, np.float64).sample(16, 32, 7)
    IntegerModel(model).forward(tokens, observe=observe)
    assert peak.min() > 40
    assert np.median(peak) > 90


def test_temperature_bounds(model):
    with pytest.raises(ModelError, match=r"temperature must be from 0 to \d+\.\d+"):
        model.noise_mantissa(1e9)
    assert model.noise_mantissa(0) == 0
