"""Small blocks of documents and padded batches, built without the code under test."""

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from official_cmlm.inputs.views import SpecialIds
from official_cmlm.records.documents import DocumentBlock

SPECIAL = SpecialIds(cls=3, sep=4, mask=5, pad=0, unknown=2, vocab_size=100)

# TensorFlow op by op is slow: few examples, no deadline.
SLOW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))

_SENTENCE = st.lists(st.integers(6, 99), min_size=1, max_size=12)
DOCUMENTS = st.lists(st.lists(_SENTENCE, min_size=1, max_size=7), min_size=1, max_size=6)


def make_block(documents, repeats=None, keys=None, owners=None) -> DocumentBlock:
    """Builds a block of nested lists of ids: records of sentences of tokens.

    `owners` are the records' documents; by default each record is a document.
    """
    sentences = tf.RaggedTensor.from_row_lengths(
        tf.RaggedTensor.from_row_lengths(
            tf.constant([t for d in documents for s in d for t in s], tf.int32),
            tf.constant([len(s) for d in documents for s in d], tf.int64),
        ),
        tf.constant([len(d) for d in documents], tf.int64),
    )
    return DocumentBlock(
        sentences,
        tf.constant(repeats or [False] * len(documents)),
        tf.constant(list(keys or range(len(documents))), tf.int64),
        tf.constant(list(owners or range(len(documents))), tf.int64),
    )


def random_documents(count: int, sentences: int, seed: int = 0) -> list[list[list[int]]]:
    """Draws documents of exactly `sentences` sentences of 1 to 8 random tokens."""
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(6, 100, rng.integers(1, 9)).tolist() for _ in range(sentences)]
        for _ in range(count)
    ]


def wrap(tokens) -> list[int]:
    return [SPECIAL.cls, *tokens, SPECIAL.sep]


def make_batch(rows, length: int, keys=None) -> dict:
    """Builds a padded batch with one sequence, `text`."""
    ids = np.zeros((len(rows), length), np.int32)
    mask = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return {
        "text": {
            "input_word_ids": tf.constant(ids),
            "input_mask": tf.constant(mask),
            "input_type_ids": tf.zeros_like(tf.constant(ids)),
        },
        "key": tf.constant(list(keys if keys is not None else range(len(rows))), tf.int64),
    }
