"""The .json file of a build: what is taken from it, what is refused."""

from __future__ import annotations

import json

import pytest

from tidemill.host.bitstream import Bitstream, BitstreamError, load_bitstream

GOOD = {
    "chip_hash": "0123456789abcdef",
    "build_id": "00000000cafe0001",
    "clock_hz": 90_000_000,
    "timing": {"verdict": "PASS"},
}


@pytest.fixture
def saved(tmp_path):
    def save(data):
        path = tmp_path / "x.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    return save


def test_facts(saved):
    path = saved(GOOD)
    want = Bitstream(str(path), "0123456789abcdef", 0xCAFE0001, 90_000_000)
    assert load_bitstream(path) == want
    assert load_bitstream(saved(GOOD | {"build_id": 0xCAFE0001})) == want
    assert load_bitstream(saved(GOOD | {"baud": 1_000_000})).baud == 1_000_000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            GOOD | {"timing": {"verdict": "FAIL"}},
            r"the build '.*x.json' failed its timing \(verdict 'FAIL'\): a chip that is too slow",
        ),
        (GOOD | {"timing": {"verdict": None}}, r"failed its timing \(verdict None\)"),
        (GOOD | {"timing": "PASS"}, r"'.*' is not the .json file of a build \(chip_hash, bu"),
        ({k: v for k, v in GOOD.items() if k != "clock_hz"}, "KeyError: 'clock_hz'"),
        (GOOD | {"build_id": "xyz"}, "ValueError: invalid literal"),
        ("[]", r"is not the .json file of a build .*TypeError"),
        ("{", r"'.*x.json' is not the .json file of a build$"),
    ],
)
def test_refusals(saved, data, text):
    with pytest.raises(BitstreamError, match=text):
        load_bitstream(saved(data))


def test_no_file(tmp_path):
    with pytest.raises(BitstreamError, match=r"cannot read build '.*no.json': No such file or d"):
        load_bitstream(tmp_path / "no.json")
