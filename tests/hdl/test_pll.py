# amaranth: UnusedElaboratable=no
"""Dividers against the data sheets' ranges and, marked `synth`, against the vendors' tools."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil

from tidemill_hdl.pll import FAMILIES, MHZ, Pll, PllError, find_dividers

#: Family, input MHz, output MHz.
CASES = [
    ("ecp5", 25, 40),
    ("ecp5", 25, 62.5),
    ("ecp5", 25, 110),
    ("ecp5", 50, 87),
    ("ecp5", 12, 333),
    ("ice40", 12, 17),
    ("ice40", 12, 20),
    ("ice40", 12, 24),
    ("ice40", 48, 31),
    ("gowin", 27, 40.5),
    ("gowin", 27, 54),
    ("gowin", 27, 66),
    ("gowin", 27, 81),
]


@pytest.mark.parametrize(("family", "given", "wanted"), CASES)
def test_dividers_make_the_frequency(family, given, wanted):
    d = find_dividers(family, given * MHZ, wanted * MHZ)
    kind = FAMILIES[family]
    assert d.out_hz == pytest.approx(wanted * MHZ, rel=0.01)
    assert d.out_hz == pytest.approx(
        given * MHZ / d.reference * d.feedback / (d.output if family == "ice40" else 1)
    )
    assert d.vco_hz == pytest.approx(d.out_hz * d.output)
    assert d.compare_hz == pytest.approx(given * MHZ / d.reference)
    for value, (low, high) in (
        (d.compare_hz, kind.compare_hz),
        (d.vco_hz, kind.vco_hz),
        (d.out_hz, kind.out_hz),
    ):
        assert low <= value <= high
    assert d.reference in kind.reference
    assert d.feedback in kind.feedback
    assert d.output in kind.output


def test_known_settings():
    """As ecppll, icepll and gowin_pll print them."""
    d = find_dividers("ecp5", 25 * MHZ, 62.5 * MHZ)
    assert (d.reference, d.feedback, d.output) == (2, 5, 10)
    d = find_dividers("ice40", 12 * MHZ, 24 * MHZ)
    assert (d.reference, d.feedback, d.output) == (1, 64, 32)
    d = find_dividers("gowin", 27 * MHZ, 54 * MHZ)
    assert (d.reference, d.feedback, d.output) == (1, 2, 16)


@pytest.mark.parametrize(
    ("family", "given", "wanted", "sentence"),
    [
        ("xilinx", 25, 50, "PLL family must be one of ecp5, ice40, gowin, not 'xilinx'"),
        (
            "ecp5",
            25,
            500,
            r"the ecp5 PLL \(EHXPLLL\) cannot make 500 MHz of 25 MHz: no setting is legal; its "
            "output goes from 3.125 to 400 MHz",
        ),
        (
            "ecp5",
            25,
            3.3,
            "cannot make 3.3 MHz of 25 MHz to 1%: the nearest is 3.125 MHz",
        ),
        ("ice40", 1, 24, "cannot make 24 MHz of 1 MHz: no setting is legal"),
        ("gowin", 27, 2, "cannot make 2 MHz of 27 MHz"),
    ],
)
def test_refusals(family, given, wanted, sentence):
    with pytest.raises(PllError, match=sentence):
        find_dividers(family, given * MHZ, wanted * MHZ)
    with pytest.raises(PllError, match=sentence):
        Pll(family, given * MHZ, wanted * MHZ)


def test_hz_is_what_comes_out():
    assert Pll("ice40", 12 * MHZ, 20 * MHZ).hz == 19_875_000


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cell_has_the_dividers(family):
    given, wanted = next(case[1:] for case in CASES if case[0] == family)
    text = rtlil.convert(Pll(family, given * MHZ, wanted * MHZ))
    assert f"cell \\{FAMILIES[family].cell} " in text
    d = find_dividers(family, given * MHZ, wanted * MHZ)
    for name, value in {
        "ecp5": {"CLKI_DIV": d.reference, "CLKFB_DIV": d.feedback, "CLKOP_DIV": d.output},
        "ice40": {"DIVR": f"4'{d.reference - 1:04b}", "DIVF": f"7'{d.feedback - 1:07b}"},
        "gowin": {"IDIV_SEL": d.reference - 1, "FBDIV_SEL": d.feedback - 1, "ODIV_SEL": d.output},
    }[family].items():
        assert re.search(rf"parameter (signed )?\\{name} {value}\n", text), (name, value)


def _tool(family, given, wanted, folder):
    """MHz that the family's own tool makes; skips without the tool."""
    name = {"ecp5": "yowasp-ecppll", "ice40": "yowasp-icepll", "gowin": "gowin_pll"}[family]
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if program is None:
        pytest.skip(f"no {name}: pip install -e '.[dev]'")
    more = ["-d", "GW2AR-LV18QN88C8/I7"] if family == "gowin" else []
    done = subprocess.run(
        [program, "-i", str(given), "-o", str(wanted), *more],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {
        "ecp5": r"clkout0 frequency: ([\d.]+) MHz",
        "ice40": r"F_PLLOUT: +([\d.]+) MHz \(achieved\)",
        "gowin": r"Achieved output frequency: +([\d.]+) MHz",
    }[family]
    return float(re.search(found, done.stdout + done.stderr)[1])


@pytest.mark.synth
@pytest.mark.parametrize(("family", "given", "wanted"), CASES)
def test_as_near_as_the_tool(family, given, wanted, tmp_path):
    theirs = _tool(family, given, wanted, tmp_path)
    ours = find_dividers(family, given * MHZ, wanted * MHZ).out_hz / MHZ
    assert abs(ours - wanted) <= abs(theirs - wanted) + 0.0011  # they print three digits
