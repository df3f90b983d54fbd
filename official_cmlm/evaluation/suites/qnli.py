"""QNLI without training: is a question nearer to a sentence that answers it?

Mirror-BERT (Liu et al. 2021), section 3, footnote 4, after Li et al. (2020): area under the ROC
curve of the cosines on GLUE's development set of 5,463 pairs.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from sklearn import metrics

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.metrics.similarity import cosines
from official_cmlm.evaluation.scores import SuiteReport

_HINT = (
    "QNLI's dev.tsv of GLUE (gluebenchmark.com) belongs into DATA_DIR/qnli: index, question, "
    "sentence, label, tab-separated, with a header"
)
_LABELS = {"entailment": 1, "not_entailment": 0}

# A curve of more points looks the same on paper.
_CURVE_POINTS = 200


@dataclasses.dataclass(frozen=True)
class Options:
    """There is nothing to choose: the pairs, cosine and the area are the protocol."""


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores `qnli/dev.tsv`.

    Scores: task `dev`, metric `auc` (times 100). Figure `roc_curve`: task -> shares of false and
    true positives (Mirror-BERT's Figure 4).
    """
    with report.task("dev"):
        path = data.folder("qnli", "QNLI", "glue/qnli", hint=_HINT) / "dev.tsv"
        lines = data.lines(path, _HINT, header="index")
        pairs, skipped = parse_pairs(lines, str(path))
        if skipped:
            report.notes.append(f"dev: {skipped} malformed lines skipped")
        scores = cosines(encode, pairs)
        report.add("dev", "auc", area_under_curve(scores, pairs.gold), len(pairs.gold))
        report.figures["roc_curve"] = {"dev": roc_points(scores, pairs.gold)}


def area_under_curve(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share, times 100, of (positive, negative) pairs in which the positive scores higher.

    A tie counts half.

    Args:
      scores: float `[n]`.
      labels: int `[n]`, 1 or 0.

    Raises:
      UserError: if one of the labels does not occur.
      ValueError: for scores that are no numbers.
    """
    if not np.isfinite(scores).all():
        raise ValueError("the scores hold NaN or infinity")
    if len(np.unique(labels)) < 2:
        raise UserError("all pairs have one label; need entailment and not_entailment")
    return 100.0 * float(metrics.roc_auc_score(labels, scores))


def roc_points(scores: np.ndarray, labels: np.ndarray) -> dict[str, list[float]]:
    """The ROC curve thinned to at most 200 points: `false_positive` and `true_positive` shares."""
    false_positive, true_positive, _ = metrics.roc_curve(labels, scores)
    count = min(_CURVE_POINTS, len(false_positive))
    kept = np.linspace(0, len(false_positive) - 1, count).round().astype(int)
    return {
        "false_positive": false_positive[kept].tolist(),
        "true_positive": true_positive[kept].tolist(),
    }


def parse_pairs(lines: Sequence[str], source: str) -> tuple[ScoredPairs, int]:
    """Questions with sentences and how many lines were malformed; `gold` is 1 for entailment.

    Quotation marks are text.

    Args:
      lines: index, question, sentence, label, tab-separated, without the header.
      source: what to call the lines in an error.

    Raises:
      UserError: if no pair is left.
    """
    rows = [line.split("\t") for line in lines if line.strip()]
    good = [row for row in rows if len(row) == 4 and row[3].strip() in _LABELS]
    if not good:
        raise UserError(f"{source}: no pair with a label; {_HINT}")
    labels = np.array([_LABELS[row[3].strip()] for row in good])
    pairs = ScoredPairs([row[1] for row in good], [row[2] for row in good], labels)
    return pairs, len(rows) - len(good)
