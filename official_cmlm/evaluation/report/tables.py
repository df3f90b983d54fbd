"""Markdown tables of an encoder's scores: all of them, and beside the papers' own rows."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from official_cmlm.evaluation.report.papers import PaperTable, own_values, paper_tables
from official_cmlm.evaluation.suites import SUITES

MISSING = "–"
# Decimals of suites whose scores are not percentages.
_MORE_DECIMALS = {"geometry": 4}

Results = dict[str, Any]
Row = tuple[str, list[str]]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A paper's table with rows of the evaluated encoders, as text.

    Attributes:
      title: one line.
      header: headings, first that of the models.
      own, published: (model, one text per column).
      footnote: the protocol, and the columns without a score of the evaluated encoders.
      ablation: see `PaperTable`.
    """

    title: str
    header: list[str]
    own: list[Row]
    published: list[Row]
    footnote: str
    ablation: bool


def suite_names(results: Results, compare: Results | None = None) -> list[str]:
    """The suites that were run, in the order of `SUITES`."""
    names = {*results.get("suites", {}), *(compare or {}).get("suites", {})}
    return [name for name in SUITES if name in names] + sorted(names - SUITES.keys())


def encoder_names(results: Results, compare: Results | None = None) -> list[str]:
    """Names of the one or two encoders; equal names get the fingerprint added."""
    encoders = [part["encoder"] for part in (results, compare) if part]
    names = [encoder["name"] for encoder in encoders]
    if len(set(names)) < len(names):
        names = [f"{encoder['name']} ({encoder['fingerprint'][:8]})" for encoder in encoders]
    if len(set(names)) < len(names):
        names = [names[0], f"{names[1]}, compared"]
    return names


def scores(results: Results | None, suite: str) -> dict[str, dict[str, Any]]:
    """`task/metric` -> score of a suite; empty if the suite was not run."""
    found = (results or {}).get("suites", {}).get(suite, {}).get("scores", [])
    return {f"{score['task']}/{score['metric']}": score for score in found}


def comparisons(suite: str, results: Results, compare: Results | None = None) -> list[Comparison]:
    """The papers' tables of a suite with the encoders' rows; none if no encoder has a score."""
    parts = [part for part in (results, compare) if part]
    found = [
        (
            _with_configuration(name, suite, part),
            {key: score["value"] for key, score in scores(part, suite).items()},
        )
        for name, part in zip(encoder_names(results, compare), parts)
    ]
    if not any(values for _, values in found):
        return []
    return [_compared(table, found) for table in paper_tables() if table.suite == suite]


def _with_configuration(name: str, suite: str, part: Results) -> str:
    """An encoder's name with the settings of the trainings on which its scores depend, if any."""
    configuration = part.get("suites", {}).get(suite, {}).get("configuration")
    return f"{name} ({configuration})" if configuration else name


def _compared(table: PaperTable, found: list[tuple[str, dict[str, float | None]]]) -> Comparison:
    own: list[Row] = []
    there: set[str] = set()
    for name, values in found:
        rows = [(label, own_values(table, values, ids)) for label, ids in table.variants]
        # Rows of variants without any score are left out, but one row always stays.
        rows = [row for row in rows if any(v is not None for v in row[1])] or rows[:1]
        for label, row in rows:
            own.append((f"{name}, {label}" if label else name, [_text(v, table) for v in row]))
            there |= {column[0] for column, v in zip(table.columns, row) if v is not None}
    published = [
        (model, [_text(None if v is None else v * table.scale, table) for v in values])
        for model, values in table.rows
    ]
    lacking = [label for label, column in table.columns if column and label not in there]
    never = [label for label, column in table.columns if not column]
    footnote = f"Protocol: {table.protocol}."
    if lacking:
        all_of_them = len(lacking) == sum(column is not None for _, column in table.columns)
        footnote += f" Not scored: {_listed(['all'] if all_of_them else lacking)}"
    if never:
        footnote += f" Computed by no suite: {_listed(never)}"
    return Comparison(
        title=f"{table.paper}, {table.table}: {table.caption}",
        header=["Model", *(label for label, _ in table.columns)],
        own=own,
        published=published,
        footnote=footnote,
        ablation=table.ablation,
    )


