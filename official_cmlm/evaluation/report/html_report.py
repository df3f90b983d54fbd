"""An evaluation as one self-contained HTML file: charts, the papers' tables, all scores."""

import dataclasses
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official_cmlm.evaluation.report import figures, tables
from official_cmlm.evaluation.report.style import STYLE
from official_cmlm.evaluation.report.tables import Comparison, Results
from official_cmlm.evaluation.suites import SUITES


@dataclasses.dataclass(frozen=True)
class Bars:
    """The bar chart of a suite.

    Attributes:
      metrics: of a task the first of these that was scored is drawn.
      axis: quantity and unit.
      title: of the chart.
      decimals: of the values beside the bars.
    """

    metrics: tuple[str, ...]
    axis: str
    title: str
    decimals: int = 1


# By suite; the others have no bars.
BARS = {
    "senteval": Bars(
        ("accuracy", "pearson"),
        "accuracy, %; SICK-R and STS-B: Pearson's r × 100",
        "Classifiers on frozen embeddings, by task",
    ),
    "probing": Bars(
        ("accuracy",), "accuracy, %", "Linguistic properties that a classifier finds in embeddings"
    ),
    "sts": Bars(
        ("spearman_all", "spearman"),
        "Spearman's ρ × 100",
        "Correlation of cosines with human scores of sentence pairs",
    ),
    "tatoeba": Bars(
        ("accuracy_mean",),
        "accuracy, %, mean of both directions",
        "Translations found as the nearest neighbour, by language",
    ),
    "xeval": Bars(("average",), "mean over tasks, %", "SentEval's tasks, by language"),
    "amazon": Bars(
        ("accuracy_frozen",),
        "accuracy, %",
        "Sentiment of reviews, learned in one language, by test language; frozen encoder",
    ),
    "bitext_mining": Bars(("f1_best",), "F1, %", "Translations mined from two corpora"),
    "word_similarity": Bars(
        ("spearman",),
        "Spearman's ρ × 100",
        "Correlation of cosines with human scores of word pairs",
    ),
    "bli": Bars(
        ("p@1",), "precision at 1, %", "Word translation, by languages and training dictionary"
    ),
    "entity_linking": Bars(
        ("accuracy@1",), "accuracy at 1, %", "Mentions linked to the right entity"
    ),
    "retrieval": Bars(("ndcg_at_10",), "nDCG@10 × 100", "Documents found by queries"),
    "geometry": Bars(
        ("isotropy",), "isotropy score, 0 to 1", "Isotropy, by set of texts", decimals=3
    ),
    "mteb": Bars(("main_score",), "main score × 100", "Tasks of the mteb package"),
}


def html_report(results: Results, compare: Results | None = None) -> str:
    """The whole evaluation as an HTML document without external resources.

    Args:
      results: content of a `results.json`: `encoder`, `started`, `seconds` and, by name, `suites`.
      compare: the same of a second encoder, shown beside the first.
    """
    names = tables.encoder_names(results, compare)
    suites = tables.suite_names(results, compare)
    title = _text(f"Evaluation of {' and '.join(names)}")
    links = [f'<li><a href="#suite-{i}">{_text(name)}</a></li>' for i, name in enumerate(suites)]
    sections = [
        f'<section id="suite-{i}">\n{_suite(i, name, results, compare)}\n</section>'
        for i, name in enumerate(suites)
    ]
    body = [
        f"<header>\n<h1>{title}</h1>",
        *(_encoder(n, part) for n, part in zip(names, [results, *([compare] if compare else [])])),
        "</header>",
        _failures(tables.all_failures(results, compare)),
        f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>' if links else "",
        *(sections or ["<p>No suite was run.</p>"]),
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n"
        f"<style>\n{STYLE}</style>\n</head>\n"
    )
    text = "\n".join(part for part in body if part)
    return f"{head}<body>\n<main>\n{text}\n</main>\n</body>\n</html>\n"


def charts(suite: str, results: Results, compare: Results | None = None) -> list[figures.Chart]:
    """The charts of a suite."""
    names = tables.encoder_names(results, compare)
    parts = [part for part in (results, compare) if part]
    drawn = [_bars(suite, dict(zip(names, parts)))] if suite in BARS else []
    curves = {}
    for name, part in zip(names, parts):
        data = part.get("suites", {}).get(suite, {}).get("figures", {})
        whose = f": {name}" if compare else ""
        if shares := data.get("language_bias"):
            title = f"Language of the nearest neighbour, by language of the query{whose}"
            drawn.append(figures.language_histograms(title, shares))
        # Results of earlier versions have one map, of another structure.
        found = data.get("embedding_map") or {}
        if maps := {k: v for k, v in found.items() if isinstance(v, dict) and "before" in v}:
            title = f"Sentences and their English translations, coloured by language{whose}"
            drawn.append(figures.embedding_map(title, maps))
        if histograms := data.get("cosine_histogram"):
            title = f"Cosines of random and of positive pairs{whose}"
            drawn.append(figures.cosine_histograms(title, histograms))
        for task, curve in (data.get("roc_curve") or {}).items():
            curves[f"{task}{whose}"] = curve
    if curves:
        drawn.append(figures.roc_curves("ROC curves of cosines", curves))
    return [chart for chart in drawn if chart is not None]


