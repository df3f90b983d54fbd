"""The training curve: the lines that share a panel, and a damaged history."""

import json

import pytest
from matplotlib.figure import Figure

from official_cmlm.objectives import objectives
from official_cmlm.training import curve, progress


def history(steps=6, in_batch=True):
    """Returns lines of a training that validates every third step."""
    lines = []
    for step in range(1, steps + 1):
        values = {"cmlm/masked_token_loss": 9.0 - step}
        if in_batch:
            values["quick_thought/recall_at_1"] = 0.1 * step
        whole = {"step": step, "seconds": 1.0, **values}
        rates = {"learning_rate": 0.1, "tokens_per_second": 7.0, "padding_share": 0.5}
        lines.append({"split": "train", **whole, "training_loss": 9.5 - step, **rates})
        if step % 3 == 0:
            lines.append({"split": "validation", **whole, "validation_loss": 9.7 - step})
    return lines


def keys(panels):
    """Returns the sorted keys of each panel."""
    return [sorted(panel) for panel in panels]


def test_a_panel_shows_one_metric():
    """Training and validation share it; rates come last, speed nowhere."""
    panels = curve.panels(history(in_batch=False))
    assert keys(panels) == [
        [("train", "training_loss"), ("validation", "training_loss")],
        [("train", "cmlm/masked_token_loss"), ("validation", "cmlm/masked_token_loss")],
        [("train", "learning_rate")],
    ]
    losses = panels[0]["validation", "training_loss"]
    assert losses == [(3, pytest.approx(6.7)), (6, pytest.approx(3.7))]


def test_a_metric_among_the_batch_is_drawn_apart():
    """It depends on the size of the batch, and so does a sum that holds it."""
    assert keys(curve.panels(history())) == [
        [("train", "training_loss")],
        [("validation", "training_loss")],
        [("train", "cmlm/masked_token_loss"), ("validation", "cmlm/masked_token_loss")],
        [("train", "quick_thought/recall_at_1")],
        [("validation", "quick_thought/recall_at_1")],
        [("train", "learning_rate")],
    ]
    # An objective that is not registered here, as of a user's module, is drawn all the same.
    assert curve.comparable(["own/loss"]) == {"own/loss", "training_loss"}


def test_metrics_among_a_batch_are_metrics_of_objectives():
    """Every name is one of the objective's own metrics."""
    in_batch = {name: each.in_batch_metrics for name, each in objectives().items()}
    for name, metrics in in_batch.items():
        assert metrics <= set(objectives()[name].metric_directions)
    assert in_batch["quick_thought"] and not in_batch["mlm"]


def test_the_drawing():
    """Objectives, metrics and both splits are named."""
    figure = Figure(layout="constrained")
    curve.draw(figure, curve.panels(history()))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    labels = {axes.get_ylabel() for axes in shown}
    assert labels == {"loss", "masked token loss", "recall at 1", "learning rate"}
    assert {axes.get_title() for axes in shown} == {"all objectives", "cmlm", "quick_thought"}
    (legend,) = figure.legends
    assert [text.get_text().split(",")[0] for text in legend.texts] == ["training", "validation"]


def test_damaged_lines_are_left_out(tmp_path):
    """An incomplete line, a line without an object, NaN as null; a repeated step counts once."""
    lines = [json.dumps(line) for line in history()]
    lines.insert(2, json.dumps(history()[0] | {"cmlm/masked_token_loss": None}))
    (tmp_path / "history.jsonl").write_text("\n".join([*lines, "[1]", '{"split": "train", "st']))
    read = progress.read_history(tmp_path / "history.jsonl")
    assert len(read) == len(history())
    (losses,) = [p for p in curve.panels(read) if ("train", "cmlm/masked_token_loss") in p]
    assert len(losses["train", "cmlm/masked_token_loss"]) == 5
    assert curve.write_curve(tmp_path) == tmp_path / "training_curve.png"
    assert (tmp_path / "training_curve.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw(tmp_path, capsys):
    """A short history, or none, gives none; a figure that cannot be written costs a line."""
    assert curve.write_curve(tmp_path) is None
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in history(2)))
    assert curve.write_curve(tmp_path) is None
    path.write_text("\n".join(json.dumps(line) for line in history()))
    (tmp_path / "training_curve.png").mkdir()
    assert curve.write_curve(tmp_path) is None
    assert "training_curve.png: not drawn" in capsys.readouterr().err
