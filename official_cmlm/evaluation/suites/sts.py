"""Semantic textual similarity: correlation of cosines with human scores, without training.

SemEval's STS tasks in SentEval's files (Conneau and Kiela 2018), in every convention that papers
use; see `metrics.similarity`.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.evaluation.data import sts
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.metrics.similarity import (
    cosines,
    pearson,
    spearman,
    subset_correlations,
)
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.limits import OneOf, check_fields

YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
_AVERAGED = (*YEARS, "STS-B", "SICK-R")
_OTHER_LANGUAGES = (
    "files stsb-<language>-test.csv of stsb_multi_mt belong into DATA_DIR/stsb_multi_mt"
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the suite.

    Attributes:
      subsets: also report each subset of a year. Default true.
      other_languages: also score the translations of STS-B that are found. Default true.
      split: part of STS-B: `test` (default), `dev`, by which papers select models, or `train`.
    """

    subsets: bool = True
    other_languages: bool = True
    split: Annotated[str, OneOf(("test", "dev", "train"))] = "test"

    def __post_init__(self) -> None:
        check_fields(self, "")


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores all years, STS-B, SICK-R and other languages; see the package for the arguments."""
    root = data.folder(
        "senteval/downstream", "downstream", ".", hint=sts.HINT, holding=("STS", "SICK")
    )
    for year in YEARS:
        with report.task(year):
            _year(encode, data, root / "STS" / f"{year}-en-test", year, options, report)
    benchmark = root / "STS/STSBenchmark" / f"sts-{options.split}.csv"
    _single(encode, data, "STS-B", benchmark, sts.parse_sts_benchmark, report)
    sick = root / "SICK/SICK_test_annotated.txt"
    _single(encode, data, "SICK-R", sick, sts.parse_sick, report, header="pair_ID")
    if options.other_languages:
        _languages(encode, data, options.split, report)
    values = {name: report.get(name, _main_metric(name)) for name in _AVERAGED}
    if missing := [name for name, value in values.items() if value is None]:
        report.notes.append(f"average of seven: not computed without {', '.join(missing)}")
    else:
        report.add("average", "spearman_all", float(np.mean(list(values.values()))), len(values))


def _main_metric(name: str) -> str:
    return "spearman_all" if name in YEARS else "spearman"


def _year(
    encode: Encode,
    data: DataFolder,
    folder: Path,
    year: str,
    options: Options,
    report: SuiteReport,
) -> None:
    subsets = sts.read_subsets(data, folder)
    total = sum(len(pairs.gold) for pairs in subsets.values())
    for metric, value in subset_correlations(encode, subsets).items():
        report.add(year, metric, value, total)
    if options.subsets:
        for name, pairs in subsets.items():
            _add(encode, pairs, f"{year}.{name}", report)
    _note_skipped(report, year, sts.together(subsets))
    extra = {path.name for path in folder.glob("STS.input.*.txt")} - {
        f"STS.input.{name}.txt" for name in subsets
    }
    if extra:
        report.notes.append(
            f"{year}: {', '.join(sorted(extra))} is not a subset that SentEval scores; left out"
        )


def _single(
    encode: Encode,
    data: DataFolder,
    name: str,
    path: Path,
    parse: Callable[[Path, Sequence[str]], ScoredPairs],
    report: SuiteReport,
    header: str = "",
) -> None:
    with report.task(name):
        pairs = parse(path, data.lines(path, sts.HINT, header=header))
        _note_skipped(report, name, pairs)
        _add(encode, pairs, name, report)


def _note_skipped(report: SuiteReport, name: str, pairs: ScoredPairs) -> None:
    if pairs.skipped:
        asked = pairs.skipped + len(pairs.gold)
        report.notes.append(f"{name}: {pairs.skipped} of {asked} pairs have no score; left out")


def _add(encode: Encode, pairs: ScoredPairs, name: str, report: SuiteReport) -> None:
    similarity = cosines(encode, pairs)
    report.add(name, "spearman", spearman(similarity, pairs.gold), len(pairs.gold))
    report.add(name, "pearson", pearson(similarity, pairs.gold), len(pairs.gold))


def _languages(encode: Encode, data: DataFolder, split: str, report: SuiteReport) -> None:
    """STS-B's translations, one file per language."""
    paths = sorted(data.root.glob(f"stsb_multi_mt/stsb-*-{split}.csv"))
    if not paths:
        report.notes.append(f"no STS-B in other languages: {_OTHER_LANGUAGES}")
    for path in paths:
        language = re.fullmatch(r"stsb-(.+)-[a-z]+", path.stem).group(1)
        _single(encode, data, f"STS-B.{language}", path, sts.parse_csv, report)
