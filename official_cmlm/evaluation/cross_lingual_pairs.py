"""Cross-lingual word pairs from row-aligned monolingual ones, as Multi-SimLex makes its own.

Vulić et al. (2020), after Camacho-Collados et al. (2015): of two languages' translations of a pair
both crossed pairs are taken with the mean of both scores, unless the two scores differ by more than
a fifth of the scale, 1.2 of 6 points.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from official_cmlm.evaluation.sts import ScoredPairs

MAX_DIFFERENCE = 1.2

Rows = Mapping[str, tuple[str, str, float]]
"""Number of a row -> first word, second word, score."""


def crossed(first: Rows, second: Rows) -> ScoredPairs:
    """Pairs of a word of the first language and a word of the second.

    Args:
      first, second: rows of two languages; those of one number translate each other.

    Returns:
      Each pair once, in the order of the first language's rows.
    """
    pairs: dict[tuple[str, str], float] = {}
    for number in first:
        if number not in second:
            continue
        (a, b, score), (c, d, other) = first[number], second[number]
        if abs(score - other) <= MAX_DIFFERENCE + 1e-9:
            for pair in ((a, d), (b, c)):
                pairs.setdefault(pair, (score + other) / 2)
    return ScoredPairs([a for a, _ in pairs], [b for _, b in pairs], np.array([*pairs.values()]))


def all_crossed(rows: Mapping[str, Rows], languages: Sequence[str]) -> dict[str, ScoredPairs]:
    """`<language>-<language>` -> pairs, for every two languages that share enough rows."""
    found = {f"{a}-{b}": crossed(rows[a], rows[b]) for a, b in itertools.combinations(languages, 2)}
    return {name: pairs for name, pairs in found.items() if len(pairs.gold) >= 2}
