"""The self-test on the virtual board: silent on a good chip, and names what is broken in others."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from support.chips import small_chip
from support.mutants import Mutation, mutants
from tidemill.cli import cli
from tidemill_sim import virtual_board
from tidemill_sim.virtual_board import BAUD, CLOCK_HZ, VirtualBoard

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.xdist_group("selftest")]


def stuck(value: str, bit: int, where: str, level: int = 0) -> str:
    """Text of `value` with a bit that keeps a level while `ON`, where the condition holds."""
    wrong = f"~{value}[{bit}]" if level else f"{value}[{bit}]"
    return f"({value} ^ (((ON & {wrong}) << {bit}) if {where} else 0))"


FAULTS = (
    (
        Mutation(
            "MEM_W cell", "mem_w", "bank.w_data.eq(w2_row)",
            "bank.w_data.eq(" + stuck("w2_row.as_value()", 21, "s == 1") + ")",
        ),
        "MEM_W", {"bank 1, lane 2"},
    ),
    (
        Mutation(
            "MEM_A cell", "mem_a", "h1_data.word_select(n % HALVES, 16).as_signed(), self.e_v[n]",
            stuck("h1_data.word_select(n % HALVES, 16)", 4, "n == 3", 1)
            + ".as_signed(), self.e_v[n]",
        ),
        "MEM_A", {"lane 3"},
    ),
    (
        Mutation(
            "MXM weight register", "mxm", "s3_plane.eq(s2_planes[s][n])",
            "s3_plane.eq(" + stuck("s2_planes[s][n]", 6, "(s, n) == (1, 2)") + ")",
        ),
        "MXM", {"stream 1, lane 2"},
    ),
    (
        Mutation(
            "MXM activation register", "mxm", "s3_act.eq(s2_act[n])",
            "s3_act.eq(" + stuck("s2_act[n]", 13, "(s, n) == (0, 3)", 1) + ")",
        ),
        "MXM", {"stream 0, lane 3"},
    ),
    (
        Mutation(
            "VXM table entry", "vxm_lanes", "host.data.eq(self.table.wdata)",
            "host.data.eq(self.table.wdata ^ "
            "(((ON & (self.table.addr == 77)) << 9) if lane == 1 else 0))",
        ),
        "VXM exp", {"lane 1"},
    ),
    (
        Mutation(
            "VXM multiplier operand", "vxm_lanes", "s7_x.eq(s6_x)",
            "s7_x.eq(" + stuck("s6_x", 14, "lane == 2") + ")",
        ),
        "VXM products", {"lane 2"},
    ),
    (
        Mutation(
            "SXM lane", "sxm", '"DUPO": odd,',
            '"DUPO": [odd[n] if n != 2 else Mux(ON, 0, odd[n]) for n in lanes],',
        ),
        "SXM", {"DUPO from E_v, lane 2", "DUPO from W_a, lane 2"},
    ),
    (
        Mutation(
            "cycle counter begins at 2", "sequencer", "cycles.eq(1)", "cycles.eq(1 + ON)"
        ),
        "MXM", {"cycles"},
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def verilog(verilator, tmp_path_factory):
    call = f"generate_board(chip, {CLOCK_HZ}, {BAUD})"
    faults = [mutation for mutation, _, _ in FAULTS]
    return mutants(small_chip(), tmp_path_factory.mktemp("faults"), faults, call)


@pytest.fixture
def selftest(verilog, tmp_path, monkeypatch):
    """Run the command on the chip with fault `number`; exit code, report, last line of stderr."""
    fields = small_chip().as_dict() | {"base": "tiny"}
    text = "".join(
        f"{k} = {json.dumps(list(v) if k == 'hops' else v)}\n" for k, v in fields.items()
    )
    (tmp_path / "small.toml").write_text(text)

    def run(number: int):
        class Mutant(VirtualBoard):
            def __init__(self, chip):
                super().__init__(chip, verilog=verilog, plusargs=(f"+mutant={number}",))

        monkeypatch.setattr(virtual_board, "VirtualBoard", Mutant)
        args = ["selftest", "--chip", str(tmp_path / "small.toml"), "--json"]
        result = CliRunner().invoke(cli, args, prog_name="tidemill")
        return result.exit_code, json.loads(result.stdout), result.stderr.splitlines()[-1]

    return run


def test_a_good_chip_passes(selftest):
    code, report, _ = selftest(0)
    assert code == 0
    assert report["passed"] is True
    assert all(part["wrong"] == [] for part in report["parts"].values())
    chip = small_chip()
    assert report["parts"]["MEM_W"]["elements"] == 2 * chip.mem_w_depth * chip.macs
    assert report["parts"]["MXM"]["elements"] > 16 * chip.macs


@pytest.mark.parametrize("number", range(1, len(FAULTS) + 1), ids=lambda n: FAULTS[n - 1][0].name)
def test_a_fault_is_named(selftest, number):
    _, part, places = FAULTS[number - 1]
    code, report, last = selftest(number)
    print(json.dumps(report, indent=1))
    assert code == 1
    assert report["passed"] is False
    wrong = report["parts"][part]["wrong"]
    assert {s.removeprefix(part + " ").partition(":")[0] for s in wrong} == places
    assert last.startswith("tidemill: the self-test failed: ")
