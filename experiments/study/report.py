"""The table in Markdown and the figure of a study, made of the results that are there."""

import dataclasses
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.metrics.intervals import CONFIDENCE, Estimate, compare_pairs, estimate
from official_cmlm.evaluation.report.papers import row_values
from official_cmlm.evaluation.report.tables import MISSING, duration, escape

from .definition import Arm, Column, Study
from .results import RESULTS_NAME, Result, read_results

TABLE_NAME, FIGURE_NAME = "study.md", "study.png"
# Characters of a line beside or below a panel.
_LABEL_WIDTH = 28
_WIDTH, _ROW_HEIGHT, _RESOLUTION = 5.6, 0.36, 160  # inches, inches, dots an inch
_BLUE, _ORANGE, _GREY = "#2a6ebb", "#c25b12", "#777777"


@dataclasses.dataclass(frozen=True)
class _Row:
    """An arm's scores in a column, beside a paper's; differences are from the arm `other`."""

    arm: Arm
    other: Arm
    scores: Estimate | None
    difference: Estimate | None
    paper: tuple[str, float] | None
    paper_difference: float | None


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
    seen: dict[str, tuple[str, str]] = {}
    for (arm, seed), result in results.items():
        for path, digest in result.evaluation_files.items():
            first, other = seen.setdefault(path, (digest, f"{arm}.{seed}"))
            if digest != first:
                raise UserError(
                    f"{work_dir / RESULTS_NAME}: {arm}.{seed} was scored on another {path} than "
                    f"{other}; delete the older one there to score it anew"
                )
    by_arm = {
        arm.name: {seed: result for (name, seed), result in results.items() if name == arm.name}
        for arm in study.arms
    }
    missing = []
    for arm in study.arms:
        if seeds := [str(seed) for seed in study.seeds if seed not in by_arm[arm.name]]:
            missing.append(f"{arm.name} seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}")
    columns = {column: _compute_rows(study, by_arm, column) for column in study.scores.columns}
    _draw(study, columns, work_dir / FIGURE_NAME)
    baseline = study.arm(study.baseline).title
    seeds = f"{len(study.seeds)} seeds" if len(study.seeds) > 1 else "one seed"
    lines = [
        f"# {escape(study.title)}",
        f"`python -m experiments.study --study={name} --work_dir=… --data_dir=…`",
        f"{len(study.arms)} arms with {seeds}. Scores are means ± standard deviations over seeds; "
        f"differences from {escape(baseline)} are taken seed by seed, with the {CONFIDENCE:.0%} "
        "interval of their mean (Student's t) and the number of pairs.",
        *([f"Missing, and in no figure here: {'; '.join(missing)}."] if missing else []),
        f"![Scores and differences]({FIGURE_NAME})",
    ]
    for column, rows in columns.items():
        lines += [f"## {escape(column.label)}", _tabulate_scores(column, rows, baseline)]
    lines += ["## What was run", _tabulate_costs(study, by_arm)]
    protocols = {k: v for result in results.values() for k, v in result.protocols.items()}
    lines.append("\n".join(f"- `{suite}`: {escape(text)}" for suite, text in protocols.items()))
    (work_dir / TABLE_NAME).write_text("\n\n".join(lines).rstrip() + "\n", encoding="utf-8")
    rest = f"; missing: {'; '.join(missing)}" if missing else ""
    return f"study: {work_dir / TABLE_NAME}, {work_dir / FIGURE_NAME}{rest}"


