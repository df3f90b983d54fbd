"""Mines hard negatives: texts near an anchor that are no match of it, by an encoder's vectors."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.nearest import CellIndex, nearest, unit

from ..stages.duplicates_text import analyse, exact_keys

SEARCHES = ("exact", "faiss")
SAMPLINGS = ("top", "random")
# Anchors that are searched together; their neighbours are in memory.
_ANCHORS = 1024
# float `[texts, dim]`, row i for text i.
Embed = Callable[[list[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Mining:
    """Which near texts are hard negatives of a pair.

    Attributes:
      num_negatives: most negatives of a pair, at least 1.
      range_min, range_max: of an anchor's nearest texts, those from rank `range_min` (0: the
        nearest) up to `range_max`, exclusive; texts that can be no negatives have no rank.
      absolute_margin: the cosine of a negative is at most the positive's minus this. None: any.
      relative_margin: it is at most the positive's times 1 minus this. None: any.
      min_score, max_score: least and largest cosine of a negative. None: any.
      sampling: `top`, the nearest that are left; or `random`, any of these, each as likely.
      seed: of `random`.
      search: `exact`, or `faiss`, an index of cells that misses some neighbours.

    Raises:
      UserError: if `range_max` is not above `range_min`, or `min_score` is above `max_score`.
    """

    num_negatives: int = 1
    range_min: int = 0
    range_max: int = 100
    absolute_margin: float | None = None
    relative_margin: float | None = None
    min_score: float | None = None
    max_score: float | None = None
    sampling: str = "top"
    seed: int = 0
    search: str = "exact"

    def __post_init__(self) -> None:
        if self.range_max <= self.range_min:
            raise UserError(
                f"range_max is {self.range_max}, range_min {self.range_min}; give a larger "
                "range_max"
            )
        if None not in (self.min_score, self.max_score) and self.min_score > self.max_score:
            raise UserError(
                f"min_score is {self.min_score:g}, max_score {self.max_score:g}; give a larger "
                "max_score"
            )


@dataclasses.dataclass(frozen=True)
class Mined:
    """What was mined for one pair.

    Attributes:
      row: number of the pair.
      negatives: the hard negatives, nearest first.
      scores: their cosines with the anchor.
      positive_score: that of the positive.
    """

    row: int
    negatives: list[str]
    scores: list[float]
    positive_score: float


def mine(
    pairs: Sequence[tuple[str, str]],
    more: Sequence[str],
    embed_anchors: Embed,
    embed_candidates: Embed,
    mining: Mining,
) -> Iterator[Mined]:
    """Yields what is mined for each pair; the anchors in the order of their first pairs.

    Candidates are the positives of all pairs and `more`. No negative of an anchor is one of its
    positives or the anchor itself, nor a text with the letters of one of these
    (`stages.duplicates_text`). In memory are the vectors of all different texts, and one block of
    similarities.

    Args:
      pairs: anchor and positive of each.
      more: further candidates.
      embed_anchors, embed_candidates: the encoder, called once each with different texts.
      mining: see `Mining`.
    """
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, (anchor, _) in enumerate(pairs):
        rows_of[anchor].append(row)
    anchors = list(rows_of)
    candidates = list(dict.fromkeys([*(positive for _, positive in pairs), *more]))
    place = {text: i for i, text in enumerate(candidates)}
    excluded = _excluded(pairs, anchors, rows_of, candidates)
    queries = unit(embed_anchors(anchors), in_place=True)
    vectors = unit(embed_candidates(candidates), in_place=True)
    search = _search(vectors, mining.search)
    for start in range(0, len(anchors), _ANCHORS):
        block = range(start, min(start + _ANCHORS, len(anchors)))
        # So many that enough are left when those that can be none are taken out.
        k = mining.range_max + max(len(excluded[i]) for i in block)
        found, scores = search(queries[start : block.stop], min(k, len(candidates)))
        for i, near, cosines in zip(block, found, scores):
            free = (near >= 0) & ~np.isin(near, excluded[i])
            near, cosines = (values[free] for values in (near, cosines))
            ranks = slice(mining.range_min, mining.range_max)
            for row in rows_of[anchors[i]]:
                positive = float(vectors[place[pairs[row][1]]] @ queries[i])
                chosen = _chosen(cosines[ranks], positive, row, mining)
                yield Mined(
                    row,
                    [candidates[j] for j in near[ranks][chosen]],
                    cosines[ranks][chosen].tolist(),
                    positive,
                )


def _search(
    vectors: np.ndarray, name: str
) -> Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]:
    if name == "faiss":
        return CellIndex(vectors).nearest
    return lambda queries, k: nearest(queries, vectors, k)


def _excluded(
    pairs: Sequence[tuple[str, str]],
    anchors: list[str],
    rows_of: dict[str, list[int]],
    candidates: list[str],
) -> list[np.ndarray]:
    """For each anchor the candidates that can be no negatives of it: sorted int64 arrays."""
    by_key: dict[int, list[int]] = defaultdict(list)
    places = {}
    keys = exact_keys(analyse(candidates)).tolist()
    for i, (text, key) in enumerate(zip(candidates, keys)):
        by_key[key].append(i)
        places[text] = (i, key)
    excluded = []
    for anchor, own_key in zip(anchors, exact_keys(analyse(anchors)).tolist()):
        known = [places[pairs[row][1]] for row in rows_of[anchor]]
        known += [places[anchor]] if anchor in places else []
        found = {i for i, _ in known}
        # Texts without letters, whose key is 0, equal none but themselves.
        for key in {own_key, *(key for _, key in known)} - {0}:
            found.update(by_key.get(key, ()))
        excluded.append(np.array(sorted(found), np.int64))
    return excluded


def _chosen(cosines: np.ndarray, positive: float, row: int, mining: Mining) -> np.ndarray:
    """Which of an anchor's neighbours are the negatives of a pair: sorted indices."""
    most = np.inf if mining.max_score is None else mining.max_score
    if mining.absolute_margin is not None:
        most = min(most, positive - mining.absolute_margin)
    if mining.relative_margin is not None:
        # Of a negative cosine too the margin lies below it.
        most = min(most, positive - mining.relative_margin * abs(positive))
    least = -np.inf if mining.min_score is None else mining.min_score
    left = np.flatnonzero((cosines <= most) & (cosines >= least))
    if mining.sampling == "random" and len(left) > mining.num_negatives:
        # Of the pair's number alone, so that other pairs do not change what is drawn.
        draw = np.random.default_rng([mining.seed, row])
        return np.sort(draw.choice(left, mining.num_negatives, replace=False))
    return left[: mining.num_negatives]
