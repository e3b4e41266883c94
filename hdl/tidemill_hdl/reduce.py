"""Helpers of pipelines: registers named by stage, copies, balanced trees, symmetric saturation.

Timing rule: a tree over n terms is visible `(log2(n) + 1) // 2` cycles after its terms
(`Chip.tree_latency` for n = lanes): a stage combines four terms.
"""

from amaranth import *

__all__ = ["copy", "pipe", "saturate", "tree_reduce"]


def pipe(m, name, value, first, last, *, clear=None):
    """Registers `s{k}_{name}` for k in `first`..`last`; `value` is visible in stage `first - 1`.

    Returns a dict from stage to signal. With `clear` the registers reset to 0 and a cycle with
    `clear` empties all of them (valid bits); without it they hold data and have no reset.
    """
    stages = {}
    for k in range(first, last + 1):
        stages[k] = Signal.like(value, name=f"s{k}_{name}", reset_less=clear is None)
        m.d.sync += stages[k].eq(value if clear is None else Mux(clear, 0, value))
        value = stages[k]
    return stages


def copy(m, name, value, primitives):
    """Register `name` of `value`, one of several equal ones; it has no reset.

    Copies of a control bit, each for some lanes, keep wires short. Synthesis merges equal registers
    unless, with `primitives`, they are ECP5 flip-flops by name.
    """
    register = Signal.like(value, name=name, reset_less=True)
    if not primitives:
        m.d.sync += register.eq(value)
        return register
    for k, bit in enumerate(Value.cast(value)):
        m.submodules[f"{name}_{k}"] = Instance(
            "TRELLIS_FF",
            p_GSR="AUTO",
            p_CEMUX="1",
            p_CLKMUX="CLK",
            p_LSRMUX="LSR",
            p_REGSET="RESET",
            i_CLK=ClockSignal(),
            i_LSR=0,
            i_DI=bit,
            o_Q=register[k],
        )
    return register


def saturate(m, name, x, bits, on=1):
    """`numerics.saturate` of signal `x` to `bits` bits, or 0 where the bit `on` is 0.

    The lowest code is never a result. Written as AND and OR: an operand that is 0 where `on` is 1
    can be ORed to it in the same LUT4.
    """
    sign = x[-1]
    rest = x[bits - 1 :]
    fits = Signal(name=f"{name}_fits")
    bound = Signal(name=f"{name}_bound")
    lowest = Signal(name=f"{name}_lowest")
    m.d.comb += [
        fits.eq(on & (rest.all() | ~rest.any())),
        bound.eq(on & ~(rest.all() | ~rest.any())),
        lowest.eq(on & sign & ~x[: bits - 1].any()),
    ]
    edge = Cat(bound | lowest, (bound & ~sign).replicate(bits - 2), bound & sign)
    return ((x[:bits] & fits.replicate(bits)) | edge).as_signed()


def tree_reduce(m, name, terms, operator):
    """Combine a power of two of `terms`, four in a stage, two in the last one if need be.

    `operator(name, group)` returns the value of a group of two or four Signals, which keep the
    order of `terms`; `name` is unique to the group.
    """
    stage = 0
    while len(terms) > 1:
        stage += 1
        nodes = []
        for k in range(0, len(terms), 4):
            node_name = f"{name}_{stage}_{k // 4}"
            value = Value.cast(operator(node_name, terms[k : k + 4]))
            nodes.append(Signal(value.shape(), name=node_name, reset_less=True))
            m.d.sync += nodes[-1].eq(value)
        terms = nodes
    return terms[0]
