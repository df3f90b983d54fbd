"""Charts of an evaluation, as SVG with colours and font from the surrounding HTML page."""

import dataclasses
import html
import io
import itertools
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, safe for colour-blind readers -> custom properties of the style sheet.
INK, MUTED, GRID = "#1a1c20", "#676d76", "#d9dce1"
FIRST, SECOND, BACKGROUND = "#0072b2", "#d55e00", "#a3a9b2"
_MORE = ("#009e73", "#b3589a", "#c98a00")
# Of languages: none is an encoder's.
LANGUAGE_COLORS = ("#5b4bb0", "#7a5c2e", "#8f1d3f", "#6f8212", "#3f8f9f")
PALETTE = {
    INK: "--ink", MUTED: "--muted", GRID: "--grid", FIRST: "--series-1", SECOND: "--series-2",
    BACKGROUND: "--series-0", **{color: f"--series-{i}" for i, color in enumerate(_MORE, 3)},
    **{color: f"--language-{i}" for i, color in enumerate(LANGUAGE_COLORS, 1)},
}  # fmt: skip
# Labels of figures before and after principal component removal.
SIDES = {"before": "embeddings as they are", "after": "component removed"}
_MARKERS = "osD^vP*X<"
# Inches. In a paper's column, of three inches and a third, the smallest letters are 6 points high.
_WIDTH = 4.4
# Characters of a line of a bar's label, and lines; inches of a line.
_LABEL, _MOST_LINES, _LINE = 20, 3, 0.145
# Characters of a name in a legend.
_LEGEND_NAME = 42
# Bars that have room for a number each.
_MOST_NUMBERS = 48
# The colour of an encoder is that of its place among all encoders of the report.
ENCODER_COLORS = (FIRST, SECOND, *_MORE)
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
      width: inches.
    """

    title: str
    height: float
    draw: Callable[[Figure], None]
    width: float = _WIDTH


@dataclasses.dataclass(frozen=True)
class Series:
    """One bar of every group.

    Attributes:
      name: in the legend.
      values: one per group; None where there is no bar.
      color: from the palette.
      deviations: standard deviation of each value; None where it is not known.
      is_faded: whether the colour is light, to show a second series of one encoder.
    """

    name: str
    values: Sequence[float | None]
    color: str
    deviations: Sequence[float | None] = ()
    is_faded: bool = False


def image(
    chart: Chart, file_format: str, salt: str = "", background: str = "none", dpi: int = 110
) -> bytes:
    """Renders a chart as `svg`, `png` …; deterministic for equal `salt`."""
    style = {**_STYLE, "svg.hashsalt": salt, "savefig.facecolor": background}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # Glyphs that Matplotlib's font lacks exist in the page's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=(chart.width, chart.height))
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
    series: Sequence[Series],
    axis: str,
    decimals: int = 1,
    references: Mapping[str, Sequence[float | None]] | None = None,
    apart: int = 0,
) -> Chart:
    """Horizontal bars, grouped by label, one bar per series; none for a missing value.

    Args:
      title: of the chart.
      labels: of the groups, from top to bottom.
      series: the bars, from top to bottom in each group.
      axis: quantity and unit.
      decimals: of the values beside the bars, which are left out if there are many bars.
      references: name -> one value or None per label, marked by lines across the group.
      apart: this many labels at the end, such as averages, stand below a line.
    """
    with_numbers = len(labels) * len(series) <= _MOST_NUMBERS
    pitch = 0.15 if with_numbers else 0.075
    # Inches of a group and of what is between two groups.
    step = pitch * len(series) + 0.09
    thick = pitch / step
    first_apart = len(labels) - apart
    names = [_wrapped(label) for label in labels]
    # In steps, as are places: lines of a label may need more than its bars.
    tall = [max(1.0, _LINE * (1 + name.count("\n")) / step) for name in names]
    rows = _places(tall)
    rows = [row + (0.45 if apart and i >= first_apart else 0.0) for i, row in enumerate(rows)]
    deviates = any(value for one in series for value in one.deviations or ())
    lines = [
        *textwrap.wrap(axis, 50),
        *(["thin lines: ± standard deviation over seeds"] * deviates),
    ]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        handles: dict[str, Any] = {}
        for i, one in enumerate(series):
            offset = (i - (len(series) - 1) / 2) * thick
            places = [row + offset for row in rows]
            handles[one.name] = _draw_series(
                axes, one, places, thick * 0.9, decimals if with_numbers else None
            )
        for (name, values), line in zip(
            (references or {}).items(), ("-", (0, (1.5, 1)), ":", "-.")
        ):
            there = [(row, value) for row, value in zip(rows, values) if value is not None]
            half = thick * len(series) / 2
            handles[name] = axes.vlines(
                [value for _, value in there],
                [row - half for row, _ in there],
                [row + half for row, _ in there],
                color=INK,
                linestyles=[line],
                lw=1.3,
            )
        if 0 < first_apart < len(labels):
            axes.axhline((rows[first_apart - 1] + rows[first_apart]) / 2, color=MUTED, lw=0.8)
        axes.set_yticks(rows, names)
        axes.set_ylim(rows[-1] + tall[-1] / 2 + 0.1, -tall[0] / 2 - 0.1)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.03)
        axes.set_xlabel("\n".join(lines))
        _legend(figure, list(handles.values()), list(handles))

    count = len(series) + len(references or ())
    height = (
        0.6
        + step * (rows[-1] + tall[0] / 2 + tall[-1] / 2 + 0.2)
        + 0.17 * (count if count > 1 else 0)
    )
    height += 0.15 * (len(lines) - 1)
    return Chart(title, height, draw)


def _draw_series(
    axes: Axes, series: Series, places: Sequence[float], thick: float, decimals: int | None
) -> Any:
    """Draws bars, their deviations and, unless `decimals` is None, their values."""
    there = [
        (place, value, deviation or 0.0)
        for place, value, deviation in itertools.zip_longest(
            places, series.values, series.deviations
        )
        if value is not None
    ]
    drawn = axes.barh(
        [place for place, _, _ in there],
        [value for _, value, _ in there],
        thick,
        color=series.color,
        alpha=0.4 if series.is_faded else None,
    )
    for place, value, deviation in there:
        if deviation:
            axes.plot([value - deviation, value + deviation], [place, place], color=INK, lw=0.9)
        if decimals is not None:
            # At the edge, where no line of a reference crosses it.
            axes.annotate(
                _number(value, decimals),
                (1.0, place),
                (3, -0.5),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
                annotation_clip=False,
            )
    return drawn


def _number(value: float, decimals: int) -> str:
    """A value beside a bar; `1.2e-07` of a small one that its decimals would show as zero."""
    text = f"{value:.{decimals}f}"
    return f"{value:.1e}" if decimals > 1 and value and not float(text) else text


def language_histograms(title: str, shares: Mapping[str, Any], color: str = FIRST) -> Chart:
    """One panel per query language: the languages of the nearest neighbours.

    Args:
      title: of the chart.
      color: of the encoder.
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
            for i, (side, alpha) in enumerate(zip(sides.values(), (None, 0.4))):
                places = [x + (i - (len(sides) - 1) / 2) * 0.4 for x in range(len(found))]
                values = [side.get(query, {}).get(name, 0.0) for name in found]
                drawn.append(axes.bar(places, values, 0.38, color=color, alpha=alpha))
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


