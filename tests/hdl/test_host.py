"""Host slice: decode, configuration, FIFO, sticky fault."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from support.simulate import simulate
from tidemill import isa
from tidemill.chip import CHIPS
from tidemill_hdl.host import PORTS, FaultRegister, HostDecode, TokenFifo

CHIP = replace(CHIPS["tiny"], context=20)


def test_every_space_has_one_port():
    dut = HostDecode(CHIP)

    async def bench(ctx):
        ctx.set(dut.en, 1)
        ctx.set(dut.addr, int(isa.Config.SCALAR0) + 3)
        ctx.set(dut.wdata, 1 << 63)
        for space in isa.Space:
            ctx.set(dut.space, int(space))
            on = [name for name in PORTS if ctx.get(getattr(dut, name).en)]
            assert [PORTS[name] for name in on] == [space]
            port = getattr(dut, on[0])
            assert ctx.get(port.addr) == (3 if on == ["scalar_init"] else 19)
            assert ctx.get(port.wdata) == 1 << 63
        ctx.set(dut.addr, 5)
        ctx.set(dut.space, int(isa.Space.CONFIG))
        assert not any(ctx.get(getattr(dut, name).en) for name in PORTS)

    simulate(dut, bench)


def test_config_registers_hold_what_was_written():
    dut = HostDecode(CHIP)
    entries = [e for e in isa.Config if e < isa.Config.SCALAR0]

    async def bench(ctx):
        ctx.set(dut.space, int(isa.Space.CONFIG))
        ctx.set(dut.en, 1)
        for we in (1, 0):  # a read changes nothing
            ctx.set(dut.we, we)
            for entry in entries:
                ctx.set(dut.addr, int(entry))
                ctx.set(dut.wdata, 3 + int(entry) if we else 0)
                await ctx.tick()
        for entry in entries:
            assert ctx.get(getattr(dut.config, entry.name.lower())) == 3 + int(entry)

    simulate(dut, bench)


def test_read_data_comes_from_the_space_that_was_asked():
    dut = HostDecode(CHIP)

    async def bench(ctx):
        ctx.set(dut.mem_w.rdata, 11)
        ctx.set(dut.mem_a.rdata, 22)
        ctx.set(dut.en, 1)
        asked = [0, 1, 1, 0, 1, 0, 0]
        for cycle in range(len(asked) + isa.HOST_READ_LATENCY):
            ctx.set(dut.space, asked[cycle] if cycle < len(asked) else 5)
            if cycle >= isa.HOST_READ_LATENCY:
                assert ctx.get(dut.rdata) == (11, 22)[asked[cycle - isa.HOST_READ_LATENCY]]
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("busy", [0.1, 0.5, 1.0])
def test_fifo_against_a_queue(busy):
    """First word falls through two cycles after its event; a full run fits."""
    dut = TokenFifo(CHIP)
    rng = random.Random(int(busy * 10))

    async def bench(ctx):
        model = deque()  # (cycle from which it is visible, word)
        popped = 0
        for cycle in range(600):
            model_valid = bool(model) and model[0][0] <= cycle
            assert ctx.get(dut.valid) == model_valid
            if model_valid:
                assert ctx.get(dut.data) == model[0][1]
            pop = rng.random() < busy / 2
            push = rng.random() < busy and len(model) < CHIP.context
            cycles, token, generated = rng.getrandbits(20), rng.getrandbits(15), rng.getrandbits(1)
            ctx.set(dut.pop, pop)
            ctx.set(dut.event.valid, push)
            ctx.set(dut.event.cycles, cycles)
            ctx.set(dut.event.token, token)
            ctx.set(dut.event.generated, generated)
            if pop and model_valid:
                model.popleft()
                popped += 1
            if push:
                model.append((cycle + 2, cycles | token << 20 | generated << 35))
            await ctx.tick()
        assert popped > 10
        ctx.set(dut.event.valid, 0)
        ctx.set(dut.pop, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for _ in range(3):
            assert not ctx.get(dut.valid)
            await ctx.tick()

    simulate(dut, bench)


def test_first_fault_wins():
    """The third source reports one cycle late: all three are of one cycle, the first one counts."""
    dut = FaultRegister([4, 2, 9], [0, 0, 1])

    async def bench(ctx):
        async def cycles(reports):
            for at in range(6):
                ctx.set(dut.cycle, 100 + at)
                for k in range(3):
                    ctx.set(dut.sources[k].kind, reports.get((at, k), 0))
                await ctx.tick()

        async def result():
            await ctx.tick()
            got = tuple(ctx.get(s) for s in (dut.fault, dut.kind, dut.queue, dut.at))
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            assert not ctx.get(dut.fault)
            return got

        await cycles({(1, 0): 3, (1, 1): 2, (2, 2): 1, (3, 1): 4})
        assert await result() == (1, 3, 4, 101)
        await cycles({(2, 2): 1, (3, 1): 4})
        assert await result() == (1, 1, 9, 101)
        await cycles({(2, 1): 4, (4, 0): 1})
        assert await result() == (1, 4, 2, 102)

    simulate(dut, bench)
