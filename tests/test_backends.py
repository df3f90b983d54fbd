"""The seam between `SentenceEncoder` and what computes its vectors."""

import json

import numpy as np
import pytest

from official_cmlm import SentenceEncoder, backends
from official_cmlm.checkpoints.encoder_directory import NO_SETTINGS, EncoderDirectory, describe
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.embeddings import EmbeddingId
from official_cmlm.errors import UserError
from tests.conftest import tiny_encoder_config


class Counting:
    """A backend whose vector is the sum of the real ids, and how many there are."""

    name, dimension, max_positions, padded_length = "counting", 2, 16, 0
    embedding_id = EmbeddingId()
    batch_tokens, call_tokens, concurrent = 8, 0, 1

    def embed(self, word_ids, lengths):
        assert word_ids.dtype == lengths.dtype == np.int32
        assert word_ids.shape[0] == 1 or word_ids.size <= self.batch_tokens
        real = np.arange(word_ids.shape[1]) < lengths[:, np.newaxis]
        return np.stack([(word_ids * real).sum(axis=1), lengths], axis=1).astype(np.float32)


@pytest.fixture
def folder(tmp_path, vocabulary):
    describe(tmp_path, tiny_encoder_config(vocab_size=len(vocabulary)), vocabulary, 32)
    return tmp_path


def test_a_backend_gets_padded_ids_and_says_how_many(vocabulary):
    """Rows come back in the order of the texts; batches are as large as the backend wants."""
    encoder = SentenceEncoder(Counting(), vocabulary, 8)
    texts = ["the cat sat", "", "a dog", "the bird ran to the cat and the dog", "a"]
    ids = vocabulary.tokenizer().tokenize(texts).to_list()
    ends = vocabulary.special_ids["cls"] + vocabulary.special_ids["sep"]
    expected = [[sum(row[:6]) + ends, min(len(row), 6) + 2] for row in ids]
    np.testing.assert_array_equal(encoder.encode(texts), expected)
    assert encoder.dimension == 2
    with pytest.raises(UserError, match="counting has no Keras model"):
        _ = encoder.model


def test_the_position_table_of_a_backend_is_the_limit(vocabulary):
    with pytest.raises(ValueError, match="3 to 16"):
        SentenceEncoder(Counting(), vocabulary, 17)


def test_an_unknown_backend_is_named(folder):
    with pytest.raises(UserError, match="'abacus': no such backend; take one of tensorflow"):
        SentenceEncoder.load(folder, backend="abacus")


def test_load_asks_the_backend_of_that_name(folder, vocabulary, monkeypatch):
    asked = []

    class Module:
        @staticmethod
        def open_folder(*arguments):
            asked.append(arguments)
            length = arguments[1].max_seq_length
            return backends.Opened(Counting(), vocabulary, length, NO_SETTINGS)

    monkeypatch.setitem(backends.BACKENDS, "counting", "counting_backend")
    monkeypatch.setitem(__import__("sys").modules, "counting_backend", Module)
    encoder = SentenceEncoder.load(folder, 9, "int8", "cls", backend="counting")
    assert asked == [(folder, backends.Computation(9, "int8", VectorOverride("cls")))]
    assert encoder.max_seq_length == 9 and encoder.backend.name == "counting"


def test_the_content_of_a_directory(folder, vocabulary):
    found = EncoderDirectory.open(folder)
    assert found.config == tiny_encoder_config(vocab_size=len(vocabulary))
    assert found.max_seq_length == 32 and found.checkpoint is None
    assert found.vocabulary.hash == vocabulary.hash
    values = json.loads((folder / "encoder_config.json").read_text(encoding="utf-8"))
    values["encoder"]["hidden_size"] = "wide"
    (folder / "encoder_config.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError, match="encoder: hidden_size must be int"):
        EncoderDirectory.open(folder)
