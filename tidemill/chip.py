"""The one description of a chip: shape, memories, floor plan. Everything else derives from it.

RTL, compiler, simulators, host driver and documentation all take a `Chip` and nothing else about
the hardware. `Chip.hash` goes into the program file, the Verilog ID register and the manifest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CHIPS", "FAMILIES", "Chip", "ChipError", "load_chip"]

#: Forms of multiplier and memories that the RTL knows.
FAMILIES = ("generic", "ecp5", "ice40")

#: Slices of the one hemisphere, west to east. HOST sits beside MEM_A and drives no stream.
SLICES = ("MEM_W", "MXM", "VXM", "SXM", "MEM_A")


class ChipError(ValueError):
    """A chip that cannot be built; the text names the field, the value and what is legal."""


def _log2(n: int) -> int:
    return max(0, (n - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A legal chip. Depths count vectors (MEM_A, files) or rows of every bank at once (MEM_W).

    Raises `ChipError` when a field is out of range; the message names the field.
    """

    #: Name used on the command line and in reports.
    name: str
    #: Elements of one vector; power of two, 1 to 64.
    lanes: int
    #: Weight streams = banks of MEM_W = dot products per cycle; power of two, at most `lanes`.
    weight_streams: int
    #: Rows of each MEM_W bank; a row is `lanes` bytes.
    mem_w_depth: int
    #: Vectors of MEM_A; a vector is `lanes` int16.
    mem_a_depth: int
    #: Activation register file of the MXM, vectors of int16; power of two.
    act_depth: int
    #: Accumulator file of the MXM, vectors of int32; power of two.
    acc_depth: int
    #: Vector temporaries of the VXM, vectors of int16; power of two.
    temp_depth: int = 16
    #: Words of each instruction queue.
    queue_depth: int = 512
    #: Words of the tide table.
    tide_depth: int = 512
    #: Largest number of positions one run may process.
    context: int = 192
    #: Largest vocabulary (width of token registers).
    vocab: int = 512
    #: One of `FAMILIES`: which form of multiplier and memories the RTL takes. Same function, same
    #: latency.
    family: str = "generic"
    #: Stream-register hops between neighbouring slices, west to east.
    hops: tuple[int, int, int, int] = (1, 1, 1, 1)

    def __post_init__(self) -> None:
        def need(ok: bool, field: str, rule: str) -> None:
            if not ok:
                raise ChipError(
                    f"chip {self.name!r}: {field} must be {rule}, not {getattr(self, field)!r}"
                )

        for f in dataclasses.fields(self):
            kind = {"name": str, "family": str, "hops": tuple}.get(f.name, int)
            value = getattr(self, f.name)
            need(
                isinstance(value, kind) and not isinstance(value, bool),
                f.name,
                f"a {kind.__name__}",
            )

        def power(field: str, lo: int, hi: int) -> None:
            v = getattr(self, field)
            need(lo <= v <= hi and v & (v - 1) == 0, field, f"a power of two from {lo} to {hi}")

        need(bool(self.name), "name", "a non-empty string")
        power("lanes", 1, 64)
        power("weight_streams", 1, 64)
        need(self.weight_streams <= self.lanes, "weight_streams", f"at most lanes ({self.lanes})")
        power("act_depth", 2, 4096)
        power("acc_depth", 2, 4096)
        power("temp_depth", 4, 64)
        for field, lo, hi in (
            ("mem_w_depth", 16, 1 << 20),
            ("mem_a_depth", 16, 1 << 16),
            ("queue_depth", 16, 1 << 16),
            ("tide_depth", 16, 1 << 16),
            ("context", 2, 1 << 12),
            ("vocab", 2, 1 << 16),
        ):
            need(lo <= getattr(self, field) <= hi, field, f"from {lo} to {hi}")
        need(self.family in FAMILIES, "family", f"one of {', '.join(FAMILIES)}")
        need(
            len(self.hops) == len(SLICES) - 1
            and all(isinstance(h, int) and 0 <= h <= 8 for h in self.hops),
            "hops",
            f"{len(SLICES) - 1} whole numbers from 0 to 8",
        )

    # Derived shape -----------------------------------------------------------------------------

    @property
    def lane_bits(self) -> int:
        """log2(lanes)."""
        return _log2(self.lanes)

    @property
    def stream_bits(self) -> int:
        """log2(weight_streams)."""
        return _log2(self.weight_streams)

    @property
    def subs(self) -> int:
        """Accumulator groups in one vector: lanes / weight_streams."""
        return self.lanes // self.weight_streams

    @property
    def acc_groups(self) -> int:
        """Accumulator groups of `weight_streams` int32 in the whole file."""
        return self.acc_depth * self.subs

    @property
    def tide_rows(self) -> int:
        """Number of values of n = p div lanes + 1 within the context."""
        return -(-self.context // self.lanes)

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle."""
        return self.lanes * self.weight_streams

    @property
    def tree_latency(self) -> int:
        """Register levels of a reduction over lanes (two adder levels each)."""
        return (self.lane_bits + 1) // 2

    def hop(self, a: str, b: str) -> int:
        """Stream-register hops between slices `a` and `b`, in either direction."""
        i, j = sorted((SLICES.index(a), SLICES.index(b)))
        return sum(self.hops[i:j])

    # Account -----------------------------------------------------------------------------------

    def block_rams(self) -> dict[str, int]:
        """DP16KD (18 kbit) blocks per item on an ECP5, built as `tidemill_hdl.sram` does."""

        def blocks(depth: int, width: int) -> int:
            total = 0
            while depth > 0:
                if depth > 1024:
                    chunk, per = 2048, 9
                elif depth > 512:
                    chunk, per = 1024, 18
                else:
                    chunk, per = 512, 36
                total += -(-width // per)
                depth -= chunk
            return total

        from tidemill.isa import QUEUES

        return {
            "MEM_W": self.weight_streams * blocks(self.mem_w_depth, 9 * self.lanes)
            if self.lanes >= 4
            else self.weight_streams * blocks(self.mem_w_depth, 8 * self.lanes),
            "MEM_A": blocks(self.mem_a_depth, 18 * self.lanes),
            "VXM tables": self.lanes * blocks(512, 32),
            "VXM scalar table": blocks(512, 32),
            "ICU queues": sum(blocks(self.queue_depth, q.word_bits(self)) for q in QUEUES),
            "ICU tide table": blocks(self.tide_depth, 29),
            "HOST prompt": 1,
            "HOST token FIFO": 1,
        }

    def multipliers(self) -> dict[str, int]:
        """18x18 multipliers per item."""
        return {"MXM": self.macs, "VXM": self.lanes, "VXM scalar": 1, "ICU": 1}

    # Identity ----------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, object]:
        """Plain data, in field order."""
        return dataclasses.asdict(self)

    @property
    def hash(self) -> str:
        """16 hex digits over every field but the name."""
        data = {k: v for k, v in self.as_dict().items() if k != "name"}
        text = json.dumps(data, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.name} [{self.hash}]: {self.lanes} lanes x {self.weight_streams} weight "
            f"streams, context {self.context}, MEM_W {self.mem_w_depth} rows, "
            f"MEM_A {self.mem_a_depth} vectors"
        )


CHIPS: dict[str, Chip] = {
    c.name: c
    for c in (
        Chip(
            name="tiny",
            lanes=4,
            weight_streams=2,
            mem_w_depth=49152,
            mem_a_depth=4096,
            act_depth=256,
            acc_depth=64,
            queue_depth=4096,
            tide_depth=8192,
            context=256,
        ),
        Chip(
            name="ulx3s-85f",
            lanes=16,
            weight_streams=8,
            mem_w_depth=2560,
            mem_a_depth=512,
            act_depth=32,
            acc_depth=32,
            tide_depth=1024,
            context=192,
            family="ecp5",
        ),
        Chip(
            name="ulx3s-45f",
            lanes=8,
            weight_streams=4,
            mem_w_depth=4608,
            mem_a_depth=1024,
            act_depth=64,
            acc_depth=32,
            tide_depth=2048,
            context=192,
            family="ecp5",
        ),
        *(
            Chip(
                name=name,
                lanes=4,
                weight_streams=4,
                mem_w_depth=3072,
                mem_a_depth=1024,
                act_depth=64,
                acc_depth=32,
                queue_depth=1024,
                tide_depth=1024,
                context=96,
                family="ecp5",
            )
            for name in ("ulx3s-12f", "icepi-zero")
        ),
    )
}


def load_chip(spec: str) -> Chip:
    """A named chip, or one from a TOML file: `base = "tiny"` plus any field to change.

    Raises `ChipError` with one sentence for an unknown name, an unreadable file, an unknown key or
    an illegal value.
    """
    if spec in CHIPS:
        return CHIPS[spec]
    path = Path(spec)
    if path.suffix != ".toml":
        raise ChipError(
            f"no chip named {spec!r}; named chips are {', '.join(CHIPS)}, or give a .toml file"
        )
    try:
        data = tomllib.loads(path.read_text())
    except OSError as e:
        raise ChipError(f"cannot read chip file {spec!r}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ChipError(f"chip file {spec!r} is not valid TOML: {e}") from None
    base = data.pop("base", None)
    if not isinstance(base, str) or base not in CHIPS:
        raise ChipError(f"chip file {spec!r}: base must be one of {', '.join(CHIPS)}, not {base!r}")
    known = [f.name for f in dataclasses.fields(Chip)]
    for key in data:
        if key not in known:
            raise ChipError(
                f"chip file {spec!r}: unknown key {key!r}; known keys are {', '.join(known)}"
            )
    if isinstance(data.get("hops"), list):
        data["hops"] = tuple(data["hops"])
    data.setdefault("name", path.stem)
    return dataclasses.replace(CHIPS[base], **data)
