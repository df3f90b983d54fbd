"""Texts found by meaning: an index of vectors, paraphrases, duplicates and clusters.

Nothing here needs TensorFlow; an encoder is anything with `encode(list of str) -> [n, dim]`.
"""

from official_cmlm.search.index import PRECISIONS, Hit, Index
from official_cmlm.search.mining import cluster, duplicates, groups, paraphrases

__all__ = ["PRECISIONS", "Hit", "Index", "cluster", "duplicates", "groups", "paraphrases"]
