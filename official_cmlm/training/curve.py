"""The training curve: `training_curve.png` in the model directory, drawn from `history.jsonl`.

A panel shows one quantity. Validation is drawn beside training where both measure the same: what is
found in a batch depends on how many others are in it, so it is comparable only if batches are made
alike.
"""

import contextlib
import importlib.util
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.training.progress import HISTORY_NAME

CURVE_NAME = "training_curve.png"
# Measured among the examples of a batch.
IN_BATCH = frozenset({"retrieval_loss", "contrastive_loss", "recall_at_1"})
# Last part of a metric's name -> (its axis, factor).
_AXES = {
    "training_loss": ("sum of losses", 1.0),
    "masked_token_loss": ("loss, nats a token", 1.0),
    "masked_token_accuracy": ("masked tokens found, %", 100.0),
    "replaced_token_loss": ("loss, nats a token", 1.0),
    "replaced_token_accuracy": ("replaced tokens seen, %", 100.0),
    "retrieval_loss": ("loss, nats a pair", 1.0),
    "contrastive_loss": ("loss, nats an example", 1.0),
    "recall_at_1": ("found first in the batch, %", 100.0),
    "nli_loss": ("loss, nats a pair", 1.0),
    "nli_accuracy": ("accuracy, %", 100.0),
    "nsp_loss": ("loss, nats a pair", 1.0),
    "nsp_accuracy": ("accuracy, %", 100.0),
    "sts_spearman": ("Spearman's ρ × 100", 1.0),
    "learning_rate": ("learning rate", 1.0),
    "gradient_norm": ("gradient norm", 1.0),
}
# What the progress bar shows, and no figure needs.
_LEFT_OUT = frozenset(
    {
        *("split", "step", "seconds", "seconds_left", "steps_per_second", "tokens_per_second"),
        *("padding_share", "waiting_share"),
    }
)
_LAST = ("learning_rate", "gradient_norm")
# What decides how many examples a batch has, and of which length.
_BATCHES = ("global_batch_size", "bucket_boundaries", "max_bucket_batch_size", "seq_length")
_NAMES = {"training_loss": "all objectives", "sts_spearman": "similarity of sentences"}
_COLUMNS = 2
# A curve of fewer points says nothing.
_FEWEST = 5

