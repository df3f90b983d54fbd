"""The training curve: which lines share a panel, and what a damaged history does."""

import json

import pytest

from official_cmlm.evaluation.report import figures
from official_cmlm.objectives import objectives
from official_cmlm.training import curve

BATCHES = {"global_batch_size": 8, "bucket_boundaries": [16], "max_bucket_batch_size": 8}


def params(**validation):
    """Of a training whose validation has the same batches but for `validation`."""
    data = BATCHES | {"seq_length": 16}
    return {
        "task": {
            "train_data": data,
            "validation_data": data | {"drop_remainder": True} | validation,
        }
    }


def history(steps=6):
    lines = []
    for step in range(1, steps + 1):
        values = {"cmlm/masked_token_loss": 9.0 - step, "quick_thought/recall_at_1": 0.1 * step}
        whole = {"step": step, "seconds": 1.0, **values}
        rates = {"learning_rate": 0.1, "tokens_per_second": 7.0, "padding_share": 0.5}
        lines.append({"split": "train", **whole, "training_loss": 9.5 - step, **rates})
        if step % 3 == 0:
            lines.append({"split": "validation", **whole, "validation_loss": 9.7 - step})
    return lines


def keys(found):
    return [sorted(panel) for panel in found]


def test_a_panel_shows_one_quantity():
    """Training and validation share it where batches are alike; rates come last, speed nowhere."""
    found = curve.panels(history(), params())
    assert keys(found) == [
        [("train", "training_loss"), ("validation", "training_loss")],
        [("train", "cmlm/masked_token_loss"), ("validation", "cmlm/masked_token_loss")],
        [("train", "quick_thought/recall_at_1"), ("validation", "quick_thought/recall_at_1")],
        [("train", "learning_rate")],
    ]
    assert found[0]["validation", "training_loss"] == [
        (3, pytest.approx(6.7)),
        (6, pytest.approx(3.7)),
    ]


@pytest.mark.parametrize(
    "validation",
    [{"global_batch_size": 4}, {"bucket_boundaries": [8, 16]}, {"drop_remainder": False}],
)
def test_other_batches_are_drawn_apart(validation):
    """What is found in a batch depends on its size, and so does a sum that holds it."""
    found = keys(curve.panels(history(), params(**validation)))
    assert [("train", "quick_thought/recall_at_1")] in found
    assert [("validation", "quick_thought/recall_at_1")] in found
    assert [("train", "training_loss")] in found and [("validation", "training_loss")] in found
    both = [("train", "cmlm/masked_token_loss"), ("validation", "cmlm/masked_token_loss")]
    assert both in found


def test_an_objective_may_have_its_own_data():
    """Its own records decide, where it has any."""
    own = {"quick_thought": {"validation_data": BATCHES | {"seq_length": 8}}}
    values = params()
    values["task"]["objectives"] = own | {"cmlm": {"validation_data": None}}
    name = "quick_thought/recall_at_1"
    assert name not in curve.comparable(values, [name])
    assert curve.comparable(params(), [name]) == {name, "training_loss"}
    # A configuration that cannot be read promises nothing.
    assert curve.comparable({}, ["cmlm/masked_token_loss"]) >= {"cmlm/masked_token_loss"}


def test_metrics_of_objectives_are_known():
    """Each of this project's metrics has a unit; those among a batch are metrics of objectives."""
    metrics = {m for objective in objectives().values() for m in objective.metric_directions}
    assert metrics >= curve.IN_BATCH
    assert {m for m in metrics if m not in curve._AXES and "pair" not in m} == set()


def test_the_drawing():
    """Percentages, units and both splits are named."""
    drawing = figures.svg(curve.chart(history(), params()))
    for wanted in ("found first in the batch, %", "loss, nats a token", "validation", "step"):
        assert wanted in drawing
    figure = figures.Figure()
    curve.chart(history(), params()).draw(figure)
    recall = next(axes for axes in figure.axes if "found first" in axes.get_ylabel())
    assert [max(line.get_ydata()) for line in recall.lines] == [pytest.approx(60.0)] * 2
    assert curve.chart(history(2), params()) is None


def test_damaged_lines_are_left_out(tmp_path):
    """An incomplete line, one that is no object, NaN as null; a repeated step counts once."""
    lines = [json.dumps(line) for line in history()]
    lines.insert(2, json.dumps(history()[0] | {"cmlm/masked_token_loss": None}))
    (tmp_path / "history.jsonl").write_text("\n".join([*lines, "[1]", '{"split": "train", "st']))
    read = curve.read_history(tmp_path / "history.jsonl")
    assert len(read) == len(history())
    (losses,) = [
        p for p in curve.panels(read, params()) if ("train", "cmlm/masked_token_loss") in p
    ]
    assert len(losses["train", "cmlm/masked_token_loss"]) == 5
    assert curve.write_curve(tmp_path) == tmp_path / "training_curve.png"
    assert (tmp_path / "training_curve.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw(tmp_path, capsys):
    """No history, no figure; one that cannot be written costs a line."""
    assert curve.write_curve(tmp_path) is None
    (tmp_path / "history.jsonl").write_text("\n".join(json.dumps(line) for line in history()))
    (tmp_path / "training_curve.png").mkdir()
    assert curve.write_curve(tmp_path) is None
    assert "training_curve.png: not drawn" in capsys.readouterr().err
