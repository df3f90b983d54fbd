"""Mines hard negatives: texts near an anchor, by an encoder's vectors, that do not match it."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import SEED, OneOf, between
from official_cmlm.vectors.nearest import nearest, unit

from .stages.letters import analyse, letter_keys

# Bytes of a block of similarities, of which the search holds up to four copies; bytes of the
# neighbours found in it; bytes of one neighbour, its index and its cosine. Together the search
# holds at most 0.6 GB.
_BLOCK_BYTES, _FOUND_BYTES, _NEIGHBOUR_BYTES = 1 << 27, 1 << 25, 12
# Most anchors that are searched together, so that progress shows.
_ANCHORS = 1024
# A function from texts to float `[texts, dim]`, row i for text i.
Embed = Callable[[list[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Mining:
    """The choice of a pair's hard negatives among near texts.

    Attributes:
      num_negatives: most negatives of a pair; each gets a row of its own. A pair without any gets
        one row without.
      range_min: nearest texts of an anchor that are passed over; texts that cannot be negatives do
        not count.
      range_max: nearest texts of an anchor that are looked at.
      absolute_margin: a negative's cosine is at most the positive's minus this. Default: any.
      relative_margin: a negative's cosine is at most the positive's minus this share of its
        absolute value. Default: any.
      min_score: least cosine of a negative. Default: any.
      max_score: largest cosine of a negative. Default: any.
      sampling: which of the candidates that are left: the nearest (top), or any of them with equal
        probability (random).
      seed: seed of --sampling=random.
      search: exact: all anchors with all candidates, in blocks of bounded memory; graph: an
        approximate search by usearch (HNSW), for millions of candidates, which misses some
        neighbours.

    Raises:
      UserError: if `range_max` is not above `range_min`, or `min_score` is above `max_score`.
    """

    num_negatives: Annotated[int, between(1, 1_000_000)] = 1
    range_min: Annotated[int, between(0, 1_000_000)] = 0
    range_max: Annotated[int, between(1, 1_000_000)] = 100
    absolute_margin: Annotated[float, between(0, 2)] | None = None
    relative_margin: Annotated[float, between(0, 2)] | None = None
    min_score: Annotated[float, between(-1, 1)] | None = None
    max_score: Annotated[float, between(-1, 1)] | None = None
    sampling: Annotated[str, OneOf(("top", "random"))] = "top"
    seed: Annotated[int, SEED] = 0
    search: Annotated[str, OneOf(("exact", "graph"))] = "exact"

    def __post_init__(self) -> None:
        if self.range_max <= self.range_min:
            raise UserError(
                f"--range_max={self.range_max}: not above --range_min={self.range_min}; give a "
                "larger --range_max"
            )
        if None not in (self.min_score, self.max_score) and self.min_score > self.max_score:
            raise UserError(
                f"--max_score={self.max_score:g}: below --min_score={self.min_score:g}; give a "
                "larger --max_score"
            )


@dataclasses.dataclass(frozen=True)
class Mined:
    """The hard negatives of one pair.

    Attributes:
      row: number of the pair.
      negatives: the hard negatives, nearest first.
      scores: their cosines with the anchor.
      positive_score: the positive's cosine.
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
    """Yields the hard negatives of each pair; the anchors in the order of their first pairs.

    Candidates are the positives of all pairs and `more`; of several texts with the same letters
    (`stages.letters`), the first one is a candidate. No negative of an anchor has the letters of
    the anchor, or of a positive of an anchor with the same letters. Texts without letters are
    compared as they are. The memory holds the vectors of all different texts, and one block of
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
    texts, count, excluded = _candidates(pairs, more, anchors)
    place = {text: i for i, text in enumerate(texts)}
    queries = unit(embed_anchors(anchors), in_place=True)
    vectors = unit(embed_candidates(texts), in_place=True)
    search = _search(vectors[:count], mining.search)
    # So many neighbours leave enough of them when the texts that cannot be negatives are taken out.
    needed = [min(mining.range_max + len(ids), count) for ids in excluded]
    size = max(1, min(_ANCHORS, _FOUND_BYTES // (_NEIGHBOUR_BYTES * max(needed))))
    for start in range(0, len(anchors), size):
        block = slice(start, start + size)
        neighbours, scores = search(queries[block], max(needed[block]))
        for i, near, cosines in zip(range(start, len(anchors)), neighbours, scores):
            free = (near >= 0) & ~np.isin(near, excluded[i])
            near, cosines = (values[free] for values in (near, cosines))
            ranks = slice(mining.range_min, mining.range_max)
            for row in rows_of[anchors[i]]:
                positive = float(vectors[place[pairs[row][1]]] @ queries[i])
                chosen = _choose(cosines[ranks], positive, row, mining)
                yield Mined(
                    row,
                    [texts[j] for j in near[ranks][chosen]],
                    cosines[ranks][chosen].tolist(),
                    positive,
                )


def _search(
    vectors: np.ndarray, name: str
) -> Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]:
    if name == "graph":
        from usearch.index import Index

        graph = Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
        graph.add(np.arange(len(vectors), dtype=np.uint64), vectors)

        def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
            graph.expansion_search = max(128, k)
            near = graph.search(queries, k)
            is_there = np.arange(k) < np.reshape(near.counts, [-1, 1])
            return np.where(is_there, near.keys.astype(np.int64), -1), 1 - near.distances

        return search
    return lambda queries, k: nearest(queries, vectors, k, block_bytes=_BLOCK_BYTES)


def _candidates(
    pairs: Sequence[tuple[str, str]], more: Sequence[str], anchors: Sequence[str]
) -> tuple[list[str], int, list[np.ndarray]]:
    """Finds the texts to encode, and the candidates among them.

    Returns:
      All texts, each once: the candidates (the first of texts with the same letters), then the
      other positives; the number of candidates; and for each anchor the candidates that cannot be
      negatives of it, int64 arrays.
    """
    positives = list(dict.fromkeys(positive for _, positive in pairs))
    different = list(dict.fromkeys([*positives, *more]))
    letters = dict(zip(different, _letters(different)))
    first: dict[int | str, str] = {}
    for text in different:
        first.setdefault(letters[text], text)
    place = {key: i for i, key in enumerate(first)}
    others = [text for text in positives if first[letters[text]] != text]
    own = dict(zip(anchors, _letters(anchors)))
    excluded: dict[int | str, set[int]] = defaultdict(set)
    for anchor, positive in pairs:
        key = own[anchor]
        excluded[key].add(place[letters[positive]])
        if key in place:
            excluded[key].add(place[key])
    arrays = {key: np.array(sorted(places), np.int64) for key, places in excluded.items()}
    return [*first.values(), *others], len(first), [arrays[own[anchor]] for anchor in anchors]


def _letters(texts: Sequence[str]) -> list[int | str]:
    """Returns keys that compare texts: the hash of their letters, or a text without letters."""
    return [key or text for key, text in zip(letter_keys(analyse(texts)).tolist(), texts)]


def _choose(cosines: np.ndarray, positive: float, row: int, mining: Mining) -> np.ndarray:
    """Returns the sorted indices of an anchor's neighbours that are the negatives of a pair."""
    most = np.inf if mining.max_score is None else mining.max_score
    if mining.absolute_margin is not None:
        most = min(most, positive - mining.absolute_margin)
    if mining.relative_margin is not None:
        # With `abs` the limit is below the positive's cosine even if that is negative.
        most = min(most, positive - mining.relative_margin * abs(positive))
    least = -np.inf if mining.min_score is None else mining.min_score
    left = np.flatnonzero((cosines <= most) & (cosines >= least))
    if mining.sampling == "random" and len(left) > mining.num_negatives:
        # The draw depends on the seed and the pair's number alone, so that other pairs do not
        # change it.
        draw = np.random.default_rng([mining.seed, row])
        return np.sort(draw.choice(left, mining.num_negatives, replace=False))
    return left[: mining.num_negatives]
