import dataclasses
import json
import subprocess
import sys

import pytest

from tidemill.chip import CHIPS, SLICES, Chip, ChipError, load_chip

TINY = CHIPS["tiny"]

REFUSED = [
    ("name", "", "a non-empty string"),
    ("name", 5, "a str"),
    ("lanes", 0, "a power of two from 1 to 64"),
    ("lanes", 12, "a power of two from 1 to 64"),
    ("lanes", 128, "a power of two from 1 to 64"),
    ("lanes", -4, "a power of two from 1 to 64"),
    ("lanes", True, "a int"),
    ("lanes", 4.0, "a int"),
    ("lanes", "4", "a int"),
    ("lanes", None, "a int"),
    ("weight_streams", 3, "a power of two from 1 to 64"),
    ("weight_streams", 8, r"at most lanes \(4\)"),
    ("act_depth", 1, "a power of two from 2 to 4096"),
    ("act_depth", 48, "a power of two from 2 to 4096"),
    ("acc_depth", 8192, "a power of two from 2 to 4096"),
    ("temp_depth", 2, "a power of two from 4 to 64"),
    ("mem_w_depth", 15, "from 16 to 1048576"),
    ("mem_w_depth", (1 << 20) + 1, "from 16 to 1048576"),
    ("mem_a_depth", 1 << 17, "from 16 to 65536"),
    ("queue_depth", 0, "from 16 to 65536"),
    ("tide_depth", 1, "from 16 to 65536"),
    ("context", 1, "from 2 to 4096"),
    ("context", 4097, "from 2 to 4096"),
    ("vocab", 1, "from 2 to 65536"),
    ("family", "xilinx", "one of generic, ecp5, ice40"),
    ("family", 7, "a str"),
    ("hops", (1, 1, 1), "4 whole numbers from 0 to 8"),
    ("hops", (1, 1, 1, 9), "4 whole numbers from 0 to 8"),
    ("hops", (1, 1, -1, 1), "4 whole numbers from 0 to 8"),
    ("hops", (1, 1, 1, "1"), "4 whole numbers from 0 to 8"),
    ("hops", 1, "a tuple"),
]


@pytest.mark.parametrize(("field", "value", "rule"), REFUSED)
def test_illegal_value_is_refused_by_name(field, value, rule):
    with pytest.raises(ChipError, match=rf"^chip .*: {field} must be {rule}, not "):
        dataclasses.replace(TINY, **{field: value})


def test_every_field_has_a_refusal():
    assert {field for field, _, _ in REFUSED} == {f.name for f in dataclasses.fields(Chip)}


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.lanes = 8


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32, 64])
def test_derived_shape(lanes):
    streams = 1
    while streams <= lanes:
        chip = dataclasses.replace(TINY, lanes=lanes, weight_streams=streams)
        assert 1 << chip.lane_bits == lanes
        assert 1 << chip.stream_bits == streams
        assert chip.subs * streams == lanes
        assert chip.acc_groups == chip.acc_depth * lanes // streams
        assert chip.macs == lanes * streams
        assert (chip.tide_rows - 1) * lanes < chip.context <= chip.tide_rows * lanes
        # two adder levels of the reduction in every register level
        assert 2 * chip.tree_latency - chip.lane_bits in (0, 1)
        streams *= 2


def test_hops_add_up_in_both_directions():
    chip = dataclasses.replace(TINY, hops=(1, 0, 3, 2))
    assert chip.hop("MEM_W", "MXM") == 1
    assert chip.hop("MXM", "VXM") == 0
    assert chip.hop("MEM_W", "MEM_A") == 6
    assert chip.hop("VXM", "MEM_A") == 5
    for a in SLICES:
        assert chip.hop(a, a) == 0
        for b in SLICES:
            assert chip.hop(a, b) == chip.hop(b, a)


# Identity ----------------------------------------------------------------------------------------

OTHER = {
    "lanes": 8,
    "weight_streams": 1,
    "mem_w_depth": 2048,
    "mem_a_depth": 2048,
    "act_depth": 128,
    "acc_depth": 128,
    "temp_depth": 8,
    "queue_depth": 1024,
    "tide_depth": 1024,
    "context": 128,
    "vocab": 300,
    "family": "ecp5",
    "hops": (1, 1, 1, 2),
}


def test_hash_changes_with_every_field_but_the_name():
    assert {"name", *OTHER} == {f.name for f in dataclasses.fields(Chip)}
    assert dataclasses.replace(TINY, name="other").hash == TINY.hash
    hashes = {dataclasses.replace(TINY, **{k: v}).hash for k, v in OTHER.items()}
    assert len(hashes | {TINY.hash}) == len(OTHER) + 1


def test_hash_is_16_hex_digits_and_the_same_in_another_process(named_chip):
    assert len(named_chip.hash) == 16
    assert int(named_chip.hash, 16) >= 0
    code = f"from tidemill.chip import CHIPS; print(CHIPS[{named_chip.name!r}].hash)"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == named_chip.hash


