"""PLLs of the three families, their dividers found here.

    in / reference = comparison frequency
    ECP5, Gowin:  out = comparison * feedback,  VCO = out * output
    iCE40:        VCO = comparison * feedback,  out = VCO / output

Timing rule: `o` runs at any frequency until `locked` is 1; `locked` is asynchronous.
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FAMILIES", "Dividers", "Pll", "PllError", "find_dividers"]

#: How far the output may be from what was asked for.
TOLERANCE = 0.01
MHZ = 1_000_000


class PllError(ValueError):
    """A frequency that the PLL of the family cannot make; one sentence says what it can."""


@dataclass(frozen=True)
class _Family:
    """Ranges of a PLL: dividers as factors, frequencies in Hz."""

    cell: str
    reference: range
    feedback: range
    output: tuple[int, ...]
    #: The feedback counts the VCO, not the output.
    of_vco: bool
    compare_hz: tuple[float, float]
    vco_hz: tuple[float, float]
    out_hz: tuple[float, float]


#: By family, from the vendors' data sheets: FPGA-TN-02200 (ECP5), FPGA-TN-02052 (iCE40), UG286 and
#: DS226 (GW2A, speed C8/I7).
FAMILIES = {
    "ecp5": _Family(
        cell="EHXPLLL",
        reference=range(1, 129),
        feedback=range(1, 81),
        output=tuple(range(1, 129)),
        of_vco=False,
        compare_hz=(3.125 * MHZ, 400 * MHZ),
        vco_hz=(400 * MHZ, 800 * MHZ),
        out_hz=(3.125 * MHZ, 400 * MHZ),
    ),
    "ice40": _Family(
        cell="SB_PLL40_PAD",
        reference=range(1, 17),
        feedback=range(1, 129),
        output=(2, 4, 8, 16, 32, 64),
        of_vco=True,
        compare_hz=(10 * MHZ, 133 * MHZ),
        vco_hz=(533 * MHZ, 1066 * MHZ),
        out_hz=(16 * MHZ, 275 * MHZ),
    ),
    "gowin": _Family(
        cell="rPLL",
        reference=range(1, 65),
        feedback=range(1, 65),
        output=(2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128),
        of_vco=False,
        compare_hz=(3 * MHZ, 500 * MHZ),
        vco_hz=(500 * MHZ, 1250 * MHZ),
        out_hz=(3.90625 * MHZ, 625 * MHZ),
    ),
}


@dataclass(frozen=True)
class Dividers:
    """One setting: factors, and the frequencies in Hz that follow."""

    reference: int
    feedback: int
    output: int
    compare_hz: float
    vco_hz: float
    out_hz: float


def _settings(family, in_hz, out_hz):
    """Legal settings around `out_hz`: for each two of the dividers, two feedbacks."""
    for reference in family.reference:
        compare = in_hz / reference
        if not family.compare_hz[0] <= compare <= family.compare_hz[1]:
            continue
        for output in family.output:
            per_step = compare / output if family.of_vco else compare
            below = int(out_hz / per_step)
            for feedback in (below, below + 1):
                actual = per_step * feedback
                vco = actual * output
                if (
                    feedback in family.feedback
                    and family.vco_hz[0] <= vco <= family.vco_hz[1]
                    and family.out_hz[0] <= actual <= family.out_hz[1]
                ):
                    yield Dividers(reference, feedback, output, compare, vco, actual)


def find_dividers(family, in_hz, out_hz):
    """The setting nearest to `out_hz`.

    Among equals the one that compares most often, then the one with its VCO nearest to the middle.

    Parameters
    ----------
    family : str
        A key of `FAMILIES`.
    in_hz, out_hz : int
        Frequencies in Hz.

    Raises `PllError` for an unknown family, or if no setting comes within 1 %.
    """
    if family not in FAMILIES:
        raise PllError(f"PLL family must be one of {', '.join(FAMILIES)}, not {family!r}")
    kind = FAMILIES[family]
    middle = sum(kind.vco_hz) / 2
    best = min(
        _settings(kind, in_hz, out_hz),
        key=lambda d: (
            round(abs(d.out_hz - out_hz), 3),
            d.reference,
            abs(d.vco_hz - middle),
        ),
        default=None,
    )
    want = f"the {family} PLL ({kind.cell}) cannot make {out_hz / MHZ:g} MHz of {in_hz / MHZ:g} MHz"
    if best is None:
        low, high = (f / MHZ for f in kind.out_hz)
        raise PllError(f"{want}: no setting is legal; its output goes from {low:g} to {high:g} MHz")
    if abs(best.out_hz - out_hz) > TOLERANCE * out_hz:
        raise PllError(f"{want} to {TOLERANCE:.0%}: the nearest is {best.out_hz / MHZ:g} MHz")
    return best


class Pll(wiring.Component):
    """One clock from another.

    Parameters
    ----------
    family : str
        `ecp5`, `ice40` or `gowin`.
    in_hz, out_hz : int
        Frequencies in Hz. On an iCE40 `i` must be the pad of the PLL (SB_PLL40_PAD).

    Raises `PllError` as `find_dividers`.

    Members
    -------
    i : In(1)
        The clock that comes.
    o : Out(1)
        The clock made of it.
    locked : Out(1)
        `o` has its frequency.
    """

    def __init__(self, family, in_hz, out_hz):
        self.dividers = find_dividers(family, in_hz, out_hz)
        #: What `o` runs at, in whole Hz.
        self.hz = round(self.dividers.out_hz)
        self._in_hz = in_hz
        self._cell = {"ecp5": self._ecp5, "ice40": self._ice40, "gowin": self._gowin}[family]
        super().__init__({"i": In(1), "o": Out(1), "locked": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pll = self._cell(self.dividers)
        return m

    def _ecp5(self, d):
        return Instance(
            "EHXPLLL",
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=d.reference,
            p_CLKFB_DIV=d.feedback,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=d.output,
            # no shift against the input
            p_CLKOP_CPHASE=d.output - 1,
            p_CLKOP_FPHASE=0,
            i_CLKI=self.i,
            i_CLKFB=self.o,
            i_RST=0,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=1,
            i_PHASESTEP=1,
            i_PHASELOADREG=1,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=self.o,
            o_LOCK=self.locked,
        )

    def _ice40(self, d):
        # width of the loop filter, by comparison frequency in MHz (icepll of Project IceStorm)
        above = (17, 26, 44, 66, 101)
        return Instance(
            "SB_PLL40_PAD",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=C(d.reference - 1, 4),
            p_DIVF=C(d.feedback - 1, 7),
            p_DIVQ=C(d.output.bit_length() - 1, 3),
            p_FILTER_RANGE=C(1 + sum(d.compare_hz >= f * MHZ for f in above), 3),
            i_PACKAGEPIN=self.i,
            i_RESETB=1,
            i_BYPASS=0,
            o_PLLOUTGLOBAL=self.o,
            o_LOCK=self.locked,
        )

    def _gowin(self, d):
        return Instance(
            "rPLL",
            p_DEVICE="GW2AR-18C",
            p_FCLKIN=f"{self._in_hz / MHZ:g}",
            p_IDIV_SEL=d.reference - 1,
            p_FBDIV_SEL=d.feedback - 1,
            p_ODIV_SEL=d.output,
            p_DYN_IDIV_SEL="false",
            p_DYN_FBDIV_SEL="false",
            p_DYN_ODIV_SEL="false",
            p_CLKFB_SEL="internal",
            i_CLKIN=self.i,
            i_CLKFB=0,
            i_RESET=0,
            i_RESET_P=0,
            i_FBDSEL=C(0, 6),
            i_IDSEL=C(0, 6),
            i_ODSEL=C(0, 6),
            i_PSDA=C(0, 4),
            i_DUTYDA=C(0, 4),
            i_FDLY=C(0, 4),
            o_CLKOUT=self.o,
            o_LOCK=self.locked,
        )
