"""Semantic textual similarity: does the cosine of two sentences follow people's scores?

SemEval's STS tasks in SentEval's files (Conneau and Kiela 2018). A year has several subsets, and
papers differ in how they make one number of them: `all` correlates all pairs of a year together
(Reimers and Gurevych 2019, Gao et al. 2021), `mean` averages the subsets' correlations (DeCLUTR),
`wmean` weighs them by their pairs (the toolkit's own literature).
"""

import csv
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data import DataFolder
from official_cmlm.evaluation.encoding import Encode

HINT = (
    "SentEval's get_transfer_data.bash writes it; its data/downstream folder belongs into "
    "DATA_DIR/senteval/downstream (STS/STS12-en-test … STS16-en-test, STS/STSBenchmark, SICK)"
)
# The subsets that SentEval scores. STS13's SMT was never in it, for its licence.
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with people's scores.

    Attributes:
      first, second: n sentences each.
      gold: float64 `[n]`, larger is more alike.
      skipped: lines that were left out: without a score, or malformed.
    """

    first: list[str]
    second: list[str]
    gold: np.ndarray
    skipped: int = 0


def cosines(encode: Encode, pairs: ScoredPairs) -> np.ndarray:
    """Cosine of the two sentences of each pair: float `[n]`; 0 for a vector of zeros."""
    first, second = encode(pairs.first), encode(pairs.second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    dots = np.einsum("nd,nd->n", first, second)
    return np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)


def spearman(values: np.ndarray, gold: np.ndarray) -> float:
    """Spearman's correlation times 100; ties share their rank, 0 where one side is constant.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    return _correlation(stats.spearmanr, values, gold)


def pearson(values: np.ndarray, gold: np.ndarray) -> float:
    """Pearson's correlation times 100, 0 where one side is constant.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    return _correlation(stats.pearsonr, values, gold)


def _correlation(function: Callable, values: np.ndarray, gold: np.ndarray) -> float:
    if len(gold) < 2:
        raise ValueError(f"need at least 2 scored pairs, got {len(gold)}")
    if np.ptp(values) == 0 or np.ptp(gold) == 0:
        return 0.0
    return 100.0 * float(function(values, gold).statistic)


def similarity_spearman(encode: Encode, pairs: ScoredPairs) -> float:
    """Spearman's correlation, times 100, of cosines with the scores.

    Args:
      encode: maps n strings to an array `[n, dim]`.
      pairs: what to score.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    return spearman(cosines(encode, pairs), pairs.gold)


def subset_correlations(encode: Encode, subsets: Mapping[str, ScoredPairs]) -> dict[str, float]:
    """Spearman's and Pearson's correlations of a year's subsets in all three conventions.

    Returns:
      `{spearman,pearson}_{all,mean,wmean}` -> correlation times 100.

    Raises:
      ValueError: if a subset has fewer than two pairs.
    """
    similarity = {name: cosines(encode, pairs) for name, pairs in subsets.items()}
    together = np.concatenate([similarity[name] for name in subsets])
    gold = np.concatenate([pairs.gold for pairs in subsets.values()])
    sizes = np.array([len(pairs.gold) for pairs in subsets.values()])
    found = {}
    for label, function in (("spearman", spearman), ("pearson", pearson)):
        single = np.array([function(similarity[n], pairs.gold) for n, pairs in subsets.items()])
        found[f"{label}_all"] = function(together, gold)
        found[f"{label}_mean"] = float(single.mean())
        found[f"{label}_wmean"] = float((single * sizes).sum() / sizes.sum())
    return found


def together(subsets: Mapping[str, ScoredPairs]) -> ScoredPairs:
    """All pairs of all subsets, for the convention `all`."""
    parts = list(subsets.values())
    return ScoredPairs(
        [sentence for pairs in parts for sentence in pairs.first],
        [sentence for pairs in parts for sentence in pairs.second],
        np.concatenate([pairs.gold for pairs in parts]),
        sum(pairs.skipped for pairs in parts),
    )


def read_sts_benchmark(path: Path) -> ScoredPairs:
    """Reads `sts-dev.csv` or `sts-test.csv`: tab-separated, score and sentences in columns 5-7.

    Raises:
      UserError: if the file is missing or is none of these.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path}: missing; {HINT}")
    data = DataFolder(path.parent)
    return parse_sts_benchmark(path, data.lines(path, HINT))


def parse_sts_benchmark(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """STS-B's pairs; `path` is for the error."""
    rows = [line.split("\t") for line in lines]
    return scored_pairs(path, [(r[5], r[6], r[4]) if len(r) > 6 else () for r in rows])


def parse_sick(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """The pairs of `SICK_test_annotated.txt` without its header: number, sentences, score, …"""
    rows = [line.split("\t") for line in lines]
    return scored_pairs(path, [row[1:4] for row in rows])


def parse_csv(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """The pairs of `stsb_multi_mt`'s files: two sentences and a score, separated by commas."""
    # Line by line: a quotation mark that is never closed then costs one line.
    rows = [next(csv.reader([line]), []) for line in lines]
    return scored_pairs(path, rows)


def read_subsets(data: DataFolder, folder: Path) -> dict[str, ScoredPairs]:
    """The subsets of a year, e.g. `STS14-en-test`; pairs without a score are left out.

    Of the years of `SUBSETS` these and no others, of other folders all that are there.

    Raises:
      UserError: if one is missing, or texts and scores do not match.
    """
    names = SUBSETS.get(folder.name.partition("-")[0])
    if names is None:
        paths = sorted(folder.glob("STS.input.*.txt"))
        names = [path.name.removeprefix("STS.input.").removesuffix(".txt") for path in paths]
    if not names or not folder.is_dir():
        raise UserError(f"{folder}: no STS.input.*.txt; {HINT}")
    return {name: _read_subset(data, folder, name) for name in sorted(names)}


def _read_subset(data: DataFolder, folder: Path, name: str) -> ScoredPairs:
    path = folder / f"STS.input.{name}.txt"
    texts, scores = data.lines(path, HINT), data.lines(folder / f"STS.gs.{name}.txt", HINT)
    # An empty score in the last line may have lost its line end.
    scores += [""] * (len(texts) - len(scores) == 1)
    if len(texts) != len(scores):
        raise UserError(f"{path}: {len(texts)} pairs but {len(scores)} scores; fetch both anew")
    return scored_pairs(path, [(*text.split("\t")[:2], s) for text, s in zip(texts, scores)])


def scored_pairs(path: Path, rows: Sequence[Sequence[str]]) -> ScoredPairs:
    """Of each row (first, second, score); rows that are not that are left out and counted.

    Raises:
      UserError: if fewer than two are left; `path` names the file.
    """
    scored = [(row[0], row[1], _number(row[2])) for row in rows if len(row) == 3]
    scored = [row for row in scored if row[2] is not None]
    if len(scored) < 2:
        raise UserError(
            f"{path}: {len(scored)} of {len(rows)} lines are two texts and a score; need 2; {HINT}"
        )
    first, second, gold = zip(*scored)
    return ScoredPairs(list(first), list(second), np.array(gold), len(rows) - len(scored))


def _number(text: str) -> float | None:
    """The number that a text is, None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
