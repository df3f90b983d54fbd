"""Bar charts by Matplotlib, of an evaluation and of the demo.

They are drawn for a light page without a background of their own; a dark page inverts them.
"""

import dataclasses
import io
import itertools
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, safe for colour-blind readers.
INK, MUTED, GRID = "#1a1c20", "#676d76", "#d9dce1"
FIRST, SECOND = "#0072b2", "#d55e00"
# Encoders are coloured by their position in the report.
ENCODER_COLORS = (FIRST, SECOND, "#009e73", "#b3589a", "#c98a00")
# Inches. In a paper's column, of three inches and a third, the smallest letters are 6 points high.
_WIDTH = 4.4
# Most characters of a line of a bar's label, most lines of a label, and the inches of a line.
_LABEL, _MOST_LINES, _LINE = 20, 3, 0.155
# Most characters of a name in a legend.
_LEGEND_NAME = 42
# Most bars that have room for a number each; inches of a bar with and without a number.
_MOST_NUMBERS, _WITH_NUMBER, _WITHOUT = 48, 0.15, 0.075
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
      deviations: standard deviation of each value, None where it is not known; empty: of none.
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

    The values stand right of the axes, where no line crosses them.

    Args:
      title: of the chart.
      labels: from top to bottom.
      series: the bars, from top to bottom at each label.
      axis: quantity and unit.
      decimals: of the values, which are left out if there are many bars.
      references: name -> one value or None per label, marked by lines across the label's bars.
      apart: this many labels at the end, such as averages, are below a line.
    """
    references = references or {}
    with_numbers = len(labels) * len(series) <= _MOST_NUMBERS
    names = [_wrap(label) for label in labels]
    # Inches of a row: its bars and the space below them, or the lines of the longest label.
    bar = _WITH_NUMBER if with_numbers else _WITHOUT
    lines = 1 + max(name.count("\n") for name in names)
    row = max(bar * len(series) + 0.09, _LINE * lines)
    first_apart = len(labels) - apart
    places = [i + (0.45 if apart and i >= first_apart else 0.0) for i in range(len(labels))]
    deviates = any(value for one in series for value in one.deviations)
    below = textwrap.wrap(axis, 44, break_on_hyphens=False)
    below += ["thin lines: ± standard deviation over seeds"] * deviates

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn: dict[str, Any] = {}
        for i, one in enumerate(series):
            offset = (i - (len(series) - 1) / 2) * bar / row
            rows = [place + offset for place in places]
            drawn[one.name] = _draw_series(axes, one, rows, 0.9 * bar / row)
            if with_numbers:
                _draw_numbers(axes, rows, one.values, decimals)
        styles = itertools.cycle(("-", (0, (1.5, 1)), ":", "-."))
        half = bar / row * len(series) / 2 + 0.1
        for (name, values), style in zip(references.items(), styles):
            marked = [(place, value) for place, value in zip(places, values) if value is not None]
            ends = [(value, place - half, place + half) for place, value in marked]
            drawn[name] = axes.vlines(*zip(*ends), color=INK, linestyles=[style], lw=1.3)
        if 0 < first_apart < len(labels):
            axes.axhline(first_apart - 0.275, color=MUTED, lw=0.8)
        axes.set_yticks(places, names)
        axes.set_ylim(places[-1] + 0.6, -0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.03)
        axes.set_xlabel("\n".join(below))
        _draw_legend(figure, drawn)

    in_legend = len(series) + len(references)
    height = 0.6 + row * (places[-1] + 1.2) + 0.15 * (len(below) - 1)
    return Chart(title, height + (0.17 * in_legend if in_legend > 1 else 0), draw)


def _draw_series(axes: Axes, series: Series, rows: Sequence[float], thick: float) -> Any:
    """Draws the bars of a series and their deviations; no bar for a missing value."""
    deviations = [deviation or 0.0 for deviation in series.deviations]
    there = [i for i, value in enumerate(series.values) if value is not None]
    return axes.barh(
        [rows[i] for i in there],
        [series.values[i] for i in there],
        thick,
        xerr=[deviations[i] for i in there] if any(deviations) else None,
        error_kw={"elinewidth": 0.9, "ecolor": INK},
        color=series.color,
        alpha=0.4 if series.is_faded else None,
    )


def _draw_numbers(
    axes: Axes, rows: Sequence[float], values: Sequence[float | None], decimals: int
) -> None:
    """Writes the values at the right of the axes, in the rows of their bars."""
    place = {"transform": axes.get_yaxis_transform(), "va": "center_baseline", "fontsize": 8}
    for row, value in zip(rows, values):
        if value is not None:
            axes.text(1.02, row, _format(value, decimals), **place)


def _format(value: float, decimals: int) -> str:
    """Returns a value for a bar; `1.2e-07` for a small one that its decimals show as zero."""
    text = f"{value:.{decimals}f}"
    return f"{value:.1e}" if decimals > 1 and value and not float(text) else text


def _draw_legend(figure: Figure, drawn: Mapping[str, Any]) -> None:
    """Adds a legend above the figure, unless there is a single name."""
    if len(drawn) > 1:
        short = [_shorten(name, _LEGEND_NAME) for name in drawn]
        columns = max(1, min(len(short), 70 // (7 + max(map(len, short)))))
        figure.legend(
            list(drawn.values()), short, loc="outside upper left", ncols=columns, fontsize=8
        )


def _wrap(label: str) -> str:
    """Breaks a long label into lines between its parts, or cuts it in the middle if too long."""
    if len(label) <= _LABEL:
        return label
    lines = [""]
    for part in re.findall(r"[^ +_/.]*[ +_/.]|[^ +_/.]+", label):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > _LABEL:
            lines.append("")
        lines[-1] += part
    if len(lines) > _MOST_LINES or max(map(len, lines)) > _LABEL + 1:
        return _shorten(label, _LABEL)
    return "\n".join(line.strip() for line in lines)


def _shorten(name: str, most: int) -> str:
    """Cuts a name in the middle, since many names differ at their ends."""
    if len(name) <= most:
        return name
    return f"{name[: (most - 1) // 2]}…{name[-(most - 1 - (most - 1) // 2) :]}"