def test_dictionary_round_trip(named_chip):
    data = json.loads(json.dumps(named_chip.as_dict()))
    data["hops"] = tuple(data["hops"])
    assert Chip(**data) == named_chip


def test_description_names_the_chip_and_its_hash(named_chip):
    assert named_chip.name in named_chip.describe()
    assert named_chip.hash in named_chip.describe()


# What fits ---------------------------------------------------------------------------------------


def test_ulx3s_85f_fits_its_part():
    chip = CHIPS["ulx3s-85f"]
    assert sum(chip.block_rams().values()) <= 200
    assert sum(chip.multipliers().values()) <= 150
    assert chip.context >= 192
    assert (chip.lanes, chip.weight_streams) == (16, 8)


def test_account_of_block_rams_by_hand():
    account = CHIPS["ulx3s-85f"].block_rams()
    # 8 banks of 2560 rows of 144 bits: a 2048 x 9 step of 16 blocks and a 512 x 36 step of 4
    assert account["MEM_W"] == 8 * (16 + 4)
    # 512 vectors of 288 bits, 36 bits to a block
    assert account["MEM_A"] == 8


# Chip files --------------------------------------------------------------------------------------


@pytest.fixture
def chip_file(tmp_path):
    def write(text, name="my.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", list(CHIPS))
def test_named_chip_loads(name):
    assert load_chip(name) is CHIPS[name]
    assert CHIPS[name].name == name


def test_file_with_base_only(chip_file):
    chip = load_chip(chip_file('base = "tiny"\n'))
    assert chip.name == "my"
    assert chip.hash == TINY.hash


def test_file_changes_fields(chip_file):
    text = 'base = "tiny"\nname = "wide"\nlanes = 16\nweight_streams = 8\nhops = [0, 1, 2, 0]\n'
    chip = load_chip(chip_file(text))
    want = dataclasses.replace(TINY, name="wide", lanes=16, weight_streams=8, hops=(0, 1, 2, 0))
    assert chip == want


def test_size_that_the_base_makes_illegal_is_refused(chip_file):
    with pytest.raises(ChipError, match=r"weight_streams must be at most lanes \(1\), not 2"):
        load_chip(chip_file('base = "tiny"\nlanes = 1\n'))


BAD_FILES = [
    ("", r"base must be one of tiny, ulx3s-85f.*, not None"),
    ('base = "huge"', r"base must be one of tiny, ulx3s-85f.*, not 'huge'"),
    ("base = 4", r"base must be one of tiny, ulx3s-85f.*, not 4"),
    ('base = ["tiny"]', r"base must be one of tiny, ulx3s-85f.*, not \['tiny'\]"),
    ('base = "tiny"\nlane = 8', r"unknown key 'lane'; known keys are name, lanes, "),
    ('base = "tiny"\nhash = "0"', r"unknown key 'hash'; known keys are "),
    ('base = "tiny"\nlanes = "8"', r"lanes must be a int, not '8'"),
    ('base = "tiny"\nlanes = true', r"lanes must be a int, not True"),
    ('base = "tiny"\nlanes = 8.0', r"lanes must be a int, not 8\.0"),
    ('base = "tiny"\nlanes = 6', r"lanes must be a power of two from 1 to 64, not 6"),
    ('base = "tiny"\nhops = 1', r"hops must be a tuple, not 1"),
    ('base = "tiny"\nhops = [1, 2]', r"hops must be 4 whole numbers from 0 to 8, not \(1, 2\)"),
    ('base = "tiny"\n[lanes]\nx = 1', r"lanes must be a int, not \{'x': 1\}"),
    ('base = "tiny"\nname = ""', r"name must be a non-empty string, not ''"),
    ('base = "tiny', r"is not valid TOML: "),
    ('base = "tiny"\nlanes = 4\nlanes = 8', r"is not valid TOML: "),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_bad_file_is_refused_by_name(chip_file, text, message):
    with pytest.raises(ChipError, match=message):
        load_chip(chip_file(text))


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "my.toml"
    path.write_bytes(b'base = "\xff"')
    with pytest.raises(ChipError, match="is not valid TOML"):
        load_chip(str(path))


def test_missing_file(tmp_path):
    with pytest.raises(ChipError, match=r"cannot read chip file '.*no\.toml': No such file"):
        load_chip(str(tmp_path / "no.toml"))


def test_folder_instead_of_file(tmp_path):
    folder = tmp_path / "my.toml"
    folder.mkdir()
    with pytest.raises(ChipError, match="cannot read chip file"):
        load_chip(str(folder))


@pytest.mark.parametrize("spec", ["nosuch", "", "tiny.json"])
def test_unknown_name_lists_the_known(spec):
    with pytest.raises(
        ChipError, match=rf"no chip named '{spec}'; named chips are tiny, ulx3s-85f"
    ):
        load_chip(spec)


def test_size_matrix_is_legal(size_chip):
    assert size_chip.context == TINY.context
    assert size_chip.mem_w_depth * size_chip.macs >= TINY.mem_w_depth * TINY.macs
