"""MXM alone: random MAC, LW and ACC in nearly every cycle against its files in int64; latencies.

All 32 bits of the accumulators are compared, by ACC, also at the ends of their range.
"""

from collections import defaultdict

import cocotb
import numpy as np

from tidemill.isa import QUEUE_INDEX, QUEUES
from tidemill_sim.benches.slice_base import Slice, instruction, pack, unpack

MAC, LOAD, DRAIN = (QUEUES[QUEUE_INDEX[name]] for name in ("MXM.C", "MXM.L", "MXM.A"))


class Twin:
    """The files, cycle by cycle; times are those of the instruction table."""

    def __init__(self, chip):
        self.chip = chip
        self.lanes = np.arange(chip.lanes)
        self.act = np.zeros((chip.act_depth, chip.lanes), np.int64)
        self.acc = np.zeros((chip.acc_groups, chip.weight_streams), np.int64)
        self.due = defaultdict(list)
        self.skewed = {}
        self.left = self.i = 0
        self.mac = {}
        #: largest sum that stood in a group
        self.top = 0

    def cycle(self, t, words, streams):
        """What E_acc reads as, and from which cycle on, if there is an ACC; else None."""
        chip = self.chip
        for group, fresh, dots in self.due.pop(t, ()):
            total = dots + (0 if fresh else self.acc[group])
            self.acc[group] = (total + (1 << 31)) % (1 << 32) - (1 << 31)
            self.top = max(self.top, int(np.abs(total).max()))
        out = None
        if "a" in words:
            vector = self.acc.reshape(chip.acc_depth, -1)[words["a"]["slot"]].copy()
            out = t + DRAIN.op("ACC").d_func(chip), vector
        # planes of this cycle meet the activation of `skew` cycles ago
        if t in self.skewed:
            op, start, group, fresh, vector = self.skewed.pop(t)
            self.due[start + op.d_func(chip)].append((group, fresh, streams["planes"] @ vector))
        if "c" in words:
            self.mac, self.left, self.i = words["c"], max(1, words["c"]["ni"]), 0
        if self.left:
            m, i = self.mac, self.i
            op = MAC.op(m["op"])
            rows = op.mnemonic == "ROWS"
            vector = self.act[(m["abc"] + (i if rows else 0)) % chip.act_depth].copy()
            group = (m["acc"] + (0 if rows else i)) % chip.acc_groups
            fresh = bool(m["fresh"]) and (i == 0 or not rows)
            self.skewed[t + op.skew] = (op, t, group, fresh, vector)
            self.left, self.i = self.left - 1, i + 1
        if "l" in words:
            load = words["l"]
            block = self.lanes >> load["mlog"] == load["midx"]
            source = streams["w_v" if load["src"] else "w_a"]
            others = 0 if load["zero"] else self.act[load["dst"]]
            self.act[load["dst"]] = np.where(block, source, others)
        return out


def cycle_of(words, streams):
    """Inputs of one cycle."""
    values = {
        "w_a": pack(streams["w_a"], 16),
        "w_v": pack(streams["w_v"], 16),
        "planes": pack(streams["planes"], 8),
    }
    for port, queue in (("c", MAC), ("l", LOAD), ("a", DRAIN)):
        fields = dict(words.get(port, {}))
        mnemonic = fields.pop("op", queue.ops[0].mnemonic) if port in words else None
        values |= instruction(port, queue, mnemonic, **fields)
    return values


async def check(s, program, streams_of):
    """Run a program in the slice and the twin; then drain every accumulator. Returns the twin."""
    chip = s.chip
    twin, plan, want = Twin(chip), [], {}
    # the files read as the twin's: all zero
    nothing = {
        "w_a": np.zeros(chip.lanes, np.int64),
        "w_v": np.zeros(chip.lanes, np.int64),
        "planes": np.zeros((chip.weight_streams, chip.lanes), np.int64),
    }
    whole = {"src": 0, "mlog": 7, "midx": 0, "zero": 1}
    clear = [{"l": {"dst": row, **whole}} for row in range(chip.act_depth)]
    ni = chip.acc_groups
    clear.append({"c": {"op": "COLS", "abc": 0, "acc": 0, "ni": ni, "fresh": 1}})
    settle = MAC.op("COLS").d_func(chip) + ni
    clear += [{} for _ in range(settle)]
    await s.play([cycle_of(words, nothing) for words in clear], ())
    tail = [{} for _ in range(settle)] + [{"a": {"slot": k}} for k in range(chip.acc_depth)]
    for t, words in enumerate([*program, *tail, {}, {}]):
        streams = streams_of(t) if t < len(program) + settle - ni else nothing
        found = twin.cycle(t, words, streams)
        if found:
            want[found[0]] = found[1]
        plan.append(cycle_of(words, streams))
    seen = (await s.play(plan, ["e_acc"]))["e_acc"]
    assert len(want) >= chip.acc_depth
    for t, vector in want.items():
        assert seen[t] is not None, f"E_acc is undefined in cycle {t}"
        assert unpack(seen[t], 32, chip.lanes) == vector.tolist(), f"E_acc, cycle {t}"
    return twin


