"""Predictions for pairs of texts, in files, and the intervals of scores that follow from them."""

import csv
import dataclasses
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.files import atomic_write_text
from official_cmlm.evaluation.metrics.intervals import RESAMPLES, bootstrap
from official_cmlm.evaluation.scores import Prediction, SuiteReport
from official_cmlm.evaluation.suites import get_results

_HEADER = ("task", "first", "second", "gold", "predicted")
# Predictions belong to a score if they give it within this tolerance; predictions of another run do
# not.
_TOLERANCE = 1e-3


def _path(folder: Path, suite: str) -> Path:
    return folder / "predictions" / f"{suite}.csv"


def write(folder: Path, suite: str, predictions: Mapping[str, Sequence[Prediction]]) -> None:
    """Writes `predictions/<suite>.csv`, a row for each pair of each task."""
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(_HEADER)
    for task, pairs in predictions.items():
        rows.writerows([task, *pair] for pair in pairs)
    path = _path(folder, suite)
    path.parent.mkdir(exist_ok=True)
    atomic_write_text(path, text.getvalue())


def read(folder: Path, suite: str) -> dict[str, list[Prediction]]:
    """Reads the predictions that `write` wrote; empty without the file."""
    path, by_task = _path(folder, suite), {}
    if path.exists():
        # A text may be longer than the 131,072 characters that the module reads by default.
        csv.field_size_limit(sys.maxsize)
        with path.open(encoding="utf-8", newline="") as file:
            for task, first, second, gold, predicted in list(csv.reader(file))[1:]:
                pair = (first, second, float(gold), float(predicted))
                by_task.setdefault(task, []).append(pair)
    return by_task


def add_intervals(suite: str, report: SuiteReport) -> None:
    """Adds the intervals of the scores that are computed from pairs."""
    for i, score in enumerate(report.scores):
        statistic = get_results(suite).metric(score.metric).statistic
        if statistic and score.task in report.predictions:
            _, _, gold, predicted = zip(*report.predictions[score.task])
            ends = bootstrap(statistic, predicted, gold)
            report.scores[i] = dataclasses.replace(score, interval=ends)
    report.notes.append(
        f"in brackets: 95 % interval of a score, or of a difference, over {RESAMPLES} bootstrap "
        "samples of the pairs"
    )


def add_differences(
    suite: str, results: dict[str, Any], folder: Path, other: Mapping[str, Any]
) -> None:
    """Adds to `differences` of each score the interval of its difference to another encoder's.

    The key is the fingerprint of the other encoder; intervals of an earlier comparison with it are
    removed. A file that cannot be read becomes a note.
    """
    fingerprint = other["encoder"]["fingerprint"]
    for score in results["scores"]:
        score.get("differences", {}).pop(fingerprint, None)
    mine, theirs = (_read_or_note(place, suite, results) for place in (folder, other["folder"]))
    others = other["suites"].get(suite, {}).get("scores", [])
    values = {(score["task"], score["metric"]): score["value"] for score in others}
    for score in results["scores"]:
        task = score["task"]
        statistic = get_results(suite).metric(score["metric"]).statistic
        if not statistic or task not in mine or task not in theirs:
            continue
        if [pair[:3] for pair in mine[task]] != [pair[:3] for pair in theirs[task]]:
            continue
        _, _, gold, own = zip(*mine[task])
        compared = [pair[3] for pair in theirs[task]]
        printed = (score["value"], values.get((task, score["metric"]), float("nan")))
        computed = (statistic(own, gold), statistic(compared, gold))
        if all(abs(one - two) < _TOLERANCE for one, two in zip(printed, computed)):
            ends = bootstrap(
                lambda x, y, gold, of=statistic: of(x, gold) - of(y, gold), own, compared, gold
            )
            score.setdefault("differences", {})[fingerprint] = ends


def _read_or_note(
    folder: str | Path, suite: str, results: dict[str, Any]
) -> dict[str, list[Prediction]]:
    """Reads predictions; if they cannot be read, notes it in the suite's results."""
    note = f"{_path(Path(folder), suite)}: cannot be read, so differences have no interval"
    results["notes"] = [one for one in results["notes"] if one != note]
    try:
        return read(Path(folder), suite)
    except (OSError, ValueError, csv.Error):
        results["notes"].append(note)
        return {}
