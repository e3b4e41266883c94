"""Training scripts: the smoke run, the export against tidemill's own reader, resuming, refusals.

Needs the extra `train`; CI installs it.
"""

import dataclasses
import json
import math
import subprocess
import sys
import types

import numpy as np
import pytest

from tidemill.model.checkpoint import ModelConfig, ModelError, load_checkpoint, save_checkpoint
from tidemill.model.tokenizer import BOS, load_tokenizer


@pytest.fixture(scope="module")
def scripts(repo):
    """The modules of `train/`, and torch, as attributes."""
    names = ("fit", "net", "prepare", "recipe", "smoke")
    for need in ("torch", "sentencepiece"):
        pytest.importorskip(need, reason=f"no {need}: pip install -e '.[train]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repo / "train"))
        yield types.SimpleNamespace(**{n: __import__(n) for n in names}, torch=__import__("torch"))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def data(scripts, tmp_path_factory):
    """Folder with a prepared text of two shards."""
    stories = scripts.smoke.make_stories(120)
    folder = tmp_path_factory.mktemp("data")
    scripts.prepare.prepare([stories[:60], stories[60:100]], [stories[100:]], 320, folder)
    return folder


@pytest.fixture(scope="module")
def short(scripts):
    """A recipe of 8 steps; the length of a window changes after 4."""
    return dataclasses.replace(scripts.smoke.SMOKE, steps=8, tokens_per_step=256)


def run(repo, *args):
    return subprocess.run(
        [sys.executable, *map(str, args)], cwd=repo, capture_output=True, text=True, check=False
    )


def test_smoke(scripts, repo):
    """What a user types first: learns, exports, reads back."""
    done = run(repo, "train/train.py", "--smoke")
    assert done.returncode == 0, done.stderr
    assert "logits of the export within" in done.stdout


def test_smoke_refuses_what_does_not_learn(scripts, monkeypatch):
    lazy = dataclasses.replace(scripts.smoke.SMOKE, rate=1e-6)
    monkeypatch.setattr(scripts.smoke, "SMOKE", lazy)
    with pytest.raises(ModelError, match=r"the loss fell by -?0\.\d\d nats, 2\.0 are the least"):
        scripts.smoke.smoke(lambda line: None)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (4, 2), (6, 1)])
def test_export_gives_the_same_logits(scripts, tmp_path, tied, heads, kv_heads):
    config = ModelConfig(
        dim=24, hidden=20, layers=3, heads=heads, kv_heads=kv_heads, vocab=40, context=48, tied=tied
    )
    torch = scripts.torch
    torch.manual_seed(3)
    net = scripts.net.Net(config)
    with torch.no_grad():  # far from the initial values, where attention is nearly flat
        for weight in net.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    save_checkpoint(net.checkpoint(), tmp_path / "model.bin")
    assert load_checkpoint(tmp_path / "model.bin").config == config
    tokens = np.random.default_rng(0).integers(0, config.vocab, (2, config.context))
    assert scripts.smoke.compare(net, tmp_path / "model.bin", tokens) < 1e-4
    with torch.no_grad():
        net.weights["wk"][1, 0, 0] += 1.0
    assert scripts.smoke.compare(net, tmp_path / "model.bin", tokens) > 1e-3


def test_shards_hold_the_stories(scripts, data):
    found = scripts.prepare.load_data(data)
    tokenizer = load_tokenizer(data / "tokenizer.bin", 320)
    stories = scripts.smoke.make_stories(120)
    want = [tokenizer.encode(s) for s in stories]
    assert found.train_tokens.tolist() == [t for row in want[:100] for t in row]
    assert found.val_tokens.tolist() == [t for row in want[100:] for t in row]
    assert found.train.stories == 100 == found.train_tokens.tolist().count(BOS)
    assert found.val.bytes == sum(len(s.encode()) for s in stories[100:])


@pytest.mark.parametrize("model", ["td260k", "td100k"])
def test_the_shipped_tokenizer_files_agree(scripts, repo, tmp_path, model):
    """A model's `tokenizer.bin` is what this code writes for its `tokenizer.model`."""
    shipped = repo / "models" / model
    judge = scripts.prepare.sentencepiece.SentencePieceProcessor(
        model_file=str(shipped / "tokenizer.model")
    )
    scripts.prepare.save_llama2c(judge, tmp_path / "t.bin")
    assert (tmp_path / "t.bin").read_bytes() == (shipped / "tokenizer.bin").read_bytes()


