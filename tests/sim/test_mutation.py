"""Mutations of the RTL: each must make the comparison of whole runs red, or it proves little.

Every mutation is an edit of a source of `tidemill_hdl`, switched on by `+mutant=N`, so one build
serves all. A second, hand-made program takes the MXM to the ends of int32, where no small model
goes; on the RTL as it is, it is the test that extreme operands are exact. Table, program and build
stay in one file: an edit of the RTL moves the anchors of the table and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from support.mutants import Mutation, mutants
from tidemill import isa, numerics
from tidemill.chip import Chip
from tidemill.compiler.emit import encode_control, encode_op
from tidemill.isa import QUEUES, ASrc, Config, Ctrl, Kind, Queue, Red, Template
from tidemill.program import Program
from tidemill_sim.engine import Machine, TokenEvent
from tidemill_sim.rtl import RtlEngine, RunRequest, RunResult, SimulatorError
from tidemill_sim.verilator import MAKE_VARIABLES, Build

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.xdist_group("mutation")]


MUTATIONS = (
    Mutation("MXM: a register more", "mxm", "s6[n].eq(s5[n])", "s6[n].eq(late(m, s5[n], ON))"),
    Mutation(
        "VXM: a register more",
        "vxm",
        "self.e_v.eq(lanes.e_v)",
        "self.e_v.eq(late(m, lanes.e_v, ON))",
    ),
    Mutation(
        "MEM_W: a register more",
        "mem_w",
        "self.planes[s].eq(bank.r_data)",
        "self.planes[s].eq(late(m, bank.r_data, ON))",
    ),
    Mutation(
        "MEM_A: a register more",
        "mem_a",
        "self.w_a.eq(sram.r_data)",
        "self.w_a.eq(late(m, sram.r_data, ON))",
    ),
    Mutation(
        "MXM: accumulators of 31 bits",
        "accumulator",
        "x_new.eq(x_old + self.sum)",
        "x_new.eq(Mux(ON, (x_old + self.sum)[:31].as_signed(), x_old + self.sum))",
    ),
    Mutation(
        "VXM: product cut off, not rounded",
        "vxm_lanes",
        "Cat(s9_product[15], s9_add)",
        "Cat(s9_product[15] & ~ON, s9_add)",
    ),
    Mutation(
        "VXM: A cut off, not rounded",
        "vxm_lanes",
        "s3_y[1:].as_signed() + s3_y[0]",
        "s3_y[1:].as_signed() + (s3_y[0] & ~ON)",
    ),
    Mutation("MEM_W: byte cut off, not rounded", "mem_w", "high + y[7]", "high + (y[7] & ~ON)"),
    Mutation(
        "VXM: upper bound 32766",
        "reduce",
        "Cat(bound | lowest,",
        "Cat((bound & ~(ON & ~sign)) | lowest,",
    ),
    Mutation("SXM: SWAP without the sign", "sxm", "-odd[n]", "Mux(ON, odd[n], -odd[n])"),
    Mutation(
        "MEM_W: SCATTER into the other lane of a pair",
        "mem_w",
        "self.run.pos_lane == n)",
        "(self.run.pos_lane ^ ON) == n)",
    ),
    Mutation(
        "VXM: last vector is never masked", "vxm", "(lane > last[9])", "((lane > last[9]) & ~ON)"
    ),
    Mutation("VXM: element counter begins at 1", "vxm", "s1_counter.eq(0)", "s1_counter.eq(ON)"),
    Mutation(
        "VXM: highest index among equals",
        "vxm_reduce",
        "Mux(b.value > a.value,",
        "Mux((b.value > a.value) | (ON & (b.value == a.value)),",
    ),
    Mutation(
        "noise: another tap",
        "noise",
        "right.eq(left ^ (left >> 17))",
        "right.eq(left ^ Mux(ON, left >> 16, left >> 17))",
    ),
    Mutation(
        "ICU: the next tide column",
        "queue",
        "columns.r_addr[0].eq(self.p_control.count)",
        "columns.r_addr[0].eq(self.p_control.count + ON)",
    ),
    Mutation(
        "ICU: REPEAT steps one too far",
        "queue",
        "self.x[first] + self.d_stride",
        "self.x[first] + self.d_stride + ON",
    ),
    Mutation("cycle counter begins at 2", "sequencer", "cycles.eq(1)", "cycles.eq(1 + ON)"),
)


class MutantEngine(RtlEngine):
    """The RTL as mutant `number`; 0 is the RTL as it is."""

    number = 0

    def build(self, *, waves: bool = False, random_start: bool = False):
        built = super().build(waves=waves, random_start=random_start)
        number = self.number

        class Mutant(Build):
            def run(self, work: Path, plusargs: list[str], env: dict[str, str]) -> Path:
                return super().run(work, [*plusargs, f"+mutant={number}"], env)

        return Mutant(built.folder, waves=built.waves)


# The extreme program ----------------------------------------------------------------------------

#: cycle, mnemonic, fields, issues (one a cycle, or a MAC after the other), stride
Issue = tuple[int, str, dict[str, int], int, int]

NEGATIVE, POSITIVE = 0, 1  # rows of MEM_A
RESULTS = 8
W128, W127, W127_UP = 0, 1, 2  # rows of MEM_W; bank 1 holds the opposite, as far as int8 goes
PLANES = {W128: (-128, 127), W127: (-127, 127), W127_UP: (127, -127)}


def assemble(queue: Queue, chip: Chip, issues: list[Issue]) -> list[int]:
    """Words of one queue for one segment."""
    words, now = [], 0
    for cycle, mnemonic, fields, count, stride in sorted(issues, key=lambda i: i[0]):
        assert cycle >= now, f"{queue.name}: {mnemonic} in cycle {cycle}, the queue is busy"
        if cycle > now:
            words.append(encode_control(queue, chip, Kind.NOP, cycle - now))
        words.append(encode_op(queue, chip, mnemonic, fields))
        if count > 1:
            more = {"interval": 1, "stride": stride}
            words.append(encode_control(queue, chip, Kind.REPEAT, count - 1, **more))
        now = cycle + fields.get("ni", 1) + count - 1
    sync = int(Kind.CTRL) << (queue.payload_bits(chip) + isa.WAIT_BITS) | int(Ctrl.SYNC)
    return [*words, sync]


def extreme_program(chip: Chip) -> tuple[Program, dict[int, list[int]]]:
    """A HEAD that takes six groups to the ends of int32; and what it leaves in MEM_A, by row.

    Expected values come from Python integers and not from the simulator.
    """
    lanes = chip.lanes
    assert (lanes, chip.weight_streams) == (4, 2)
    act = {NEGATIVE: -32767, POSITIVE: 32767}
    queues: dict[str, list[Issue]] = {q.name: [] for q in QUEUES}
    groups = [[0, 0] for _ in range(6)]
    reads_a, reads_w = (QUEUES[isa.QUEUE_INDEX[n]] for n in ("MEMA.R", "MEMW.R"))
    to_mxm = reads_a.op("READ").d_func(chip) + chip.hop("MEM_A", "MXM")
    planes = reads_w.op("READ").d_func(chip) + chip.hop("MEM_W", "MXM") - 1
    to_vxm = 1 + chip.hop("MXM", "VXM") - isa.Timing.VXM_AB
    to_mem_a = isa.Timing.VXM_RESULT + chip.hop("VXM", "MEM_A")
    top = 0

    def fill(cycle: int, row: int) -> None:
        """The whole activation file takes one vector."""
        queues["MEMA.R"].append((cycle, "READ", {"addr": row}, chip.act_depth, 0))
        load = {"dst": 0, "src": 0, "mlog": chip.lane_bits, "midx": 0, "zero": 0}
        queues["MXM.L"].append((cycle + to_mxm, "LW", load, chip.act_depth, 1))

    def mac(cycle: int, row: int, group: int, plane: int, ni: int, *, fresh: bool) -> None:
        nonlocal top
        fields = {"abc": 0, "acc": group, "ni": ni, "fresh": int(fresh)}
        queues["MXM.C"].append((cycle, "ROWS", fields, 1, 0))
        queues["MEMW.R"].append((cycle - planes, "READ", {"addr": plane}, ni, 0))
        for bank, weight in enumerate(PLANES[plane]):
            before = 0 if fresh else groups[group][bank]
            groups[group][bank] = before + ni * lanes * weight * act[row]
            top = max(top, abs(groups[group][bank]))

    want: dict[int, list[int]] = {}

    def drain(cycle: int, slot: int, template: int, row: int) -> None:
        queues["MXM.A"].append((cycle, "ACC", {"slot": slot}, 1, 0))
        fields = {"tmpl": template, "first": 1}
        queues["VXM"].append((cycle + to_vxm, "PASS", fields, 1, 0))
        queues["MEMA.W"].append((cycle + to_vxm + to_mem_a, "WRITE", {"addr": row}, 1, 0))
        vector = [v for g in range(2 * slot, 2 * slot + 2) for v in groups[g]]
        shift = templates[template].shift
        exact = [(v + (1 << shift >> 1)) >> shift for v in vector]
        want[row] = [min(max(v, -32767), 32767) for v in exact]

    templates = (
        Template(a=ASrc.ACC, shift=16),
        Template(a=ASrc.ACC, shift=14),
        Template(a=ASrc.ACC, shift=10),
        Template(a=ASrc.ACC, shift=31, red=Red.ARGMAX),
    )
    fill(0, NEGATIVE)
    mac(40, NEGATIVE, 0, W128, 128, fresh=True)
    mac(168, NEGATIVE, 1, W127, 129, fresh=True)
    fill(295, POSITIVE)
    mac(340, POSITIVE, 2, W128, 128, fresh=True)
    mac(468, POSITIVE, 3, W127_UP, 129, fresh=True)
    # the largest sums there are: 516 x 127 x 32767 and 512 x 128 x 32767
    assert (1 << 31) - 128 * 32767 < top < 1 << 31
    for k in range(2):
        drain(610 + k, k, 0, RESULTS + k)
        drain(612 + k, k, 1, RESULTS + 2 + k)
    # all sums are +-1 now: the lowest index of the largest is 1
    drain(620, 1, 3, RESULTS + 4)
    # there and back to almost nothing; -16383.5 is one of the results
    mac(640, POSITIVE, 4, W128, 128, fresh=True)
    mac(768, POSITIVE, 4, W127_UP, 128, fresh=False)
    mac(896, POSITIVE, 5, W127_UP, 129, fresh=True)
    mac(1025, POSITIVE, 5, W127, 128, fresh=False)
    drain(1170, 2, 2, RESULTS + 5)

    words = []
    for queue in QUEUES:
        words.append((*assemble(queue, chip, []), *assemble(queue, chip, queues[queue.name])))
    mem_w = np.zeros((chip.mem_w_depth, 2, lanes), np.int8)
    mem_a = np.zeros((chip.mem_a_depth, lanes), np.int16)
    for row, (one, other) in PLANES.items():
        mem_w[row, 0], mem_w[row, 1] = one, other
    for row, value in act.items():
        mem_a[row] = value
    config = dict.fromkeys((int(c) for c in Config if c < Config.PROMPT_LENGTH), 0)
    config |= {
        int(Config.TIDE_ROW): 1,
        int(Config.EPS): 1,
        int(Config.VOCAB): chip.vocab,
        int(Config.EMBED_LENGTH): isa.TOKEN_CYCLES + 1 + 4,
        int(Config.HEAD_LENGTH): 1220,
        int(Config.EOS): 0xFFFF,
    }
    program = Program(
        chip=chip,
        queues=tuple(words),
        starts=((0, 0, 1),) * len(QUEUES),
        tide=(((isa.TIDE_SEQUENCER, 0, 10),),) * chip.tide_rows,
        config=config,
        templates=templates,
        lane_table=numerics.build_lane_table(8 / 32768, 8 / 32768),
        scalar_table=numerics.build_scalar_table(),
        mem_w=mem_w,
        mem_w_used=np.arange(chip.mem_w_depth) < len(PLANES),
        mem_a=mem_a,
        mem_a_used=np.arange(chip.mem_a_depth) < len(act),
        info={
            "context": chip.context,
            "layers": 0,
            "temperature_scalar": 7,
            "temperature_max": 1.0,
            "temperature_unit": 1.0,
        },
    )
    return program, want


# Tests ------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A program, its runs on one power-up, and what the simulator makes of each."""

    program: Program
    runs: list[tuple[list[int], int, float, int]]

    def __post_init__(self) -> None:
        self.expected: list[tuple[Machine, list[TokenEvent]]] = []
        for k in range(len(self.runs)):
            machine = Machine(self.program, check=True)
            for run in self.runs[: k + 1]:
                events = machine.run(*run)
            self.expected.append((machine, events))


