"""Charts of an evaluation, as SVG with colours and font from the surrounding HTML page."""

import dataclasses
import html
import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, safe for colour-blind readers -> custom properties of the style sheet.
INK, MUTED, GRID = "#1a1c20", "#676d76", "#d9dce1"
FIRST, SECOND, BACKGROUND = "#0072b2", "#d55e00", "#a3a9b2"
_MORE = ("#009e73", "#b3589a", "#c98a00", "#3f9fd0", "#7a5c2e")
PALETTE = {
    INK: "--ink", MUTED: "--muted", GRID: "--grid", FIRST: "--series-1", SECOND: "--series-2",
    BACKGROUND: "--series-0", **{color: f"--series-{i}" for i, color in enumerate(_MORE, 3)},
}  # fmt: skip
# Labels of figures before and after principal component removal.
SIDES = {"before": "embeddings as they are", "after": "component removed"}
_MARKERS = "osD^vP*X<>"
_WIDTH = 5.6  # inches
_STYLE = {
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart, drawn when it is rendered.

    Attributes:
      title: shown above it.
      height: inches.
      draw: draws on an empty figure.
    """

    title: str
    height: float
    draw: Callable[[Figure], None]


def image(
    chart: Chart, file_format: str, salt: str = "", background: str = "none", dpi: int = 110
) -> bytes:
    """Renders a chart as `svg`, `png` …; deterministic for equal `salt`."""
    style = {**_STYLE, "svg.hashsalt": salt, "savefig.facecolor": background}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # Glyphs that Matplotlib's font lacks exist in the page's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=(_WIDTH, chart.height))
        chart.draw(figure)
        output = io.BytesIO()
        figure.savefig(output, format=file_format, dpi=dpi)
    return output.getvalue()


def svg(chart: Chart, key: str) -> str:
    """An `<svg>` element for an HTML page.

    Args:
      chart: the chart.
      key: letters, digits and hyphens; prefix of every id, unique on the page.
    """
    text = image(chart, "svg", key).decode("utf-8")
    text = text[text.index("<svg") :]
    # Metadata contains URLs, and a style element would apply to the whole page.
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"<[^>]*>", lambda tag: _for_page(tag[0], key), text)
    label = html.escape(chart.title, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def _for_page(tag: str, key: str) -> str:
    """A tag with prefixed ids, and with the page's custom properties as colours."""
    tag = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag)
    tag = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{key}-", tag)
    return re.sub(
        r"#[0-9a-f]{6}\b",
        lambda color: f"var({PALETTE[color[0]]})" if color[0] in PALETTE else color[0],
        tag,
    )


def bars(
    title: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    axis: str,
    decimals: int = 1,
    colors: Sequence[str] = (FIRST, SECOND),
) -> Chart:
    """Horizontal bars, grouped by label, one bar per series; none for a missing value.

    Args:
      title: of the chart.
      labels: of the groups, from top to bottom.
      series: name -> one value or None per label; at most two series.
      axis: quantity and unit.
      decimals: of the values beside the bars.
      colors: one per series, from the palette.
    """
    thick = 0.8 / len(series)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn = []
        for i, (values, color) in enumerate(zip(series.values(), colors)):
            there = [(row, v) for row, v in enumerate(values) if v is not None]
            places = [row + (i - (len(series) - 1) / 2) * thick for row, _ in there]
            found = axes.barh(places, [v for _, v in there], thick * 0.92, color=color)
            axes.bar_label(
                found, [f"{v:.{decimals}f}" for _, v in there], padding=2, fontsize=7.5, color=INK
            )
            drawn.append(found)
        axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.1)
        axes.set_xlabel(axis)
        _legend(figure, drawn, list(series))

    step = 0.21 if len(series) == 1 else 0.34
    return Chart(title, 0.75 + step * len(labels) + 0.25 * (len(series) > 1), draw)


def language_histograms(title: str, shares: Mapping[str, Any]) -> Chart:
    """One panel per query language: the languages of the nearest neighbours.

    Args:
      title: of the chart.
      shares: `before` and perhaps `after`: query's language -> neighbour's language -> percent.
    """
    sides = {name: shares[key] for key, name in SIDES.items() if shares.get(key)}
    queries = list(next(iter(sides.values()), {}))
    # A common scale for all panels.
    shown = [share for side in sides.values() for row in side.values() for share in row.values()]
    top = 1.08 * max(shown, default=100.0) or 1.0

    def draw(figure: Figure) -> None:
        panels = _panels(figure, len(queries), sharey=True)
        drawn: list[Any] = []
        for query, axes in zip(queries, panels):
            found = list(next(iter(sides.values()))[query])
            drawn = []
            for i, (side, color) in enumerate(zip(sides.values(), (BACKGROUND, FIRST))):
                places = [x + (i - (len(sides) - 1) / 2) * 0.4 for x in range(len(found))]
                values = [side.get(query, {}).get(name, 0.0) for name in found]
                drawn.append(axes.bar(places, values, 0.38, color=color))
            drawn.append(axes.axhline(100 / max(1, len(found)), color=INK, lw=0.8, ls="--"))
            axes.set_xticks(range(len(found)), found, rotation=90 if len(found) > 9 else 0)
            for label in axes.get_xticklabels():
                label.set_fontweight("bold" if label.get_text() == query else "normal")
            axes.grid(axis="x", visible=False)
            axes.tick_params(axis="x", length=0)
            axes.set_title(f"queries in {query}")
            axes.set_ylim(0, top)
        figure.supylabel("nearest neighbours, %", fontsize=9)
        figure.supxlabel("language of the nearest neighbour", fontsize=9)
        _legend(figure, drawn, [*sides, "no bias"])

    return Chart(title, 0.8 + 1.25 * math.ceil(len(queries) / 2), draw)


