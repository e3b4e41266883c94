"""Arithmetic against Python's integers and real functions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import numerics as nx

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-32767, 32767)


@given(INT32, st.integers(0, 31))
def test_round_shift_is_half_up(x, s):
    assert int(nx.round_shift(np.array(x), s)) == (2 * x + (1 << s)) >> (s + 1)


@given(INT32, st.integers(-70, 70))
def test_preshift_clamps_and_saturates(a, s):
    shift = min(max(s, 0), 31)
    exact = (2 * a + (1 << shift)) >> (shift + 1)
    assert int(nx.preshift(np.array(a), s)) == max(-131071, min(131071, exact))


@given(st.integers(-131071, 131071), st.integers(-65536, 65536), INT16)
def test_compound(pre, b, c):
    exact = ((pre * b + (1 << 15)) >> 16) + c
    assert int(nx.compound(np.array(pre), b, c)) == max(-32767, min(32767, exact))


@given(INT16)
def test_one_is_one(y):
    assert int(nx.compound(np.array(y), nx.ONE)) == y


@given(INT16)
def test_to_byte(y):
    assert int(nx.to_byte(np.array(y))) == max(-127, min(127, (y + 128) >> 8))


@given(st.integers(1, (1 << 40) - 1))
def test_scalar_functions(q):
    table = nx.build_scalar_table()
    for found, exact in ((nx.recip(table, q), 1 / q), (nx.rsqrt(table, q), q**-0.5)):
        mant, exp = found
        assert 1 << 15 <= mant < 1 << 16
        assert mant * 2.0 ** (-16 - exp) == pytest.approx(exact, rel=6e-5)


def lane(table, address):
    index, fraction = address
    return nx.compound(fraction, table[index, 1], table[index, 0])


def test_tables_over_their_whole_range():
    table = nx.build_lane_table(2.0**-11, 2.0**-11)
    assert table.shape == (512, 2)
    assert np.abs(table).max() <= 32767
    d = np.arange(-16384, 0)
    exp = lane(table, nx.exp_address(d, 0))
    assert np.abs(exp / 32767 - np.exp2(d / 1024)).max() < 1.2e-3
    assert (np.diff(exp) >= 0).all()
    x = np.arange(-32767, 32768)
    v = x / 2048
    assert np.abs(lane(table, nx.silu_address(x)) / 2048 - v / (1 + np.exp(-v))).max() < 2e-3


def test_exp_clamps():
    table = nx.build_lane_table(2.0**-11, 2.0**-11)
    far = lane(table, nx.exp_address(np.array([-32767, -20000]), 32767))
    assert far.tolist() == [0, 0]
    assert lane(table, nx.exp_address(np.array([5]), 5))[0] > 32700


def test_gumbel_tail():
    table = nx.build_lane_table(2.0**-11, 2.0**-11)
    code = np.arange(1 << 14)
    x = 2.0 ** -(code // 1024 + 1) * (1 + code % 1024 / 1024)
    exact = -np.log(-np.log1p(-np.minimum(x, 1 - 2.0**-24)))
    found = lane(table, nx.gumbel_address(code)) / 2048
    rare = code >= 2 * 1024
    assert np.abs(found - exact)[rare].max() < 0.01


def test_noise_quantiles():
    """Median and tail of a Gumbel, -ln(-ln u); its lowest values, which never win, are coarse."""
    table = nx.build_lane_table(2.0**-11, 2.0**-11)
    state, draws = nx.lane_seeds(1, 64), []
    for _ in range(400):
        state = nx.xorshift32(state)
        draws.append(lane(table, nx.gumbel_address(nx.gumbel_code(state))))
    g = np.concatenate(draws) / 2048
    for u in (0.5, 0.9, 0.99):
        assert np.quantile(g, u) == pytest.approx(-math.log(-math.log(u)), abs=0.12)


def test_seeds_are_never_zero():
    golden = 0x9E3779B9
    assert nx.lane_seeds(golden, 2)[0] == 1
