"""The tables and the figure of a study, made of the results that are there."""

import dataclasses
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.metrics.intervals import CONFIDENCE, Estimate, compare_pairs, estimate
from official_cmlm.evaluation.report.papers import MEAN_OF, Printed
from official_cmlm.evaluation.report.tables import MISSING, duration, escape

from .definition import Arm, Column, Comparison, Study
from .results import RESULTS_NAME, Results, read_results

TABLE_NAME, FIGURE_NAME = "study.md", "study.png"
# The answers to whether a gain has the sign that the paper reports.
YES, NO, UNDECIDED, NO_FIGURE = "yes", "no", "undecided", "the paper has no such figure"
OTHER_SCORE = "\\*"
# Characters of a line beside or below a panel.
_LABEL_WIDTH = 28
_WIDTH, _ROW_HEIGHT, _RESOLUTION = 5.6, 0.36, 160  # inches, inches, dots an inch
_BLUE, _ORANGE, _GREY = "#2a6ebb", "#c25b12", "#777777"


@dataclasses.dataclass(frozen=True)
class _Row:
    """An arm's scores in a column, and their differences from the baseline's."""

    arm: Arm
    scores: Estimate | None
    difference: Estimate | None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The gain of a comparison in one column, and the paper's.

    Attributes:
      comparison: the comparison.
      column: the column.
      gain: the paired differences of the seeds, in the column's unit.
      printed: the paper's difference; None if it has no such figure.
    """

    comparison: Comparison
    column: Column
    gain: Estimate
    printed: Printed | None

    @property
    def has_paper_sign(self) -> str:
        """Whether the gain has the paper's sign: YES, NO, UNDECIDED or NO_FIGURE."""
        if self.printed is None:
            return NO_FIGURE
        if self.gain.half is None or abs(self.gain.mean) <= self.gain.half:
            return UNDECIDED
        return YES if (self.gain.mean > 0) - (self.gain.mean < 0) == self.printed.sign else NO

    def describe_gain(self) -> str:
        """Returns, for example, `+1.1 (+0.4 to +1.8)`."""
        return _describe_difference(self.gain, self.column)

    def describe_printed(self) -> str:
        """Returns the paper's difference, in words where it prints none; MISSING without any.

        A star marks a difference in another score than the column's, such as an average of other
        tasks; a mean that the column names stands for the column's own score.
        """
        if self.printed is None:
            return MISSING
        score = self.printed.score
        is_own = score in self.column.id.split("|") or MEAN_OF in score
        star = "" if is_own else OTHER_SCORE
        if self.printed.value is None:
            return ("above" if self.printed.sign > 0 else "below") + star
        return self.column.text(self.printed.value * self.column.scale, "+") + star


def list_outcomes(study: Study, results: Results) -> list[Outcome]:
    """Returns the outcomes of all comparisons whose arms have results, in the file's order."""
    outcomes = []
    for comparison in study.comparisons:
        for column in study.scores.columns:
            if gain := _compare(results, comparison.arm, comparison.minus, column):
                printed = (difference.compute(column.paper_ids) for difference in comparison.paper)
                first = next(filter(None, printed), None)
                outcomes.append(Outcome(comparison, column, gain, first))
    return outcomes


