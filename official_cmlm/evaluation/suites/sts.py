"""Semantic textual similarity: correlation of cosines with human scores, without training.

SemEval's STS tasks in SentEval's files (Conneau and Kiela 2018), in every convention that papers
use, see `metrics.similarity`; and pairs in other languages: STS-B's translations, SemEval-2017,
the Russian pairs of deepPavlovEval (STS12's MSRvid, translated).

`STS-B` is the test set; `STS-B-dev` and `STS-B-train` are the other parts, so that their scores
are never taken for test scores. A language is a suffix: `STS-B.de`, `STS-B-dev.de`, `STS17.es-es`.

Each language can have an encoder of its own, as Mirror-BERT's monolingual BERTs have in its Table
4: `--encoder=es:path,ar:path,ru:path`. Pairs of two languages are then left out.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.evaluation.data import sts
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import two_letters
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.similarity import (
    CORRELATIONS,
    cosines,
    spearman,
    subset_correlations,
)
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import (
    Metric,
    SuiteResults,
    Summary,
    Task,
    TextsByRole,
    with_encoders,
)
from official_cmlm.evaluation.suites import register

YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
# The seven sets whose mean papers call the average.
_AVERAGED = (*YEARS, "STS-B", "SICK-R")
_RUSSIAN = "STS12-MSRvid.ru"
# SentEval's files of STS-B by part.
_FILES = {part: f"STS/STSBenchmark/sts-{part}.csv" for part in ("test", "dev", "train")}


@dataclasses.dataclass(frozen=True)
class Options:
    """Choice of the pairs to score.

    Attributes:
      tasks: which of STS12 … STS16, STS-B, SICK-R, STS17 (SemEval-2017) and STS12-MSRvid.ru (the
        Russian pairs) to score. Default: empty, all that are there. Where tasks are chosen, STS-B
        is in English only, unless `languages` names others.
      languages: which files in other languages to score, e.g. `de` or `DEU`; a pair of languages is
        scored if both are named. The English sets are scored too if they are there, but only
        `tasks` asks for them. What neither `tasks` nor `languages` names is left out. Default:
        empty, all that are found, but no second English STS-B in addition to SentEval's.
      subsets: also report each subset of a year. Default true.
      other_languages: also score files in other languages. Default true.
      split: part of STS-B: `test` (default), `dev`, by which papers select models, `train`, or
        `both`, test and dev. All but the test set are tasks of their own, `STS-B-dev` and
        `STS-B-train`, which are in no average.
    """

    tasks: Annotated[list[str], OneOf((*_AVERAGED, "STS17", _RUSSIAN))] = dataclasses.field(
        default_factory=list
    )
    languages: list[str] = dataclasses.field(default_factory=list)
    subsets: bool = True
    other_languages: bool = True
    split: Annotated[str, OneOf(("test", "dev", "train", "both"))] = "test"

    @property
    def chosen(self) -> set[str]:
        """The languages that are chosen, in codes of two letters where they have one."""
        return {two_letters(language) for language in self.languages}

    def has(self, task: str) -> bool:
        """Returns whether the tasks of this name are chosen."""
        return not self.tasks or task in self.tasks

    @property
    def splits(self) -> tuple[str, ...]:
        """The parts of STS-B that are chosen."""
        return ("test", "dev") if self.split == "both" else (self.split,)


def _panel(task: str) -> tuple[str, str] | None:
    if task.startswith(tuple(f"{year}." for year in YEARS)):
        return None
    if re.search(r"\b(dev|train)\b", task):
        return "development and training sets", task
    return "other languages" if "." in task else "", task


def _correlation_metrics(name: str, label: str) -> tuple[Metric, ...]:
    of_pairs = {"main": True, "statistic": spearman} if name == "spearman" else {}
    return (
        Metric(f"{name}_all", label, "× 100", "all pairs together", **of_pairs),
        Metric(name, label, "× 100", **of_pairs),
        Metric(f"{name}_mean", label, "× 100", "mean of the subsets"),
        Metric(f"{name}_wmean", label, "× 100", "mean of the subsets by size"),
    )


RESULTS = SuiteResults(
    (
        *_correlation_metrics("spearman", "Spearman's ρ"),
        *_correlation_metrics("pearson", "Pearson's r"),
        Metric("spearman_average", "Spearman's ρ", "× 100", "mean of the tasks"),
    ),
    averages=r"average|average of .+",
    panel=_panel,
    bars="Correlation of cosines with human scores of sentence pairs",
    axis="Spearman's ρ × 100",
    references=(("CMLM-CSE", "Table 1", "CMLM-BERT-base", "CMLM-CSE-BERT-base"),),
)


@register("sts", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields the tasks that are chosen and have an encoder; docs/evaluation.md names them."""
    chosen = [*_english_tasks(data, options), *_other_languages(data, options)]
    if not any(task.name for task in chosen):
        raise UserError(
            f"nothing to score with sts.tasks={','.join(options.tasks)}, "
            f"sts.languages={','.join(options.languages)} and "
            f"sts.other_languages={str(options.other_languages).lower()}"
        )
    yield from with_encoders(chosen, report)
    yield Summary("", functools.partial(_average, options))


