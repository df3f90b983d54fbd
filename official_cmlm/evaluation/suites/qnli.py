"""QNLI without training: do cosines tell sentences that answer a question from those that do not?

Mirror-BERT (Liu et al. 2021), section 3, footnote 4, after Li et al. (2020): area under the ROC
curve of the cosines on GLUE's development set of 5,463 pairs.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
from sklearn import metrics

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.sts import PairTask

_HINT = (
    "QNLI's dev.tsv of GLUE (gluebenchmark.com) belongs into DATA_DIR/qnli: index, question, "
    "sentence, label, tab-separated, with a header"
)
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
    path = data.folder("qnli", "QNLI", "glue/qnli", hint=_HINT) / "dev.tsv"
    return parse_pairs(data.lines(path, _HINT, header="index"), str(path))


def parse_pairs(lines: Sequence[str], source: str) -> ScoredPairs:
    """Parses pairs; `gold` is 1 for entailment.

    Lines have index, question, sentence and label; quotation marks are part of the text.
    """
    rows = [line.split("\t") for line in lines if line.strip()]
    good = [row for row in rows if len(row) == 4 and row[3].strip() in _LABELS]
    if not good:
        raise UserError(f"{source}: no pair with a label; {_HINT}")
    pairs = [(row[1], row[2], _LABELS[row[3].strip()]) for row in good]
    return ScoredPairs.of(pairs, len(rows) - len(good))
