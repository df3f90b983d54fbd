"""Properties of every objective: a sum is the sum of its parts, one example is too few."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from data_prep.readers import Document
from official_cmlm.checkpoints.weights import restore_objectives
from official_cmlm.common.errors import UserError
from official_cmlm.objectives import objectives
from official_cmlm.tokenization import load_vocabulary
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, write_records
from tests.modeling.helpers import output_of, randomize
from tests.objectives.helpers import Spy
from tests.training.all_objectives import SETTINGS, batch_of, records_of, task_of
from tests.training.helpers import by_objective, data, optimizer_config, task_config

ROBERTA = Path(__file__).parents[1] / "checkpoints" / "references" / "roberta"


def test_every_objective_has_settings():
    """A new objective needs settings and records for these tests."""
    assert set(SETTINGS) == set(objectives())


@pytest.fixture(scope="module")
def weighted_sum(folders):
    """Returns a task of CMLM and 0.2 times bitext retrieval on records of its own, and a batch."""
    own = data(records_of(folders, "bitext_retrieval"), seq_length=16, global_batch_size=6)
    chosen = {
        "cmlm": SETTINGS["cmlm"],
        "bitext_retrieval": SETTINGS["bitext_retrieval"].replace(weight=0.2, train_data=own),
    }
    config = task_config(records_of(folders, "cmlm"), chosen, {"num_layers": 1})
    config.validation_data.input_path = ""
    task, other = SentenceEncoderTask(config), task_of(folders, "bitext_retrieval")
    return task, batch_of(task, "cmlm") | batch_of(other, "bitext_retrieval", 6)


def test_loss_of_the_weighted_sum(weighted_sum, folders):
    """L = L_cmlm + 0.2 · L_bitext, each the loss that it has alone on its batch."""
    task, element = weighted_sum
    assert {g.name: (g.data.input_path, g.data.global_batch_size) for g in task.train_groups} == {
        name: (str(records_of(folders, name)), size)
        for name, size in (("cmlm", 8), ("bitext_retrieval", 6))
    }
    assert set(task.input_folders()) == {group.data.input_path for group in task.train_groups}
    model, metrics = randomize(task.build_model()), task.build_metrics()
    alone = {
        name: output_of(objective, by_objective(element)[name], Spy(model.encoder, training=False))
        for name, objective in model.objectives.items()
    }
    losses = {name: float(output.loss) for name, output in alone.items()}
    assert losses["cmlm"] > 0.5 and losses["bitext_retrieval"] > 0.5
    expected = losses["cmlm"] + 0.2 * losses["bitext_retrieval"]
    optimizer = task.create_optimizer(optimizer_config("sgd", 0.1))
    logs = task.train_step(element, model, optimizer, metrics)
    assert float(logs["loss"]) == pytest.approx(expected, rel=1e-5)
    values = {metric.name: float(metric.result()) for metric in metrics}
    assert values["cmlm/masked_token_loss"] == pytest.approx(losses["cmlm"], rel=1e-5)
    assert values["bitext_retrieval/retrieval_loss"] == pytest.approx(
        losses["bitext_retrieval"], rel=1e-5
    )
    counts = {metric.name: float(metric.count) for metric in metrics if "/" in metric.name}
    assert counts["bitext_retrieval/recall_at_1"] == 6.0


def test_validation_groups_may_differ_from_those_of_training(folders):
    """Two objectives share a pipeline in training; one has validation records of its own."""
    records = records_of(folders, "cmlm")
    own = data(records, is_training=False, global_batch_size=4)
    chosen = {
        "cmlm": SETTINGS["cmlm"].replace(validation_data=own),
        "quick_thought": SETTINGS["quick_thought"],
    }
    task = SentenceEncoderTask(task_config(records, chosen, {"num_layers": 1}))
    assert len(task.groups(is_training=True)) == 1 and len(task.groups(is_training=False)) == 2
    model, metrics = task.build_model(), task.build_metrics(training=False)
    batch = batch_of(task, "cmlm", 4) | batch_of(task, "quick_thought")
    task.validation_step(batch, model, metrics)
    counts = {metric.name: float(metric.count) for metric in metrics if "/" in metric.name}
    assert counts["cmlm/masked_token_loss"] > 0 and counts["quick_thought/recall_at_1"] == 8


def test_an_objective_is_restored_beside_one_with_a_head(folders, tmp_path):
    """A checkpoint of `nli` alone has no language-model head; `mlm` beside it needs one."""
    nli = SETTINGS["nli"].replace(train_data=data(records_of(folders, "nli")))

    def model_of(**chosen):
        config = task_config(records_of(folders, "mlm"), chosen, {"num_layers": 1})
        config.validation_data.input_path = ""
        return SentenceEncoderTask(config).build_model()

    before, model = randomize(model_of(nli=nli)), model_of(nli=nli, mlm=SETTINGS["mlm"])
    tf.train.Checkpoint(model=before).save(str(tmp_path / "ckpt"))
    assert restore_objectives(tmp_path, model.objectives) == {"nli"}
    weights = (each.objectives["nli"].own_weights() for each in (before, model))
    for old, new in zip(*weights, strict=True):
        np.testing.assert_array_equal(old, new)


def _refusal(task, replicas=1):
    with pytest.raises(UserError) as caught:
        task.check_batch_sizes(replicas)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 200
    return message


# Objectives in which the other examples of the batch are the negatives.
IN_BATCH = ["bitext_retrieval", "cmlm_cse", "contrastive", "cosent", "diff_cse", "quick_thought"]


def _make_task(folders, name, size, own=False, **settings):
    """Returns a task of one objective whose own or shared training data have this batch size."""
    folder, config = records_of(folders, name), SETTINGS[name].replace(**settings)
    train = data(folder, global_batch_size=size)
    overrides = {"train_data": train}
    if own:
        overrides, config = {}, config.replace(train_data=train)
    return SentenceEncoderTask(task_config(folder, {name: config}, {"num_layers": 1}, **overrides))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", IN_BATCH)
def test_a_batch_of_one_has_no_negatives(folders, name, own):
    """One line names the field, the objective and the smallest batch; two examples are enough."""
    message = _refusal(_make_task(folders, name, 1, own))
    field = f"task.objectives.{name}.train_data" if own else "task.train_data"
    assert message.startswith(f"{field}.global_batch_size 1 ")
    assert re.search(rf"\b{name}\b.*\bat least 2\b", message)
    _make_task(folders, name, 2, own).check_batch_sizes(1)
    # Negatives come from all replicas.
    _make_task(folders, name, 2, own).check_batch_sizes(2)


@pytest.mark.parametrize("name", sorted(set(objectives()) - set(IN_BATCH)))
def test_predictions_take_a_batch_of_one(folders, name):
    """Without negatives, or with two anchors in every document, one example is a batch."""
    _make_task(folders, name, 1).check_batch_sizes(1)


def test_a_single_anchor_of_a_single_document_has_no_negatives(folders):
    """DeCLUTR with one anchor a document needs two documents, as other in-batch losses do."""
    _make_task(folders, "declutr", 2, num_anchors=1).check_batch_sizes(1)
    task = _make_task(folders, "declutr", 1, num_anchors=1)
    assert re.search(r"\bdeclutr\b.*\bat least 2\b", _refusal(task))


def test_validation_batches_are_checked_too(folders):
    """A batch of one is refused where the loss is only measured."""
    folder = records_of(folders, "contrastive")
    validation = data(folder, is_training=False, global_batch_size=1)
    config = task_config(
        folder, {"contrastive": SETTINGS["contrastive"]}, validation_data=validation
    )
    assert _refusal(SentenceEncoderTask(config)).startswith("task.validation_data.global_batch")


@pytest.mark.parametrize("name", ["cmlm", "quick_thought"])
def test_records_without_pairs_are_counted(vocabulary, tmp_path, name):
    """One line before training; plain MLM, which reads them all, has none."""
    texts = [["a"]] * 3 + [["a b", "c"]] * 4 + [["a b c d e f g h i j k l"] * 4] * 2
    documents = [Document(f"d{i}", "en", text) for i, text in enumerate(texts)]
    write_records(tmp_path, documents, vocabulary, one_sentence_a_line=True)
    line = f"{name}: 3 of 9 records of task.train_data have one sentence and are skipped"
    for segment in ("sentence", "packed"):
        train = data(tmp_path, segment=segment)
        for chosen in ({name: SETTINGS[name]}, {"mlm": SETTINGS["mlm"]}):
            task = SentenceEncoderTask(task_config(tmp_path, chosen, train_data=train))
            assert task.notes() == ([line] if name in chosen else [])


def test_records_that_would_join_sentences_without_a_space(tmp_path):
    """Byte-level BPE records of an older release are refused where sentences are joined."""
    manifest = write_records(tmp_path, make_documents(5), load_vocabulary(ROBERTA))
    packed = {"train_data": data(tmp_path, segment="packed")}
    config = task_config(tmp_path, {"mlm": SETTINGS["mlm"]}, **packed)
    SentenceEncoderTask(config)
    del manifest.vocabulary["after_space"]
    manifest.save(tmp_path)
    with pytest.raises(UserError, match="do not hold how ids change after a space"):
        SentenceEncoderTask(config)
    SentenceEncoderTask(task_config(tmp_path, {"mlm": SETTINGS["mlm"]}))