def all_scores(
    suite: str, results: Results, compare: Results | None = None
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of all scores of a suite; with `compare`, both values and the difference."""
    mine, theirs = scores(results, suite), scores(compare, suite)
    names = encoder_names(results, compare)
    decimals = _MORE_DECIMALS.get(suite, 2)
    header = ["Task", "Metric", *(names if compare else ["Value"]), "Count"]
    if compare:
        header.insert(4, "Difference")
    rows = []
    for key in dict.fromkeys([*mine, *theirs]):
        pair = [part.get(key) for part in ((mine, theirs) if compare else (mine,))]
        task, metric = next((score["task"], score["metric"]) for score in pair if score)
        row = [task, metric, *(_with_deviation(score, decimals) for score in pair)]
        if compare:
            values = [score["value"] if score else None for score in pair]
            both = all(map(_is_number, values))
            row.append(f"{values[0] - values[1]:+.{decimals}f}" if both else MISSING)
        counts = dict.fromkeys(str(score["count"]) for score in pair if score)
        rows.append([*row, " / ".join(counts)])
    return header, rows


def markdown(results: Results, compare: Results | None = None) -> str:
    """The whole evaluation as Markdown.

    Args:
      results: content of a `results.json`: `encoder`, `started`, `seconds` and, by name, `suites`.
      compare: the same of a second encoder. Differences are first minus second.
    """
    names = encoder_names(results, compare)
    lines = [f"# Evaluation of {escape(' and '.join(names))}", ""]
    for name, part in zip(names, [results, *([compare] if compare else [])]):
        encoder = part["encoder"]
        lines.append(
            f"- {escape(name)}: {escape(encoder['kind'])}, {encoder['dimension']} dimensions, "
            f"fingerprint {escape(encoder['fingerprint'])}, {escape(part['started'])}, "
            f"{duration(part['seconds'])}"
        )
    failed = [
        (s, text) for s in suite_names(results, compare) for text in failures(s, results, compare)
    ]
    if failed:
        lines += ["", "**Not scored:**", ""]
        lines += [f"- {escape(suite)}: {escape(text)}" for suite, text in failed]
    for suite in suite_names(results, compare):
        lines += ["", *_suite_lines(suite, results, compare)]
    return "\n".join(lines) + "\n"


def _suite_lines(suite: str, results: Results, compare: Results | None) -> list[str]:
    lines = [f"## {escape(suite)}", "", escape(SUITES.get(suite, ""))]
    for comparison in comparisons(suite, results, compare):
        own = [(f"**{escape(model)}**", cells) for model, cells in comparison.own]
        published = [(escape(model), cells) for model, cells in comparison.published]
        rows = [[model, *cells] for model, cells in own + published]
        lines += ["", f"### {escape(comparison.title)}", ""]
        lines += _table_lines(list(map(escape, comparison.header)), rows, left=1)
        lines += ["", escape(comparison.footnote)]
    header, rows = all_scores(suite, results, compare)
    if rows:
        lines += ["", "### All scores", ""]
        lines += _table_lines(
            list(map(escape, header)), [[*map(escape, row[:2]), *row[2:]] for row in rows], left=2
        )
    for title, texts in (
        ("Settings", settings(suite, results, compare)),
        ("Notes", notes(suite, results, compare)),
        ("Failures", failures(suite, results, compare)),
    ):
        if texts:
            lines += ["", f"### {title}", "", *(f"- {escape(text)}" for text in texts)]
    return lines


def settings(suite: str, results: Results, compare: Results | None = None) -> list[str]:
    """How the suite was run: protocol, options, seeds and duration, one line each."""
    return _both(_settings, suite, results, compare)


def notes(suite: str, results: Results, compare: Results | None = None) -> list[str]:
    """The suite's notes."""
    return _both(lambda part: part.get("notes", []), suite, results, compare)


def failures(suite: str, results: Results, compare: Results | None = None) -> list[str]:
    """What the suite could not score."""
    return _both(lambda part: part.get("failures", []), suite, results, compare)


def missing_lines(missing: list[dict[str, str]]) -> list[str]:
    """Tasks without data, one line for all that lack data of the same source."""
    by_hint: dict[str, list[dict[str, str]]] = {}
    for one in missing:
        by_hint.setdefault(one["hint"], []).append(one)
    return [
        f"{', '.join(one['task'] or one['what'] for one in group)}: {hint}"
        for hint, group in by_hint.items()
    ]


def all_failures(results: Results, compare: Results | None = None) -> list[tuple[str, str]]:
    """(suite, what it could not score), of all suites."""
    names = suite_names(results, compare)
    return [(name, text) for name in names for text in failures(name, results, compare)]


def _settings(part: dict[str, Any]) -> list[str]:
    chosen = ", ".join(f"{key}={value}" for key, value in part.get("options", {}).items())
    seeds = ", ".join(map(str, part.get("seeds", [])))
    lines = [("Protocol", part.get("protocol", "")), ("Options", chosen), ("Seeds", seeds)]
    if "seconds" in part:
        lines.append(("Duration", duration(part["seconds"])))
    return [f"{label}: {text}" for label, text in lines if text]


def _both(
    read: Callable[[dict[str, Any]], list[str]],
    suite: str,
    results: Results,
    compare: Results | None,
) -> list[str]:
    """Lines of one or two encoders; those that only one of two has begin with its name."""
    mine, theirs = (
        read((part or {}).get("suites", {}).get(suite, {})) for part in (results, compare)
    )
    if not compare:
        return list(mine)
    first, second = encoder_names(results, compare)
    both = [text for text in mine if text in theirs]
    return (
        both
        + [f"{first}: {text}" for text in mine if text not in both]
        + [f"{second}: {text}" for text in theirs if text not in both]
    )


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def escape(text: str) -> str:
    """Escapes text for Markdown and joins its lines."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\`*_|[]#~$":
        text = text.replace(sign, "\\" + sign)
    return text


def _table_lines(header: list[str], rows: list[list[str]], left: int) -> list[str]:
    """A pipe table; the first `left` columns are left-aligned, the others right-aligned."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]


def _listed(labels: list[str]) -> str:
    """Labels separated by commas, with a single full stop at the end."""
    return ", ".join(labels).removesuffix(".") + "."


def _text(value: float | None, table: PaperTable) -> str:
    return MISSING if value is None else f"{value:.{table.decimals}f}"


def _with_deviation(score: dict[str, Any] | None, decimals: int) -> str:
    if score is None or not _is_number(score["value"]):
        return MISSING
    text = f"{score['value']:.{decimals}f}"
    deviation = score.get("deviation")
    return text if deviation is None else f"{text} ± {deviation:.{decimals}f}"


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
