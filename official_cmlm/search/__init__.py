"""Texts found by meaning: an index of their vectors.

Nothing here needs TensorFlow; an encoder is anything with `encode(list of str) -> [n, dim]`.
"""

from official_cmlm.search.index import PRECISIONS, Hit, Index

__all__ = ["PRECISIONS", "Hit", "Index"]