def _compute_rows(study: Study, by_arm: dict[str, dict[int, Result]], column: Column) -> list[_Row]:
    """Returns the rows of a column: the arms that have results, and the baseline."""

    def scores(arm: Arm) -> dict[int, float]:
        values = {seed: column.value(result.scores) for seed, result in by_arm[arm.name].items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def paper(arm: Arm) -> tuple[str, float] | None:
        for row in arm.paper:
            if (value := column.value(row_values(row.paper, row.table, row.row))) is not None:
                return f"{row.row} ({row.paper}, {row.table})", value
        return None

    baseline, rows = study.arm(study.baseline), []
    for arm in study.arms:
        if not by_arm[arm.name] and arm is not baseline:
            continue
        other = study.get_reference(arm)
        difference = None if arm is other else compare_pairs(scores(arm), scores(other))
        printed, base = paper(arm), paper(other)
        # Two arms may stand for one row of a paper.
        differ = None if None in (printed, base) or printed == base else printed[1] - base[1]
        rows.append(_Row(arm, other, estimate(scores(arm)), difference, printed, differ))
    return rows


def _tabulate_scores(column: Column, rows: list[_Row], baseline: str) -> str:
    lines = []
    for row in rows:
        mean, difference = MISSING, MISSING
        if row.scores:
            mean = column.text(row.scores.mean)
            if row.scores.deviation is not None:
                mean += f" ± {column.text(row.scores.deviation)}"
        if estimated := row.difference:
            pairs = f"n = {len(estimated.values)}"
            if estimated.half is not None:
                ends = (estimated.mean - estimated.half, estimated.mean + estimated.half)
                pairs = f"{' to '.join(column.text(end, '+') for end in ends)}, {pairs}"
            difference = f"{column.text(estimated.mean, '+')} ({pairs})"
            if row.arm.compared_with:
                difference += f" from {escape(row.other.title)}"
        seeds = ", ".join(map(column.text, row.scores.values.values())) if row.scores else MISSING
        paper = f"{column.text(row.paper[1])}: {escape(row.paper[0])}" if row.paper else MISSING
        papers = column.text(row.paper_difference, "+")
        lines.append([escape(row.arm.title), mean, difference, seeds, paper, papers])
    header = ["arm", "score", f"difference from {escape(baseline)}"]
    return _format_table([*header, "by seed", "a paper's row", "difference of the rows"], lines)


def _describe_arm(row: _Row) -> str:
    """Returns an arm's title, with the arm that it is compared with if that is not the baseline."""
    other = f" (difference from {row.other.title})" if row.arm.compared_with else ""
    return row.arm.title + other


def _tabulate_costs(study: Study, by_arm: dict[str, dict[int, Result]]) -> str:
    """Returns the table of every arm's costs, as means over its seeds."""
    rows = []
    for arm in study.arms:
        results = list(by_arm[arm.name].values())
        if not results:
            continue
        # TensorFlow's long names end in, for example, "device:CPU:0".
        names = [name.rpartition("device:")[2] for one in results for name in one.devices]
        counts = [_mean(results, key, "{:,.0f}".format) for key in ("steps", "examples", "tokens")]
        times = [_mean(results, key, duration) for key in ("seconds", "wall_seconds")]
        start = escape(arm.starts_from) or "random weights"
        place = ", ".join(dict.fromkeys(names)) or MISSING
        rows.append([escape(arm.title), f"`{arm.experiment}`", start, *counts, place, *times])
    header = ["arm", "experiment", "starts from", "steps", "examples", "tokens", "device"]
    results = [result for by_seed in by_arm.values() for result in by_seed.values()]
    packages = ", ".join(f"{name} {version}" for name, version in results[0].versions.items())
    total = duration(sum(result.wall_seconds for result in results))
    count = f"{len(results)} trainings and scorings took {total} together"
    table = _format_table([*header, "training", "with start-up and scoring"], rows)
    return f"{table}\n\nMeans over seeds; {count}. {packages}."


def _mean(results: Sequence[Result], key: str, show: Callable[[float], str]) -> str:
    values = [value for one in results if (value := getattr(one, key)) is not None]
    return show(statistics.fmean(values)) if values else MISSING


def _format_table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def _draw(study: Study, columns: dict[Column, list[_Row]], path: Path) -> None:
    """Draws a panel of scores and one of differences for each column, with a line an arm."""
    count = max(map(len, columns.values()))
    height = len(columns) * (0.85 + _ROW_HEIGHT * count) + 0.55
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    baseline, legend = study.arm(study.baseline).title, {}
    panels = figure.subplots(len(columns), 2, squeeze=False)
    for (column, rows), (left, right) in zip(columns.items(), panels):
        names = [textwrap.fill(_describe_arm(row), _LABEL_WIDTH) for row in rows]
        for axes, label in ((left, column.label), (right, f"difference from {baseline}")):
            axes.set_yticks(range(len(rows)), names if axes is left else [""] * len(rows))
            axes.set_ylim(len(rows) - 0.5, -0.5)
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
            if row.paper_difference is not None:
                style = {"color": _ORANGE, "mfc": "white", "ms": 5, "zorder": 4}
                marks = right.plot([row.paper_difference], [y], "D", **style)
                legend["difference of the papers' rows"] = marks[0]
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
