"""A compiled program: words of every queue, tide table, configuration, memory image, manifest.

One `.tide` file is a zip: `manifest.json` (text, with a sha256 of every other member) and `.npy`
arrays.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill import isa
from tidemill.chip import Chip, ChipError
from tidemill.isa import QUEUES, Config, Seg, Space, Template, config_bits

__all__ = [
    "Program",
    "ProgramError",
    "load_program",
    "memory_words",
    "register_name",
    "unpack_memory",
]

FORMAT = 1


class ProgramError(ValueError):
    """A program file or a run request that cannot be honoured; one sentence says why."""


@dataclass(frozen=True)
class Program:
    """Everything the host loads.

    mem_w: int8 [mem_w_depth, S, L]; mem_a: int16 [mem_a_depth, L]; `*_used` mark the rows the
    program defines (the rest is whatever the memory held). tide[n - 1] is a list of (destination,
    column, value).
    """

    chip: Chip
    #: words of each queue, and the first word of each segment
    queues: tuple[tuple[int, ...], ...]
    starts: tuple[tuple[int, int, int], ...]
    tide: tuple[tuple[tuple[int, int, int], ...], ...]
    config: dict[int, int]
    templates: tuple[Template, ...]
    lane_table: NDArray[np.int64]
    scalar_table: NDArray[np.int64]
    mem_w: NDArray[np.int8]
    mem_w_used: NDArray[np.bool_]
    mem_a: NDArray[np.int16]
    mem_a_used: NDArray[np.bool_]
    #: model name, vocabulary, tokenizer facts, memory map, compiler report
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bits = config_bits(self.chip)
        for register, value in self.config.items():
            top = (1 << bits[register]) - 1
            if not 0 <= value <= top:
                raise ProgramError(
                    f"register {register_name(register)} must be from 0 to {top} on this chip, "
                    f"not {value}"
                )

    # Time --------------------------------------------------------------------------------------

    def rows(self, position: int) -> int:
        """n of a position: vectors of tokens that attention reads."""
        return position // self.chip.lanes + 1

    def layer_length(self, n: int) -> int:
        """Cycles of one LAYER segment when attention reads n vectors of tokens."""
        for dest, column, value in self.tide[n - 1]:
            if dest == isa.TIDE_SEQUENCER and column == 0:
                return value
        raise ProgramError(f"tide row {n} has no LAYER length")

    def cycles(self, position: int, head: bool) -> int:
        """Cycles of one position: the whole timing model of the machine."""
        body = self.config[Config.LAYERS] * self.layer_length(self.rows(position))
        tail = self.config[Config.HEAD_LENGTH] if head else 0
        return self.config[Config.EMBED_LENGTH] + body + tail

    @property
    def context(self) -> int:
        """Positions a run may process."""
        return int(self.info["context"])

    # Host --------------------------------------------------------------------------------------

    def boot_writes(self) -> Iterator[tuple[Space, int, int]]:
        """(space, address, 64-bit data) of everything but run options, in load order."""
        chip = self.chip
        yield from _memory_writes(
            Space.MEM_W,
            self.mem_w.reshape(-1, chip.lanes),
            8,
            np.repeat(self.mem_w_used, chip.weight_streams),
        )
        yield from _memory_writes(Space.MEM_A, self.mem_a, 4, self.mem_a_used)
        for space, table in (
            (Space.LANE_TABLE, self.lane_table),
            (Space.SCALAR_TABLE, self.scalar_table),
        ):
            for i, (base, slope) in enumerate(table.tolist()):
                yield space, i, (base & 0xFFFF) | (slope & 0xFFFF) << 16
        for i, t in enumerate(self.templates):
            yield Space.TEMPLATE, i, t.encode()
        for q, words in enumerate(self.queues):
            for i, w in enumerate(words):
                yield Space.QUEUE, q << 16 | i, w
            for s in Seg:
                yield Space.START, q << 2 | s, self.starts[q][s]
        address = 0
        for row in self.tide:
            for dest, column, value in row:
                yield Space.TIDE, address, dest << 25 | column << 20 | value
                address += 1
        for register, value in self.config.items():
            yield Space.CONFIG, register, value

    def run_writes(
        self, prompt: list[int], max_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> list[tuple[Space, int, int]]:
        """Host writes that set up one run.

        Raises `ProgramError` for what this program cannot do.
        """
        if not prompt:
            raise ProgramError("the prompt is empty: a run needs at least one token")
        if len(prompt) > self.context:
            raise ProgramError(
                f"the prompt has {len(prompt)} tokens, "
                f"the context of this program holds {self.context}"
            )
        bad = [t for t in prompt if not 0 <= t < self.config[Config.VOCAB]]
        if bad:
            raise ProgramError(
                f"token {bad[0]} is outside the vocabulary of {self.config[Config.VOCAB]}"
            )
        if max_tokens < 1:
            raise ProgramError(f"the number of tokens must be at least 1, not {max_tokens}")
        if not 0 <= seed < 1 << 32:
            raise ProgramError(f"the seed must be from 0 to 4294967295, not {seed}")
        writes: list[tuple[Space, int, int]] = [
            (Space.PROMPT, i, token) for i, token in enumerate(prompt)
        ]
        for register, value in (
            (Config.PROMPT_LENGTH, len(prompt)),
            (Config.MAX_TOKENS, min(max_tokens, self.context)),
            (Config.SEED, seed),
            (
                Config.SCALAR0 + int(self.info["temperature_scalar"]),
                self.temperature_word(temperature),
            ),
        ):
            writes.append((Space.CONFIG, int(register), value))
        return writes

    def temperature_word(self, temperature: float) -> int:
        """Scalar-file word of a sampling temperature; 0 is greedy."""
        top = float(self.info["temperature_max"])
        if not 0 <= temperature <= top:
            raise ProgramError(
                f"the temperature must be from 0 to {top:.2f} for this program, not {temperature}"
            )
        return round(temperature * float(self.info["temperature_unit"]))

    # File --------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        out: dict[str, NDArray[Any]] = {
            "mem_w": self.mem_w[self.mem_w_used],
            "mem_w_rows": np.flatnonzero(self.mem_w_used),
            "mem_a": self.mem_a[self.mem_a_used],
            "mem_a_rows": np.flatnonzero(self.mem_a_used),
            "lane_table": self.lane_table,
            "scalar_table": self.scalar_table,
            "tide": np.array(self.tide, np.int64).reshape(len(self.tide), -1, 3),
        }
        for q, words in zip(QUEUES, self.queues, strict=True):
            out[f"queue_{q.name}"] = np.array(words, np.uint64)
        return out

    def _manifest(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "chip": self.chip.as_dict(),
            "chip_hash": self.chip.hash,
            "starts": self.starts,
            "config": {register_name(k): v for k, v in self.config.items()},
            "templates": [t.encode() for t in self.templates],
            "info": self.info,
        }

    @property
    def hash(self) -> str:
        """16 hex digits over everything the chip is loaded with and the manifest."""
        h = hashlib.sha256(json.dumps(self._manifest(), sort_keys=True).encode())
        for name, array in sorted(self._arrays().items()):
            h.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return h.hexdigest()[:16]

    def save(self, path: str | Path) -> None:
        """Write the `.tide` file; the same program gives the same bytes."""
        members: dict[str, bytes] = {}
        for name, array in self._arrays().items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            members[name + ".npy"] = buffer.getvalue()
        manifest = self._manifest() | {
            "program_hash": self.hash,
            "sha256": {n: hashlib.sha256(b).hexdigest() for n, b in members.items()},
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            for name, blob in {
                "manifest.json": json.dumps(manifest, indent=1).encode(),
                **members,
            }.items():
                z.writestr(zipfile.ZipInfo(name), blob, zipfile.ZIP_DEFLATED)


def memory_words(chip: Chip, space: Space) -> int:
    """Host words of MEM_W or MEM_A."""
    if space == Space.MEM_W:
        return chip.mem_w_depth * chip.weight_streams * -(-chip.lanes // 8)
    return chip.mem_a_depth * -(-chip.lanes // 4)


def unpack_memory(chip: Chip, space: Space, words: NDArray[np.uint64]) -> NDArray[Any]:
    """The rows that host words stand for: int8 [rows, S, L] of MEM_W or int16 [rows, L] of MEM_A.

    words: of whole rows, in the order of their addresses.
    """
    words = words.astype("<u8")
    if space == Space.MEM_W:
        banks = words.view(np.int8).reshape(-1, chip.weight_streams, 8 * -(-chip.lanes // 8))
        return banks[:, :, : chip.lanes].copy()
    return words.view(np.int16).reshape(-1, 4 * -(-chip.lanes // 4))[:, : chip.lanes].copy()


def _memory_writes(
    space: Space, rows: NDArray[Any], per: int, used: NDArray[np.bool_]
) -> Iterator[tuple[Space, int, int]]:
    """64-bit host words of the used rows.

    `per` elements a word (fewer lanes leave the rest zero).
    """
    bits = 64 // per
    lanes = rows.shape[1]
    words = -(-lanes // per)
    padded = np.zeros((rows.shape[0], words * per), np.int64)
    padded[:, :lanes] = rows
    fields = (padded & ((1 << bits) - 1)).astype(np.uint64).reshape(-1, words, per)
    packed = np.bitwise_or.reduce(
        fields << (np.arange(per, dtype=np.uint64) * np.uint64(bits)), axis=2
    )
    shift = (words - 1).bit_length()
    for row in np.flatnonzero(used).tolist():
        for w in range(words):
            yield space, row << shift | w, int(packed[row, w])


def _decode_template(word: int) -> Template:
    values: dict[str, Any] = {}
    kinds = {"a": isa.ASrc, "b": isa.BSrc, "func": isa.Func, "mask": isa.Mask, "red": isa.Red}
    for name, width in Template.LAYOUT:
        raw = word & ((1 << width) - 1)
        word >>= width
        if name == "shift":
            values[name] = raw - (1 << width) if raw >> (width - 1) else raw
        else:
            values[name] = kinds.get(name, bool)(raw)
    return Template(**values)


def register_name(register: int) -> str:
    """Name of a register of `Space.CONFIG` in manifests, assembler text and messages."""
    if register >= Config.SCALAR0:
        return f"SCALAR{register - Config.SCALAR0}"
    return Config(register).name


def load_program(path: str | Path) -> Program:
    """Read a `.tide` file.

    Raises `ProgramError` for anything but an intact program of this format.
    """
    try:
        with zipfile.ZipFile(path) as z:
            blobs = {n: z.read(n) for n in z.namelist()}
        manifest = json.loads(blobs["manifest.json"])
        if manifest["format"] != FORMAT:
            raise ProgramError(
                f"{path}: program format {manifest['format']}, this version reads {FORMAT}"
            )
        for name, digest in manifest["sha256"].items():
            if hashlib.sha256(blobs[name]).hexdigest() != digest:
                raise ProgramError(f"{path}: {name} is damaged (its checksum differs)")
        arrays = {n[:-4]: np.load(io.BytesIO(b)) for n, b in blobs.items() if n.endswith(".npy")}
        raw = manifest["chip"] | {"hops": tuple(manifest["chip"]["hops"])}
        chip = Chip(**raw)
        config = {
            int(k[6:]) + 16 if k.startswith("SCALAR") else int(Config[k]): v
            for k, v in manifest["config"].items()
        }
        mem_w = np.zeros((chip.mem_w_depth, chip.weight_streams, chip.lanes), np.int8)
        mem_a = np.zeros((chip.mem_a_depth, chip.lanes), np.int16)
        used_w, used_a = np.zeros(chip.mem_w_depth, bool), np.zeros(chip.mem_a_depth, bool)
        mem_w[arrays["mem_w_rows"]], used_w[arrays["mem_w_rows"]] = arrays["mem_w"], True
        mem_a[arrays["mem_a_rows"]], used_a[arrays["mem_a_rows"]] = arrays["mem_a"], True
        program = Program(
            chip=chip,
            queues=tuple(tuple(arrays[f"queue_{q.name}"].tolist()) for q in QUEUES),
            starts=tuple(tuple(s) for s in manifest["starts"]),
            tide=tuple(tuple((d, c, v) for d, c, v in row) for row in arrays["tide"].tolist()),
            config=config,
            templates=tuple(_decode_template(w) for w in manifest["templates"]),
            lane_table=arrays["lane_table"],
            scalar_table=arrays["scalar_table"],
            mem_w=mem_w,
            mem_w_used=used_w,
            mem_a=mem_a,
            mem_a_used=used_a,
            info=manifest["info"],
        )
    except OSError as e:
        raise ProgramError(f"cannot read program {str(path)!r}: {e.strerror or e}") from None
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as e:
        if isinstance(e, (ProgramError, ChipError)):
            raise
        raise ProgramError(
            f"{path}: not an intact .tide program ({type(e).__name__}: {e})"
        ) from None
    if program.chip.hash != manifest["chip_hash"] or program.hash != manifest["program_hash"]:
        raise ProgramError(f"{path}: the program hash does not match its contents")
    return program