def embedding_map(title: str, maps: Mapping[str, Mapping[str, Any]]) -> Chart:
    """Sentences as points, coloured by language: a row of panels for each of the maps.

    Args:
      title: of the chart.
      maps: name -> `before` and perhaps `after`: language -> [x, y] of each sentence.
    """
    panels = [
        (f"{name}: {label}", points[key])
        for name, points in maps.items()
        for key, label in SIDES.items()
        if points.get(key)
    ]
    languages = list(dict.fromkeys(language for _, side in panels for language in side))

    def draw(figure: Figure) -> None:
        drawn: dict[str, Any] = {}
        for (name, side), axes in zip(panels, _panels(figure, len(panels))):
            for language, rows in side.items():
                i = languages.index(language)
                drawn[language] = axes.scatter(
                    [row[0] for row in rows],
                    [row[1] for row in rows],
                    s=9,
                    color=(FIRST, SECOND, *_MORE)[i % (2 + len(_MORE))],
                    marker=_MARKERS[i % len(_MARKERS)],
                    alpha=0.75,
                    linewidths=0,
                )
            axes.set_title(name)
            axes.set_aspect("equal", adjustable="datalim")
            axes.tick_params(labelsize=7)
        figure.supxlabel("first principal axis", fontsize=9)
        figure.supylabel("second principal axis", fontsize=9)
        _legend(figure, list(drawn.values()), list(drawn))

    return Chart(title, 0.9 + 2.7 * math.ceil(len(panels) / 2), draw)


def cosine_histograms(title: str, histograms: Mapping[str, Any]) -> Chart:
    """One panel per set of texts: cosines of random pairs and of positive pairs.

    Args:
      title: of the chart.
      histograms: set -> `edges` of n bins (n + 1 values), shares `random` and `positive` (n values
        each, or none).
    """

    def draw(figure: Figure) -> None:
        drawn: dict[str, Any] = {}
        for (name, part), axes in zip(histograms.items(), _panels(figure, len(histograms))):
            edges = part["edges"]
            for kind, color, filled in (("random", BACKGROUND, True), ("positive", FIRST, False)):
                shares = [100 * share for share in part.get(kind) or []]
                if shares:
                    drawn[f"{kind} pairs"] = axes.stairs(
                        shares, edges, color=color, fill=filled, lw=1.4
                    )
            axes.set_title(_short(name))
            axes.set_xlim(edges[0], edges[-1])
            axes.set_ylim(0, None)
        figure.supxlabel("cosine", fontsize=9)
        figure.supylabel("pairs, %", fontsize=9)
        _legend(figure, list(drawn.values()), list(drawn))

    return Chart(title, 0.8 + 1.7 * math.ceil(len(histograms) / 2), draw)


def roc_curves(title: str, curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Chart:
    """ROC curves: name -> `false_positive` and `true_positive` rates; the diagonal is chance."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn = [axes.plot([0, 100], [0, 100], color=MUTED, ls="--", lw=0.9)[0]]
        for curve, color in zip(curves.values(), (FIRST, SECOND, *_MORE)):
            across, up = (
                [100 * share for share in curve[kind]]
                for kind in ("false_positive", "true_positive")
            )
            drawn += axes.plot(across, up, color=color, lw=1.6)
        axes.set_aspect("equal")
        axes.set_xlabel("false positives, %")
        axes.set_ylabel("true positives, %")
        _legend(figure, drawn, ["chance", *curves])

    return Chart(title, 4.0, draw)


def _panels(figure: Figure, count: int, sharey: bool = False) -> list[Axes]:
    """Axes in rows of two."""
    columns = min(2, count)
    grid = figure.add_gridspec(max(1, math.ceil(count / 2)), max(1, columns))
    panels: list[Axes] = []
    for i in range(count):
        shared = panels[0] if sharey and panels else None
        panels.append(figure.add_subplot(grid[i // 2, i % 2], sharey=shared))
    return panels


def _legend(figure: Figure, drawn: Sequence[Any], names: Sequence[str]) -> None:
    """A legend above the figure, unless there is a single name."""
    if len(names) > 1:
        short = [_short(name) for name in names]
        columns = max(1, min(len(names), 84 // (6 + max(map(len, short)))))
        figure.legend(drawn, short, loc="outside upper left", ncols=columns, fontsize=8)


def _short(name: str) -> str:
    """A name cut to 30 characters."""
    return name if len(name) <= 30 else name[:29] + "…"
