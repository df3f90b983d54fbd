"""What came out of a study: a table in Markdown and a figure, of the results that are there."""

import dataclasses
import math
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from scipy import stats

from official_cmlm.errors import UserError
from official_cmlm.evaluation.report.figures import (
    BACKGROUND,
    FIRST,
    INK,
    MUTED,
    SECOND,
    Chart,
    image,
)
from official_cmlm.evaluation.report.tables import MISSING, duration, escape

from .plan import read_result
from .study import Arm, Column, Study, paper_values

# Of the intervals.
CONFIDENCE = 0.95
# Characters of a line below a panel.
_LABEL_WIDTH = 28
_FIGURE_WIDTH = 5.6  # inches; two panels beside each other, and the arms' names
TABLE_NAME, FIGURE_NAME = "study.md", "study.png"
# (arm, seed) -> its result.
Results = dict[tuple[str, int], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Mean of values and how far it can be trusted.

    Attributes:
      values: by seed.
      mean: of them.
      deviation: standard deviation of the values (n - 1); None of a single one.
      low, high: ends of the interval that holds the mean with CONFIDENCE, by Student's t with
        n - 1 degrees of freedom; None of a single value.
    """

    values: dict[int, float]
    mean: float
    deviation: float | None
    low: float | None
    high: float | None


def estimate(values: dict[int, float]) -> Estimate | None:
    """Mean, deviation and interval of values by seed; None of no values."""
    if not values:
        return None
    numbers = list(values.values())
    mean = statistics.fmean(numbers)
    if len(numbers) == 1:
        return Estimate(values, mean, None, None, None)
    deviation = statistics.stdev(numbers)
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1)
    half = float(quantile) * deviation / math.sqrt(len(numbers))
    return Estimate(values, mean, deviation, mean - half, mean + half)


def paired(values: dict[int, float], baseline: dict[int, float]) -> Estimate | None:
    """The differences of two arms, of the seeds that both have."""
    return estimate({s: v - baseline[s] for s, v in values.items() if s in baseline})


def write_report(study: Study, work_dir: Path, name: str) -> str:
    """Writes `study.md` and `study.png`.

    Args:
      study: what was compared.
      work_dir: its folder.
      name: what `--study` was.

    Returns:
      A line that says what was written and what is missing.

    Raises:
      UserError: if there are no results yet, or some were scored on other files than others.
    """
    results: Results = {}
    for seed in study.seeds:
        for arm in study.arms:
            if found := read_result(study, work_dir, arm, seed):
                results[arm.name, seed] = found
    if not results:
        raise UserError(f"{work_dir}: no results of this study yet; run it without --report_only")
    _check_files(results, work_dir)
    figure = _figure(_begun(study, results), results)
    (work_dir / FIGURE_NAME).write_bytes(image(figure, "png", "white", 160))
    (work_dir / TABLE_NAME).write_text(_markdown(study, results, name), encoding="utf-8")
    missing = _missing(study, results)
    rest = f"; missing: {'; '.join(missing)}" if missing else ""
    return f"study: {work_dir / TABLE_NAME}, {work_dir / FIGURE_NAME}{rest}"


def _check_files(results: Results, work_dir: Path) -> None:
    """Raises `UserError` unless all were scored on the same files."""
    seen: dict[str, tuple[str, str]] = {}
    for (arm, seed), result in results.items():
        for path, digest in result["evaluation_files"].items():
            first, other = seen.setdefault(path, (digest, f"{arm}.{seed}"))
            if digest != first:
                raise UserError(
                    f"{work_dir}: {arm}.{seed} was scored on another {path} than {other}; delete "
                    "the older one's file in results to score it anew"
                )


def _missing(study: Study, results: Results) -> list[str]:
    """Each arm that lacks results, with its seeds."""
    lines = []
    for arm in study.arms:
        seeds = [str(seed) for seed in study.seeds if (arm.name, seed) not in results]
        if seeds:
            lines.append(f"{arm.name} seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}")
    return lines


def _begun(study: Study, results: Results) -> Study:
    """The study without the arms that have no results yet, but for the baseline."""
    names = {study.baseline, *(name for name, _ in results)}
    return dataclasses.replace(study, arms=[arm for arm in study.arms if arm.name in names])


def _label(arm: Arm) -> str:
    return arm.label or arm.name


def _values(study: Study, results: Results, arm: Arm, column: Column) -> dict[int, float]:
    """An arm's scores by seed."""
    found = {seed: column.value(r["scores"]) for (n, seed), r in results.items() if n == arm.name}
    return {seed: value for seed, value in found.items() if value is not None}


def _paper(arm: Arm, column: Column) -> tuple[str, float] | None:
    """The row's name and its figure in our column's unit, if a paper has one."""
    for row in arm.paper:
        if (value := column.value(paper_values(row))) is not None:
            return f"{row.row} ({row.paper}, {row.table})", value
    return None


def _paper_difference(study: Study, arm: Arm, column: Column) -> float | None:
    baseline = study.arm(study.baseline)
    found, base = _paper(arm, column), _paper(baseline, column)
    # Two arms may stand for one row.
    return None if found is None or base is None or found == base else found[1] - base[1]


# The table.


def _markdown(study: Study, results: Results, name: str) -> str:
    baseline = study.arm(study.baseline)
    seeds = f"{len(study.seeds)} seeds" if len(study.seeds) > 1 else "one seed"
    lines = [
        f"# {escape(study.title)}",
        "",
        f"`python -m experiments.miniature --study={name} --work_dir=… --data_dir=…`",
        "",
        f"{len(study.arms)} arms with {seeds}. Scores are means ± standard deviations over seeds; "
        f"differences from {escape(_label(baseline))} are taken seed by seed, with the "
        f"{CONFIDENCE:.0%} interval of their mean (Student's t) and the number of pairs.",
        "",
    ]
    if missing := _missing(study, results):
        lines += [f"Missing, and in no figure here: {'; '.join(missing)}.", ""]
    lines += [f"![Scores and differences]({FIGURE_NAME})", ""]
    begun = _begun(study, results)
    for column in study.scores.columns:
        lines += [f"## {escape(column.label)}", "", *_scores(begun, results, column), ""]
    lines += ["## What was run", "", *_work(study, results), ""]
    protocols = {k: v for r in results.values() for k, v in r["protocols"].items()}
    lines += [f"- `{name}`: {escape(text)}" for name, text in protocols.items()]
    return "\n".join(lines).rstrip() + "\n"


def _scores(study: Study, results: Results, column: Column) -> list[str]:
    base = _values(study, results, study.arm(study.baseline), column)
    rows = []
    for arm in study.arms:
        values = _values(study, results, arm, column)
        difference = None if arm.name == study.baseline else paired(values, base)
        paper = _paper(arm, column)
        rows.append(
            [
                escape(_label(arm)),
                _mean(estimate(values), column),
                _interval(difference, column),
                ", ".join(f"{value:.{column.decimals}f}" for value in values.values()) or MISSING,
                f"{paper[1]:.{column.decimals}f}: {escape(paper[0])}" if paper else MISSING,
                _signed(_paper_difference(study, arm, column), column),
            ]
        )
    header = ["arm", "score", f"difference from {escape(_label(study.arm(study.baseline)))}"]
    return _table([*header, "by seed", "a paper's row", "difference of the rows"], rows)


def _mean(found: Estimate | None, column: Column) -> str:
    if found is None:
        return MISSING
    mean = f"{found.mean:.{column.decimals}f}"
    return mean if found.deviation is None else f"{mean} ± {found.deviation:.{column.decimals}f}"


def _signed(value: float | None, column: Column) -> str:
    return MISSING if value is None else f"{value:+.{column.decimals}f}".replace("-", "−")


def _interval(found: Estimate | None, column: Column) -> str:
    if found is None:
        return MISSING
    n = f"n = {len(found.values)}"
    if found.low is None:
        return f"{_signed(found.mean, column)} ({n})"
    ends = f"{_signed(found.low, column)} to {_signed(found.high, column)}"
    return f"{_signed(found.mean, column)} ({ends}, {n})"


def _work(study: Study, results: Results) -> list[str]:
    """What every arm has cost; means over its seeds."""
    rows = []
    for arm in study.arms:
        found = [result for (name, _), result in results.items() if name == arm.name]
        if not found:
            continue
        devices = dict.fromkeys(_device(name) for r in found for name in r["devices"])
        rows.append(
            [
                escape(_label(arm)),
                f"`{arm.experiment}`",
                escape(arm.starts_from) or "random weights",
                *(_count(found, key) for key in ("steps", "examples", "tokens")),
                ", ".join(devices) or MISSING,
                _time(found, "seconds"),
                _time(found, "wall_seconds"),
            ]
        )
    header = ["arm", "experiment", "starts from", "steps", "examples", "tokens", "device"]
    versions = next(r["versions"] for r in results.values())
    used = ", ".join(f"{name} {version}" for name, version in versions.items())
    total = sum(result["wall_seconds"] for result in results.values())
    return [
        *_table([*header, "training", "with start-up and scoring"], rows),
        "",
        f"Means over seeds; {len(results)} trainings and scorings took {duration(total)} "
        f"together. {used}.",
    ]


def _device(name: str) -> str:
    """`CPU:0` of TensorFlow's long name."""
    return name.rpartition("device:")[2]


def _known(results: Sequence[dict[str, Any]], key: str) -> list[float]:
    """Of runs that were killed, some counts are not known."""
    return [result[key] for result in results if result[key] is not None]


def _count(results: Sequence[dict[str, Any]], key: str) -> str:
    known = _known(results, key)
    return f"{round(statistics.fmean(known)):,}" if known else MISSING


def _time(results: Sequence[dict[str, Any]], key: str) -> str:
    known = _known(results, key)
    return duration(statistics.fmean(known)) if known else MISSING


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


# The figure.


def _figure(study: Study, results: Results) -> Chart:
    """For each column, a panel of scores and one of differences; a line an arm."""
    columns = study.scores.columns

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(columns), 2, squeeze=False)
        drawn: dict[str, Any] = {}
        for column, (left, right) in zip(columns, grid):
            drawn |= _draw_scores(left, study, results, column)
            drawn |= _draw_differences(right, study, results, column)
        figure.legend(drawn.values(), drawn.keys(), loc="outside upper left", ncols=2, fontsize=8)

    height = len(columns) * (0.85 + 0.36 * len(study.arms)) + 0.55
    return Chart(study.title, height, draw, _FIGURE_WIDTH)


