"""Tokenizer files: our model's agree with SentencePiece, and faults have their sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.checkpoint import ModelError
from tidemill.model.tokenizer import BOS, EOS, load_tokenizer, save_tokenizer

TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    "two lines\nand more",
    'He said: "No!" 12345 times.',
    "naïve café ☃",
]


@pytest.fixture(scope="module")
def tokenizer(repo):
    return load_tokenizer(repo / "models" / "td260k" / "tokenizer.bin", 512)


def test_agrees_with_sentencepiece(tokenizer, repo):
    sentencepiece = pytest.importorskip("sentencepiece")
    judge = sentencepiece.SentencePieceProcessor(
        model_file=str(repo / "models" / "td260k" / "tokenizer.model")
    )
    for text in TEXTS:
        assert tokenizer.encode(text) == [BOS, *judge.encode(text)]


def test_round_trip(tokenizer):
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
    def check(text):
        assert tokenizer.decode(tokenizer.encode(text)) == text

    check()


def test_control_tokens_are_silent(tokenizer):
    assert tokenizer.decode([BOS, EOS]) == ""
    with pytest.raises(ModelError, match="token 512 is outside the tokenizer's 512"):
        tokenizer.decode([512])


def test_faults(tmp_path):
    path = tmp_path / "t.bin"
    with pytest.raises(ModelError, match="cannot read tokenizer"):
        load_tokenizer(path, 4)
    save_tokenizer(path, [b"<unk>", b"<s>", b"</s>", b"a"], [0.0, 0.0, 0.0, -1.0])
    with pytest.raises(ModelError, match="has 4 tokens, the model 5"):
        load_tokenizer(path, 5)
    with pytest.raises(ModelError, match="no token for ' ' and none for bytes"):
        load_tokenizer(path, 4).encode("a")
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    with pytest.raises(ModelError, match=r"is truncated|claims \d+ bytes"):
        load_tokenizer(path, 4)
