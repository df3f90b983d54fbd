"""The names and calls of sentence-transformers, and what other libraries do with them."""

import itertools

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.encoding.backends.tensorflow import TensorFlowBackend
from official_cmlm.encoding.sentence_encoder import SentenceEncoder, TextCutWarning
from tests.conftest import write_encoder
from tests.encoding.test_encoding import DIMENSION, LONG, Waves

TEXTS = ["the cat ran", "a dog", "", "the bird sat under the tree", "a dog"]


@pytest.fixture
def encoder(vocabulary):
    return SentenceEncoder(Waves(), vocabulary, 12)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, vocabulary):
    folder = write_encoder(tmp_path_factory.mktemp("encoder"), vocabulary, 32)
    return SentenceEncoder.load(folder, backend="tensorflow")


def test_a_string_has_a_vector(encoder):
    for encode in (encoder.encode, encoder.encode_query, encoder.encode_document):
        found = encode("a dog")
        assert found.shape == (DIMENSION,)
        np.testing.assert_array_equal(found, encode(["a dog"])[0])


def test_names_of_the_class(encoder, loaded):
    assert encoder.get_sentence_embedding_dimension() == DIMENSION
    assert encoder.device == "cpu" and loaded.device.lower() == "cpu"
    encoder.encode(TEXTS, device="cpu")
    with pytest.raises(UserError, match="device=cuda:1: the encoder is on cpu; .*load"):
        encoder.encode(TEXTS, device="cuda:1")
    for bad in ({"output_value": "logits"}, {"on_long": "raise"}, {"precision": "int4"}):
        with pytest.raises(ValueError, match="must be one of"):
            encoder.encode(TEXTS, **bad)


def test_tokenize(encoder):
    found = encoder.tokenize(["the cat ran", "dog"])
    ids = encoder.vocabulary.tokens.index
    row = [ids(token) for token in ("[CLS]", "the", "cat", "ran", "[SEP]")]
    assert found["input_ids"].tolist()[0] == row
    assert found["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert {each.dtype for each in found.values()} == {np.dtype(np.int64)}
    for call in (encoder.tokenize, encoder.count_tokens, encoder.inputs):
        with pytest.raises(TypeError, match="single string"):
            call("dog")


def test_tensors_of_torch(encoder):
    if not is_installed("torch"):
        with pytest.raises(UserError, match="needs the package torch, which is not installed"):
            encoder.encode(TEXTS, convert_to_tensor=True)
    else:
        import torch

        found = encoder.encode(TEXTS, convert_to_tensor=True)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found.numpy(), encoder.encode(TEXTS))
    with pytest.raises(UserError, match="convert_to_tensor=True"):
        encoder.encode(TEXTS, convert_to_numpy=False)


def test_embeddings_of_tokens(loaded):
    """Their mean is the vector of an encoder with that pooling; padding is left out."""
    found = loaded.encode(TEXTS, output_value="token_embeddings", batch_size=2)
    assert [len(rows) for rows in found] == loaded.count_tokens(TEXTS).tolist()
    means = np.stack([rows.mean(axis=0) for rows in found])
    np.testing.assert_allclose(means, loaded.encode(TEXTS), atol=1e-5)
    one = loaded.encode("a dog", output_value="token_embeddings")
    np.testing.assert_allclose(one, found[1], atol=1e-5)
    assert isinstance(loaded.backend, TensorFlowBackend)
    with pytest.raises(ValueError, match="are for sentence_embedding"):
        loaded.encode(TEXTS, output_value="token_embeddings", precision="int8")


def test_a_backend_without_embeddings_of_tokens(encoder):
    with pytest.raises(UserError, match="the backend waves has none"):
        encoder.encode(TEXTS, output_value="token_embeddings")


@pytest.mark.parametrize("window", [1, 4, 1000])
def test_a_stream_gives_the_rows_of_encode(encoder, monkeypatch, window):
    from official_cmlm.encoding import token_batches

    texts = [f"{text} {'cat ' * (i % 5)}" for i, text in enumerate(TEXTS * 9)]
    options = {"normalize_embeddings": True, "truncate_dim": 4, "prompt": "the ", "batch_size": 3}
    expected = encoder.encode(texts, **options)
    monkeypatch.setattr(token_batches, "_WINDOW", window)
    found = list(encoder.encode_iter(iter(texts), **options))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert list(encoder.encode_iter([])) == []


def test_an_endless_stream_is_read_a_little_ahead(encoder, monkeypatch):
    from official_cmlm.encoding import token_batches

    monkeypatch.setattr(token_batches, "_WINDOW", 8)
    read = []
    texts = (read.append(i) or f"{'cat ' * (i % 3)}dog" for i in itertools.count())
    stream = encoder.encode_iter(texts, batch_size=4)
    first = list(itertools.islice(stream, 20))
    assert len(first) == 20 and len(read) < 60
    stream.close()


def test_a_stream_warns_after_its_end_and_refuses_early(encoder):
    with pytest.warns(TextCutWarning, match="1 of 2 texts have more than 12") as caught:
        list(encoder.encode_iter([LONG, "a dog"]))
    assert caught[0].filename == __file__
    with pytest.raises(UserError, match="1 of 2 texts"):
        list(encoder.encode_iter([LONG, "a dog"], on_long="error"))
    with pytest.raises(TypeError, match="item 1 is int"):
        list(encoder.encode_iter(["a", 1]))
    with pytest.raises(TypeError, match="single string"):
        encoder.encode_iter("a dog")
    with pytest.raises(ValueError, match="truncate_dim"):
        encoder.encode_iter(["a dog"], truncate_dim=99)


def test_processes_need_an_encoder_that_was_loaded(encoder):
    with pytest.raises(UserError, match="make it by SentenceEncoder.load"):
        encoder.start_multi_process_pool()


@pytest.mark.long
def test_processes_compute_the_same(loaded):
    loaded.prompts["query"] = "the "
    pool = loaded.start_multi_process_pool(["cpu", "cpu"])
    try:
        texts = TEXTS * 20
        for options in ({}, {"prompt_name": "query"}, {"output_value": "token_embeddings"}):
            expected = loaded.encode(texts, batch_size=8, **options)
            found = loaded.encode(texts, batch_size=8, pool=pool, **options)
            for row, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(row, other, atol=1e-5)
    finally:
        loaded.stop_multi_process_pool(pool)


# BERTopic, bertopic/backend/_sentencetransformers.py and KeyBERT,
# keybert/backend/_sentencetransformers.py, `SentenceTransformerBackend.embed`. Both libraries take
# an object of another class only as a subclass of their `BaseEmbedder`, which has this method.
# SetFit, src/setfit/modeling.py: `SetFitModel.fit` with a head of scikit-learn, `encode`,
# `device` and `create_model_card`'s length.
def test_calls_of_other_libraries(encoder):
    plain = encoder.encode(TEXTS)
    assert isinstance(plain, np.ndarray) and plain.shape == (5, DIMENSION)
    for options in (
        {"show_progress_bar": True},
        {"batch_size": 32, "convert_to_tensor": False, "show_progress_bar": None},
    ):
        np.testing.assert_array_equal(encoder.encode(TEXTS, **options), plain)
    # KeyBERT's words of a document come as an array of NumPy strings (`get_feature_names_out`).
    words = np.array(["cat", "dog"], dtype=object)
    np.testing.assert_array_equal(encoder.encode(words), encoder.encode(list(words)))
    assert encoder.device and encoder.max_seq_length == 12
