"""SXM alone: every move against numpy, faults of reserved operations, latency."""

import cocotb
import numpy as np

from tidemill.isa import QUEUE_INDEX, QUEUES, Fault
from tidemill_sim.benches.slice_base import Slice, first_cycle, instruction, pack

QUEUE = QUEUES[QUEUE_INDEX["SXM"]]


def move(mnemonic, x, token_lane):
    """The result of a move of the vector `x`."""
    if len(x) == 1 or mnemonic == "BCAST":
        return np.full(len(x), x[token_lane])
    pairs = x.reshape(-1, 2)
    left, right = {
        "SWAP": (-pairs[:, 1], pairs[:, 0]),
        "DUPE": (pairs[:, 0], pairs[:, 0]),
        "DUPO": (pairs[:, 1], pairs[:, 1]),
    }[mnemonic]
    return np.stack([left, right], axis=1).ravel()


@cocotb.test()
async def random_moves(dut):
    """A move in nearly every cycle; the result stands until the next one."""
    s = await Slice(dut).start()
    lanes = s.chip.lanes
    rng = np.random.default_rng(lanes)
    cycles, due, plan = 500, {}, []
    for t in range(cycles):
        sources = rng.integers(-32767, 32768, (2, lanes))
        token_lane, src = int(rng.integers(lanes)), int(rng.integers(2))
        op = QUEUE.ops[rng.integers(4)] if rng.random() < 0.8 or t == 0 else None
        cycle = instruction("i", QUEUE, op and op.mnemonic, **({"src": src} if op else {}))
        names = {"e_v": pack(sources[0], 16), "w_a": pack(sources[1], 16)}
        plan.append({**cycle, **names, "run__token_lane": token_lane})
        if op:
            due[t + op.d_func(s.chip)] = pack(move(op.mnemonic, sources[src], token_lane), 16)
    seen = await s.play(plan, ["w_s", "fault__kind"])
    want = None
    for t in range(cycles):
        want = due.get(t, want)
        assert want is None or seen["w_s"][t] == want, f"cycle {t}"
        assert seen["fault__kind"][t] == Fault.NONE, f"cycle {t}"


@cocotb.test()
async def latency(dut):
    """One pulse on the source, through every operation."""
    s = await Slice(dut).start()
    for op in QUEUE.ops:
        on = instruction("i", QUEUE, op.mnemonic, src=0)
        pulse = pack([77] * s.chip.lanes, 16)
        await s.play([{**on, "e_v": 0}] * 2, ())
        plan = [{}] * 3 + [{"e_v": pulse}] + [{"e_v": 0}] * 4
        seen = (await s.play(plan, ["w_s"]))["w_s"]
        hit = [t for t, v in enumerate(seen) if v]
        assert hit == [3 + op.d_func(s.chip)], op.mnemonic


@cocotb.test()
async def reserved_operations(dut):
    """They fault one cycle later and leave the stream alone."""
    s = await Slice(dut).start()
    good = instruction("i", QUEUE, "DUPE", src=1)
    value = pack([5] * s.chip.lanes, 16)
    codes = range(4, 1 << QUEUE.op_bits)
    plan = [{**good, "w_a": value}]
    plan += [{"i__op": code, "w_a": 0} for code in codes] + [{"i__valid": 0}]
    seen = await s.play(plan, ["w_s", "fault__kind"])
    assert seen["fault__kind"][1:] == [Fault.NONE, *[Fault.ILLEGAL] * len(codes)]
    assert first_cycle(seen["w_s"], value) == 1
    assert set(seen["w_s"][1:]) == {value}
