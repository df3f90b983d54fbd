"""Several objectives over one encoder: what they share, what each has of its own."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.bitext_retrieval import BitextRetrievalConfig
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from official_cmlm.training.task import SentenceEncoderTask
from tests.modeling.helpers import build, make_pairs, output_of
from tests.training.helpers import by_objective, task_config


def _task(folder, **objectives):
    return SentenceEncoderTask(task_config(folder, objectives))


# CMLM and QuickThought read the same pairs.
PAIRS = {"cmlm": CmlmConfig(num_projections=3), "quick_thought": QuickThoughtConfig()}
THREE = {**PAIRS, "mlm": MlmConfig()}


@pytest.fixture
def passes(monkeypatch):
    """The inputs of every pass through the encoder from now on."""
    calls, original = [], SentenceEncoderModel.call

    @functools.wraps(original)
    def counting(self, inputs, *args, **kwargs):
        calls.append(inputs)
        return original(self, inputs, *args, **kwargs)

    monkeypatch.setattr(SentenceEncoderModel, "call", counting)
    return calls


def test_sharing_changes_no_loss():
    """Together, two objectives have the losses that each has alone."""
    model, pairs = build(PAIRS, groups={"pairs": tuple(PAIRS)}), make_pairs()
    together = model({"pairs": pairs})
    assert set(together) == {"cmlm", "quick_thought"}
    for name, objective in model.objectives.items():
        alone = output_of(objective, pairs, model.encoder)
        assert float(together[name].loss) == pytest.approx(float(alone.loss), rel=1e-6)


def test_shared_dropout():
    """With dropout on, both objectives see one and the same encoding of s1."""
    retrieval = {"margin": 0.3, "logit_scale": 100.0}
    objectives = {
        "quick_thought": QuickThoughtConfig(**retrieval),
        "bitext_retrieval": BitextRetrievalConfig(**retrieval),
    }
    model = build(objectives, groups={"pairs": tuple(objectives)}, dropout_rate=0.5)
    pairs = make_pairs()
    outputs, again = (model({"pairs": pairs}, training=True) for _ in range(2))
    assert float(outputs["quick_thought"].loss) == float(outputs["bitext_retrieval"].loss)
    assert float(outputs["quick_thought"].loss) != float(again["quick_thought"].loss)


def test_checkpoint_items():
    """A checkpoint names the encoder, the data's positions and, where there is one, the head;
    never an objective."""
    model = build({"cmlm": CmlmConfig(num_projections=3)})
    assert model.checkpoint_items == {
        "encoder": model.encoder,
        "data_positions": model.data_positions.variables,
        "language_model_head": model.head,
    }
    model = build({"quick_thought": QuickThoughtConfig()})
    assert set(model.checkpoint_items) == {"encoder", "data_positions"}


def test_objectives_share_encoder_and_head():
    """There is one encoder and one head; every variable is trained once."""
    model = build(THREE)
    assert model.objectives["cmlm"].head is model.objectives["mlm"].head is model.head
    references = [variable.ref() for variable in model.trainable_variables]
    assert len(references) == len(set(references)) == 37 + 5 + 6


@pytest.fixture(scope="module")
def validation(records_dir):
    """Returns a task of three objectives and its validation data; building them takes seconds."""
    task = _task(records_dir, **THREE)
    return task, task.build_inputs(task.task_config.validation_data)


def test_equal_views_are_one_batch(validation):
    """CMLM and QuickThought get the very same pairs in one element; MLM has segments."""
    element = by_objective(next(iter(validation[1])))
    assert set(element) == {"cmlm", "mlm", "quick_thought"}
    tf.nest.map_structure(np.testing.assert_array_equal, element["cmlm"], element["quick_thought"])
    assert set(element["cmlm"]) == {"key", "first", "second", "second_masked"}
    assert set(element["mlm"]) == {"key", "segment", "segment_masked"}
    assert not np.array_equal(element["cmlm"]["key"], element["mlm"]["key"])


def test_step_from_the_pipeline_encodes_each_sequence_once(validation, passes):
    """Fed by the task's own pipeline, all three objectives need four passes, not five."""
    task, dataset = validation
    model, element = task.build_model(), next(iter(dataset))
    passes.clear()
    model(element)
    assert len(passes) == 4
    assert sum("dense_inputs" in inputs for inputs in passes) == 1
    # The next batch is encoded anew.
    model(element)
    assert len(passes) == 8


def test_metrics_are_weighted_means(records_dir):
    """A metric over several batches is the sum of sums over the sum of weights."""
    task = _task(records_dir, cmlm=CmlmConfig(num_projections=3))
    model = build({"cmlm": CmlmConfig(num_projections=3)})
    metrics = task.build_metrics(training=False)
    assert [m.name for m in metrics] == ["cmlm/masked_token_loss", "cmlm/masked_token_accuracy"]
    sums = np.zeros(2)
    for counts in ((3, 1, 4), (1, 1, 1)):
        features = {"cmlm": make_pairs(counts=counts)}
        outputs = model(features)
        task.process_metrics(metrics, features, outputs)
        sums += [float(value) for value in outputs["cmlm"].metrics["masked_token_loss"]]
    assert sums[1] == 11.0
    assert float(metrics[0].result()) == pytest.approx(sums[0] / sums[1], rel=1e-5)
