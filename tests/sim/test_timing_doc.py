"""The worked example of docs/timing.md is what the machine does."""

from __future__ import annotations

import pytest

from tidemill import numerics
from tidemill_sim import timing_doc
from tidemill_sim.timing_doc import MULTIPLIERS, WEIGHTS, X


def test_page_is_up_to_date():
    assert timing_doc.on_page()[1] == timing_doc.render(), (
        "docs/timing.md differs from docs/matvec.tasm as the engine runs it; "
        "write it anew: python -m tidemill_sim.timing_doc"
    )


def test_example_is_the_product():
    """By plain arithmetic; the token is the place of the largest element."""
    y = numerics.round_shift(WEIGHTS @ X * MULTIPLIERS, 16)
    machine = timing_doc.run().machine
    assert machine.mem_a[3].tolist() == y.tolist()
    assert machine.choice == y.argmax()


def test_main_writes_the_part_between_the_marks(tmp_path, monkeypatch):
    before, part, after = timing_doc.on_page()
    monkeypatch.setattr(timing_doc, "PAGE", tmp_path / "timing.md")
    timing_doc.PAGE.write_text(before + "old\n" + after)
    timing_doc.main()
    assert timing_doc.PAGE.read_text() == before + part + after


@pytest.mark.rtl
@pytest.mark.slow
def test_rtl_does_the_same(verilator, differences):
    from tidemill_sim.engine import Machine
    from tidemill_sim.rtl import RtlEngine, RunRequest

    program = timing_doc.matvec()
    machine = Machine(program, check=True)
    events = machine.run([0, 0], 1)
    [result] = RtlEngine(program.chip).run(
        program.boot_writes(), [RunRequest(program.run_writes([0, 0], 1))], dump=True
    )
    assert differences(machine, events, result) == []
    assert result.mem_a[3].tolist() == machine.mem_a[3].tolist()