def test_stories_are_cleaned(scripts, tmp_path):
    text = tmp_path / "text"
    text.write_text(
        "One  two. \n three.\n\n\u201cHi\u201d\n\nOne two.\nthree.\n\n \n\ncaf\u00e9", "utf-8"
    )
    read = scripts.prepare.read_stories
    assert read(text) == ["One two.\nthree.", "\u201cHi\u201d", "caf\u00e9"]
    assert read(text, ascii_only=True) == ["One two.\nthree.", '"Hi"']
    assert read(text, separator="three.")[0] == "One two."


def test_bits_per_byte(scripts, data):
    """A model that knows nothing pays log2(vocab) bits for each token."""
    found = scripts.prepare.load_data(data)
    net = scripts.net.Net(scripts.smoke.SMOKE.model)
    with scripts.torch.no_grad():
        net.weights["embed"].zero_()
    facts = scripts.fit.validate(net, found, 32)
    assert facts["val"] == pytest.approx(math.log(320), rel=1e-5)
    bits = math.log2(320) * found.val.tokens / found.val.bytes
    assert facts["bits_per_byte"] == pytest.approx(bits, rel=1e-5)


def test_resumed_is_the_same_as_straight(scripts, data, short, tmp_path):
    silent = {"every": 3, "say": lambda line: None}
    whole = scripts.fit.fit(short, data, tmp_path / "a", **silent)
    assert [entry["step"] for entry in whole] == [3, 6, 8]
    scripts.fit.fit(short, data, tmp_path / "b", stop=5, **silent)
    early = (tmp_path / "b" / "model.bin").read_bytes()
    scripts.fit.fit(short, data, tmp_path / "b", resume=True, **silent)
    assert (tmp_path / "b" / "model.bin").read_bytes() != early
    assert (tmp_path / "b" / "model.bin").read_bytes() == (tmp_path / "a/model.bin").read_bytes()
    log = [json.loads(line) for line in (tmp_path / "b" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [3, 5, 6, 8]
    assert log[-1]["val"] == whole[-1]["val"]


def test_another_seed_is_another_model(scripts, data, short, tmp_path):
    for seed in (1, 2):
        recipe = dataclasses.replace(short, seed=seed, steps=1)
        scripts.fit.fit(recipe, data, tmp_path / str(seed), say=lambda line: None)
    assert (tmp_path / "1" / "model.bin").read_bytes() != (tmp_path / "2/model.bin").read_bytes()


def test_fit_refuses(scripts, data, short, tmp_path):
    def fit(out="run", folder=data, recipe=short, **options):
        return scripts.fit.fit(recipe, folder, tmp_path / out, say=lambda line: None, **options)

    fit(stop=2)
    with pytest.raises(ModelError, match="holds a run already"):
        fit()
    with pytest.raises(ModelError, match="the run has done 2 of 1 steps"):
        fit(stop=1, resume=True)
    with pytest.raises(ModelError, match=r"the run began with rate = 0\.01, now it is 0\.5"):
        fit(recipe=dataclasses.replace(short, rate=0.5), resume=True)
    with pytest.raises(ModelError, match=r"cannot resume: .*state\.pt: No such file"):
        fit("nowhere", resume=True)
    state = (tmp_path / "run" / "state.pt").read_bytes()
    for bad in (state[:1000], b"junk", b""):
        (tmp_path / "run" / "state.pt").write_bytes(bad)
        with pytest.raises(ModelError, match=r"state\.pt is damaged or no state of a run"):
            fit(resume=True)
    (tmp_path / "run" / "state.pt").write_bytes(state)
    other = tmp_path / "other"
    stories = scripts.smoke.make_stories(60, seed=9)
    scripts.prepare.prepare([stories[:50]], [stories[50:]], 320, other)
    with pytest.raises(ModelError, match="the run began with other data"):
        fit(folder=other, resume=True)
    wide = dataclasses.replace(short, model=dataclasses.replace(short.model, vocab=400))
    with pytest.raises(ModelError, match="has 320 tokens, the recipe a vocabulary of 400"):
        fit("new", recipe=wide)
    with pytest.raises(ModelError, match=r"the loss of step \d+ is nan: lower the rate"):
        fit("new", recipe=dataclasses.replace(short, rate=1e30, warmup=1, steps=20))
    (other / "train-000.u16").write_bytes(b"ab")
    with pytest.raises(ModelError, match=r"hold 1 tokens, data\.json says"):
        fit("new", folder=other)
    with pytest.raises(ModelError, match=r"cannot read .*data\.json: .*; run train/prepare\.py"):
        fit("new", folder=tmp_path)


def test_prepare_refuses(scripts, tmp_path):
    prepare = scripts.prepare.prepare
    with pytest.raises(ModelError, match="the vocabulary must be from 260 to 65536, not 100"):
        prepare([["a b"]], [["a"]], 100, tmp_path)
    with pytest.raises(ModelError, match="no tokenizer of 5000 pieces from this text: "):
        prepare([["a b"]], [["a"]], 5000, tmp_path)
    with pytest.raises(ModelError, match=r"cannot read text .*: No such file"):
        scripts.prepare.read_stories(tmp_path / "absent")


@pytest.mark.parametrize("model", ["td260k", "td100k"])
def test_recipe_of_the_shipped_models(scripts, repo, model):
    recipe = scripts.recipe.load_recipe(repo / "train" / f"{model}.toml", steps=1000)
    assert recipe.model == load_checkpoint(repo / "models" / model / "model.bin").config
    assert [recipe.length_at(s) for s in (0, 699, 700, 999)] == [128, 128, 256, 256]
    assert recipe.rate_at(0) == pytest.approx(recipe.rate / 100)
    assert recipe.rate_at(99) == recipe.rate_at(300) == recipe.rate
    assert recipe.rate_at(650) == pytest.approx(recipe.rate * (1 + recipe.floor) / 2)
    assert recipe.rate_at(1000) == pytest.approx(recipe.rate * recipe.floor)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("dim = 64", "dim = 65", "dim 65 is not a multiple of heads 4"),
        ("dim = 64", "", r"\[model\] lacks 'dim'"),
        ("dim = 64", 'dim = "64"', r"dim of \[model\] must be of type int, not '64'"),
        ("rate =", "speed =", r"\[training\] has no 'speed'; possible are seed, steps"),
        ("rate = 4e-3", "rate = 0", "rate 0 and clip 1.0 must be positive"),
        ("length = 256", "length = 1024", "length 1024 is more than the model's context 512"),
        ("length = 256", "length = 100", "4096 is not a multiple of length 100"),
        ("hold = 0.3", "hold = 1", "hold must be at least 0 and below 1, not 1"),
        ("[training]", "[extra]", r"must hold the tables \[model\] and \[training\], it has"),
        ("dim = 64", "dim = = 64", "cannot read recipe"),
    ],
)
def test_recipe_refuses(scripts, repo, tmp_path, old, new, sentence):
    text = (repo / "train" / "td260k.toml").read_text()
    path = tmp_path / "r.toml"
    # At the start of a line: `length` is also the end of another name.
    assert "\n" + old in text
    path.write_text(text.replace("\n" + old, "\n" + new, 1))
    with pytest.raises(ModelError, match=sentence):
        scripts.recipe.load_recipe(path)


