"""cocotb tests of the board top through its UART; see tests/hdl/test_board.py.

One power-up for all of them, in this order. STORY is a JSON file: what to write, what to expect.
"""

import json
import logging
import os
import random
import zlib
from itertools import pairwise
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.uart import UartSink, UartSource

from tidemill.isa import Config, Fault, Space
from tidemill.link import ERROR, REPLY, SYNC, Push, Reason, Request, frame

CYCLE = 10  # nanoseconds
STORY = json.loads(Path(os.environ["STORY"]).read_text())
BYTE = 10 * STORY["divisor"]  # cycles

for name in ("uart_rx", "uart_tx"):
    logging.getLogger(f"cocotb.tidemill_top.{name}").setLevel("WARNING")


class Host:
    """Requests to the board and what comes back."""

    def __init__(self, dut):
        baud = 1e9 / (STORY["divisor"] * CYCLE)
        self.dut = dut
        self.source = UartSource(dut.uart_rx, baud=baud)
        self.sink = UartSink(dut.uart_tx, baud=baud)
        self.sequence = 0
        self.replies, self.pushed = [], []

    async def frame(self, cycles):
        """The next frame goes where it belongs; False if none came."""
        head = await self.bytes(4, cycles)
        if head is None:
            return False
        assert head[0] == SYNC
        rest = await self.bytes(head[3] + 4, 2 * BYTE)
        body = head[1:] + rest[:-4]
        assert zlib.crc32(body).to_bytes(4, "little") == rest[-4:]
        place = self.pushed if head[1] in iter(Push) else self.replies
        place.append((head[1], head[2], rest[:-4]))
        return True

    async def bytes(self, count, cycles):
        """`count` bytes, None if one of them is not there `cycles` after the one before."""
        found = bytearray()
        while len(found) < count:
            if self.sink.empty():
                await self.sink.wait(cycles * CYCLE, "ns")
                if self.sink.empty():
                    return None
            found += self.sink.read_nowait(1)
        return found

    async def send(self, data):
        self.source.write_nowait(data)
        await self.source.wait()

    async def ask(self, kind, payload=b""):
        """Send a request, (kind, payload) of its reply."""
        self.sequence = (self.sequence + 1) % 256
        await self.send(frame(kind, self.sequence, payload))
        while not self.replies:
            assert await self.frame(40 * BYTE), f"no reply to {kind}"
        kind, sequence, payload = self.replies.pop()
        assert sequence == self.sequence
        return kind, payload

    async def do(self, kind, payload=b""):
        """As `ask`, and the request must have been granted; the payload."""
        got, payload = await self.ask(kind, payload)
        assert got == kind | REPLY, payload
        return payload

    async def write(self, writes):
        """Every write; consecutive addresses share a frame."""
        for space, address, words in runs_of(writes):
            data = b"".join(w.to_bytes(8, "little") for w in words)
            await self.do(Request.WRITE, place(space, address) + data)

    async def story(self, cycles=2000):
        """Pushed frames up to DONE: (run, tokens, status)."""
        while not self.pushed or self.pushed[-1][0] != Push.DONE:
            assert await self.frame(cycles), f"only {len(self.pushed)} frames, no DONE"
        (*tokens, done), self.pushed = self.pushed, []
        assert {run for _, run, _ in tokens} <= {done[1]}
        assert [number(p[:2]) for _, _, p in tokens] == list(range(len(tokens)))
        events = [[number(p[2:4]), number(p[4:7]), p[7]] for _, _, p in tokens]
        return done[1], events, status(done[2])

    async def settle(self):
        """Everything that is still on the way has come."""
        while await self.frame(100 * BYTE):
            pass
        self.replies.clear()
        self.pushed.clear()


def number(data):
    return int.from_bytes(data, "little")


def place(space, address):
    return bytes((space,)) + address.to_bytes(3, "little")


def runs_of(writes):
    """(space, address, up to 7 words) of consecutive writes."""
    group = []
    for space, address, word in writes:
        if group and (group[0] != space or group[1] + len(group[2]) != address):
            yield group
            group = []
        group = group or [space, address, []]
        group[2].append(word)
        if len(group[2]) == 7:
            yield group
            group = []
    if group:
        yield group


def status(p):
    assert len(p) == 14
    names = ("cycles", "tokens", "run", "flags", "fault_cycle", "kind", "queue")
    ends = (0, 4, 6, 7, 8, 12, 13, 14)
    return {n: number(p[a:b]) for n, (a, b) in zip(names, pairwise(ends), strict=True)}