def random_program(chip, rng, cycles):
    """LW and ACC in most cycles; MAC back to back, after a pause, or cutting another short."""
    program, left = [], 0
    for _ in range(cycles):
        words = {}
        if rng.random() < 0.7:
            words["l"] = {
                "dst": int(rng.integers(chip.act_depth)),
                "src": int(rng.integers(2)),
                "mlog": int(rng.integers(8)),
                "midx": int(rng.integers(chip.lanes)),
                "zero": int(rng.integers(2)),
            }
        if rng.random() < 0.9:
            words["a"] = {"slot": int(rng.integers(chip.acc_depth))}
        if (left <= 0 and rng.random() < 0.8) or rng.random() < 0.02:
            left = int(rng.choice([1, 1, 2, 3, 5, 2 * chip.acc_groups + 1]))
            words["c"] = {
                "op": ("ROWS", "COLS")[rng.integers(2)],
                "abc": int(rng.integers(chip.act_depth)),
                "acc": int(rng.integers(chip.acc_groups)),
                "ni": left if left > 1 else int(rng.integers(2)),
                "fresh": int(rng.random() < 0.3),
            }
        left -= 1
        program.append(words)
    return program


@cocotb.test()
async def random_values(dut):
    """Random programs on random values."""
    s = await Slice(dut).start()
    rng = np.random.default_rng(s.chip.macs)

    def streams(t):
        return {
            "w_a": rng.integers(-32768, 32768, s.chip.lanes),
            "w_v": rng.integers(-32768, 32768, s.chip.lanes),
            "planes": rng.integers(-128, 128, (s.chip.weight_streams, s.chip.lanes)),
        }

    await check(s, random_program(s.chip, rng, 600), streams)


@cocotb.test()
async def random_extremes(dut):
    """Random programs on the ends of the ranges: sums wrap modulo 2**32 as the twin's."""
    s = await Slice(dut).start()
    rng = np.random.default_rng(s.chip.macs + 1)

    def streams(t):
        return {
            "w_a": rng.choice([-32768, -32767, 32767], s.chip.lanes),
            "w_v": rng.choice([-32767, 32767], s.chip.lanes),
            "planes": rng.choice([-128, -127, 127], (s.chip.weight_streams, s.chip.lanes)),
        }

    await check(s, random_program(s.chip, rng, 600), streams)


@cocotb.test()
async def largest_sums(dut):
    """Every extreme product over the longest row whose sum fits int32; each sum exact in all bits.

    Bank 0 takes the weight of the case, the others its negative, as far as there is one.
    """
    s = await Slice(dut).start()
    chip = s.chip
    for act in (-32768, -32767, 32767):
        for weight in (-128, -127, 127):
            k = ((1 << 31) - 1) // abs(act * weight) // chip.lanes
            planes = np.full((chip.weight_streams, chip.lanes), weight)
            planes[1:] = min(127, -weight)

            def streams(t, act=act, planes=planes):
                x = np.full(chip.lanes, act)
                return {"w_a": x, "w_v": x, "planes": planes}

            whole = {"src": 1, "mlog": 7, "midx": 0, "zero": 0}
            program = [{"l": {"dst": row, **whole}} for row in range(chip.act_depth)]
            group = chip.acc_groups - 1
            assert k < 1 << 10
            mac = {"op": "ROWS", "abc": 3, "acc": group, "ni": k, "fresh": 1}
            program += [{"c": mac}] + [{} for _ in range(k - 1)]
            twin = await check(s, program, streams)
            assert twin.top > (1 << 31) - abs(act * weight) * chip.lanes - 1
            assert twin.top < 1 << 31


