"""The scores that represent a suite in the summary, as bars, and next to the papers' rows."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from official_cmlm.evaluation.report.papers import row_values
from official_cmlm.evaluation.suite import Metric
from official_cmlm.evaluation.suites import SUITES, get_results

Results = dict[str, Any]
# Most encoders for which tables, bars and colours have room.
MAX_ENCODERS = 5
# In the summary, a panel of more tasks than the first number is represented by its averages; if it
# has no average and more tasks than the second number, by the mean of its tasks.
_MOST_TASKS, _MOST_WITHOUT_AVERAGE = 7, 14
# The ending of metrics after principal component removal.
REMOVED = "_pcr"
Score = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Main:
    """A score that stands for its suite.

    Attributes:
      task, metric: names of the score.
      panel: title of the chart in which it is drawn; empty for the suite's own tasks.
      is_average: whether it is an average of others.
      label: the task, or the name of a paper's average.
    """

    task: str
    metric: str
    panel: str
    is_average: bool
    label: str


def scores(results: Results, suite: str) -> dict[str, Score]:
    """Returns `task/metric` -> score of a suite; empty if the suite was not run."""
    entries = results.get("suites", {}).get(suite, {}).get("scores", [])
    return {f"{score['task']}/{score['metric']}": score for score in entries}


def suite_names(*parts: Results) -> list[str]:
    """Returns the suites that the first of the encoders ran, in the order of `SUITES`."""
    return in_order(parts[0].get("suites", {}).keys())


def choose_shown(suite: str, parts: Sequence[Results]) -> Sequence[Results]:
    """Returns the encoders to show in a suite: only the first one if it has no score there."""
    return parts if scores(parts[0], suite) else parts[:1]


def in_order(names: Collection[str]) -> list[str]:
    """Returns names of suites in the order of `SUITES`, unknown ones last."""
    return [name for name in SUITES if name in names] + sorted(set(names) - SUITES.keys())


def main_scores(suite: str, parts: Sequence[Results]) -> list[Main]:
    """Returns the scores that represent a suite, of any encoder, panel by panel, averages last.

    A task is represented by the first main metric that some encoder has; an average without a main
    metric by all of its metrics.
    """
    shown_as = get_results(suite)
    metrics_of: dict[str, list[str]] = {}
    for part in parts:
        for score in scores(part, suite).values():
            if score["metric"] not in metrics_of.get(score["task"], ()):
                metrics_of.setdefault(score["task"], []).append(score["metric"])
    rows = []
    for task, metrics in metrics_of.items():
        panel, is_average = shown_as.panel(task), shown_as.is_average(task)
        if panel is None:
            continue
        title, task_label = panel
        preferred = [metric.name for metric in shown_as.main] or metrics[:1]
        main = [name for name in preferred if name in metrics][:1]
        for name in main or (metrics if is_average else []):
            metric = shown_as.metric(name)
            label = metric.text if metric.names_row and is_average else task_label
            rows.append(Main(task, name, title, is_average, label))
    panels = list(dict.fromkeys(row.panel for row in rows))
    return sorted(rows, key=lambda row: (panels.index(row.panel), row.is_average))


def summarize(suite: str, parts: Sequence[Results]) -> list[tuple[str, Metric, list[Score | None]]]:
    """Returns (task, metric, a score per encoder) of the summary; large panels as averages.

    A panel of many tasks without an average of its own is represented by the mean of the tasks
    that are common to all encoders with any task of the panel.
    """
    rows = main_scores(suite, parts)
    shown_as = get_results(suite)
    lines: list[tuple[str, Metric, list[Score | None]]] = []
    for panel in dict.fromkeys(row.panel for row in rows):
        in_panel = [row for row in rows if row.panel == panel]
        tasks = [row for row in in_panel if not row.is_average]
        averages = [row for row in in_panel if row.is_average]
        if len(tasks) > _MOST_TASKS and averages:
            in_panel = averages
        elif len(tasks) > _MOST_WITHOUT_AVERAGE:
            lines.append(_mean(suite, parts, tasks))
            continue
        for row in in_panel:
            # Each score is followed by the score after component removal.
            for name in (row.metric, row.metric + REMOVED):
                row_scores = [scores(part, suite).get(f"{row.task}/{name}") for part in parts]
                if any(row_scores):
                    lines.append((row.task, shown_as.metric(name), row_scores))
    return lines


def _mean(
    suite: str, parts: Sequence[Results], rows: list[Main]
) -> tuple[str, Metric, list[Score | None]]:
    by_encoder = [
        [scores(part, suite).get(f"{row.task}/{row.metric}") for row in rows] for part in parts
    ]
    having = [part for part in by_encoder if any(part)]
    common = [i for i in range(len(rows)) if all(part[i] for part in having)]
    means: list[Score | None] = [
        {
            "value": math.fsum(part[i]["value"] for i in common) / len(common),
            "count": len(common),
            # Means over tasks of different examples are not compared either.
            "counts": tuple(part[i]["count"] for i in common),
        }
        if common and any(part)
        else None
        for part in by_encoder
    ]
    return f"mean of {len(common)} tasks", get_results(suite).metric(rows[0].metric), means


def references(suite: str, rows: Sequence[Main]) -> dict[str, list[float | None]]:
    """Returns the papers' rows that are marked at bars: all with a value for at least one bar.

    A row has one value per bar, in the unit of the suite's scores; None where the paper has none.
    """
    lines = {}
    for paper, table, *models in get_results(suite).references:
        for model in models:
            printed = row_values(paper, table, model)
            values = [printed.get(f"{suite}/{row.task}/{row.metric}") for row in rows]
            if any(value is not None for value in values):
                lines[f"{model} ({paper}, {table})"] = values
    return lines