def map_range(maps: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """A range, for both axes, in which all points of several maps lie.

    Args:
      maps: `before` and perhaps `after`: language -> [x, y] of each sentence.
    """
    found = [
        value
        for one in maps
        for key in SIDES
        for points in (one.get(key) or {}).values()
        for point in points
        for value in point
    ]
    low, high = min(found, default=0.0), max(found, default=0.0)
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room


def embedding_map(
    title: str,
    maps: Mapping[str, Mapping[str, Any]],
    limits: tuple[float, float] | None = None,
) -> Chart:
    """Sentences as points, coloured by language: a row of panels for each of the maps.

    Args:
      title: of the chart.
      maps: name -> `before` and perhaps `after`: language -> [x, y] of each sentence.
      limits: of both axes of every panel. Default: those that hold these maps.
    """
    low, high = limits or map_range(maps.values())
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
                    color=LANGUAGE_COLORS[i % len(LANGUAGE_COLORS)],
                    # Five colours and nine markers: 45 languages are told apart.
                    marker=_MARKERS[i % len(_MARKERS)],
                    alpha=0.75,
                    linewidths=0,
                )
            axes.set_title(name)
            axes.set_aspect("equal", adjustable="box")
            axes.set_xlim(low, high)
            axes.set_ylim(low, high)
            axes.tick_params(labelsize=8)
            axes.locator_params(nbins=5)
        figure.supxlabel("first principal axis", fontsize=9)
        figure.supylabel("second principal axis", fontsize=9)
        _legend(figure, list(drawn.values()), list(drawn))

    return Chart(title, 0.8 + 2.1 * math.ceil(len(panels) / 2), draw)


