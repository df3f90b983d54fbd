"""Sentence pairs with human similarity scores: SemEval's STS years, STS-B, SICK."""

import csv
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData

HINT = (
    "SentEval's get_transfer_data.bash writes it; its data/downstream folder belongs into "
    "DATA_DIR/senteval/downstream (STS/STS12-en-test … STS16-en-test, STS/STSBenchmark, SICK)"
)
# The subsets that SentEval scores. Its STS13 lacks SMT, whose licence forbids distribution.
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with human scores.

    Attributes:
      first, second: n sentences each.
      gold: float64 `[n]`; larger means more similar.
      skipped: number of lines left out: malformed, or without a score.
    """

    first: list[str]
    second: list[str]
    gold: np.ndarray
    skipped: int = 0


def together(subsets: Mapping[str, ScoredPairs]) -> ScoredPairs:
    """The pairs of all subsets as one list."""
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
      UserError: if the file is missing or has another format.
    """
    if not path.parent.is_dir():
        raise MissingData(path, HINT)
    data = DataFolder(path.parent)
    return parse_sts_benchmark(path, data.lines(path, HINT))


def parse_sts_benchmark(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """STS-B's pairs; `path` is named in errors."""
    rows = [line.split("\t") for line in lines]
    return scored_pairs(path, [(r[5], r[6], r[4]) if len(r) > 6 else () for r in rows])


def parse_sick(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """SICK's pairs, from lines without the header; columns: number, two sentences, score, …"""
    rows = [line.split("\t") for line in lines]
    return scored_pairs(path, [row[1:4] for row in rows])


def parse_csv(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """The pairs of `stsb_multi_mt`'s files: two sentences and a score, separated by commas."""
    # Line by line, so that an unclosed quotation mark spoils one line only.
    rows = [next(csv.reader([line]), []) for line in lines]
    return scored_pairs(path, rows)


def read_subsets(data: DataFolder, folder: Path) -> dict[str, ScoredPairs]:
    """Reads the subsets of a year, e.g. of the folder `STS14-en-test`: subset name -> pairs.

    Pairs without a score are left out. For the years in `SUBSETS` exactly those subsets are read,
    for other folders every subset found.

    Raises:
      UserError: if a subset is missing, or texts and scores differ in number.
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
    # The last score may be empty and without a line end.
    scores += [""] * (len(texts) - len(scores) == 1)
    if len(texts) != len(scores):
        raise UserError(f"{path}: {len(texts)} pairs but {len(scores)} scores; download both again")
    return scored_pairs(path, [(*text.split("\t")[:2], s) for text, s in zip(texts, scores)])


def scored_pairs(path: Path, rows: Sequence[Sequence[str]]) -> ScoredPairs:
    """Pairs from rows (first, second, score); malformed rows are left out and counted.

    Raises:
      UserError: if fewer than two rows are left; the message names `path`.
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
    """Parses a finite number; None if the text is not one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
