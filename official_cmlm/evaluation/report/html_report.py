"""An evaluation as one self-contained HTML file: charts, the papers' tables, all scores."""

import base64
import dataclasses
import html
import string
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from official_cmlm.evaluation.report import figures, main_scores, tables
from official_cmlm.evaluation.report.main_scores import (
    Main,
    Results,
    choose_shown,
    scores,
    suite_names,
)
from official_cmlm.evaluation.report.tables import Best, Comparison, Table
from official_cmlm.evaluation.suites import SUITES, get_results

# Longer tables of scores are folded.
_MOST_ROWS = 12


def html_report(*parts: Results) -> str:
    """Returns the whole evaluation as an HTML document without external resources.

    It has the suites of the first encoder and names the suites that only others have.
    """
    names = tables.encoder_names(*parts)
    suites = suite_names(*parts)
    left_out = tables.only_compared_line(*parts)
    links = [f'<li><a href="#suite-{i}">{_text(name)}</a></li>' for i, name in enumerate(suites)]
    sections = [
        f'<section id="suite-{i}">\n{_suite(name, *choose_shown(name, parts))}\n</section>'
        for i, name in enumerate(suites)
    ]
    headline = tables.headline(*parts)
    body = [
        _notice("Failed", "failures", *parts),
        f'<p class="headline">{_text(headline)}</p>' if headline else "",
        _summary(*parts),
        _notice("No data was given for", "missing", *parts),
        f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>' if links else "",
        *(sections or ["<p>No suite was run.</p>"]),
        f'<p class="footnote">{_text(left_out)}</p>' if left_out else "",
        f"<section>{_list('Encoders', tables.encoder_lines(*parts), 2)}</section>",
    ]
    page = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    return string.Template(page).substitute(
        title=_text(f"Evaluation of {tables.join_names(names)}"),
        body="\n".join(part for part in body if part),
    )


def charts(suite: str, *parts: Results, with_papers: bool = False) -> list[figures.Chart]:
    """Draws a chart for each panel of a suite's tasks, with its averages below a line.

    With papers, those whose scores papers have too, with lines at the papers' rows.
    """
    rows = main_scores.main_scores(suite, parts) if get_results(suite).bars else []
    panels = [[r for r in rows if r.panel == name] for name in dict.fromkeys(r.panel for r in rows)]
    marked = [main_scores.references(suite, panel) if with_papers else {} for panel in panels]
    drawn = [
        _draw_bars(suite, panel, parts, lines)
        for panel, lines in zip(panels, marked)
        if lines or not with_papers
    ]
    return [chart for chart in drawn if chart]


def _draw_bars(
    suite: str,
    rows: Sequence[Main],
    parts: Sequence[Results],
    marked: dict[str, list[float | None]],
) -> figures.Chart | None:
    """Draws one bar per task and encoder; for a single encoder also after component removal."""
    shown_as = get_results(suite)
    main = shown_as.main[0]
    names = tables.encoder_names(*parts)
    series = [
        _series(suite, name, part, rows, color)
        for name, part, color in zip(names, parts, figures.ENCODER_COLORS)
    ]
    series = [one for one in series if any(value is not None for value in one.values)]
    if len(parts) == 1:
        color, ending = series[0].color, main_scores.REMOVED
        removed = _series(suite, "component removed", parts[0], rows, color, ending)
        if any(value is not None for value in removed.values):
            series = [dataclasses.replace(series[0], name="embeddings as they are"), removed]
    if len(rows) * len(series) + len(marked) < 2:
        return None
    averages = sum(row.is_average for row in rows)
    return figures.bars(
        ": ".join(filter(None, [shown_as.bars, rows[0].panel])),
        [row.label for row in rows],
        series,
        shown_as.axis or main.text,
        main.decimals - 1,
        marked,
        apart=averages if averages < len(rows) else 0,
    )


def _series(
    suite: str, name: str, part: Results, rows: Sequence[Main], color: str, suffix: str = ""
) -> figures.Series:
    entries = [scores(part, suite).get(f"{row.task}/{row.metric}{suffix}") for row in rows]
    return figures.Series(
        name,
        [one["value"] if one else None for one in entries],
        color,
        [one and one.get("deviation") for one in entries],
        is_faded=bool(suffix),
    )


