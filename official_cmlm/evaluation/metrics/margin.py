"""Margin-based bitext mining (Artetxe and Schwenk 2019) and the choice of a threshold for BUCC.

The score of a pair is its cosine relative to the mean cosine of both sentences with their k nearest
neighbours in the other language; that corrects for sentences that are close to all others (hubs).
The algorithm follows LASER's `mine_bitexts.py` and `bucc.py`.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from official_cmlm.evaluation.metrics.nearest import nearest

MARGINS = ("ratio", "distance", "absolute")
RETRIEVALS = ("max", "intersect", "forward", "backward")

# Queries per progress update.
_STEP = 4096


Candidates = tuple[np.ndarray, np.ndarray]
"""Pairs int64 `[c, 2]`, row in source and row in target; their margins float64 `[c]`."""


@dataclasses.dataclass(frozen=True)
class Extraction:
    """Quality of the pairs extracted at a threshold.

    Attributes:
      threshold: pairs with at least this score are extracted.
      precision, recall, f1: 0 to 1; 0 if no correct pair is extracted.
    """

    threshold: float
    precision: float
    recall: float
    f1: float


def mine(
    source: np.ndarray,
    target: np.ndarray,
    k: int = 4,
    margin: str = "ratio",
    retrieval: str = "max",
    progress: Callable[[int], None] = lambda done: None,
) -> Candidates:
    """Finds candidate translation pairs and their margins.

    Each sentence proposes the pair with the highest margin among its k neighbours. `forward` keeps
    the proposals of the source side, `backward` those of the target side, `intersect` the pairs
    proposed by both, and `max` all of them, taken greedily from the highest margin down so that
    each sentence is used once.

    Args:
      source, target: float `[n, dim]` and `[m, dim]`, rows of length 1 (`unit`).
      k: number of neighbours, at least 1; all if there are fewer.
      margin: see `margins`.
      retrieval: see above.
      progress: called with the number of sentences just searched, n + m in total.
    """
    ahead, ahead_cosines = _neighbours(source, target, k, progress)
    back, back_cosines = _neighbours(target, source, k, progress)
    source_means, target_means = ahead_cosines.mean(axis=1), back_cosines.mean(axis=1)
    ahead_margins = margins(ahead_cosines, source_means, target_means[ahead], margin)
    back_margins = margins(back_cosines, target_means, source_means[back], margin)
    pairs, scores = _proposals(ahead, ahead_margins)
    other_pairs, other_scores = _proposals(back, back_margins)
    other_pairs = other_pairs[:, ::-1]
    if retrieval == "forward":
        return pairs, scores
    if retrieval == "backward":
        return other_pairs, other_scores
    if retrieval == "intersect":
        mutual = other_pairs[pairs[:, 1], 0] == pairs[:, 0]
        return pairs[mutual], scores[mutual]
    return _greedy(np.concatenate([pairs, other_pairs]), np.concatenate([scores, other_scores]))


def margins(
    cosines: np.ndarray, means: np.ndarray, neighbours_means: np.ndarray, margin: str
) -> np.ndarray:
    """Computes margins of n sentences and their k neighbours: float64 `[n, k]`.

    With b the mean of both means: `ratio` is cosine / b (0 if b is 0), `distance` is cosine − b,
    `absolute` is the cosine.
    """
    cosines = cosines.astype(np.float64)
    if margin == "absolute":
        return cosines
    usual = np.add(means[:, np.newaxis], neighbours_means, dtype=np.float64) / 2
    if margin == "distance":
        return cosines - usual
    return np.divide(cosines, usual, out=np.zeros_like(cosines), where=usual != 0)


def extract(scores: np.ndarray, correct: np.ndarray, gold: int, threshold: float) -> Extraction:
    """Scores the candidates that reach the threshold by precision, recall and F1.

    `scores` is float `[c]`, `correct` bool `[c]`, whether a candidate is a gold pair; `gold` is the
    number of gold pairs.
    """
    taken = np.asarray(scores) >= threshold
    count, hits = int(taken.sum()), int((taken & correct).sum())
    precision = hits / count if count else 0.0
    return Extraction(threshold, precision, hits / gold, 2 * hits / (count + gold))


def best_extraction(scores: np.ndarray, correct: np.ndarray, gold: int) -> Extraction:
    """Returns the extraction with the highest F1; among ties the highest threshold.

    The threshold is the mean of the lowest extracted score and the next lower one, or the lowest
    score if all are extracted. Without a correct candidate the threshold is infinity and F1 is 0.
    """
    if not np.any(correct):
        return extract(scores, correct, gold, float("inf"))
    order = np.argsort(-np.asarray(scores), kind="stable")
    ordered = np.asarray(scores, np.float64)[order]
    hits = np.cumsum(np.asarray(correct)[order])
    taken = np.arange(1, len(ordered) + 1)
    # 2·hits / (taken + gold) is F1. No threshold separates equal scores.
    f1 = 2 * hits / (taken + gold)
    f1[:-1][ordered[:-1] == ordered[1:]] = -1.0
    last = int(np.argmax(f1))
    threshold = float(ordered[last])
    if last + 1 < len(ordered):
        middle = (ordered[last] + ordered[last + 1]) / 2
        # The mean of two adjacent floats can be rounded to the lower one.
        threshold = float(middle) if middle > ordered[last + 1] else threshold
    return extract(scores, correct, gold, threshold)


def _neighbours(
    queries: np.ndarray, candidates: np.ndarray, k: int, progress: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    parts = []
    for start in range(0, len(queries), _STEP):
        chunk = queries[start : start + _STEP]
        parts.append(nearest(chunk, candidates, min(k, len(candidates))))
        progress(len(chunk))
    indices, cosines = zip(*parts)
    return np.concatenate(indices), np.concatenate(cosines)


def _proposals(neighbours: np.ndarray, scores: np.ndarray) -> Candidates:
    rows = np.arange(len(neighbours))
    best = scores.argmax(axis=1)
    return np.stack([rows, neighbours[rows, best]], axis=1), scores[rows, best]


def _greedy(pairs: np.ndarray, scores: np.ndarray) -> Candidates:
    """Takes pairs in descending order of score, each sentence once."""
    sources: set[int] = set()
    targets: set[int] = set()
    kept = []
    for i in np.argsort(-scores, kind="stable").tolist():
        source, target = pairs[i].tolist()
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            kept.append(i)
    return pairs[kept], scores[kept]
