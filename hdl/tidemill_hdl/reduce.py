"""Helpers of every pipeline: delay lines named by stage, balanced trees, symmetric saturation.

Timing rule: a tree over n terms is visible `(log2(n) + 1) // 2` cycles after its terms
(`Chip.tree_latency` for n = lanes): a register after every second operator level and the last one.
"""

from amaranth import *
from amaranth.utils import exact_log2

__all__ = ["pipe", "saturate", "spread", "tree_reduce"]


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


def spread(m, name, value, first, last, copies):
    """`pipe` that fans out: a list of `copies` plain signals, each of them stage `last`.

    Their number doubles from stage to stage, as late as it can; copies is a power of two, at most
    one doubling per stage. Synthesis would make one of two registers with one source: so the odd
    one powers up with all bits set, and its user must not mind. There is no reset.
    """
    value = Value.cast(value)
    ones = (1 << len(value)) - 1
    nodes = [value]
    for k in range(first, last + 1):
        count = -(-copies >> (last - k))
        stage = []
        for c in range(count):
            odd = count > len(nodes) and c % 2
            copy = Signal(
                len(value), name=f"s{k}_{name}_{c}", init=ones if odd else 0, reset_less=True
            )
            m.d.sync += copy.eq(nodes[c * len(nodes) // count])
            stage.append(copy)
        nodes = stage
    return nodes


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
    """Combine a power of two of `terms` pairwise with `operator(a, b)`, which returns a value.

    `terms` are Signals; the operator may use its arguments more than once. Lower indices stay on
    the left.
    """
    levels = exact_log2(len(terms))
    for level in range(1, levels + 1):
        domain = m.d.sync if level % 2 == 0 or level == levels else m.d.comb
        nodes = []
        for k in range(0, len(terms), 2):
            value = Value.cast(operator(terms[k], terms[k + 1]))
            node = Signal(value.shape(), name=f"{name}_l{level}_{k // 2}", reset_less=True)
            domain += node.eq(value)
            nodes.append(node)
        terms = nodes
    return terms[0]