def write_report(study: Study, work_dir: Path, name: str) -> str:
    """Writes `study.md` and `study.png`.

    Returns:
      A line that says what was written and what is missing.

    Raises:
      UserError: before the first result, or if some were scored on other files than others.
    """
    results = read_results(study, work_dir)
    if not results:
        raise UserError(f"{work_dir}: no results of this study yet; run it without --report_only")
    _check_files(results, work_dir / RESULTS_NAME)
    arms = [arm for arm in study.arms if any(name == arm.name for name, _ in results)]
    missing = []
    for arm in study.arms:
        if seeds := [str(seed) for seed in study.seeds if (arm.name, seed) not in results]:
            missing.append(f"{arm.name} seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}")
    outcomes = list_outcomes(study, results)
    columns = {column: _list_rows(study, arms, results, column) for column in study.scores.columns}
    _draw(study, columns, outcomes, work_dir / FIGURE_NAME)
    baseline = escape(study.arm(study.baseline).title)
    seeds = f"{len(study.seeds)} seeds" if len(study.seeds) > 1 else "one seed"
    lines = [
        f"# {escape(study.title)}",
        f"`python -m experiments.study --study={name} --work_dir=… --data_dir=…`",
        f"{len(study.arms)} arms with {seeds}. Scores are means ± standard deviations over seeds; "
        f"differences from {baseline}, and gains, are taken seed by seed, with the "
        f"{CONFIDENCE:.0%} interval of their mean (Student's t).",
        *([f"Missing, and in no figure here: {'; '.join(missing)}."] if missing else []),
        f"![Scores and differences]({FIGURE_NAME})",
    ]
    for column, rows in columns.items():
        header = ["arm", "score", f"difference from {baseline}", "by seed"]
        table = format_table(header, [_describe_row(row, column) for row in rows])
        lines += [f"## {escape(column.label)}", table]
        if own := [_describe_outcome(outcome) for outcome in outcomes if outcome.column is column]:
            header = ["comparison", "gain", "in the paper", "its figures", "the paper's sign"]
            lines.append(format_table(header, own))
    lines += ["## What was run", _tabulate_costs(study, arms, results)]
    protocols = {k: v for result in results.values() for k, v in result.protocols.items()}
    lines.append("\n".join(f"- `{suite}`: {escape(text)}" for suite, text in protocols.items()))
    (work_dir / TABLE_NAME).write_text("\n\n".join(lines).rstrip() + "\n", encoding="utf-8")
    rest = f"; missing: {'; '.join(missing)}" if missing else ""
    return f"study: {work_dir / TABLE_NAME}, {work_dir / FIGURE_NAME}{rest}"


def _check_files(results: Results, path: Path) -> None:
    """Raises `UserError` if some results were scored on other files than others."""
    seen: dict[str, tuple[str, str]] = {}
    for (arm, seed), result in results.items():
        for file, digest in result.evaluation_files.items():
            first, other = seen.setdefault(file, (digest, f"{arm}.{seed}"))
            if digest != first:
                raise UserError(
                    f"{path}: {arm}.{seed} was scored on another {file} than {other}; delete the "
                    "older one there to score it anew"
                )


def _collect_scores(results: Results, name: str, column: Column) -> dict[int, float]:
    """Returns the scores of an arm by seed, in the column's unit."""
    values = {seed: column.value(one.scores) for (arm, seed), one in results.items() if arm == name}
    return {seed: value for seed, value in values.items() if value is not None}


def _compare(results: Results, name: str, other: str, column: Column) -> Estimate | None:
    """Returns the paired differences of two arms; None without a seed that both have."""
    return compare_pairs(*(_collect_scores(results, each, column) for each in (name, other)))


def _list_rows(study: Study, arms: Sequence[Arm], results: Results, column: Column) -> list[_Row]:
    rows = []
    for arm in arms:
        difference = None
        if arm.name != study.baseline:
            difference = _compare(results, arm.name, study.baseline, column)
        rows.append(_Row(arm, estimate(_collect_scores(results, arm.name, column)), difference))
    return rows


def _describe_row(row: _Row, column: Column) -> list[str]:
    """Returns the arm, its mean score, its difference from the baseline, all scores."""
    mean = difference = seeds = MISSING
    if row.scores:
        mean = column.text(row.scores.mean)
        if row.scores.deviation is not None:
            mean += f" ± {column.text(row.scores.deviation)}"
        seeds = ", ".join(map(column.text, row.scores.values.values()))
    if row.difference:
        difference = _describe_difference(row.difference, column)
    return [escape(row.arm.title), mean, difference, seeds]


def _describe_difference(difference: Estimate, column: Column) -> str:
    interval = "one seed"
    if difference.half is not None:
        ends = (difference.mean - difference.half, difference.mean + difference.half)
        interval = " to ".join(column.text(end, "+") for end in ends)
    return f"{column.text(difference.mean, '+')} ({interval})"


def _describe_outcome(outcome: Outcome) -> list[str]:
    where = escape(outcome.printed.where) if outcome.printed else ""
    title, gain = escape(outcome.comparison.title), outcome.describe_gain()
    return [title, gain, outcome.describe_printed(), where, outcome.has_paper_sign]


