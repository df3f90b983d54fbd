"""Charts by Matplotlib: of an evaluation, of a training's curve and of studies.

They are drawn for a light page without a background of their own; a dark page inverts them.
"""

import dataclasses
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

# Okabe and Ito's colours, safe for colour-blind readers.
INK, MUTED, GRID, PAGE = "#1a1c20", "#676d76", "#d9dce1", "#fcfcfd"
FIRST, SECOND, BACKGROUND = "#0072b2", "#d55e00", "#a3a9b2"
# The colour of an encoder is that of its place among all encoders of the report.
ENCODER_COLORS = (FIRST, SECOND, "#009e73", "#b3589a", "#c98a00")
# Colours of languages, none of which is an encoder's.
LANGUAGE_COLORS = ("#5b4bb0", "#7a5c2e", "#8f1d3f", "#6f8212", "#3f8f9f")
# Labels of figures before and after principal component removal.
SIDES = {"before": "embeddings as they are", "after": "component removed"}
_MARKERS = "osD^vP*X<"
# Inches. In a paper's column, of three inches and a third, the smallest letters are 6 points high.
_WIDTH = 4.4
# Most characters of a line of a bar's label, most lines of a label, and the inches of a line.
_LABEL, _MOST_LINES, _LINE = 20, 3, 0.155
# Most characters of a name in a legend.
_LEGEND_NAME = 42
# Most bars that have room for a number each.
_MOST_NUMBERS = 48
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
    "figure.constrained_layout.use": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart with a title and a height in inches; `draw` draws it on an empty figure."""

    title: str
    height: float
    draw: Callable[[Figure], None]


@dataclasses.dataclass(frozen=True)
class Series:
    """The bars of one encoder, one for each label.

    Attributes:
      name: in the legend.
      values: one per label; None for a missing bar.
      color: of the bars.
      deviations: standard deviation of each value; None where it is not known.
      is_faded: whether the colour is light, to show a second series of one encoder.
    """

    name: str
    values: Sequence[float | None]
    color: str
    deviations: Sequence[float | None] = ()
    is_faded: bool = False


def image(chart: Chart, file_format: str, background: str = "none", dpi: int = 110) -> bytes:
    """Renders a chart as `svg`, `png` …; the same chart gives the same bytes."""
    style = {**_STYLE, "svg.hashsalt": "chart", "savefig.facecolor": background}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # Glyphs that Matplotlib's font lacks exist in the reader's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=(_WIDTH, chart.height))
        chart.draw(figure)
        output = io.BytesIO()
        metadata = {"Date": None} if file_format == "svg" else None
        figure.savefig(output, format=file_format, dpi=dpi, metadata=metadata)
    return output.getvalue()


def svg(chart: Chart) -> str:
    """Returns a chart as an SVG document, whose letters are text."""
    return image(chart, "svg").decode("utf-8")


def bars(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    axis: str,
    decimals: int = 1,
    references: Mapping[str, Sequence[float | None]] | None = None,
    apart: int = 0,
) -> Chart:
    """Draws horizontal bars, for each label one per series; none for a missing value.

    Args:
      title: of the chart.
      labels: from top to bottom.
      series: the bars, from top to bottom at each label.
      axis: quantity and unit.
      decimals: of the values beside the bars, which are left out if there are many bars.
      references: name -> one value or None per label, marked by lines across the label's bars.
      apart: this many labels at the end, such as averages, are below a line.
    """
    with_numbers = len(labels) * len(series) <= _MOST_NUMBERS
    pitch = 0.15 if with_numbers else 0.075
    # Inches of a label's bars and of the space below them; places are counted in such steps.
    step = pitch * len(series) + 0.09
    thick = pitch / step
    first_apart = len(labels) - apart
    names = [_wrapped(label) for label in labels]
    # The lines of a label may need more room than its bars.
    tall = [max(1.0, _LINE * (1 + name.count("\n")) / step) for name in names]
    ends = list(itertools.accumulate(tall))
    gaps = [0.45 if apart and i >= first_apart else 0.0 for i in range(len(labels))]
    places = [end - room / 2 + gap for end, room, gap in zip(ends, tall, gaps)]
    deviates = any(value for one in series for value in one.deviations or ())
    lines = (
        textwrap.wrap(axis, 44, break_on_hyphens=False)
        + ["thin lines: ± standard deviation over seeds"] * deviates
    )

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        handles: dict[str, Any] = {}
        for i, one in enumerate(series):
            offset = (i - (len(series) - 1) / 2) * thick
            rows = [place + offset for place in places]
            handles[one.name] = _draw_series(
                axes, one, rows, thick * 0.9, decimals if with_numbers else None
            )
        styles = itertools.cycle(("-", (0, (1.5, 1)), ":", "-."))
        for (name, values), line in zip((references or {}).items(), styles):
            marked = [(place, value) for place, value in zip(places, values) if value is not None]
            half = thick * len(series) / 2 + 0.1
            handles[name] = axes.vlines(
                [value for _, value in marked],
                [place - half for place, _ in marked],
                [place + half for place, _ in marked],
                color=INK,
                linestyles=[line],
                lw=1.3,
            )
        if 0 < first_apart < len(labels):
            axes.axhline(ends[first_apart - 1] + 0.225, color=MUTED, lw=0.8)
        axes.set_yticks(places, names)
        axes.set_ylim(places[-1] + tall[-1] / 2 + 0.1, -0.1)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        # Room for the numbers at the ends of the bars.
        axes.margins(x=0.12 if with_numbers else 0.03)
        axes.set_xlabel("\n".join(lines))
        _legend(figure, handles)

    legend = len(series) + len(references or ())
    height = 0.6 + step * (places[-1] + tall[-1] / 2 + 0.2) + 0.15 * (len(lines) - 1)
    return Chart(title, height + (0.17 * legend if legend > 1 else 0), draw)


def _draw_series(
    axes: Axes, series: Series, rows: Sequence[float], thick: float, decimals: int | None
) -> Any:
    """Draws bars, their deviations and, unless `decimals` is None, their values."""
    there = [
        (row, value, deviation or 0.0)
        for row, value, deviation in itertools.zip_longest(rows, series.values, series.deviations)
        if value is not None
    ]
    places, values, deviations = zip(*there)
    drawn = axes.barh(
        *(places, values, thick),
        xerr=deviations if any(deviations) else None,
        error_kw={"elinewidth": 0.9, "ecolor": INK},
        color=series.color,
        alpha=0.4 if series.is_faded else None,
    )
    if decimals is not None:
        # The page's colour keeps the number readable where a reference's line crosses it.
        box = {"facecolor": PAGE, "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
        texts = [_number(value, decimals) for value in values]
        axes.bar_label(drawn, texts, padding=3, fontsize=8, color=INK, bbox=box)
    return drawn


def _number(value: float, decimals: int) -> str:
    """Returns a value for a bar; `1.2e-07` for a small one that its decimals show as zero."""
    text = f"{value:.{decimals}f}"
    return f"{value:.1e}" if decimals > 1 and value and not float(text) else text


def language_histograms(title: str, shares: Mapping[str, Any], color: str = FIRST) -> Chart:
    """Draws one panel per query language: the languages of the nearest neighbours.

    `shares` has `before` and perhaps `after`: query's language -> neighbour's language -> percent.
    """
    sides = {name: shares[key] for key, name in SIDES.items() if shares.get(key)}
    first = next(iter(sides.values()), {})
    # A common scale for all panels.
    shown = [share for side in sides.values() for row in side.values() for share in row.values()]
    top = 1.08 * max(shown, default=100.0) or 1.0

    def draw(axes: Axes, query: str, drawn: dict[str, Any]) -> None:
        found = list(first[query])
        for i, (name, side) in enumerate(sides.items()):
            places = [x + (i - (len(sides) - 1) / 2) * 0.4 for x in range(len(found))]
            values = [side.get(query, {}).get(language, 0.0) for language in found]
            drawn[name] = axes.bar(places, values, 0.38, color=color, alpha=0.4 if i else None)
        chance = 100 / max(1, len(found))
        drawn["no bias"] = axes.axhline(chance, color=INK, lw=0.8, ls="--")
        axes.set_xticks(range(len(found)), found, rotation=90 if len(found) > 9 else 0)
        for label in axes.get_xticklabels():
            label.set_fontweight("bold" if label.get_text() == query else "normal")
        axes.grid(axis="x", visible=False)
        axes.tick_params(axis="x", length=0)
        axes.set_title(f"queries in {query}")
        axes.set_ylim(0, top)

    labels = "language of the nearest neighbour", "nearest neighbours, %"
    return _panels(title, 1.25, list(first), draw, labels)


def map_range(maps: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Returns a range, for both axes, in which all points of several maps (`embedding_map`) lie."""
    sides = [one.get(key) or {} for one in maps for key in SIDES]
    rows = [row for side in sides for rows in side.values() for row in rows]
    found = [value for row in rows for value in row] or [0.0]
    low, high = min(found), max(found)
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room