def _bars(suite: str, parts: Mapping[str, Results]) -> figures.Chart | None:
    """One bar per task and encoder; for a single encoder also after component removal."""
    chart = BARS[suite]
    series = {name: _main_scores(suite, part, chart.metrics) for name, part in parts.items()}
    colors = (figures.FIRST, figures.SECOND)
    if len(parts) == 1:
        removed = _main_scores(
            suite, *parts.values(), [f"{metric}_pcr" for metric in chart.metrics]
        )
        if removed:
            series = dict(zip(figures.SIDES.values(), [*series.values(), removed]))
            colors = (figures.BACKGROUND, figures.FIRST)
    tasks = list(dict.fromkeys(task for values in series.values() for task in values))
    if len(tasks) * len(series) < 2:
        return None
    values = {name: [found.get(task) for task in tasks] for name, found in series.items()}
    return figures.bars(chart.title, tasks, values, chart.axis, chart.decimals, colors)


def _main_scores(suite: str, part: Results, metrics: Sequence[str]) -> dict[str, float]:
    """Task -> value of the first metric scored; without subsets of a task scored as a whole."""
    scores = [s for s in tables.scores(part, suite).values() if s["value"] is not None]
    found: dict[str, float] = {}
    for metric in metrics:
        for score in scores:
            if score["metric"] == metric and math.isfinite(score["value"]):
                found.setdefault(score["task"], score["value"])
    order = [score["task"] for score in scores]
    whole = {s["task"] for s in scores if s["metric"] == "spearman_all"}
    return {
        task: found[task]
        for task in dict.fromkeys(order)
        if task in found and task.partition(".")[0] not in whole - {task}
    }


def _suite(number: int, name: str, results: Results, compare: Results | None) -> str:
    lines = [f"<h2>{_text(name)}</h2>", f"<p>{_text(SUITES.get(name, ''))}</p>"]
    for i, chart in enumerate(charts(name, results, compare)):
        drawing = figures.svg(chart, f"figure-{number}-{i}")
        caption = f"<figcaption>{_text(chart.title)}</figcaption>"
        lines.append(f'<figure>{caption}<div class="box">{drawing}</div></figure>')
    found = tables.comparisons(name, results, compare)
    lines += [_comparison(table, 3) for table in found if not table.ablation]
    if ablations := [_comparison(table, 4) for table in found if table.ablation]:
        lines.append(_folded("The papers' ablations", "\n".join(ablations)))
    header, rows = tables.all_scores(name, results, compare)
    if rows:
        lines.append(_folded(f"All {len(rows)} scores", _table(header, rows, 2)))
    lines.append(_list("Notes", tables.notes(name, results, compare)))
    lines.append(_list("Failures", tables.failures(name, results, compare)))
    if settings := tables.settings(name, results, compare):
        lines.append(_folded("Settings", _list("", settings)))
    return "\n".join(line for line in lines if line)


def _comparison(table: Comparison, level: int) -> str:
    rows = [[model, *cells] for model, cells in table.own + table.published]
    return (
        f"<h{level}>{_text(table.title)}</h{level}>\n"
        f"{_table(table.header, rows, 1, own=len(table.own))}\n"
        f'<p class="footnote">{_text(table.footnote)}</p>'
    )


def _table(header: list[str], rows: list[list[str]], left: int, own: int = 0) -> str:
    """A table in a scrolling box.

    The first cell of a row is its heading, the first `left` columns are text, and the first `own`
    rows, those of the evaluated encoders, are highlighted.
    """
    kinds = ["text" if i < left else "number" for i in range(len(header))]
    heads = "".join(
        f'<th scope="col" class="{kind}">{_text(cell)}</th>' for cell, kind in zip(header, kinds)
    )
    lines = []
    for i, row in enumerate(rows):
        cells = [f'<th scope="row">{_text(row[0])}</th>']
        cells += [f'<td class="{k}">{_text(c)}</td>' for c, k in zip(row[1:], kinds[1:])]
        start = '<tr class="own">' if i < own else "<tr>"
        lines.append(f"{start}{''.join(cells)}</tr>")
    return (
        f'<div class="box" tabindex="0"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _encoder(name: str, part: Results) -> str:
    encoder = part["encoder"]
    facts = {
        "Encoder": name,
        "Path": encoder["path"],
        "Kind": f"{encoder['kind']}, {encoder['dimension']} dimensions",
        "Fingerprint": encoder["fingerprint"],
        "Data": part.get("data_dir", ""),
        "Started": part["started"],
        "Duration": tables.duration(part["seconds"]),
    }
    items = [f"<dt>{label}</dt><dd>{_text(value)}</dd>" for label, value in facts.items() if value]
    return f"<dl>{''.join(items)}</dl>"


def _failures(failures: Iterable[tuple[str, str]]) -> str:
    items = [f"<li><b>{_text(suite)}</b> {_text(text)}</li>" for suite, text in failures]
    if not items:
        return ""
    return f'<div class="failures" role="alert"><h2>Not scored</h2><ul>{"".join(items)}</ul></div>'


def _list(title: str, texts: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(text)}</li>" for text in texts)
    heading = f"<h3>{title}</h3>" if title else ""
    return f"{heading}<ul>{items}</ul>" if items else ""


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{_text(title)}</summary>\n{content}\n</details>"


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
