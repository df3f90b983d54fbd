"""Figures of the documents: `python docs/images/draw.py` writes them beside this file.

`overview.svg` shows the way from text to vectors; README and the site's first page open with it.
"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK, LINE = "#1f2933", "#52606d"
INPUT, DATA, TRAIN, MODEL, USE = "#e9eef3", "#dcebfb", "#fdf0d5", "#d9f2e3", "#f3e6f7"


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, text: str, color: str
) -> None:
    """Draws a rounded box whose first line of text is bold, in the axes' units."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=1.2",
            facecolor=color,
            edgecolor=LINE,
            linewidth=1,
        )
    )
    title, _, rest = text.partition("\n")
    lines = rest.count("\n") + 1 if rest else 0
    middle, top = x + width / 2, y + height / 2 + lines * 1.25
    axes.text(middle, top, title, ha="center", va="center", weight="bold", size=11, color=INK)
    if rest:
        axes.text(
            middle, top - 2, rest, ha="center", va="top", size=9.5, color=INK, linespacing=1.3
        )


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = ""
) -> None:
    """Draws an arrow between two points with a label above its middle."""
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color=LINE, linewidth=1.3)
    )
    if text:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        axes.text(x, y + 1, text, ha="center", va="bottom", size=9, color=LINE, style="italic")


def draw_overview(path: Path) -> None:
    """Writes the figure of the way from text to vectors."""
    figure = pyplot.figure(figsize=(11, 4.6), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 110), ylim=(0, 46))
    axes.axis("off")
    _box(axes, 1, 29, 18, 13, "Text\nfiles, JSON lines,\ncrawls, translations,\ninferences", INPUT)
    _box(axes, 27, 29, 18, 13, "Records\nTFRecords of token ids:\ndocuments and pairs", DATA)
    _box(
        axes,
        53,
        26,
        24,
        19,
        "Training\na sum of objectives in one YAML:\nCMLM, MLM, QuickThought,\n"
        "SimCSE, Mirror-BERT,\nCMLM-CSE, DiffCSE, DeCLUTR,\nbitext retrieval, NLI",
        TRAIN,
    )
    _box(
        axes,
        1,
        4,
        26,
        13,
        "Public weights\nHugging Face, TF1 BERT, TF-Hub,\nsentence-transformers",
        INPUT,
    )
    _box(axes, 53, 4, 24, 13, "Sentence encoder\none folder: weights,\nvocabulary, settings", MODEL)
    _box(axes, 86, 32, 23, 12, "Evaluation\n15 suites by the papers'\nprotocols", USE)
    _box(axes, 86, 17, 23, 12, "Use\nencode, embed, search,\nHTTP service", USE)
    _box(axes, 86, 2, 23, 12, "Export\nTF-Hub, serving, ONNX, LiteRT,\nsentence-transformers", USE)
    _arrow(axes, (19, 35.5), (27, 35.5), "data_prep")
    _arrow(axes, (45, 35.5), (53, 35.5), "views")
    _arrow(axes, (65, 26), (65, 17))
    _arrow(axes, (27, 10.5), (53, 10.5), "import_checkpoint")
    for y in (38, 23, 8):
        _arrow(axes, (77, 10.5), (86, y))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "overview"
    draw_overview(Path(__file__).with_name("overview.svg"))
