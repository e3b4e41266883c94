"""MEM_W alone: reads and appends in nearly every cycle against an array; host, faults, latency."""

import cocotb
import numpy as np

from tidemill import numerics
from tidemill.isa import HOST_READ_LATENCY, QUEUE_INDEX, QUEUES, Fault
from tidemill_sim.benches.slice_base import Slice, first_cycle, instruction, pack

READS, WRITES = (QUEUES[QUEUE_INDEX[name]] for name in ("MEMW.R", "MEMW.W"))


def read(mnemonic, addr=0):
    """READ or GATHER; None: nothing."""
    return instruction("r", READS, mnemonic, addr=addr)


def write(mnemonic, addr=0, sub=0):
    """WRITE or SCATTER; None: nothing."""
    return instruction("w", WRITES, mnemonic, addr=addr, sub=sub)


def image(chip, rng):
    """A memory [row, bank, lane] and its host words."""
    mem = rng.integers(-128, 128, (chip.mem_w_depth, chip.weight_streams, chip.lanes))
    words = -(-chip.lanes // 8)
    parts = mem.reshape(-1, words, chip.lanes // words)
    return mem, [pack(p, 8) for row in parts for p in row]


@cocotb.test()
async def random_streams(dut):
    """Planes and the gathered row in every cycle; the file of rows as it stands at the end."""
    s = await Slice(dut).start()
    chip = s.chip
    rng = np.random.default_rng(chip.macs)
    mem, words = image(chip, rng)
    await s.host_write("host", enumerate(words))
    ends = [-32768, -32767, -32641, -32640, 32639, 32640, 32767, -129, -128, 127, 128, 0]
    cycles, plan, planes, rows, pending = 500, [], {}, {}, {}
    written = None
    for t in range(cycles):
        for row, bank, lane, data in pending.pop(t, ()):
            mem[row, bank, lane] = data
        value = np.where(
            rng.random(chip.lanes) < 0.5,
            rng.choice(ends, chip.lanes),
            rng.integers(-32768, 32768, chip.lanes),
        )
        pos_lane, pos_bank = int(rng.integers(chip.lanes)), int(rng.integers(chip.weight_streams))
        token_bank, sub = int(rng.integers(chip.weight_streams)), int(rng.integers(chip.subs))
        w, r = (int(n) for n in rng.integers(chip.mem_w_depth, size=2))
        w_op = (None, *WRITES.ops)[rng.choice(3, p=[0.1, 0.45, 0.45])]
        r_op = (None, *READS.ops)[rng.choice(3, p=[0.1, 0.45, 0.45])]
        r_op = None if r == written else r_op
        written = w if w_op else None
        if r_op and r_op.mnemonic == "READ":
            planes[t + r_op.d_func(chip)] = pack(mem[r], 8)
        elif r_op:
            rows[t + r_op.d_func(chip)] = pack(mem[r, token_bank], 8)
        if w_op:
            data = numerics.to_byte(value)
            if w_op.mnemonic == "WRITE":
                change = [(w, pos_bank, slice(None), data)]
            else:
                part = data[sub * chip.weight_streams : (sub + 1) * chip.weight_streams]
                change = [(w, slice(None), pos_lane, part)]
            pending[t + w_op.d_func(chip)] = change
        plan.append(
            {
                **read(r_op and r_op.mnemonic, **({"addr": r} if r_op else {})),
                **(write(w_op.mnemonic, w, sub) if w_op else write(None)),
                "w_v": pack(value, 16),
                "run__pos_lane": pos_lane,
                "run__pos_bank": pos_bank,
                "run__token_bank": token_bank,
            }
        )
    for changes in pending.values():
        for row, bank, lane, data in changes:
            mem[row, bank, lane] = data
    seen = await s.play(plan, ["planes", "e_b", "fault__kind"])
    for t in range(cycles):
        assert seen["fault__kind"][t] == Fault.NONE, f"cycle {t}"
        assert t not in planes or seen["planes"][t] == planes[t], f"planes, cycle {t}"
        assert t not in rows or seen["e_b"][t] == rows[t], f"gathered row, cycle {t}"
    await s.play([{**read(None), **write(None)}, {}, {}], ())
    parts = mem.reshape(len(words), -1)
    assert await s.host_read("host", range(len(words))) == [pack(p, 8) for p in parts]


@cocotb.test()
async def latency(dut):
    """A pulse of one row between rows of zeros; an append by the first read that sees it."""
    s = await Slice(dut).start()
    chip = s.chip
    per_row = chip.weight_streams * -(-chip.lanes // 8)
    await s.host_write("host", [(k, 0) for k in range(chip.mem_w_depth * per_row)])
    ones = pack([1] * min(8, chip.lanes), 8)
    await s.host_write("host", [(5 * per_row + k, ones) for k in range(per_row)])
    for op, port in (("READ", "planes"), ("GATHER", "e_b")):
        await s.play([read(op, 4)] * READS.op(op).d_func(chip), ())
        plan = [read(op, 4)] * 8 + [read(op, 5)] + [read(op, 4)] * 8
        seen = (await s.play(plan, [port]))[port]
        hit = [t - 8 for t, v in enumerate(seen) if v]
        assert hit == [READS.op(op).d_func(chip)], op
    await s.play([read(None)], ())
    for k, op in enumerate(("WRITE", "SCATTER")):
        # all reads but one, in the cycle of the SRAM's write, are of the row: which is the first
        row, append = 7 + k, WRITES.op(op)
        await s.play([read("READ", 0), read(None), {}], ())
        plan = [{**write(op, row), "w_v": pack([9 << 8] * chip.lanes, 16), **read("READ", row)}]
        for t in range(1, 10):
            plan.append({**write(None), **read("READ", row if t != 1 else 0)})
        seen = await s.play(plan, ["planes", "fault__kind"])
        first = next(t for t, v in enumerate(seen["planes"]) if v)
        assert first - READS.op("READ").d_func(chip) == append.d_func(chip), op
        assert set(seen["fault__kind"]) == {Fault.NONE}
        await s.play([read(None), {}, {}, {}], ())
        # and the read one cycle sooner collides, reported two cycles later
        late = [read("READ", row) if t == append.d_func(chip) - 1 else read(None) for t in range(6)]
        late[0] |= write(op, row)
        late[1] |= write(None)
        seen = (await s.play(late, ["fault__kind"]))["fault__kind"]
        assert first_cycle(seen, Fault.COLLISION) == append.d_func(chip) + 1, op
        assert seen.count(Fault.COLLISION) == 1


@cocotb.test()
async def host(dut):
    """Words written one a cycle read back as fast; the latency by a pulse."""
    s = await Slice(dut).start()
    _, words = image(s.chip, np.random.default_rng(9))
    await s.host_write("host", enumerate(words))
    assert await s.host_read("host", range(len(words))) == words
    await s.host_write("host", [(0, 0x55), (1, 0)])
    ask = {"host__en": 1, "host__we": 0}
    plan = [{**ask, "host__addr": int(k != 8)} for k in range(20)]
    seen = (await s.play(plan, ["host__rdata"]))["host__rdata"]
    assert [t - 8 for t, v in enumerate(seen) if v == 0x55] == [HOST_READ_LATENCY]


@cocotb.test()
async def faults(dut):
    """Addresses beyond the last row fault and write nothing; abort drops the write of its cycle."""
    s = await Slice(dut).start()
    chip = s.chip
    count = chip.mem_w_depth * chip.weight_streams * -(-chip.lanes // 8)
    await s.host_write("host", [(k, 3) for k in range(count)])
    value = {"w_v": pack([9 << 8] * chip.lanes, 16)}
    off = {**read(None), **write(None), "host__en": 0, "run__abort": 0}
    cases = [
        ({**write("WRITE", chip.mem_w_depth), **value}, Fault.ADDRESS),
        (write("SCATTER", 31), Fault.ADDRESS),
        ({**write(None), **read("READ", chip.mem_w_depth)}, Fault.ADDRESS),
        (off, Fault.NONE),
        ({"host__en": 1, "host__we": 1, "host__addr": count, "host__wdata": 99}, Fault.ADDRESS),
        (off, Fault.NONE),
        ({**write("WRITE", 3), "run__abort": 1}, Fault.NONE),
        (off, Fault.NONE),
        ({}, Fault.NONE),
    ]
    seen = (await s.play([*(c for c, _ in cases), {}, {}], ["fault__kind"]))["fault__kind"]
    assert seen[2:] == [kind for _, kind in cases]
    assert await s.host_read("host", range(count)) == [3] * count