def cosine_histograms(title: str, histograms: Mapping[str, Any], color: str = FIRST) -> Chart:
    """One panel per set of texts: cosines of random pairs and of positive pairs.

    Args:
      title: of the chart.
      histograms: set -> `edges` of n bins (n + 1 values), shares `random` and `positive` (n values
        each, or none).
      color: of the encoder, for positive pairs.
    """

    def draw(figure: Figure) -> None:
        drawn: dict[str, Any] = {}
        for (name, part), axes in zip(histograms.items(), _panels(figure, len(histograms))):
            edges = part["edges"]
            kinds = (("random", BACKGROUND), ("negative", MUTED), ("positive", color))
            for kind, of_kind in kinds:
                shares = [100 * share for share in part.get(kind) or []]
                if shares:
                    drawn[f"{kind} pairs"] = axes.stairs(
                        shares,
                        edges,
                        color=of_kind,
                        fill=kind == "random",
                        lw=1.4,
                        ls="--" if kind == "negative" else "-",
                    )
            axes.set_title(_short(name, 24), fontsize=8)
            axes.set_xlim(edges[0], edges[-1])
            axes.set_ylim(0, None)
        figure.supxlabel("cosine", fontsize=9)
        figure.supylabel("pairs, %", fontsize=9)
        _legend(figure, list(drawn.values()), list(drawn))

    return Chart(title, 0.8 + 1.7 * math.ceil(len(histograms) / 2), draw)


def roc_curves(
    title: str, curves: Mapping[str, Mapping[str, Sequence[float]]], colors: Sequence[str]
) -> Chart:
    """ROC curves.

    Args:
      title: of the chart.
      curves: name -> `false_positive` and `true_positive` rates; the diagonal is chance.
      colors: one per curve.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn = [axes.plot([0, 100], [0, 100], color=MUTED, ls="--", lw=0.9)[0]]
        used: dict[str, int] = {}
        for curve, color in zip(curves.values(), colors):
            # Several curves of one encoder.
            line = ("-", "--", "-.", ":")[used.get(color, 0) % 4]
            used[color] = used.get(color, 0) + 1
            across, up = (
                [100 * share for share in curve[kind]]
                for kind in ("false_positive", "true_positive")
            )
            drawn += axes.plot(across, up, color=color, ls=line, lw=1.6)
        axes.set_aspect("equal")
        axes.set_xlabel("false positives, %")
        axes.set_ylabel("true positives, %")
        _legend(figure, drawn, ["chance", *curves])

    return Chart(title, 3.6 + 0.17 * len(curves), draw)


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
        short = [_short(name, _LEGEND_NAME) for name in names]
        columns = max(1, min(len(names), 70 // (7 + max(map(len, short)))))
        figure.legend(drawn, short, loc="outside upper left", ncols=columns, fontsize=8)


def _wrapped(label: str) -> str:
    """A long label in lines, broken where its parts join; a longer one is cut in the middle."""
    if len(label) <= _LABEL:
        return label
    lines = [""]
    for part in re.findall(r"[^ +_/.]*[ +_/.]|[^ +_/.]+", label):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > _LABEL:
            lines.append("")
        lines[-1] += part
    if len(lines) > _MOST_LINES or max(map(len, lines)) > _LABEL + 1:
        return _short(label, _LABEL)
    return "\n".join(line.strip() for line in lines)


def _places(heights: Sequence[float]) -> list[float]:
    """The middles of things that stand one upon the other; the first is at 0."""
    ends = list(itertools.accumulate(heights))
    middles = [end - height / 2 for end, height in zip(ends, heights)]
    return [middle - middles[0] for middle in middles]


def _short(name: str, most: int = 30) -> str:
    """A name cut in the middle, since many names differ at their ends."""
    if len(name) <= most:
        return name
    return f"{name[: (most - 1) // 2]}…{name[-(most - 1 - (most - 1) // 2) :]}"
