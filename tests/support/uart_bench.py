"""cocotb tests of the UART with cocotbext-uart's idea of one; see tests/hdl/test_uart.py."""

import logging
import os
import random
from itertools import pairwise

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, Timer
from cocotbext.uart import UartSink, UartSource

#: Nanoseconds of a clock cycle: long, because cocotbext-uart rounds a bit to whole ones.
CYCLE = 1000
DIVISORS = [int(d) for d in os.environ["DIVISORS"].split()]


class Bench:
    """One UART of the design, its clock running; keeps what its receiver says."""

    def __init__(self, dut, divisor):
        self.bit = divisor * CYCLE
        self._dut, self._divisor = dut, divisor
        self.rx, self.tx = self.port("rx"), self.port("tx")
        self.got, self.errors, self.bits = bytearray(), 0, []

    def port(self, name):
        return getattr(self._dut, f"{name}_{self._divisor}")

    async def start(self):
        for name in ("i_valid", "i_data"):
            self.port(name).value = 0
        self.rx.value = 1
        self._dut.rst.value = 1
        cocotb.start_soon(Clock(self._dut.clk, CYCLE, unit="ns").start())
        await ClockCycles(self._dut.clk, 4)
        self._dut.rst.value = 0
        await ClockCycles(self._dut.clk, 4)
        cocotb.start_soon(self._watch())

    async def _watch(self):
        while True:
            await FallingEdge(self._dut.clk)
            if self.port("strobe").value:
                self.bits.append(int(self.port("bit").value))
            if self.port("o_valid").value:
                self.got.append(int(self.port("o_data").value))
            self.errors += int(self.port("error").value)

    def source(self, rate=1.0):
        logging.getLogger(f"cocotb.{self.rx._path}").setLevel("WARNING")
        return UartSource(self.rx, baud=1e9 / self.bit * rate)

    def sink(self):
        logging.getLogger(f"cocotb.{self.tx._path}").setLevel("WARNING")
        return UartSink(self.tx, baud=1e9 / self.bit)

    async def send(self, source, data):
        """`data` back to back, and a little longer than the last byte."""
        source.write_nowait(data)
        await source.wait()
        await Timer(2 * self.bit, unit="ns")

    async def level(self, value, bits):
        self.rx.value = value
        await Timer(round(bits * self.bit), unit="ns")


@cocotb.test()
@cocotb.parametrize(divisor=DIVISORS, rate=[0.98, 1.0, 1.02])
async def receives(dut, divisor, rate):
    bench = Bench(dut, divisor)
    await bench.start()
    data = bytes([0, 0xFF, 0x55, 0xAA, 0x80, 1]) + random.Random(divisor).randbytes(40)
    source = bench.source(rate)
    await Timer(random.Random(int(rate * 100)).randrange(CYCLE), unit="ns")
    await bench.send(source, data)
    assert bench.got == data
    assert bench.errors == 0
    assert bench.bits == [byte >> k & 1 for byte in data for k in range(8)]


@cocotb.test()
@cocotb.parametrize(divisor=DIVISORS)
async def framing_error(dut, divisor):
    """A byte whose stop bit is low is an error; the next byte is whole again."""
    bench = Bench(dut, divisor)
    await bench.start()
    for bit in (0, *(0x5A >> k & 1 for k in range(8)), 0):
        await bench.level(bit, 1)
    await bench.level(1, 1)
    assert (bench.errors, bench.got) == (1, b"")
    await bench.send(bench.source(), b"\x96\x3c")
    assert (bench.errors, bench.got) == (1, b"\x96\x3c")


@cocotb.test()
@cocotb.parametrize(divisor=DIVISORS)
async def long_break(dut, divisor):
    bench = Bench(dut, divisor)
    await bench.start()
    await bench.level(0, 47.3)
    assert (bench.errors, bench.got) == (1, b"")
    await bench.level(1, 1)
    await bench.send(bench.source(), b"\x01")
    assert (bench.errors, bench.got) == (1, b"\x01")


@cocotb.test()
@cocotb.parametrize(divisor=DIVISORS)
async def glitch(dut, divisor):
    """A low of less than half a bit begins no byte."""
    bench = Bench(dut, divisor)
    await bench.start()
    await bench.level(0, 0.2)
    await bench.level(1, 12)
    assert (bench.errors, bench.got) == (0, b"")
    await bench.send(bench.source(), b"\xc3")
    assert bench.got == b"\xc3"


@cocotb.test()
@cocotb.parametrize(divisor=DIVISORS)
async def transmits(dut, divisor):
    """Back to back, each byte one bit time longer than it is at most; the CRC's bits are right."""
    bench = Bench(dut, divisor)
    await bench.start()
    sink = bench.sink()
    data = bytes([0, 0xFF, 0x55, 0xAA]) + random.Random(divisor).randbytes(20)
    bits, taken = [], []

    async def watch():
        cycle = 0
        while True:
            await FallingEdge(dut.clk)
            cycle += 1
            if bench.port("i_strobe").value:
                bits.append(int(bench.port("i_bit").value))
            if bench.port("i_ready").value and bench.port("i_valid").value:
                taken.append(cycle)

    cocotb.start_soon(watch())
    for byte in data:
        bench.port("i_data").value = byte
        bench.port("i_valid").value = 1
        while True:
            await FallingEdge(dut.clk)
            if bench.port("i_ready").value:
                break
        await RisingEdge(dut.clk)
    bench.port("i_valid").value = 0
    await Timer(12 * bench.bit, unit="ns")
    assert bench.tx.value == 1
    assert sink.read_nowait() == data
    assert bits == [byte >> k & 1 for byte in data for k in range(8)]
    assert {b - a for a, b in pairwise(taken)} == {10 * divisor + 1}
