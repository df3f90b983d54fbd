"""XNLI: inference learned in English alone, tested in every language; the encoder stays frozen.

A softmax layer on the features [u, v, u * v, |u - v|] of premise and hypothesis, SentEval's for
SNLI (Conneau and Kiela 2018), is trained on English MultiNLI as SentEval trains its classifiers;
5 % of the rows are held out to stop it. It is tested on XNLI (Conneau et al. 2018). LASER's
published figures have the same features, but a classifier of two hidden layers.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import choose_languages
from official_cmlm.evaluation.data.pawsx import read_csv_rows
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig, fit
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.qnli import parse_labelled, select_labelled
from official_cmlm.evaluation.suites.senteval import PairFeatures

HINT = (
    "XNLI-1.0 (cims.nyu.edu/~sbowman/xnli) belongs into DATA_DIR/xnli as xnli.{dev,test}.tsv, or "
    "XTREME's copy as <split>-<lang>.tsv with labels, which its test files lack; the English "
    "training data of XNLI-MT-1.0 as DATA_DIR/XNLI-MT-1.0/multinli/multinli.train.en.tsv"
)
# The publisher's file, then that of its extension by Salesforce, a part in some copies.
TRAIN = (
    "XNLI-MT-1.0/multinli/multinli.train.en.tsv",
    "multinli_translated/multinli.train.en.tsv",
)
# Labels as numbers; XNLI-MT has another word for one of them.
LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2, "contradictory": 2}
# Columns of the training data, and of XNLI.
_COLUMNS = (("premise", "hypo", "label"), ("sentence1", "sentence2", "gold_label"))
# SentEval's seed; its classifier holds 5 % of the rows out, at least one.
_SEED, _FEWEST = 1111, 20


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the transfer of inference.

    Attributes:
      languages: codes of the test languages. Default: all found.
      split: `test` (default) or `dev`, which has a metric of its own.
      max_train: number of training rows, from the first, of which 5 % are held out. Default 0: all
        of the file.
    """

    languages: list[str] = dataclasses.field(default_factory=list)
    split: Annotated[str, OneOf(("test", "dev"))] = "test"
    max_train: Annotated[int, at_least(0, "0: all")] = 0


RESULTS = SuiteResults(
    (
        Metric("accuracy", "accuracy", "%", main=True),
        Metric("dev_accuracy", "accuracy", "%", "development set", main=True),
    ),
    averages=r"macro",
    bars="Inference, learned in English, by test language; frozen encoder",
    axis="accuracy, %",
)


@register("xnli", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields one task: training in English, and tests in all languages found or chosen.

    Tasks in results: `<language>`, and `macro`, the mean over the languages other than English.
    """
    report.seeds = [_SEED]
    paths = _find_tests(data.folder("xnli", "XNLI-1.0", hint=HINT), options.split)
    train_path = next((path for path in map(data.root.joinpath, TRAIN) if path.is_file()), None)
    if train_path is None:
        raise MissingData(data.root / TRAIN[0], HINT)
    (train,) = read_inferences(data, train_path).values()
    rows = np.arange(len(train.gold))[: options.max_train or None]
    if len(rows) < _FEWEST:
        raise UserError(f"{train_path}: {len(rows)} rows to train on, {_FEWEST} are the fewest")
    report.notes.append(f"trained on {len(rows)} rows of {train_path.relative_to(data.root)}")
    tests: dict[str, ScoredPairs] = {}
    if isinstance(paths, Path):
        tests = read_inferences(data, paths)
        paths = dict.fromkeys(sorted(tests), paths)
    chosen = choose_languages("xnli.languages", options.languages, list(paths), report)
    for language in chosen:
        with report.task(language):
            if language not in tests:
                (tests[language],) = read_inferences(data, paths[language]).values()
    tests = {language: tests[language] for language in chosen if language in tests}
    for name, pairs in [("training", train), *tests.items()]:
        if pairs.skipped:
            report.notes.append(f"{name}: {pairs.skipped} rows skipped: malformed or without label")
    if tests:
        yield _Transfer("", train.take(rows), tests, options)


@dataclasses.dataclass(eq=False)
class _Transfer(Task):
    """A classifier of English pairs, tested on pairs in several languages."""

    train: ScoredPairs
    tests: Mapping[str, ScoredPairs]
    options: Options

    def texts(self) -> TextsByRole:
        every = [self.train, *self.tests.values()]
        return {"": [text for pairs in every for text in pairs.texts]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        rows, labels = _features(encode, self.train), self.train.gold.astype(int)
        # As on SNLI, weights do not decay.
        (classifier,) = fit((rows, labels), None, 3, ClassifierConfig(), [0.0], _SEED)
        metric = "accuracy" if self.options.split == "test" else "dev_accuracy"
        by_language = {}
        for language, pairs in self.tests.items():
            right = classifier.predict(_features(encode, pairs)) == pairs.gold
            by_language[language] = 100.0 * float(np.mean(right))
            report.add(language, metric, by_language[language], len(right))
        if others := {name: value for name, value in by_language.items() if name != "en"}:
            count = sum(len(self.tests[name].gold) for name in others)
            report.add("macro", metric, float(np.mean(list(others.values()))), count)
            report.notes.append(f"macro is the mean of {' '.join(others)}")


def _features(encode: Encode, pairs: ScoredPairs) -> PairFeatures:
    return PairFeatures(encode(pairs.first), encode(pairs.second), with_both=True)


def _find_tests(folder: Path, split: str) -> Path | dict[str, Path]:
    """Returns the one file of all languages, or language -> its own."""
    whole = folder / f"xnli.{split}.tsv"
    paths = sorted(folder.glob(f"{split}-*.tsv"))
    if not whole.is_file() and not paths:
        raise MissingData(whole, HINT)
    return whole if whole.is_file() else {p.stem.removeprefix(f"{split}-"): p for p in paths}


def read_inferences(data: DataFolder, path: Path) -> dict[str, ScoredPairs]:
    """Reads pairs of premise and hypothesis, `gold` from `LABELS`: language -> its pairs.

    A file of one language has the key "". One with a header has XNLI's columns or those of the
    training data; one without has sentence, sentence, label, as Python's `csv` writes them.
    """

    def find_columns(line: str) -> tuple[str, ...]:
        return next((c for c in _COLUMNS if set(c) <= set(line.split("\t"))), ())

    header, lines = data.table(path, HINT, lambda line: bool(find_columns(line)))
    if not header:
        rows = list(read_csv_rows(lines, 3))
        whole = [row for row in rows if len(row) == 3]
        pairs = select_labelled(whole, str(path), LABELS, HINT)
        return {"": dataclasses.replace(pairs, skipped=len(rows) - len(pairs.gold))}
    by_language: dict[str, list[str]] = {}
    # Without rows the header is taken for one, which has no label.
    for line in lines or [header]:
        language = line.partition("\t")[0] if header.startswith("language\t") else ""
        by_language.setdefault(language, [header]).append(line)
    return {
        language: parse_labelled(some, str(path), find_columns(header), LABELS, HINT)
        for language, some in by_language.items()
    }
