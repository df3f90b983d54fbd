"""Bitext mining: finding translation pairs in two monolingual corpora (BUCC 2018).

Margins and retrieval of Artetxe and Schwenk (2019); see `metrics.margin`. As in LASER's scripts,
equal sentences are mined once, and candidates with a sentence that has several ids are not scored,
since the gold pairs name only one of the ids.
"""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import chosen, pair_name
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.margin import (
    MARGINS,
    RETRIEVALS,
    Candidates,
    best_extraction,
    extract,
    mine,
)
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole

HINT = (
    "BUCC 2018 (comparable.limsi.fr/bucc2018/bucc2018-task.html) belongs into DATA_DIR/bucc as "
    "<src>-<trg>/<src>-<trg>.<split>.<lang> (id, tab, sentence) and <src>-<trg>.<split>.gold "
    "(id, tab, id)"
)

_GOLD = re.compile(r"([^.-]+)-([^.]+)\.([^.]+)\.gold")
_TRAINING = "training"
_RATIO_THRESHOLD = 1.06


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the mining.

    Attributes:
      margin: `ratio`, `distance` or `absolute`. Default `ratio` (best in Artetxe and Schwenk 2019).
      k: number of neighbours in the margin. Default 4 (same paper; LASER's `bucc.sh`).
      retrieval: `max`, `intersect`, `forward` or `backward`. Default `max` (same paper).
      threshold: the fixed threshold. Default 0: 1.06 for `ratio` (CCMatrix, Schwenk et al. 2019);
        none for the other margins, for which none is published, and no `_fixed` scores.
      pairs: of languages, e.g. `de-en` or `en-de`. Default: all found.
    """

    margin: Annotated[str, OneOf(tuple(MARGINS))] = "ratio"
    k: Annotated[int, at_least(1)] = 4
    retrieval: Annotated[str, OneOf(tuple(RETRIEVALS))] = "max"
    threshold: float = 0.0
    pairs: list[str] = dataclasses.field(default_factory=list)

    @property
    def fixed(self) -> float | None:
        """The fixed threshold, or None if the margin has none."""
        if self.threshold:
            return self.threshold
        return _RATIO_THRESHOLD if self.margin == "ratio" else None


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The distinct sentences of one language.

    Attributes:
      sentences: n distinct sentences.
      ids: the id of each, or "" if it has several.
      known: all ids.
    """

    sentences: list[str]
    ids: list[str]
    known: frozenset[str]


def unify(rows: list[tuple[str, str]]) -> Corpus:
    """Merges equal sentences of rows (id, sentence)."""
    times = Counter(sentence for _, sentence in rows)
    first = {sentence: name for name, sentence in reversed(rows)}
    sentences = list(times)
    ids = [first[sentence] if times[sentence] == 1 else "" for sentence in sentences]
    return Corpus(sentences, ids, frozenset(name for name, _ in rows))


def judge(
    found: Candidates, source: Corpus, target: Corpus, gold: set[tuple[str, str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of candidates with one id on each side, and which are gold pairs."""
    pairs, scores = found
    names = [(source.ids[i], target.ids[j]) for i, j in pairs.tolist()]
    single = np.array([bool(i and j) for i, j in names], bool)
    correct = np.array([pair in gold for pair in names], bool)
    return scores[single], correct[single]


_CONDITIONS = {
    "best": "threshold of the best F1",
    "fixed": "threshold that was given",
    "training": "threshold of the training part",
}
RESULTS = SuiteResults(
    (
        Metric("f1_best", "F1", "%", main=True),
        *(Metric(f"f1_{name}", "F1", "%", _CONDITIONS[name]) for name in ("fixed", "training")),
        *(
            Metric(f"{quantity}_{name}", quantity, "%", condition)
            for quantity in ("precision", "recall")
            for name, condition in _CONDITIONS.items()
        ),
        Metric("threshold_best", "threshold of the best F1", better=0),
    ),
    bars="Translations mined from two corpora",
)


def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every `<src>-<trg>.<split>` that has a gold file.

    Precision, recall and F1 are reported as `_best` (at `threshold_best`, the best threshold for
    these gold pairs), `_fixed` (at the fixed threshold) and, for other splits of a language pair
    whose `training` split is there, `_training` (at the best threshold of that split: BUCC's
    protocol for the test set). `count` is the number of gold pairs.
    """
    folder = data.folder("bucc", "bucc2018", "bitext_mining", hint=HINT)
    golds = {path.name: path for path in sorted([*folder.glob("*/*.gold"), *folder.glob("*.gold")])}
    found = [(match, golds[name]) for name in golds if (match := _GOLD.fullmatch(name))]
    if not found:
        raise UserError(f"{folder}: no <src>-<trg>.<split>.gold; {HINT}")
    names = {path: pair_name(match[1], match[2]) for match, path in found}
    kept = chosen(
        "bitext_mining.pairs",
        [pair_name(*pair.split("-", 1)) if "-" in pair else pair for pair in options.pairs],
        sorted(set(names.values())),
        report,
    )
    found = [(match, path) for match, path in found if names[path] in kept]
    trained: dict[str, _Split] = {}
    # Training splits come first, as the other splits use their thresholds.
    for match, path in sorted(found, key=lambda item: (item[0][3] != _TRAINING, item[0][0])):
        pair = f"{match[1]}-{match[2]}"
        languages = (match[1], match[2])
        task = _Split(f"{pair}.{match[3]}", data, path, languages, options, trained.get(pair))
        if match[3] == _TRAINING:
            trained[pair] = task
        yield task


@dataclasses.dataclass(eq=False)
class _Split(Task):
    """One split of a pair of languages: two corpora and their gold pairs."""

    data: DataFolder
    path: Path
    languages: tuple[str, str]
    options: Options
    training: "_Split | None"
    threshold: float | None = dataclasses.field(default=None, init=False)

    @functools.cached_property
    def _read(self) -> tuple[set[tuple[str, str]], Corpus, Corpus]:
        path = self.path
        gold = set(self.data.pairs(path, HINT, "gold pair", self.notes))
        source, target = (
            self._corpus(path.with_name(f"{self.name}.{language}")) for language in self.languages
        )
        known = sum(first in source.known and second in target.known for first, second in gold)
        if not known:
            raise UserError(
                f"{path}: none of its {len(gold)} pairs has both ids in the sentences beside it; "
                "fetch all three files of one split"
            )
        if known < len(gold):
            self.notes.append(
                f"{self.name}: {len(gold) - known} of {len(gold)} gold pairs have ids that are in "
                "no sentence file; they count as not found"
            )
        return gold, source, target

    def _corpus(self, path: Path) -> Corpus:
        rows = self.data.pairs(path, HINT, "sentence", self.notes)
        corpus = unify(rows)
        if repeated := len(rows) - sum(map(bool, corpus.ids)):
            self.notes.append(
                f"{self.name}: {repeated} of {len(rows)} lines of {path.name} have a sentence that "
                "occurs more than once; candidates with it are not scored"
            )
        return corpus

    def texts(self) -> TextsByRole:
        _, source, target = self._read
        return {"": [*source.sentences, *target.sentences]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        gold, source, target = self._read
        options, count = self.options, len(gold)
        candidates = mine(
            unit(encode(source.sentences), in_place=True),
            unit(encode(target.sentences), in_place=True),
            options.k,
            options.margin,
            options.retrieval,
            report.progress(f"mining {self.name}", len(source.sentences) + len(target.sentences)),
        )
        scores, correct = judge(candidates, source, target, gold)
        best = best_extraction(scores, correct, count)
        self.threshold = best.threshold
        found = {"best": best}
        trained = self.training and self.training.threshold
        for condition, threshold in (("fixed", options.fixed), ("training", trained)):
            if threshold is not None:
                found[condition] = extract(scores, correct, count, threshold)
        for condition, one in found.items():
            for name in ("precision", "recall", "f1"):
                report.add(self.name, f"{name}_{condition}", 100.0 * getattr(one, name), count)
        if np.isfinite(best.threshold):
            report.add(self.name, "threshold_best", best.threshold, count)