BUSY, FAULT, ABORTED = 1, 2, 4


def connect(dut):
    """The clock goes on, and a new host comes to the board as the last test left it."""
    cocotb.start_soon(Clock(dut.clk, CYCLE, unit="ns").start())
    return Host(dut)


@cocotb.test()
async def power_up(dut):
    """A request during reset is lost; after it the board says who it is."""
    host = connect(dut)
    await ClockCycles(dut.clk, 100 + BYTE)
    got = await host.do(Request.ID)
    assert got[0] == 1
    assert got[1:9] == bytes.fromhex(STORY["hash"])[::-1]
    assert (number(got[9:13]), number(got[13:])) == (STORY["clock_hz"], STORY["build_id"])
    assert status(await host.do(Request.STATUS))["run"] == 0
    assert int(dut.led.value) & 7 == 0


@cocotb.test()
async def load_and_read_back(dut):
    host = connect(dut)
    await host.write(STORY["boot"])
    memory = {(s, a): w for s, a, w in STORY["boot"] if s in (Space.MEM_W, Space.MEM_A)}
    keys = sorted(memory)
    for space, address, _ in runs_of([(*key, 0) for key in keys[:5] + keys[-5:]]):
        got = await host.do(Request.READ, place(space, address) + b"\1")
        assert number(got) == memory[space, address]
    for space, address, zeros in runs_of([(*key, 0) for key in keys]):
        got = await host.do(Request.READ, place(space, address) + bytes((len(zeros),)))
        want = [memory[space, address + k] for k in range(len(zeros))]
        assert [number(got[8 * k : 8 * k + 8]) for k in range(len(zeros))] == want
    # the last words of a memory: nothing beyond them is touched
    for space, size in STORY["sizes"]:
        got = await host.do(Request.READ, place(space, size - 7) + b"\7")
        assert len(got) == 56
    assert not status(await host.do(Request.STATUS))["flags"]
    # spaces that cannot be read
    assert await host.do(Request.READ, place(Space.QUEUE, 0) + b"\2") == bytes(16)


@cocotb.test()
async def stories(dut):
    """Tokens and cycles are the simulator's, run after run."""
    host = connect(dut)
    for run, (writes, events) in enumerate(STORY["runs"], 1):
        await host.write(writes)
        await host.do(Request.START, bytes((run,)))
        assert int(dut.led.value) & 1
        got = await host.story()
        assert got[:2] == (run, events)
        assert (got[2]["tokens"], got[2]["run"], got[2]["flags"]) == (len(events), run, 0)
        assert int(dut.led.value) & 5 == 4


@cocotb.test()
async def start_again_and_seek(dut):
    """A repeated START is no second run; SEEK tells the same story again."""
    host = connect(dut)
    run, (writes, events) = 77, STORY["runs"][0]
    await host.write(writes)
    for _ in range(3):
        await host.do(Request.START, bytes((run,)))
    assert (await host.story())[:2] == (run, events)
    await host.do(Request.START, bytes((run,)))
    assert not await host.frame(100 * BYTE)
    await host.do(Request.SEEK, bytes(2))
    assert (await host.story())[:2] == (run, events)
    await host.do(Request.SEEK, b"\2\0")
    while await host.frame(100 * BYTE):
        pass
    seen, host.pushed = host.pushed, []
    assert [number(p[:2]) for kind, _, p in seen if kind == Push.TOKEN] == [*range(2, len(events))]
    assert seen[-1][0] == Push.DONE
    for index in (len(events), 0xFFFF):  # beyond the end there is only DONE
        await host.do(Request.SEEK, index.to_bytes(2, "little"))
        assert await host.frame(100 * BYTE)
        assert [kind for kind, _, _ in host.pushed] == [Push.DONE]
        host.pushed.clear()


