"""What an instruction queue does with words, one after the other (`docs/architecture.md`, Control).

Words are (kind, wait, fields) here, fields being an OP's, or count, interval, stride, tide. The
benches of the Amaranth component and of its Verilog compare with this model.
"""

from __future__ import annotations

from tidemill import isa

__all__ = ["SYNC", "TIDES", "encode", "model", "random_words"]

#: Tide columns of the benches.
TIDES = [0, 1, 2, 3, 11]
SYNC = (isa.Kind.CTRL, 0, {"code": 0})


def encode(queue, chip, kind, wait, values):
    """One word as the queue memory holds it."""
    layout = queue.layout(chip) if kind == isa.Kind.OP else isa.CONTROL_LAYOUT
    payload = at = 0
    for name, width in layout:
        payload |= (values.get(name, 0) & ((1 << width) - 1)) << at
        at += width
    if kind == isa.Kind.CTRL:
        payload = values["code"]
    bits = queue.payload_bits(chip)
    return payload | wait << bits | int(kind) << (bits + isa.WAIT_BITS)


def model(queue, chip, words):
    """(issues {cycle: fields}, cycle of SYNC) of a segment that begins in cycle 0.

    Addresses come without their base.
    """
    widths = dict(queue.layout(chip))
    issues, t, last, dur = {}, 0, {}, 1
    for kind, wait, f in words:
        count = TIDES[f["count"]] if f.get("tide") else f.get("count", 0)
        if kind == isa.Kind.OP:
            last, dur = dict(f), f.get("ni", 1)
            issues[t] = dict(last)
            t += dur + wait
        elif kind == isa.Kind.NOP:
            t += max(1, count)
        elif kind == isa.Kind.REPEAT:
            interval = f["interval"] or dur
            u = t - dur
            for k in range(1, count + 1):
                step = {queue.fields[0].name: f["stride"]}
                if queue.name == "MXM.C" and last["op"] == queue.op("ROWS").code:
                    step = {"acc": 1}
                elif queue.name == "MXM.C":
                    step, last["fresh"] = {"abc": 1}, 0
                for name, by in step.items():
                    last[name] = (last[name] + by) % (1 << widths[name])
                last.update({"first": 0} if "first" in last else {})
                issues[u + k * interval] = dict(last)
            t = (u + count * interval + dur if count else t + 1) + wait
        else:
            return issues, t
    raise AssertionError("no SYNC")


def random_words(queue, chip, rng, size):
    """A legal segment of `size` words and SYNC."""
    words, chain, dur = [], False, 1
    while len(words) < size:
        kind = rng.choice([isa.Kind.OP] * 3 + [isa.Kind.NOP] + [isa.Kind.REPEAT] * (3 * chain))
        wait = rng.choice([0, 0, 0, 1, 2, rng.randrange(1 << isa.WAIT_BITS)])
        tide = int(rng.random() < 0.3)
        count = rng.randrange(len(TIDES)) if tide else rng.choice([0, 1, 2, 3, 7])
        if kind == isa.Kind.OP:
            f = {n: rng.randrange(1 << w) for n, w in queue.layout(chip)}
            if "op" in f:
                f["op"] %= len(queue.ops)
            if "ni" in f:
                f["ni"] = dur = rng.choice([1, 1, 2, 3, 9])
            if "base" in f:
                f["base"] %= len(isa.Base)
            words.append((kind, wait, f))
        elif kind == isa.Kind.NOP:
            words.append((kind, 0, {"tide": tide, "count": count}))
        else:
            interval = rng.choice([0, dur, dur + 1, dur + 5])
            stride = rng.randrange(-32, 32)
            f = {"tide": tide, "count": count, "interval": interval, "stride": stride}
            words.append((kind, wait, f))
            # what a REPEAT does after one that re-issued nothing is not laid down
            wait += 0 if count and not tide else 1
        chain = kind != isa.Kind.NOP and wait == 0
    return [*words, SYNC]