def embedding_map(
    title: str, maps: Mapping[str, Mapping[str, Any]], limits: tuple[float, float]
) -> Chart:
    """Draws sentences as points, coloured by language: a row of panels for each of the maps.

    `maps` has names -> `before` and perhaps `after`: language -> [x, y] of each sentence; `limits`
    are those of both axes.
    """
    panels = [
        (f"{name}: {label}", points[key])
        for name, points in maps.items()
        for key, label in SIDES.items()
        if points.get(key)
    ]
    languages = list(dict.fromkeys(language for _, side in panels for language in side))

    def draw(axes: Axes, panel: tuple[str, Mapping[str, Any]], drawn: dict[str, Any]) -> None:
        name, side = panel
        for language, rows in side.items():
            i = languages.index(language)
            drawn[language] = axes.scatter(
                *zip(*rows),
                s=9,
                color=LANGUAGE_COLORS[i % len(LANGUAGE_COLORS)],
                # Five colours and nine markers: 45 languages are told apart.
                marker=_MARKERS[i % len(_MARKERS)],
                alpha=0.75,
                linewidths=0,
            )
        axes.set_title(name)
        axes.set_aspect("equal", adjustable="box")
        axes.set(xlim=limits, ylim=limits)
        axes.tick_params(labelsize=8)
        axes.locator_params(nbins=5)

    labels = "first principal axis", "second principal axis"
    return _panels(title, 2.1, panels, draw, labels)


