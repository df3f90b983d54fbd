"""The training curve: `training_curve.png` in the model directory, drawn from `history.jsonl`.

A panel shows one metric in training and in validation. A metric that is measured among the examples
of a batch depends on the batch's size, so training and validation have separate panels of it, and
of a sum that includes it.
"""

import importlib.util
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.objectives import objectives
from official_cmlm.training.progress import HISTORY_NAME, read_history

CURVE_NAME = "training_curve.png"
# Numbers of a history that the progress bar shows and no panel needs.
_LEFT_OUT = frozenset(
    {
        *("split", "step", "seconds", "seconds_left", "steps_per_second", "tokens_per_second"),
        *("padding_share", "waiting_share"),
    }
)
_LAST = ("learning_rate", "gradient_norm")
_LABELS = {"train": "training, mean of the steps before", "validation": "validation"}
_STYLES = {
    "train": {"color": "C0"},
    "validation": {"color": "C1", "marker": "o", "markersize": 3.5},
}
_COLUMNS = 2
# A curve of fewer points says nothing.
_FEWEST = 5

# (split, metric) -> [(step, value), …]
Lines = dict[tuple[str, str], list[tuple[int, float]]]


def comparable(metrics: Iterable[str]) -> set[str]:
    """Returns the metrics that measure the same in training and validation."""
    registered = objectives()
    of_objectives = {name for name in metrics if "/" in name}
    same = set()
    for name in of_objectives:
        objective, _, metric = name.partition("/")
        if objective not in registered or metric not in registered[objective].in_batch_metrics:
            same.add(name)
    return same | {"training_loss"} if same == of_objectives else same


def panels(history: Sequence[Mapping[str, Any]]) -> list[Lines]:
    """Returns the lines of each panel: a metric in training, and in validation if comparable."""
    lines: Lines = {}
    for line in history:
        for name, value in line.items():
            if name in _LEFT_OUT or type(value) not in (int, float) or not math.isfinite(value):
                continue
            # The sum of the objectives' losses has a name of its own in each split.
            metric = "training_loss" if name == "validation_loss" else name
            lines.setdefault((line["split"], metric), []).append((int(line["step"]), value))
    metrics = list(dict.fromkeys(metric for _, metric in lines))
    together = comparable(metrics)
    result: list[Lines] = []
    for metric in sorted(metrics, key=lambda name: (name in _LAST, name != "training_loss")):
        own = [key for key in lines if key[1] == metric]
        groups = [own] if metric in together else [[key] for key in own]
        result += [{key: lines[key] for key in group} for group in groups]
    return result


def draw(figure: Any, panels: Sequence[Lines]) -> None:
    """Draws panels into a Matplotlib figure."""
    last = max(step for panel in panels for line in panel.values() for step, _ in line)
    rows = math.ceil(len(panels) / _COLUMNS)
    figure.set_size_inches(6.0, 0.7 + 1.75 * rows)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
    drawn: dict[str, Any] = {}
    for axes, panel in zip(grid, panels):
        for (split, _), line in panel.items():
            # A single point has no line.
            marker = {"marker": "o"} if len(line) == 1 else {}
            style = {"linewidth": 1.4, **_STYLES.get(split, {"color": "0.5"}), **marker}
            drawn[_LABELS.get(split, split)] = axes.plot(*zip(*line), **style)[0]
        _, metric = next(iter(panel))
        objective, _, name = metric.rpartition("/")
        axes.set_title(objective or "all objectives", fontsize=9)
        axes.set_ylabel(name.removeprefix("training_").replace("_", " "), fontsize=8)
        axes.tick_params(labelsize=8)
        axes.set_xlim(0, 1.02 * last)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel("step", fontsize=9)
    figure.legend(drawn.values(), drawn.keys(), loc="outside upper left", ncols=2, fontsize=8)


def write_curve(model_dir: str | Path) -> Path | None:
    """Writes `training_curve.png` beside a history; returns its path.

    Returns None without Matplotlib, which training does not need, and where there is nothing to
    draw. If a figure cannot be drawn or written, a line says why, and the training is not affected.
    """
    folder = Path(model_dir)
    if importlib.util.find_spec("matplotlib") is None or not (folder / HISTORY_NAME).is_file():
        return None
    path = folder / CURVE_NAME
    try:
        to_draw = panels(read_history(folder / HISTORY_NAME))
        if max((len(line) for panel in to_draw for line in panel.values()), default=0) < _FEWEST:
            return None
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        draw(figure, to_draw)
        figure.savefig(path, dpi=160)
        return path
    except (OSError, ValueError, TypeError, AttributeError) as error:
        print(f"{path}: not drawn ({error})", file=sys.stderr)
        return None