def _tabulate_costs(study: Study, arms: Sequence[Arm], results: Results) -> str:
    """Returns the table of every arm's costs, as means over its seeds."""
    rows = []
    for arm in arms:
        own = [result for (name, _), result in results.items() if name == arm.name]
        # TensorFlow's long names end in, for example, "device:CPU:0".
        names = [name.rpartition("device:")[2] for result in own for name in result.devices]
        counts = [_mean(own, key, "{:,.0f}".format) for key in ("steps", "examples", "tokens")]
        times = [_mean(own, key, duration) for key in ("seconds", "wall_seconds")]
        start = escape(arm.starts_from) or "random weights"
        place = ", ".join(dict.fromkeys(names)) or MISSING
        rows.append([escape(arm.title), f"`{arm.experiment}`", start, *counts, place, *times])
    header = ["arm", "experiment", "starts from", "steps", "examples", "tokens", "device"]
    first = next(iter(results.values()))
    packages = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    total = duration(sum(result.wall_seconds for result in results.values()))
    count = f"{len(results)} trainings and scorings took {total} together"
    table = format_table([*header, "training", "with start-up and scoring"], rows)
    return f"{table}\n\nMeans over seeds; {count}, in {study.precision}. {packages}."


def _mean(results: Sequence[Any], key: str, show: Callable[[float], str]) -> str:
    values = [value for one in results if (value := getattr(one, key)) is not None]
    return show(statistics.fmean(values)) if values else MISSING


def format_table(header: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def _draw(
    study: Study, columns: dict[Column, list[_Row]], outcomes: Sequence[Outcome], path: Path
) -> None:
    """Draws a panel of scores and one of differences for each column, with a line an arm."""
    from matplotlib.figure import Figure

    baseline, count = study.arm(study.baseline).title, len(next(iter(columns.values())))
    height = len(columns) * (0.85 + _ROW_HEIGHT * count) + 0.55
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    panels = figure.subplots(len(columns), 2, squeeze=False)
    legend: dict[str, Any] = {}
    for (column, rows), (left, right) in zip(columns.items(), panels):
        names = [textwrap.fill(row.arm.title, _LABEL_WIDTH) for row in rows]
        for axes, label in ((left, column.label), (right, f"difference from {baseline}")):
            axes.set_yticks(range(count), names if axes is left else [""] * count)
            axes.set_ylim(count - 0.5, -0.5)
            axes.set_xlabel(textwrap.fill(label, _LABEL_WIDTH), fontsize=9)
            axes.tick_params(axis="y", length=0, labelsize=9)
            axes.tick_params(axis="x", labelsize=8)
            axes.grid(axis="x", alpha=0.4)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.locator_params(axis="x", nbins=5)
            axes.margins(x=0.12)
        right.axvline(0, color="black", lw=0.8)
        for y, row in enumerate(rows):
            legend |= _draw_estimate(left, row.scores, y)
            legend |= _draw_estimate(right, row.difference, y, with_interval=True)
        places = {row.arm.name: y for y, row in enumerate(rows)}
        for outcome in outcomes:
            is_shown = outcome.column is column and outcome.comparison.minus == study.baseline
            if is_shown and outcome.printed and outcome.printed.value is not None:
                style = {"color": _ORANGE, "mfc": "white", "ms": 5, "zorder": 4}
                place = [outcome.printed.value * column.scale], [places[outcome.comparison.arm]]
                legend["the paper's difference"] = right.plot(*place, "D", **style)[0]
    figure.legend(
        legend.values(), legend.keys(), loc="outside upper left", ncols=2, fontsize=8, frameon=False
    )
    figure.savefig(path, dpi=_RESOLUTION, facecolor="white")


def _draw_estimate(
    axes: Any, estimated: Estimate | None, y: int, with_interval: bool = False
) -> dict[str, Any]:
    """Draws the seeds and their mean in a line; returns entries of the legend."""
    legend = {}
    if estimated is None:
        return legend
    if with_interval and estimated.half is not None:
        style = {"color": _BLUE, "lw": 1.6, "capsize": 3}
        bars = axes.errorbar([estimated.mean], [y], xerr=[estimated.half], **style)
        legend[f"{CONFIDENCE:.0%} interval of the mean"] = bars
    style = {"mec": _GREY, "mfc": "white", "mew": 0.6, "ms": 4, "zorder": 5}
    values = list(estimated.values.values())
    legend["a seed"] = axes.plot(values, [y] * len(values), "o", **style)[0]
    style = {"color": _BLUE, "ms": 13, "mew": 2.2, "zorder": 4}
    legend["mean"] = axes.plot([estimated.mean], [y], "|", **style)[0]
    return legend
