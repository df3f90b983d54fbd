"""The teacher's vectors in records of both kinds: the feature `teacher_vectors`.

A record that holds them has one bytes value a sentence of a document, or a text of a pair without
its hard negative: the vector of that text by a frozen teacher, float16 in little-endian order. The
manifest says how many components they have and which teacher gave them.
"""

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

FEATURE = "teacher_vectors"
# Texts of a pair that have vectors; the third one, a hard negative, has none.
_TEXTS_OF_PAIR = 2


def texts_of(record: "tf.train.Example", kind: str) -> list[str]:
    """Returns the texts of a record that get vectors; an empty list if it holds no text."""
    stored = record.features.feature["text"].bytes_list.value
    chosen = stored[:_TEXTS_OF_PAIR] if kind == "pairs" else stored
    return [text.decode("utf-8") for text in chosen]


def token_ids_of(record: "tf.train.Example", kind: str) -> list[tuple[int, ...]]:
    """Returns the token ids of each text of a record that gets a vector, without special ones."""
    feature = record.features.feature
    lengths = feature["lengths" if kind == "pairs" else "sentence_lengths"].int64_list.value
    chosen = lengths[:_TEXTS_OF_PAIR] if kind == "pairs" else lengths
    ids = feature["token_ids"].int64_list.value
    return [tuple(ids[end - n : end]) for n, end in zip(chosen, itertools.accumulate(chosen))]


def add_vectors(record: "tf.train.Example", vectors: "np.ndarray", text: bool) -> bytes:
    """Serialises a record with the vectors of its texts.

    Args:
      record: a record of either kind.
      vectors: float `[texts, size]`.
      text: whether the record keeps its text.
    """
    feature = record.features.feature
    feature[FEATURE].bytes_list.value[:] = [row.tobytes() for row in vectors.astype("<f2")]
    if not text:
        del feature["text"]
    return record.SerializeToString(deterministic=True)
