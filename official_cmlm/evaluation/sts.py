"""Semantic textual similarity: does the cosine of two sentences follow people's scores?

SemEval's STS tasks in SentEval's files (Conneau and Kiela 2018). The figure is Spearman's
correlation over all pairs of a year together, the convention "all" of Reimers and Gurevych (2019)
and Gao et al. (2021).
"""

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from official_cmlm.errors import UserError

Encode = Callable[[list[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with people's scores.

    Attributes:
      first, second: n sentences each.
      gold: float64 `[n]`, larger is more alike.
    """

    first: list[str]
    second: list[str]
    gold: np.ndarray


def similarity_spearman(encode: Encode, pairs: ScoredPairs) -> float:
    """Spearman's correlation, times 100, of cosines with the scores; ties share their rank.

    Args:
      encode: maps n strings to an array `[n, dim]`.
      pairs: what to score.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    if len(pairs.gold) < 2:
        raise ValueError(f"need at least 2 scored pairs, got {len(pairs.gold)}")
    first, second = encode(pairs.first), encode(pairs.second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    dots = np.einsum("nd,nd->n", first, second)
    # A vector of zeros is like nothing.
    cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
    return 100.0 * float(stats.spearmanr(cosines, pairs.gold).statistic)


def read_sts_benchmark(path: Path) -> ScoredPairs:
    """Reads `sts-dev.csv` or `sts-test.csv`: tab-separated, score and sentences in columns 5-7."""
    rows = [line.split("\t") for line in _lines(path)]
    return _pairs([(row[5], row[6], row[4]) for row in rows if len(row) > 6])


def read_sick(path: Path) -> ScoredPairs:
    """Reads `SICK_test_annotated.txt`: tab-separated with a header."""
    rows = csv.DictReader(_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    return _pairs([(r["sentence_A"], r["sentence_B"], r["relatedness_score"]) for r in rows])


def read_semeval(folder: Path) -> ScoredPairs:
    """Reads all subsets of a year, e.g. `STS14-en-test`; pairs without a score are left out."""
    inputs = sorted(folder.glob("STS.input.*.txt"))
    if not inputs:
        raise UserError(f"{folder}: no STS.input.*.txt; SentEval's STS folders have them")
    rows = []
    for path in inputs:
        texts = _lines(path)
        scores = _lines(path.with_name(path.name.replace("STS.input.", "STS.gs.")))
        if len(texts) != len(scores):
            raise UserError(f"{path}: {len(texts)} pairs but {len(scores)} scores; fetch both anew")
        rows += [(*text.split("\t")[:2], score) for text, score in zip(texts, scores)]
    return _pairs(rows)


def _pairs(rows: list[tuple[str, str, str]]) -> ScoredPairs:
    scored = [row for row in rows if row[2].strip()]
    return ScoredPairs(
        first=[row[0] for row in scored],
        second=[row[1] for row in scored],
        gold=np.array([float(row[2]) for row in scored]),
    )


def _lines(path: Path) -> list[str]:
    """Lines without their ends; nothing else counts as one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: missing; SentEval's data folder has it") from None
    return text.removesuffix("\n").split("\n")