@cocotb.test()
async def mac_latency(dut):
    """A pulse of weights in one cycle; the first ACC that sees the sum."""
    s = await Slice(dut).start()
    chip = s.chip
    ones, start = pack([1] * chip.lanes, 16), 12
    load = instruction("l", LOAD, "LW", dst=0, src=0, mlog=7, midx=0, zero=1)
    planes = pack(np.ones((chip.weight_streams, chip.lanes), int), 8)
    for op in MAC.ops:
        mac = instruction("c", MAC, op.mnemonic, abc=0, acc=0, ni=1, fresh=1)
        first = {}
        for at in range(-2, 4):
            # the accumulator is 0 before, and only a pulse in the right cycle changes it
            plan = [
                {**load, **mac, "w_a": 0, "planes": 0, **instruction("a", DRAIN, "ACC", slot=0)}
            ]
            plan += [{"w_a": ones, "c__valid": 0}, {"l__valid": 0}]
            plan += [{"c__valid": int(t == start), "planes": 0} for t in range(3, 40)]
            plan[start + at]["planes"] = planes
            plan[start + at + 1].setdefault("planes", 0)
            seen = (await s.play(plan, ["e_acc"]))["e_acc"]
            hit = [
                t for t in range(start, 40) if seen[t] and unpack(seen[t], 32, 1)[0] == chip.lanes
            ]
            if hit:
                first[at] = hit[0]
        assert list(first) == [op.skew], op.mnemonic
        drain = DRAIN.op("ACC").d_func(chip)
        assert first[op.skew] - drain - start == op.d_func(chip), op.mnemonic


@cocotb.test()
async def load_latency(dut):
    """A MAC in the cycle of LW reads the old vector, one d_func later the new one."""
    s = await Slice(dut).start()
    chip = s.chip
    ones = pack([1] * chip.lanes, 16)
    load = instruction("l", LOAD, "LW", dst=0, src=0, mlog=7, midx=0, zero=1)
    planes = pack(np.ones((chip.weight_streams, chip.lanes), int), 8)
    found = []
    for gap in range(4):
        clear = {**load, "w_a": 0, "planes": planes, "c__valid": 0, "a__valid": 0}
        mac = instruction("c", MAC, "ROWS", abc=0, acc=0, ni=1, fresh=1)
        plan = [clear, {"l__valid": 0}, {}, {}] + [{} for _ in range(24)]
        plan[4] = {**load, "w_a": ones}
        plan[5] = {"l__valid": 0, "w_a": 0}
        plan[4 + gap] = {**plan[4 + gap], **mac}
        plan[4 + gap + 1] = {**plan[4 + gap + 1], "c__valid": 0}
        plan[26] = instruction("a", DRAIN, "ACC", slot=0)
        seen = (await s.play(plan, ["e_acc"]))["e_acc"]
        found.append(unpack(seen[27], 32, 1)[0])
    assert found == [0] * LOAD.op("LW").d_func(chip) + [chip.lanes] * 3


@cocotb.test()
async def drain_latency(dut):
    """ACC in one cycle, E_acc from the next on."""
    s = await Slice(dut).start()
    chip = s.chip
    load = instruction("l", LOAD, "LW", dst=0, src=0, mlog=7, midx=0, zero=1)
    planes = pack(np.ones((chip.weight_streams, chip.lanes), int), 8)
    plan = [{**load, "w_a": pack([3] * chip.lanes, 16), "planes": planes}, {"l__valid": 0}]
    mac = {"abc": 0, "ni": 1, "fresh": 1}
    plan += [instruction("c", MAC, "ROWS", acc=0, **mac), {"c__valid": 0}]
    # slot 1 holds zeros
    plan += [{}] * 16 + [{"planes": 0, **instruction("c", MAC, "COLS", acc=chip.subs, **mac)}]
    plan += [{"c__valid": 0}] + [{}] * 16 + [instruction("a", DRAIN, "ACC", slot=1)] + [{}] * 3
    start = len(plan)
    plan += [{"a__slot": 0}, {"a__slot": 1}] + [{}] * 6
    seen = (await s.play(plan, ["e_acc"]))["e_acc"]
    value = [v is not None and unpack(v, 32, 1)[0] == 3 * chip.lanes for v in seen]
    hit = [t - start for t in range(start - 2, len(plan)) if value[t]]
    assert hit == [DRAIN.op("ACC").d_func(chip)]