def _english_tasks(data: DataFolder, options: Options) -> Iterator[Task]:
    english: list[Task] = [_Year(n, data, options.subsets) for n in filter(options.has, YEARS)]
    for split in options.splits if options.has("STS-B") else ():
        english.append(PairTask(_benchmark(split), functools.partial(_read_benchmark, data, split)))
    if options.has("SICK-R"):
        english.append(PairTask("SICK-R", functools.partial(_read_sick, data)))
    for task in english:
        # A choice of languages alone does not ask for the English sets.
        task.is_optional = bool(options.languages and not options.tasks)
        task.text_languages = frozenset({"en"})
        yield task


@dataclasses.dataclass(eq=False)
class PairTask(Task):
    """Scores of the cosines of pairs.

    Attributes:
      read: returns the pairs.
      statistics: metric -> its function of cosines and human scores or labels.
      left_out: the note on lines without a pair.
    """

    read: Callable[[], ScoredPairs]
    statistics: Mapping[str, Callable] = dataclasses.field(default_factory=CORRELATIONS.copy)
    left_out: str = "{skipped} of {lines} pairs have no score; left out"

    @functools.cached_property
    def pairs(self) -> ScoredPairs:
        """The pairs, read once."""
        pairs = self.read()
        if pairs.skipped:
            lines = pairs.skipped + len(pairs.gold)
            note = self.left_out.format(skipped=pairs.skipped, lines=lines)
            self.notes.append(f"{self.name}: {note}")
        return pairs

    def texts(self) -> TextsByRole:
        return {"": self.pairs.texts}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        values = cosines(encode, self.pairs)
        report.predict(self.name, self.pairs, values)
        self.add(report, self.name, values, self.pairs.gold)

    def add(self, report: SuiteReport, task: str, values: np.ndarray, gold: np.ndarray) -> None:
        """Adds the statistics of cosines `[n]` and human scores `[n]`."""
        for metric, statistic in self.statistics.items():
            report.add(task, metric, statistic(values, gold), len(gold))


class _Year(PairTask):
    """The subsets of a SemEval year."""

    def __init__(self, name: str, data: DataFolder, with_subsets: bool) -> None:
        super().__init__(name, lambda: sts.join_subsets(self._subsets))
        self._data, self._with_subsets = data, with_subsets

    @functools.cached_property
    def _subsets(self) -> dict[str, ScoredPairs]:
        folder = _english(self._data) / "STS" / f"{self.name}-en-test"
        subsets = sts.read_subsets(self._data, folder)
        scored = {f"STS.input.{name}.txt" for name in subsets}
        if extra := {path.name for path in folder.glob("STS.input.*.txt")} - scored:
            self.notes.append(
                f"{self.name}: {', '.join(sorted(extra))} is not a subset that SentEval scores; "
                "left out"
            )
        return subsets

    def score(self, encode: Encode, report: SuiteReport) -> None:
        report.add_all(self.name, subset_correlations(encode, self._subsets), len(self.pairs.gold))
        report.predict(self.name, self.pairs, cosines(encode, self.pairs))
        for name, pairs in self._subsets.items() if self._with_subsets else ():
            self.add(report, f"{self.name}.{name}", cosines(encode, pairs), pairs.gold)


def _average(options: Options, report: SuiteReport) -> None:
    """Adds the papers' average of seven sets, or an average of fewer, and means over languages."""
    for name in ("STS17", *map(_benchmark, options.splits)):
        languages = [
            score.value
            for score in report.scores
            if score.task.startswith(f"{name}.") and score.metric == "spearman"
        ]
        if len(languages) > 1:
            mean = float(np.mean(languages))
            report.add(f"average of {name}.*", "spearman_average", mean, len(languages))
    values = {name: report.get(name, _main_metric(name)) for name in _AVERAGED}
    scored = {name: value for name, value in values.items() if value is not None}
    mean = float(np.mean(list(scored.values()))) if scored else 0.0
    if len(scored) == len(_AVERAGED):
        report.add("average", "spearman_all", mean, len(scored))
        return
    if lacking := [name for name in values if options.has(name) and name not in scored]:
        report.notes.append(f"average of seven: not computed without {', '.join(lacking)}")
    if len(scored) > 1:
        report.add(f"average of {'+'.join(scored)}", "spearman_average", mean, len(scored))