def cosine_histograms(title: str, histograms: Mapping[str, Any], color: str = FIRST) -> Chart:
    """Draws one panel per set of texts: cosines of random, negative and positive pairs.

    `histograms` has for each set the `edges` of n bins, and the shares of each kind (n, or none).
    """

    def draw(axes: Axes, panel: tuple[str, Mapping[str, Any]], drawn: dict[str, Any]) -> None:
        name, part = panel
        edges = part["edges"]
        for kind, line_color, line in (
            ("random", BACKGROUND, "-"),
            ("negative", MUTED, "--"),
            ("positive", color, "-"),
        ):
            if shares := [100 * share for share in part.get(kind) or []]:
                drawn[f"{kind} pairs"] = axes.stairs(
                    shares, edges, color=line_color, fill=kind == "random", lw=1.4, ls=line
                )
        axes.set_title(_short(name, 24), fontsize=8)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, None)

    return _panels(title, 1.7, list(histograms.items()), draw, ("cosine", "pairs, %"))


def roc_curves(
    title: str, curves: Mapping[str, Mapping[str, Sequence[float]]], colors: Sequence[str]
) -> Chart:
    """Draws ROC curves, one a name: rates of `false_positive` and `true_positive`."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn = {"chance": axes.plot([0, 100], [0, 100], color=MUTED, ls="--", lw=0.9)[0]}
        for i, ((name, curve), color) in enumerate(zip(curves.items(), colors)):
            # Several curves of one encoder have different line styles.
            line = ("-", "--", "-.", ":")[colors[:i].count(color) % 4]
            across, up = (
                [100 * share for share in curve[kind]]
                for kind in ("false_positive", "true_positive")
            )
            drawn[name] = axes.plot(across, up, color=color, ls=line, lw=1.6)[0]
        axes.set_aspect("equal")
        axes.set_xlabel("false positives, %")
        axes.set_ylabel("true positives, %")
        _legend(figure, drawn)

    return Chart(title, 3.6 + 0.17 * len(curves), draw)


def _panels(
    title: str,
    height: float,
    panels: Sequence[Any],
    draw_one: Callable[[Axes, Any, dict[str, Any]], None],
    labels: tuple[str, str],
) -> Chart:
    """Returns a chart of panels in rows of two, of `height` inches each, with common `labels`.

    `draw_one` draws a panel, and adds its entries of the legend to the dict.
    """
    rows = math.ceil(len(panels) / 2)

    def draw(figure: Figure) -> None:
        drawn: dict[str, Any] = {}
        for i, panel in enumerate(panels, 1):
            draw_one(figure.add_subplot(rows, min(2, len(panels)), i), panel, drawn)
        figure.supxlabel(labels[0], fontsize=9)
        figure.supylabel(labels[1], fontsize=9)
        _legend(figure, drawn)

    return Chart(title, 0.8 + height * rows, draw)


def _legend(figure: Figure, drawn: Mapping[str, Any]) -> None:
    """Adds a legend above the figure, unless there is a single name."""
    if len(drawn) > 1:
        short = [_short(name, _LEGEND_NAME) for name in drawn]
        columns = max(1, min(len(short), 70 // (7 + max(map(len, short)))))
        figure.legend(
            list(drawn.values()), short, loc="outside upper left", ncols=columns, fontsize=8
        )


def _wrapped(label: str) -> str:
    """Breaks a long label into lines between its parts, or cuts it in the middle if too long."""
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


def _short(name: str, most: int) -> str:
    """Cuts a name in the middle, since many names differ at their ends."""
    if len(name) <= most:
        return name
    return f"{name[: (most - 1) // 2]}…{name[-(most - 1 - (most - 1) // 2) :]}"