def _suite(name: str, *parts: Results) -> str:
    lines = [f"<h2>{_text(name)}</h2>", f"<p>{_text(SUITES.get(name, ''))}</p>"]
    lines += map(_figure, charts(name, *parts))
    if marked := charts(name, *parts, with_papers=True):
        lines.append(_fold("Beside the papers' rows", "\n".join(map(_figure, marked))))
    if table := tables.all_scores(name, *parts):
        title, drawn = f"All {len(table.rows)} scores", _table(table)
        few = len(table.rows) <= _MOST_ROWS
        lines.append(f"<h3>{title}</h3>\n{drawn}" if few else _fold(title, drawn))
    comparisons = tables.comparisons(name, *parts)
    lines += [_comparison(table, 3) for table in comparisons if not table.ablation]
    if ablations := [_comparison(table, 4) for table in comparisons if table.ablation]:
        lines.append(_fold("The papers' ablations", "\n".join(ablations)))
    lines.append(_list("Notes", tables.lines_of("notes", name, *parts)))
    if settings := tables.lines_of("settings", name, *parts):
        lines.append(_fold("Settings", _list("", settings)))
    return "\n".join(line for line in lines if line)


def _figure(chart: figures.Chart) -> str:
    title = _text(chart.title)
    content = base64.b64encode(figures.svg(chart).encode()).decode()
    drawing = f'<img alt="{title}" src="data:image/svg+xml;base64,{content}">'
    return f'<figure><figcaption>{title}</figcaption><div class="box">{drawing}</div></figure>'


def _summary(*parts: Results) -> str:
    table = tables.summary(*parts)
    if table is None:
        return ""
    foot = f'<p class="footnote">{tables.ROWS_FOOTNOTE}</p>' if len(parts) > 1 else ""
    return f"<h2>Summary</h2>\n{_table(table)}\n{foot}"


def _comparison(comparison: Comparison, level: int) -> str:
    return (
        f"<h{level}>{_text(comparison.title)}</h{level}>\n"
        f"{_table(comparison.without_unscored())}\n"
        + ("" if all(comparison.scored) else _fold("All columns", _table(comparison.table)))
        + f'<p class="footnote">{_text(comparison.footnote)}</p>'
    )


def _table(table: Table) -> str:
    """Renders a table in a scrolling box.

    The first cell of a row is its heading; rows of the evaluated encoders and the best values are
    highlighted.
    """
    kinds = ["text" if is_text else "number" for is_text in table.is_text]
    heads = "".join(
        f'<th scope="col" class="{kind}">{_text(cell)}</th>'
        for cell, kind in zip(table.header, kinds)
    )
    lines = []
    for i, row in enumerate(table.rows):
        cells = [f'<th scope="row">{_text(row[0])}</th>']
        for kind, cell in zip(kinds[1:], row[1:]):
            text = f"<strong>{_text(cell)}</strong>" if isinstance(cell, Best) else _text(cell)
            cells.append(f'<td class="{kind}">{text}</td>')
        start = '<tr class="own">' if i < table.own else "<tr>"
        lines.append(f"{start}{''.join(cells)}</tr>")
    return (
        f'<div class="box" tabindex="0"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _notice(title: str, kind: str, *parts: Results) -> str:
    items = [
        f"<li><b>{_text(suite)}</b> {_text(text)}</li>"
        for suite in suite_names(*parts)
        for text in tables.lines_of(kind, suite, *choose_shown(suite, parts))
    ]
    if not items:
        return ""
    role = ' role="alert"' if kind == "failures" else ""
    return f'<div class="notice {kind}"{role}><h2>{title}</h2><ul>{"".join(items)}</ul></div>'


def _list(title: str, texts: Iterable[str], level: int = 3) -> str:
    items = "".join(f"<li>{_text(text)}</li>" for text in texts)
    heading = f"<h{level}>{title}</h{level}>" if title else ""
    return f"{heading}<ul>{items}</ul>" if items else ""


def _fold(title: str, content: str) -> str:
    return f"<details><summary>{_text(title)}</summary>\n{content}\n</details>"


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