def _read_benchmark(data: DataFolder, split: str) -> ScoredPairs:
    try:
        path = _english(data) / _FILES[split]
        return sts.parse_sts_benchmark(path, data.lines(path, sts.HINT))
    except MissingData as missing:
        # GLUE keeps the scores of its test set.
        if split == "test":
            raise
        part = "validation" if split == "dev" else split
        rows = data.dataset("glue/stsb", part, ("sentence1", "sentence2", "label"), missing)
        return sts.make_pairs(Path("glue/stsb"), rows, [], sts.HINT)


def _read_sick(data: DataFolder) -> ScoredPairs:
    path = _english(data) / "SICK/SICK_test_annotated.txt"
    return sts.parse_sick(path, data.lines(path, sts.HINT, header="pair_ID"))


def _english(data: DataFolder) -> Path:
    """Returns SentEval's folder."""
    return data.folder(
        "senteval/downstream", "downstream", ".", hint=sts.HINT, holding=("STS", "SICK")
    )


def _benchmark(split: str) -> str:
    """Returns the name of a part of STS-B."""
    return "STS-B" if split == "test" else f"STS-B-{split}"


def _main_metric(name: str) -> str:
    return "spearman_all" if name in YEARS else "spearman"


def _other_languages(data: DataFolder, options: Options) -> Iterator[Task]:
    """Yields STS-B's translations, the tracks of SemEval-2017, and the Russian pairs."""
    if not options.other_languages:
        return
    there = list(_files(data, options))
    chosen = [t for t in there if not options.languages or t.text_languages <= options.chosen]
    repeated: list[str] = []
    with contextlib.suppress(MissingData):
        folder = _english(data)
        repeated += [_benchmark(s) for s in options.splits if (folder / _FILES[s]).is_file()]
    for task in chosen:
        english = task.name.removesuffix(".en")
        if english in repeated and task.name != english and not options.languages:
            note = f"{task.name} repeats {english}: left out; sts.languages=en scores it"
            yield Task("", notes=[note])
        else:
            yield task
    if not there and not options.tasks and not options.languages:
        yield Task("", notes=[f"no STS in other languages: {sts.LANGUAGES_HINT}"])
    for name, path, hint in (
        ("STS17", "STS17/STS2017.eval.v1.1", sts.TRACKS_HINT),
        (_RUSSIAN, "STS2012_MSRvid_translated", sts.RUSSIAN_HINT),
    ):
        if name in options.tasks and not any(task.name.startswith(name) for task in there):
            yield Task(name, error=MissingData(data.root / path, hint))
    # The English sets are English, SemEval-2017's tracks need not be.
    english = {"en"} if options.tasks != ["STS17"] else set()
    covered = english.union(*(task.text_languages for task in chosen))
    hint = sts.TRACKS_HINT if options.has("STS17") else "add STS-B to sts.tasks"
    hint = sts.LANGUAGES_HINT if options.has("STS-B") else hint
    for language in sorted(options.chosen - covered):
        what = f"{', '.join(options.tasks) or 'pairs'} in {language}"
        yield Task(language, error=MissingData(what, hint))


def _files(data: DataFolder, options: Options) -> Iterator[PairTask]:
    """Yields the file of each chosen task in another language."""

    def translation(path: Path) -> ScoredPairs:
        return sts.parse_csv(path, data.lines(path, sts.LANGUAGES_HINT))

    def pairs(name: str, languages: Iterable[str], read: Callable[[], ScoredPairs]) -> PairTask:
        return PairTask(name, read, text_languages=frozenset(map(two_letters, languages)))

    # If tasks are chosen but no languages, STS-B is scored in English only.
    if options.has("STS-B") and (options.languages or not options.tasks):
        for split in options.splits:
            for language, path in sts.find_translations(data.root, split).items():
                read = functools.partial(translation, path)
                yield pairs(f"{_benchmark(split)}.{language}", [language], read)
    if options.has("STS17"):
        for track, paths in sts.find_tracks(data.root).items():
            read = functools.partial(sts.read_pairs, data, *paths, sts.TRACKS_HINT)
            yield pairs(f"STS17.{track}", track.split("-")[:2], read)
    if options.has(_RUSSIAN) and (paths := sts.find_russian(data.root)):
        read = functools.partial(sts.read_pairs, data, *paths, sts.RUSSIAN_HINT)
        yield pairs(_RUSSIAN, ["ru"], read)
