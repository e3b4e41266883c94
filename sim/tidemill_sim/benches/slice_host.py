"""HOST decode alone: every space to its own port, configuration registers, read latency."""

import cocotb
import numpy as np

from tidemill.isa import HOST_READ_LATENCY, Config, Space
from tidemill_sim.benches.slice_base import Slice

#: Port -> space it serves; `scalar_init` gets the upper half of CONFIG.
PORTS = {
    "mem_w": Space.MEM_W,
    "mem_a": Space.MEM_A,
    "lane_table": Space.LANE_TABLE,
    "scalar_table": Space.SCALAR_TABLE,
    "template": Space.TEMPLATE,
    "queue": Space.QUEUE,
    "start": Space.START,
    "tide": Space.TIDE,
    "prompt": Space.PROMPT,
}
REGISTERS = [entry for entry in Config if entry < Config.SCALAR0]


@cocotb.test()
async def random_accesses(dut):
    """`en` rises at the port of the space and nowhere else; the rest is passed on at once."""
    s = await Slice(dut).start()
    rng = np.random.default_rng(1)
    names = [*PORTS, "scalar_init"]
    plan = [
        {
            "en": int(rng.integers(4) > 0),
            "we": int(rng.integers(2)),
            "space": int(rng.integers(16)),
            "addr": int(rng.integers(1 << 24)) if rng.integers(2) else int(rng.integers(32)),
            "wdata": int(rng.integers(1 << 63)) << 1 | 1,
        }
        for _ in range(400)
    ]
    watch = [f"{n}__{field}" for n in names for field in ("en", "we", "addr", "wdata")]
    seen = await s.play(plan, watch)
    reached = set()
    for t, access in enumerate(plan):
        want = {n for n, space in PORTS.items() if access["en"] and access["space"] == space}
        if access["en"] and access["space"] == Space.CONFIG and access["addr"] >> 3 == 2:
            want = {"scalar_init"}
        assert {n for n in names if seen[f"{n}__en"][t]} == want, f"cycle {t}: {access}"
        for n in want:
            addr = access["addr"] & 7 if n == "scalar_init" else access["addr"]
            got = [seen[f"{n}__{field}"][t] for field in ("we", "addr", "wdata")]
            assert got == [access["we"], addr, access["wdata"]], f"cycle {t}: {n}"
        reached |= want
    assert reached == set(names)


@cocotb.test()
async def configuration(dut):
    """A register takes its bits of the written word in the next cycle and keeps them."""
    s = await Slice(dut).start()
    outputs = [f"config__{entry.name.lower()}" for entry in REGISTERS]
    widths = [s.ports[name][1] for name in outputs]
    rng = np.random.default_rng(2)
    want = dict.fromkeys(outputs)
    # every register once, then any order; reads and other spaces in between change nothing
    order = [*range(len(REGISTERS)), *rng.integers(len(REGISTERS), size=100).tolist()]
    for k in order:
        value = int(rng.integers(1 << 62))
        access = {"en": 1, "we": 1, "space": int(Space.CONFIG), "addr": int(REGISTERS[k])}
        noise = {"wdata": value ^ -1 & (1 << 64) - 1}
        plan = [{**access, "wdata": value}, {"we": 0, **noise}]
        plan += [{"we": 1, "space": int(Space.PROMPT)}, {"space": int(Space.CONFIG), "en": 0}]
        seen = await s.play(plan, outputs)
        assert want[outputs[k]] in (None, seen[outputs[k]][0])
        want[outputs[k]] = value & (1 << widths[k]) - 1
        for name, value_now in want.items():
            assert value_now is None or seen[name][1:] == [value_now] * 3, name


@cocotb.test()
async def read_latency(dut):
    """A pulse on `rdata` of a memory is passed on HOST_READ_LATENCY after the access, not else."""
    s = await Slice(dut).start()
    pulse = 0x0123456789ABCDEF
    for name in ("mem_w", "mem_a"):
        ask = {"en": 1, "we": 0, "space": int(PORTS[name]), f"{name}__rdata": pulse}
        away = {"en": 0, "space": int(Space.CONFIG)}
        seen = await s.play([away] * 6 + [ask, away] + [{}] * 8, ["rdata"])
        hit = [t for t, v in enumerate(seen["rdata"]) if v == pulse]
        assert hit == [6 + HOST_READ_LATENCY], name
        await s.play([{f"{name}__rdata": 0}], ())