def _rows(axes: Any, study: Study, labels: bool) -> None:
    names = [textwrap.fill(_label(arm), _LABEL_WIDTH) if labels else "" for arm in study.arms]
    axes.set_yticks(range(len(study.arms)), names)
    axes.set_ylim(len(study.arms) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5)


def _draw_scores(axes: Any, study: Study, results: Results, column: Column) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    for row, arm in enumerate(study.arms):
        found = estimate(_values(study, results, arm, column))
        if found is not None:
            drawn |= _draw(axes, row, found, with_interval=False)
    _rows(axes, study, labels=True)
    axes.margins(x=0.12)
    axes.set_xlabel(textwrap.fill(column.label, _LABEL_WIDTH))
    return drawn


def _draw_differences(axes: Any, study: Study, results: Results, column: Column) -> dict[str, Any]:
    base = _values(study, results, study.arm(study.baseline), column)
    axes.axvline(0, color=INK, lw=0.8)
    drawn: dict[str, Any] = {}
    for row, arm in enumerate(study.arms):
        if arm.name == study.baseline:
            continue
        if (found := paired(_values(study, results, arm, column), base)) is not None:
            drawn |= _draw(axes, row, found, with_interval=True)
        if (paper := _paper_difference(study, arm, column)) is not None:
            marks = axes.plot([paper], [row], "D", color=SECOND, ms=5, mfc="white", zorder=4)
            drawn["difference of the papers' rows"] = marks[0]
    _rows(axes, study, labels=False)
    axes.margins(x=0.12)
    label = f"difference from {_label(study.arm(study.baseline))}"
    axes.set_xlabel(textwrap.fill(label, _LABEL_WIDTH))
    return drawn


def _draw(axes: Any, row: int, found: Estimate, with_interval: bool) -> dict[str, Any]:
    """Points of seeds, and their mean with or without its interval, on a line of the panel."""
    drawn: dict[str, Any] = {}
    if with_interval and found.low is not None:
        ends = axes.errorbar(
            [found.mean],
            [row],
            xerr=[[found.mean - found.low], [found.high - found.mean]],
            color=FIRST,
            lw=1.6,
            capsize=3,
        )
        drawn[f"{CONFIDENCE:.0%} interval of the mean"] = ends
    points = axes.scatter(
        list(found.values.values()), [row] * len(found.values), s=16, color=BACKGROUND, zorder=5,
        edgecolors=MUTED, linewidths=0.6,
    )  # fmt: skip
    mean = axes.plot([found.mean], [row], "|", color=FIRST, ms=13, mew=2.2, zorder=4)[0]
    return {"a seed": points, "mean": mean} | drawn