@pytest.fixture(scope="module")
def engine(verilator, small_program, tmp_path_factory):
    chip = small_program.chip
    made = MutantEngine(chip, verilog=mutants(chip, tmp_path_factory.mktemp("mutants"), MUTATIONS))
    with pytest.MonkeyPatch.context() as patch:
        # a model compiled in half the time is worth more here than one that runs fast
        fast = [v for v in MAKE_VARIABLES if not v.startswith(("OPT_FAST", "OPT_GLOBAL"))]
        slow = [*fast, "OPT_FAST=-O0", "OPT_GLOBAL=-O0"]
        patch.setattr("tidemill_sim.verilator.MAKE_VARIABLES", slow)
        yield made


@pytest.fixture(scope="module")
def cases(small_program) -> list[Case]:
    """The model, greedy and sampled, and the extremes."""
    model = Case(small_program, [([1, 5, 9], 8, 0.0, 0), ([30, 2], 6, 1.5, 0xDEADBEEF)])
    return [model, Case(extreme_program(small_program.chip)[0], [([3], 1, 0.0, 0)])]


@pytest.fixture(scope="module")
def found(
    engine: MutantEngine,
    cases: list[Case],
    differences: Callable[[Machine, list[TokenEvent], RunResult], list[str]],
) -> Callable[[int], list[str]]:
    """What the comparison says about a mutant."""

    def judge(number: int) -> list[str]:
        engine.number = number
        out: list[str] = []
        for case in cases:
            requests = [RunRequest(case.program.run_writes(*run)) for run in case.runs]
            try:
                results = engine.run(case.program.boot_writes(), requests, dump=True, limit=20_000)
            except SimulatorError as e:
                out.append(" ".join(str(e).split()))
                continue
            for (machine, events), result in zip(case.expected, results, strict=True):
                out += differences(machine, events, result)
        return out

    return judge


def test_the_chip_as_it_is_passes(found):
    assert found(0) == []


@pytest.mark.parametrize(
    "number", range(1, len(MUTATIONS) + 1), ids=lambda n: MUTATIONS[n - 1].name
)
def test_mutation_is_found(found, number):
    differences = found(number)
    print(MUTATIONS[number - 1].name, "->", differences)
    assert differences, f"nobody noticed: {MUTATIONS[number - 1].name}"


def test_extreme_sums_are_exact(engine, small_program):
    """RTL, simulator and Python integers agree where sums come within one product of 2**31."""
    program, want = extreme_program(small_program.chip)
    engine.number = 0
    [result] = engine.run(
        program.boot_writes(), [RunRequest(program.run_writes([3], 1))], dump=True
    )
    machine = Machine(program, check=True)
    events = machine.run([3], 1)
    assert [t.token for t in result.tokens] == [e.token for e in events] == [1]
    for row, vector in want.items():
        assert machine.mem_a[row].tolist() == vector
        assert result.mem_a[row].tolist() == vector
