"""MEM_A alone: reads and writes in nearly every cycle against an array; host, faults, latency."""

import cocotb
import numpy as np

from tidemill.isa import HOST_READ_LATENCY, QUEUE_INDEX, QUEUES, Fault
from tidemill_sim.benches.slice_base import Slice, first_cycle, instruction, pack

READS, WRITES = (QUEUES[QUEUE_INDEX[name]] for name in ("MEMA.R", "MEMA.W"))
READ, WRITE = READS.op("READ"), WRITES.op("WRITE")


def read(addr):
    """READ of a vector; None: nothing."""
    return instruction("r", READS, None if addr is None else "READ", addr=addr or 0)


def write(addr):
    """WRITE of a vector; None: nothing."""
    return instruction("w", WRITES, None if addr is None else "WRITE", addr=addr or 0)


@cocotb.test()
async def random_streams(dut):
    """Every cycle of `w_a` is the row of the last READ that is d_func old."""
    s = await Slice(dut).start()
    chip = s.chip
    rng = np.random.default_rng(chip.lanes)
    cycles = 400
    values = rng.integers(-32768, 32768, (cycles, chip.lanes))
    values[rng.random(values.shape) < 0.3] = -32768
    rows, due, plan = {}, {}, []
    for t in range(cycles):
        w = (
            int(rng.integers(chip.mem_a_depth))
            if t < chip.mem_a_depth or rng.random() < 0.9
            else None
        )
        w = t if t < chip.mem_a_depth else w
        r = int(rng.integers(chip.mem_a_depth))
        r = r if r in rows and r != w and rng.random() < 0.9 else None
        if r is not None:
            due[t + READ.d_func(chip)] = rows[r]
        if w is not None:
            rows[w] = pack(values[t], 16)
        plan.append({"e_v": pack(values[t], 16), **read(r), **write(w)})
    seen = await s.play(plan, ["w_a", "fault__kind"])
    want = None
    for t in range(cycles):
        want = due.get(t, want)
        assert want is None or seen["w_a"][t] == want, f"cycle {t}"
        assert seen["fault__kind"][t] == Fault.NONE, f"cycle {t}"
    assert WRITE.d_func(chip) == 1
    assert len(due) > cycles // 2


@cocotb.test()
async def latency(dut):
    """One pulse: WRITE in cycle 0, READ in cycle 1, the value once on `w_a`, d_func later."""
    s = await Slice(dut).start()
    pulse = pack([0x1234] * s.chip.lanes, 16)
    plan = [{**write(5), "e_v": pulse}, {**write(6), "e_v": 0, **read(5)}]
    plan += [{**write(None), **read(6)}, read(None), {}, {}, {}]
    seen = (await s.play(plan, ["w_a"]))["w_a"]
    assert first_cycle(seen, pulse) == WRITE.d_func(s.chip) + READ.d_func(s.chip)
    assert seen.count(pulse) == 1


@cocotb.test()
async def host(dut):
    """Words written one a cycle read back as fast; the first one by a pulse."""
    s = await Slice(dut).start()
    chip = s.chip
    rng = np.random.default_rng(3)
    lanes = min(4, chip.lanes)
    count = chip.mem_a_depth * -(-chip.lanes // 4)
    words = [pack(rng.integers(-32768, 32768, lanes), 16) for _ in range(count)]
    await s.host_write("host", enumerate(words))
    assert await s.host_read("host", range(count)) == words
    await s.host_write("host", [(0, 0x55), (1, 0)])
    ask = {"host__en": 1, "host__we": 0}
    plan = (
        [{**ask, "host__addr": 1}] * 8 + [{**ask, "host__addr": 0}] + [{**ask, "host__addr": 1}] * 8
    )
    seen = (await s.play(plan, ["host__rdata"]))["host__rdata"]
    assert first_cycle(seen, 0x55) - 8 == HOST_READ_LATENCY
    assert seen.count(0x55) == 1


@cocotb.test()
async def faults(dut):
    """A collision and addresses beyond the last vector, one cycle later; nothing else."""
    s = await Slice(dut).start()
    depth, per = s.chip.mem_a_depth, -(-s.chip.lanes // 4)
    await s.host_write("host", [(k, 7) for k in range(depth * per)])
    cases = [
        ({**write(depth), **read(None)}, Fault.ADDRESS),
        ({**write(None), **read(depth + 1)}, Fault.ADDRESS),
        ({**write(3), **read(4)}, Fault.NONE),
        ({**write(4), **read(4)}, Fault.COLLISION),
        ({**write(None), **read(None)}, Fault.NONE),
        ({"host__en": 1, "host__we": 1, "host__addr": depth * per}, Fault.ADDRESS),
        ({"host__en": 0}, Fault.NONE),
    ]
    seen = await s.play([*(c for c, _ in cases), {}], ["fault__kind"])
    assert seen["fault__kind"][1:] == [kind for _, kind in cases]
    back = await s.host_read("host", range(depth * per))
    touched = {row * per + k for row in (3, 4) for k in range(per)}
    assert all(back[k] == 7 for k in range(depth * per) if k not in touched)
    assert all(back[k] == 0 for k in touched)
