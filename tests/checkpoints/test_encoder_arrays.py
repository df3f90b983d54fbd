"""Encoders that are made of arrays."""

import numpy as np
import pytest

from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints.encoder_arrays import hold_table
from official_cmlm.checkpoints.encoder_directory import describe
from official_cmlm.checkpoints.encoder_weights import write_weights
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.vectors.embeddings import unit


@pytest.mark.parametrize("backend", ["onnx", "tensorflow"])
@pytest.mark.parametrize("size", [None, 9])
def test_the_vector_is_the_weighted_mean_of_a_table(vocabulary, tmp_path, backend, size):
    """Whatever lengths and means its rows have; a text whose tokens count nothing has zeros."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(len(vocabulary), 7)) * rng.uniform(0.001, 5, (len(vocabulary), 1)) + 1
    weights = rng.uniform(0.1, 2, len(vocabulary))
    basis = None if size is None else rng.normal(size=(7, size))
    ids = vocabulary.special_ids
    weights[[ids["cls"], ids["sep"]]] = 0
    rows[vocabulary.tokens.index("dog")] = 0
    config = EncoderConfig(num_layers=3, relative_position_buckets=8, normalize=True)
    held = hold_table(config, rows, weights, basis)
    describe(tmp_path, held.config, vocabulary)
    write_weights(tmp_path, held)
    texts = ["the cat sat on the mat.", "a dog ran over the river", "the", "dog", ""]
    tokens = [vocabulary.tokenizer(tensorflow=False).tokenize([text]).values for text in texts]
    sums = np.stack([weights[row] @ rows[row] for row in tokens])
    expected = unit(sums if basis is None else sums @ basis)
    vectors = SentenceEncoder.load(tmp_path, backend=backend).encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
