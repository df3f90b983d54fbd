"""QNLI without training: do cosines tell sentences that answer a question from those that do not?

Mirror-BERT (Liu et al. 2021), section 3, footnote 4, after Li et al. (2020): area under the ROC
curve of the cosines on GLUE's development set of 5,463 pairs.
"""

import csv
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from sklearn import metrics

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.sts import PairTask

_HINT = (
    "QNLI's dev.tsv of GLUE (gluebenchmark.com) belongs into DATA_DIR/qnli: index, question, "
    "sentence, label, tab-separated, with a header; or glue/qnli, prepared by TensorFlow Datasets, "
    "into DATA_DIR/tfds"
)
_COLUMNS = ("question", "sentence", "label")
_LABELS = {"entailment": 1, "not_entailment": 0}


@dataclasses.dataclass(frozen=True)
class Options:
    """No options: pairs, cosine and area under the ROC curve are fixed by the protocol."""


def area_under_curve(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the percentage of positive-negative pairs in the right order; ties count half."""
    if len(np.unique(labels)) < 2:
        raise UserError("all pairs have the same label; need entailment and not_entailment")
    return 100.0 * float(metrics.roc_auc_score(labels, scores))


RESULTS = SuiteResults(
    (Metric(*("auc", "area under the ROC curve", "× 100"), main=True, statistic=area_under_curve),)
)


@register("qnli", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields `qnli/dev.tsv`."""
    read, note = functools.partial(_read, data), "{skipped} malformed lines skipped"
    yield PairTask("dev", read, {"auc": area_under_curve}, note)


def _read(data: DataFolder) -> ScoredPairs:
    try:
        path = data.folder("qnli", "QNLI", "glue/qnli", hint=_HINT) / "dev.tsv"
        header, lines = data.table(path, _HINT, bool)
    except MissingData as missing:
        rows = data.dataset("glue/qnli", "validation", _COLUMNS, missing)
        return select_labelled(rows, "glue/qnli", _LABELS, _HINT)
    return parse_labelled([header, *lines], str(path), _COLUMNS, _LABELS, _HINT)


def parse_labelled(
    lines: Sequence[str], source: str, columns: Sequence[str], labels: Mapping[str, int], hint: str
) -> ScoredPairs:
    """Parses pairs with labels; `gold` is the number of the label in `labels`.

    The first line has the columns' names, among them `columns`: those of the two texts and of the
    label. Cells of a source `*.csv` are separated by commas, and quoted cells may contain commas
    and line ends. Cells of other sources are separated by tabs, and their quotation marks are text.
    """
    if source.endswith(".csv"):
        rows = list(csv.reader(f"{line}\n" for line in lines))
    else:
        rows = [line.split("\t") for line in lines]
    header, *rows = rows or [[]]
    if not set(columns) <= set(header):
        raise UserError(f"{source}: its header is {' '.join(header)[:80]!r}; {hint}")
    places = [header.index(name) for name in columns]
    rows = [row for row in rows if any(map(str.strip, row))]
    chosen = [[row[i] for i in places] for row in rows if len(row) == len(header)]
    pairs = select_labelled(chosen, source, labels, hint)
    return dataclasses.replace(pairs, skipped=len(rows) - len(pairs.gold))


def select_labelled(
    rows: Sequence[Sequence[str]], source: str, labels: Mapping[str, int], hint: str
) -> ScoredPairs:
    """Returns the rows (text, text, label) with texts and a label of `labels`, as numbers."""
    pairs = [(a, b, labels.get(str(label).strip())) for a, b, label in rows]
    pairs = [(a, b, number) for a, b, number in pairs if number is not None and a and b]
    if {number for *_, number in pairs} != set(labels.values()):
        first_names = {number: name for name, number in reversed(labels.items())}
        names = " and ".join(reversed(first_names.values()))
        raise UserError(f"{source}: needs pairs of each label, {names}; {hint}")
    return ScoredPairs.of(pairs, len(rows) - len(pairs))
