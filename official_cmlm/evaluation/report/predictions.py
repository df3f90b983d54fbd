"""Predictions of pairs of texts in files, and what follows from them: intervals of scores."""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.evaluation.metrics.intervals import RESAMPLES, bootstrap
from official_cmlm.evaluation.scores import Prediction, SuiteReport
from official_cmlm.evaluation.suites import declared
from official_cmlm.files import atomic_write_text

_HEADER = ("task", "first", "second", "gold", "predicted")
# Predictions of another run do not give the score.
_TOLERANCE = 1e-3


def _path(folder: Path, suite: str) -> Path:
    return folder / "predictions" / f"{suite}.csv"


def write(folder: Path, suite: str, predictions: Mapping[str, Sequence[Prediction]]) -> None:
    """Writes `predictions/<suite>.csv`, a row for each pair of each task."""
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(_HEADER)
    for task, found in predictions.items():
        rows.writerows([task, *pair] for pair in found)
    path = _path(folder, suite)
    path.parent.mkdir(exist_ok=True)
    atomic_write_text(path, text.getvalue())


def read(folder: Path, suite: str) -> dict[str, list[Prediction]]:
    """Reads what `write` wrote; nothing without the file."""
    path, found = _path(folder, suite), {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            for task, first, second, gold, predicted in list(csv.reader(file))[1:]:
                pair = (first, second, float(gold), float(predicted))
                found.setdefault(task, []).append(pair)
    return found


def add_intervals(suite: str, report: SuiteReport) -> None:
    """Adds the intervals of the scores that are computed from pairs."""
    for i, score in enumerate(report.scores):
        statistic = declared(suite).metric(score.metric).statistic
        if statistic and score.task in report.predictions:
            _, _, gold, predicted = zip(*report.predictions[score.task])
            found = bootstrap(statistic, predicted, gold)
            report.scores[i] = dataclasses.replace(score, interval=found)
    report.notes.append(
        f"in brackets: 95 % interval of a score, or of a difference, over {RESAMPLES} bootstrap "
        "samples of the pairs"
    )


def add_differences(
    suite: str, results: dict[str, Any], folder: Path, other: Mapping[str, Any]
) -> None:
    """Adds the intervals of differences to another encoder: `differences`, by its fingerprint.

    Args:
      suite: its name.
      results: of the suite; `scores` that both encoders have predictions of are changed.
      folder: of these results.
      other: the other encoder's results, with their `folder`.
    """
    theirs = read(Path(other["folder"]), suite)
    mine = read(folder, suite) if theirs else {}
    others = other["suites"].get(suite, {}).get("scores", [])
    values = {(score["task"], score["metric"]): score["value"] for score in others}
    for score in results.get("scores", []):
        task = score["task"]
        statistic = declared(suite).metric(score["metric"]).statistic
        if not statistic or task not in mine or task not in theirs:
            continue
        if [pair[:3] for pair in mine[task]] != [pair[:3] for pair in theirs[task]]:
            continue
        _, _, gold, own = zip(*mine[task])
        compared = [pair[3] for pair in theirs[task]]
        wanted = (score["value"], values.get((task, score["metric"]), float("nan")))
        found = (statistic(own, gold), statistic(compared, gold))
        if all(abs(one - two) < _TOLERANCE for one, two in zip(wanted, found)):
            ends = bootstrap(
                lambda x, y, gold, of=statistic: of(x, gold) - of(y, gold), own, compared, gold
            )
            score.setdefault("differences", {})[other["encoder"]["fingerprint"]] = ends
