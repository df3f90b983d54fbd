"""How often the sentence that really follows is the nearest among many: recall at 1."""

from collections.abc import Sequence

import numpy as np

from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.nearest import unit64


def next_sentence_recall(encode: Encode, first: Sequence[str], second: Sequence[str]) -> float:
    """Retrieves each sentence's successor among all successors by cosine similarity.

    Args:
      encode: maps n strings to an array `[n, dim]`.
      first: n sentences.
      second: what follows each of them; all n are the candidates of every query.

    Returns:
      The share of queries, 0 to 1, whose own successor has the largest cosine. Where several are
      equally near, a query counts by the chance of picking the right one; a vector of zeros is
      equally far from all.

    Raises:
      ValueError: if there are no pairs or the lists differ in length.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"need as many first as second sentences, got {len(first)}, {len(second)}")
    queries, candidates = (unit64(encode(list(texts))) for texts in (first, second))
    similarity = queries @ candidates.T
    best = similarity.max(axis=1, keepdims=True)
    nearest = np.isclose(similarity, best, rtol=0.0, atol=1e-6)
    hits = nearest[np.arange(len(first)), np.arange(len(first))] / nearest.sum(axis=1)
    return float(hits.mean())
