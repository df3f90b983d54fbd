"""Real lines, vocabularies that SentencePiece learns from them, and a small one of RoBERTa's."""

import io

import pytest

from official_cmlm.tokenization import load_vocabulary
from tests.checkpoints.helpers import REFERENCES


@pytest.fixture(scope="session")
def small():
    """Loads 256 bytes, five special tokens and 39 merges."""
    return load_vocabulary(REFERENCES / "roberta")


@pytest.fixture(scope="session")
def news(data_dir):
    """Reads NTREX: 1,997 sentences in each of ten languages, side by side."""
    paths = sorted((data_dir / "ntrex").glob("newstest2019-*.txt"))
    languages = [[line for line in p.read_text("utf-8").split("\n") if line] for p in paths]
    assert len(languages) >= 10
    return [line for lines in zip(*languages) for line in lines]


@pytest.fixture(scope="session")
def train_sentence_piece():
    """Returns a function that learns a model from lines; returns the content of its file."""
    sentencepiece = pytest.importorskip("sentencepiece")

    def train(lines, vocab_size=1500, **options):
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=written,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            num_threads=2,
            minloglevel=2,
            **options,
        )
        return written.getvalue()

    return train