def test_commands(scripts, repo, tmp_path):
    """Both scripts from a text file to a folder that holds a usable model, and their refusals."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(scripts.smoke.make_stories(200)))
    done = run(repo, "train/prepare.py", text, "-o", tmp_path / "data", "--vocab", 320)
    assert done.returncode == 0, done.stderr
    assert "train: 190 stories" in done.stdout
    assert "val: 10 stories" in done.stdout
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        "[model]\ndim = 32\nhidden = 32\nlayers = 1\nheads = 2\nkv_heads = 1\nvocab = 320\n"
        "context = 64\n[training]\nsteps = 9\nrate = 1e-2\nlength = 64\nshort_length = 64\n"
    )
    train = ("train/train.py", recipe, "--data", tmp_path / "data", "-o", tmp_path / "run")
    done = run(repo, *train, "--steps", 2)
    assert done.returncode == 0, done.stderr
    assert "step      2 of 2" in done.stdout
    assert load_checkpoint(tmp_path / "run" / "model.bin").config.dim == 32
    assert load_tokenizer(tmp_path / "run" / "tokenizer.bin", 320)
    for args, code, sentence in (
        (train, 1, "holds a run already"),
        (("train/train.py",), 2, "or --smoke alone"),
        (("train/prepare.py", recipe, "-o", tmp_path / "d"), 1, "use --val FILE"),
    ):
        done = run(repo, *args)
        assert done.returncode == code
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
