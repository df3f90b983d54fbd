"""`trainer.train_epochs`: the steps of whole passes over the records."""

import dataclasses
from pathlib import Path

import pytest
import tensorflow as tf

from experiments import chains, registry
from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.views import Segments, SpecialIds
from official_cmlm.training import run as training
from official_cmlm.training.run import with_counted_steps
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import manifest_of, read_by_hand


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Records of two languages, of long documents, which are cut and then repeat a sentence."""
    folder, documents = tmp_path_factory.mktemp("records"), make_documents(17)
    documents[:5] = [dataclasses.replace(document, language="de") for document in documents[:5]]
    write_records(folder, documents, vocabulary, shard_bytes=400, max_sentences=3)
    return folder


def _load(folder, *overrides, experiment="simcse/tiny"):
    values = [f"task.train_data.input_path={folder}", "task.encoder.vocab_size=0", *overrides]
    return registry.load(experiment, params_override=",".join(values))


def _count_steps(config, num_replicas=1):
    """Returns the steps as a training has them."""
    task = SentenceEncoderTask(config.task)
    return with_counted_steps(config, task, num_replicas).trainer.train_steps


def _count(folder) -> int:
    """Counts sentences record by record, without those that repeat the end of the record before."""
    return sum(len(sentences) - repeats for sentences, repeats in read_by_hand(folder))


@pytest.mark.parametrize("size", [4, 7])
@pytest.mark.parametrize("drops", ["true", "false"])
def test_steps_are_the_batches_of_the_epochs(folder, size, drops):
    """An epoch ends with its own batch, whole or not."""
    overrides = [f"task.train_data.global_batch_size={size}"]
    overrides += [f"task.train_data.drop_remainder={drops}", "trainer.train_epochs=3"]
    config = _load(folder, *overrides)
    count = _count(folder)
    assert count < sum(len(sentences) for sentences, _ in read_by_hand(folder))
    batches = [len(range(count)[start : start + size]) for start in range(0, count, size)]
    assert _count_steps(config) == 3 * sum(n == size or drops == "false" for n in batches)


@pytest.mark.long
def test_the_pipeline_has_as_many_batches(folder):
    """The first epoch's keys are met again at the first step of the second."""
    config = _load(folder, "task.train_data.global_batch_size=7", "trainer.train_epochs=1")
    task = SentenceEncoderTask(config.task)
    batches = iter(task.build_inputs(config.task.train_data))
    sizes = []
    while sum(sizes) < _count(folder):
        sizes.append(len(next(batches)["contrastive"]["key"]))
    assert len(sizes) == _count_steps(config) and sizes[-1] < 7


def test_replicas_and_streams_change_the_steps(folder):
    """A rest smaller than the replicas is left out; batches of streams go on in the next epoch."""
    config = _load(folder, "task.train_data.global_batch_size=8", "trainer.train_epochs=5")
    assert _count_steps(config, 8) == 5 * (_count(folder) // 8)
    data = DataConfig(input_path="records", global_batch_size=12, streams=2)
    view = Segments("sentence", 32, SpecialIds(0, 1, 2, 3, 4, 9))
    plan = Plan.of(data, manifest_of([("en", 10)] * 8), view)
    assert plan.streams == 2 and plan.steps(5, 1) == len(range(0, 5 * 80, 12))


def test_the_later_source_wins(folder, tmp_path):
    """Steps replace epochs, and epochs steps; loading counts nothing."""
    assert registry.load("mirror_bert/tiny").trainer.train_epochs == 1
    assert registry.load("mirror_bert/tiny").trainer.train_steps == 0
    config = _load(folder, "trainer.train_steps=5", experiment="mirror_bert/word")
    assert (config.trainer.train_epochs, config.trainer.train_steps) == (None, 5)
    (tmp_path / "own.yaml").write_text("base: simcse/tiny\ntrainer: {train_epochs: 2}\n")
    batches = "task.train_data.global_batch_size=2"
    config = _load(folder, batches, experiment=str(tmp_path / "own.yaml"))
    assert config.trainer.train_steps == 0 and _count_steps(config) > 5


@pytest.mark.parametrize(
    ("experiment", "override", "message"),
    [
        ("cmlm/tiny", "task.train_data.bucket_boundaries=[]", "AdjacentPairs does not make one"),
        ("simcse/tiny", "task.train_data.segment=packed", "Mirrored does not make one example"),
        ("simcse/tiny", "task.train_data.bucket_boundaries=[32]", "do not end with an epoch"),
        ("simcse/tiny", "task.train_data.language_exponent=0.5", "several times or in part"),
    ],
)
def test_epochs_without_a_count_are_refused(folder, experiment, override, message):
    config = _load(folder, override, "trainer.train_epochs=1", experiment=experiment)
    with pytest.raises(UserError, match=f"train_epochs cannot be .*{message}.*train_steps instead"):
        _count_steps(config)


def test_a_training_counts_with_its_own_replicas(folder, tmp_path, monkeypatch):
    """As many as the strategy has, whatever the configuration tells."""
    size = _count(folder) - 1
    assert size % 2 == 0, "an epoch must end with one sentence, which two replicas leave out"
    config = _load(folder, f"task.train_data.global_batch_size={size}", "trainer.train_epochs=3")
    config = config.replace(task=config.task.replace(init_checkpoint=""))
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    monkeypatch.setattr(training, "create_strategy", lambda *_: two)
    monkeypatch.setattr(training, "check_run", lambda *_: None)
    assert training.prepare(config, "train", str(tmp_path)).params.trainer.train_steps == 3
    assert _count_steps(config) == 6


def test_a_chain_trains_a_stage_again_for_another_length_or_damage(folder, tmp_path):
    config = _load(folder, "trainer.train_epochs=2")
    length = chains.describe_length(config.trainer)
    result = {"length": "2 epochs", "checkpoint": "ckpt-2"}
    assert length == "2 epochs" and not chains.is_finished(tmp_path, length, result)
    checkpoint = tf.train.Checkpoint(step=tf.Variable(1))
    checkpoint.save(str(tmp_path / "ckpt"))
    # The newest of two checkpoints is missing.
    assert not chains.is_finished(tmp_path, length, result)
    path = checkpoint.save(str(tmp_path / "ckpt"))
    assert chains.is_finished(tmp_path, length, result)
    assert not chains.is_finished(tmp_path, length, {**result, "length": "1 epoch"})
    Path(f"{path}.data-00000-of-00001").write_bytes(b"")
    assert not chains.is_finished(tmp_path, length, result)


def test_overrides_of_a_chain_are_checked_without_its_start(folder):
    """The vocabulary of the stage's start is not known there."""
    stages = [chains.Stage("words", "mirror_bert/word")]
    data = {"train_data": {"input_path": str(folder)}}
    objectives = {"contrastive": {"temperature": 0.1}}
    chains.check_common(
        [dataclasses.replace(stages[0], params_override={"task": data})],
        {"task": {"objectives": objectives}},
    )
