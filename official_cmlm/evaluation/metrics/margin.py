"""Margin-based bitext mining (Artetxe and Schwenk 2019) and the threshold of BUCC.

The score of a pair is its cosine against the mean cosine of both sentences with their k nearest
neighbours in the other language, so that a sentence that is near to everything does not win.
Steps and their order are those of LASER's `mine_bitexts.py` and `bucc.py`.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from official_cmlm.evaluation.metrics.nearest import nearest

MARGINS = ("ratio", "distance", "absolute")
RETRIEVALS = ("max", "intersect", "forward", "backward")

# Queries between two signs of progress.
_STEP = 4096


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Scored pairs.

    Attributes:
      pairs: int64 `[c, 2]`, rows of source and target.
      scores: float64 `[c]`, margins.
    """

    pairs: np.ndarray
    scores: np.ndarray


@dataclasses.dataclass(frozen=True)
class Extraction:
    """What is extracted at a threshold.

    Attributes:
      threshold: pairs that reach it are extracted.
      precision, recall, f1: 0 to 1; 0 where nothing right is extracted.
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
    """Finds the pairs that are likely translations, each with its margin.

    Each sentence proposes the best-scored of its k neighbours. `forward` takes the source's
    proposals, `backward` the target's, `intersect` those that both make, and `max` all of them from
    the best downwards while neither sentence is taken.

    Args:
      source, target: float `[n, dim]` and `[m, dim]`, rows of length 1 (`unit`).
      k: neighbours, at least 1; fewer where there are not as many sentences.
      margin: `ratio`, `distance` or `absolute`.
      retrieval: see above.
      progress: called with the number of sentences whose neighbours were found, n + m in all.

    Raises:
      ValueError: for an unknown margin or retrieval, a k below 1 or an empty side.
    """
    if margin not in MARGINS or retrieval not in RETRIEVALS:
        raise ValueError(f"no margin {margin!r} or no retrieval {retrieval!r}")
    if k < 1 or not len(source) or not len(target):
        raise ValueError(f"need k >= 1 and sentences, got {k}, {len(source)}, {len(target)}")
    ahead, ahead_cosines = _neighbours(source, target, k, progress)
    back, back_cosines = _neighbours(target, source, k, progress)
    source_means, target_means = ahead_cosines.mean(axis=1), back_cosines.mean(axis=1)
    ahead_scores = margins(ahead_cosines, source_means[:, np.newaxis], target_means[ahead], margin)
    back_scores = margins(back_cosines, target_means[:, np.newaxis], source_means[back], margin)
    forward = _proposals(ahead, ahead_scores)
    backward = _proposals(back, back_scores)
    backward = Candidates(backward.pairs[:, ::-1], backward.scores)
    if retrieval == "forward":
        return forward
    if retrieval == "backward":
        return backward
    if retrieval == "intersect":
        mutual = backward.pairs[forward.pairs[:, 1], 0] == forward.pairs[:, 0]
        return Candidates(forward.pairs[mutual], forward.scores[mutual])
    return _greedy(
        np.concatenate([forward.pairs, backward.pairs]),
        np.concatenate([forward.scores, backward.scores]),
    )


def margins(
    cosines: np.ndarray, source_means: np.ndarray, target_means: np.ndarray, margin: str
) -> np.ndarray:
    """Margins of pairs: float64 of the arguments' common shape.

    With b the mean of both means: `ratio` is cosine / b, `distance` cosine − b, `absolute` the
    cosine. A ratio to 0, as vectors of zeros give it, is 0.
    """
    cosines = np.asarray(cosines, np.float64)
    if margin == "absolute":
        return cosines
    usual = (np.asarray(source_means, np.float64) + np.asarray(target_means, np.float64)) / 2
    if margin == "distance":
        return cosines - usual
    cosines, usual = np.broadcast_arrays(cosines, usual)
    return np.divide(cosines, usual, out=np.zeros(cosines.shape), where=usual != 0)


def extract(scores: np.ndarray, correct: np.ndarray, gold: int, threshold: float) -> Extraction:
    """Precision, recall and F1 of the candidates that reach a threshold.

    Args:
      scores: float `[c]`.
      correct: bool `[c]`, whether a candidate is a gold pair.
      gold: number of gold pairs.
      threshold: what a score must reach.

    Raises:
      ValueError: if there are no gold pairs.
    """
    if gold < 1:
        raise ValueError("need gold pairs")
    taken = np.asarray(scores) >= threshold
    return _extraction(threshold, int(taken.sum()), int((taken & correct).sum()), gold)


def best_extraction(scores: np.ndarray, correct: np.ndarray, gold: int) -> Extraction:
    """The extraction with the largest F1 of all thresholds; of equal ones the highest threshold.

    The threshold is the mean of the last score that is taken and the next; where all are taken,
    the lowest score. Equal scores are taken together. Nothing right to find: infinity, F1 0.

    Args:
      scores, correct, gold: as in `extract`.

    Raises:
      ValueError: if there are no gold pairs.
    """
    if gold < 1:
        raise ValueError("need gold pairs")
    if not np.any(correct):
        return Extraction(float("inf"), 0.0, 0.0, 0.0)
    order = np.argsort(-np.asarray(scores), kind="stable")
    ordered = np.asarray(scores, np.float64)[order]
    hits = np.cumsum(np.asarray(correct)[order])
    taken = np.arange(1, len(ordered) + 1)
    # 2·hits / (taken + gold) is F1. A cut within equal scores cannot be made by a threshold.
    f1 = 2 * hits / (taken + gold)
    f1[:-1][ordered[:-1] == ordered[1:]] = -1.0
    last = int(np.argmax(f1))
    threshold = float(ordered[last])
    if last + 1 < len(ordered):
        middle = (ordered[last] + ordered[last + 1]) / 2
        # The mean of two neighbouring floats can be the lower one, which is not taken.
        threshold = float(middle) if middle > ordered[last + 1] else threshold
    return _extraction(threshold, int(taken[last]), int(hits[last]), gold)


def _extraction(threshold: float, taken: int, hits: int, gold: int) -> Extraction:
    precision = hits / taken if taken else 0.0
    return Extraction(threshold, precision, hits / gold, 2 * hits / (taken + gold))


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
    return Candidates(np.stack([rows, neighbours[rows, best]], axis=1), scores[rows, best])


def _greedy(pairs: np.ndarray, scores: np.ndarray) -> Candidates:
    """From the best score downwards, the pairs of whose sentences neither is taken."""
    sources: set[int] = set()
    targets: set[int] = set()
    kept = []
    for i in np.argsort(-scores, kind="stable").tolist():
        source, target = pairs[i].tolist()
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            kept.append(i)
    return Candidates(pairs[kept], scores[kept])