@cocotb.test()
async def busy_and_stop(dut):
    """What is refused while a run goes on, and its end before its time."""
    host = connect(dut)
    run, (writes, events) = 78, STORY["runs"][-1]
    late, extra, mended = STORY["slow"]  # longer positions: time to ask in
    events = [[token, cycles + extra, generated] for token, cycles, generated in events]
    await host.write([*writes, *late])
    await host.do(Request.START, bytes((run,)))
    word = place(Space.CONFIG, 0) + bytes(8)
    assert await host.ask(Request.WRITE, word) == (ERROR, bytes((Reason.BUSY,)))
    assert await host.ask(Request.READ, word[:4] + b"\1") == (ERROR, bytes((Reason.BUSY,)))
    assert await host.ask(Request.START, bytes((run + 1,))) == (ERROR, bytes((Reason.BUSY,)))
    await host.do(Request.STOP, bytes((run - 1,)))  # an old run
    got = status(await host.do(Request.STATUS))
    assert (got["run"], got["flags"]) == (run, BUSY)
    await host.do(Request.STOP, bytes((run,)))
    _, seen, got = await host.story()
    assert seen == events[: len(seen)]
    assert len(seen) < len(events)
    assert (got["run"], got["flags"], got["tokens"]) == (run, ABORTED, len(seen))
    await host.do(Request.STOP, bytes((run,)))  # again
    assert not await host.frame(100 * BYTE)
    await host.do(Request.START, bytes((run + 1,)))
    assert (await host.story(extra * 2))[1] == events
    await host.write(mended)


@cocotb.test()
async def faults(dut):
    """A run that cannot begin is over at once; one with a fault says so; the next one is clean."""
    host = connect(dut)
    writes, events = STORY["runs"][0]
    await host.write([*writes, (Space.CONFIG, int(Config.PROMPT_LENGTH), 0)])
    await host.do(Request.START, b"\x80")
    run, seen, got = await host.story()
    assert (run, seen, got["tokens"]) == (0x80, [], 0)
    assert (got["flags"], got["kind"], got["queue"]) == (FAULT, Fault.ILLEGAL, 15)
    assert int(dut.led.value) & 2

    broken, mended = STORY["fault"], STORY["mend"]
    await host.write([*writes, *broken])
    await host.do(Request.START, b"\x81")
    run, _, got = await host.story()
    assert (run, got["flags"] & FAULT, got["kind"]) == (0x81, FAULT, Fault.ADDRESS)
    assert 0 < got["fault_cycle"] < got["cycles"]

    await host.write([*mended, *writes])
    await host.do(Request.START, b"\x82")
    run, seen, got = await host.story()
    assert (run, seen, got["flags"]) == (0x82, events, 0)
    # a host access beyond the memory
    await host.do(Request.READ, place(*STORY["sizes"][1]) + b"\1")
    got = status(await host.do(Request.STATUS))
    assert (got["flags"], got["kind"]) == (FAULT, Fault.ADDRESS)


@cocotb.test()
async def noise_on_the_line(dut):
    """Garbage and torn frames between requests: retries get through, the story is the same."""
    host = connect(dut)
    rng = random.Random(7)
    writes, events = STORY["runs"][0]

    async def stubborn(kind, payload, sequence):
        for _ in range(12):
            data = bytearray(frame(kind, sequence, payload))
            fate = rng.randrange(5)
            if fate == 0:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            elif fate == 1:
                del data[rng.randrange(len(data))]
            elif fate == 2:
                data.insert(rng.randrange(len(data)), rng.randrange(256))
            elif fate == 3:
                data = rng.randbytes(rng.randrange(12)) + data
            await host.send(bytes(data))
            while await host.frame(6 * BYTE):
                pass
            granted = [r for r in host.replies if r[:2] == (kind | REPLY, sequence)]
            # a frame that survived with another meaning would need a CRC of its own
            assert all(r[1] == sequence for r in host.replies), host.replies
            host.replies.clear()
            if granted:
                return
        raise AssertionError("no way through")

    sequence = 0
    for space, address, words in runs_of(writes):
        sequence += 1
        data = b"".join(w.to_bytes(8, "little") for w in words)
        await stubborn(Request.WRITE, place(space, address) + data, sequence)
    await stubborn(Request.START, b"\x99", sequence + 1)
    run, seen, got = await host.story()
    assert (run, seen, got["flags"]) == (0x99, events, 0)


@cocotb.test()
async def alive(dut):
    """The fourth LED blinks at the rate of the clock."""
    connect(dut)
    levels = []
    half = 1 << (STORY["clock_hz"].bit_length() - 2)
    for _ in range(4):
        levels.append(int(dut.led.value) >> 3)
        await ClockCycles(dut.clk, half)
    assert levels in ([0, 1, 0, 1], [1, 0, 1, 0])