# (split, metric) -> [(step, value), …]
Lines = dict[tuple[str, str], list[tuple[int, float]]]


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines of a `history.jsonl`; of a step that was reported twice the last ones.

    A training that goes on after an interruption repeats some steps. Incomplete lines, which a
    killed process leaves, are left out.
    """
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            line = json.loads(text)
            lines[str(line["split"]), int(line["step"])] = line
    return [lines[key] for key in sorted(lines, key=lambda key: key[1])]


def comparable(params: Mapping[str, Any], metrics: Iterable[str]) -> set[str]:
    """The metrics that measure the same in training and validation.

    Args:
      params: content of `params.yaml`.
      metrics: names as in the history, e.g. `quick_thought/recall_at_1`, `training_loss`.
    """
    metrics = list(metrics)
    same = {
        name
        for name in metrics
        if "/" in name
        and (name.rpartition("/")[2] not in IN_BATCH or _same_batches(params, name.split("/")[0]))
    }
    # A sum compares if all that is added does.
    if all(name in same for name in metrics if "/" in name):
        same.add("training_loss")
    return same


def _same_batches(params: Mapping[str, Any], objective: str) -> bool:
    task = params.get("task") or {}
    own = (task.get("objectives") or {}).get(objective) or {}
    train, validation = (
        own.get(part) or task.get(part) or {} for part in ("train_data", "validation_data")
    )
    # The last batches of a pass, one of each bucket, are smaller unless they are left out.
    whole = validation.get("drop_remainder") or task.get("static_validation")
    alike = all(train.get(name) == validation.get(name) for name in _BATCHES)
    return alike and bool(whole or not validation.get("bucket_boundaries"))


def panels(history: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> list[Lines]:
    """The lines of each panel: a quantity in training, and in validation where that compares."""
    lines: Lines = {}
    for line in history:
        for name, value in line.items():
            if name in _LEFT_OUT or type(value) not in (int, float) or not math.isfinite(value):
                continue
            # The sum of the objectives' losses has a name of its own in each split.
            metric = "training_loss" if name == "validation_loss" else name
            lines.setdefault((line["split"], metric), []).append((int(line["step"]), value))
    metrics = list(dict.fromkeys(metric for _, metric in lines))
    together = comparable(params, metrics)
    order = sorted(metrics, key=lambda name: (name in _LAST, name != "training_loss"))
    found: list[Lines] = []
    for metric in order:
        own = [key for key in lines if key[1] == metric]
        groups = [own] if metric in together else [[key] for key in own]
        found += [{key: lines[key] for key in group} for group in groups]
    return found


def chart(history: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Any:
    """The training curve, a `figures.Chart`; None for a history of fewer than five points."""
    from official_cmlm.evaluation.report import figures

    found = panels(history, params)
    if max((len(line) for panel in found for line in panel.values()), default=0) < _FEWEST:
        return None
    last = max(step for panel in found for line in panel.values() for step, _ in line)
    rows = math.ceil(len(found) / _COLUMNS)
    styles = {
        "train": {"color": figures.FIRST, "lw": 1.4},
        "validation": {"color": figures.SECOND, "marker": "o", "ms": 3.5, "lw": 1.4},
    }
    labels = {"train": "training, mean of the steps before", "validation": "validation"}

    def draw(figure: Any) -> None:
        grid = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
        drawn: dict[str, Any] = {}
        for axes, panel in zip(grid, found):
            for (split, metric), line in panel.items():
                label, factor = _AXES.get(metric.rpartition("/")[2], (metric, 1.0))
                drawn[labels.get(split, split)] = axes.plot(
                    [step for step, _ in line],
                    [factor * value for _, value in line],
                    **styles.get(split, {"color": figures.MUTED}),
                )[0]
                # A single point of validation is a point, of training a short line.
                if len(line) == 1:
                    drawn[labels.get(split, split)].set_marker("o")
            axes.set_title(_title(panel, found))
            axes.set_ylabel(label)
            axes.set_xlim(0, 1.02 * last)
            axes.locator_params(axis="x", nbins=5)
            if label.endswith("%"):
                axes.set_ylim(bottom=0)
        for axes in grid[len(found) :]:
            axes.set_visible(False)
        figure.supxlabel("step", fontsize=9)
        figure.legend(drawn.values(), drawn.keys(), loc="outside upper left", ncols=2, fontsize=8)

    return figures.Chart("Training", 0.7 + 1.75 * rows, draw, width=6.0)


def _title(panel: Lines, panels: Sequence[Lines]) -> str:
    (split, metric), *_ = panel
    objective, _, _ = metric.rpartition("/")
    name = objective or _NAMES.get(metric, "")
    # What does not compare has two panels, beside each other.
    alone = sum(metric == key[1] for other in panels for key in other) > 1 and len(panel) == 1
    return f"{name}, {'other batches' if split == 'validation' else 'training'}" if alone else name


def write_curve(model_dir: str | Path) -> Path | None:
    """Writes `training_curve.png` beside a history; returns its path.

    None without Matplotlib, which training does not need, and where there is nothing to draw. A
    figure that cannot be drawn or written prevents nothing: a line says why.
    """
    from official_cmlm.configs.yaml_loading import read_yaml

    folder = Path(model_dir)
    if importlib.util.find_spec("matplotlib") is None or not (folder / HISTORY_NAME).is_file():
        return None
    from official_cmlm.evaluation.report import figures

    try:
        params: Any = {}
        with contextlib.suppress(UserError, OSError):
            params = read_yaml(folder / "params.yaml")
        drawing = chart(
            read_history(folder / HISTORY_NAME), params if isinstance(params, dict) else {}
        )
        if drawing is None:
            return None
        path = folder / CURVE_NAME
        path.write_bytes(figures.image(drawing, "png", "white", 160))
        return path
    except (OSError, ValueError, TypeError, AttributeError) as error:
        print(f"{folder / CURVE_NAME}: not drawn ({error})", file=sys.stderr)
        return None
