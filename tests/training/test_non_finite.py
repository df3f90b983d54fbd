"""A non-finite step changes nothing, stops the training, and names its records."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.inputs import hashing
from official_cmlm.records.manifest import load_manifest
from official_cmlm.training import non_finite as finite
from official_cmlm.training.non_finite import Failure, failed_step
from official_cmlm.training.step import optimizer_variables
from tests.conftest import make_documents, mirrored_strategy, write_records
from tests.training.all_objectives import batch_of, task_of
from tests.training.helpers import data, optimizer_config
from tests.training.step_values import distributed

_ADAM = optimizer_config(weight_decay_rate=0.01)
# Without a language-model head, a NaN embedding matters only where its token is.
NAME = "contrastive"


# `[unused0]`, which no text has.
RARE = 1


def _with_rare_token(batch):
    """Returns the batch with another second token in its last row."""
    for sequence in ("first", "second"):
        ids = batch[NAME][sequence]["input_word_ids"].numpy()
        ids[-1, 1] = RARE
        batch[NAME][sequence]["input_word_ids"] = tf.constant(ids)
    return batch


class Training:
    """A model whose step fails for one batch and not for the other."""

    def __init__(self, folders, chunk_size=0, strategy=None, compiled=False, scaled=False):
        # Gradients that a scale can overflow.
        self.task = task_of(folders, NAME, **({"temperature": 1e-4} if scaled else {}))
        self.task.task_config.chunk_size = chunk_size
        self.good, self.bad = (batch_of(self.task, NAME, start=start) for start in (0, 8))
        self.bad = _with_rare_token(self.bad)
        self.strategy = strategy or tf.distribute.get_strategy()
        with self.strategy.scope():
            tf_keras.utils.set_random_seed(1)
            self.model = self.task.build_model()
            self.optimizer = self.task.create_optimizer(_ADAM)
            if scaled:
                self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(
                    self.optimizer, initial_scale=2.0**127
                )
            _ = self.optimizer.iterations
            self.metrics = self.task.build_metrics()

        def step(batch):
            arguments = (batch, self.model, self.optimizer, self.metrics)
            return self.strategy.run(self.task.train_step, args=arguments)["loss"]

        # Traced where that is what is tested: it takes longer than the steps.
        traced = compiled or chunk_size
        self.step = tf.function(step, jit_compile=compiled or None) if traced else step

    def poison(self):
        """Spoils the embedding of the token that only the last row of the bad batch has."""
        table = next(w for w in self.model.trainable_variables if "word_embeddings" in w.name)
        values = table.numpy()
        values[RARE] = np.nan
        table.assign(values)

    def train(self, batch):
        if self.strategy.num_replicas_in_sync > 1:
            batch = distributed(self.strategy, batch)
        return self.step(batch)

    def state(self):
        """Weights and everything that the optimizer keeps of them, on each replica."""
        variables = [*self.model.variables, *optimizer_variables(self.optimizer)]
        iterations = self.optimizer.iterations
        local = self.strategy.experimental_local_results
        return [p.numpy() for v in variables if v is not iterations for p in local(v)]


def _equal(one, other):
    assert len(one) == len(other) > 20
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other))


@pytest.mark.long
def test_a_step_that_cannot_merge_replicas(folders, monkeypatch):
    """Each replica decides separately, as several GPUs under XLA do."""
    merged, states, original = [], [], tf.distribute.ReplicaContext.merge_call

    def spy(context, merge_fn, *args, **kwargs):
        merged.append(getattr(merge_fn, "__qualname__", ""))
        return original(context, merge_fn, *args, **kwargs)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "merge_call", spy)
    for merging in (True, False):
        merged.clear()
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        monkeypatch.setattr(strategy.extended, "_use_merge_call", lambda m=merging: m)
        training = Training(folders, strategy=strategy)
        training.train(training.good)
        assert any(name.startswith("apply_if") for name in merged) == merging
        states.append(training.state())
        training.poison()
        poisoned = training.state()
        training.train(training.bad)
        assert _equal(training.state(), poisoned)
    assert _equal(*states)


@pytest.mark.parametrize(
    ("options", "make_strategy"),
    [
        ({}, tf.distribute.get_strategy),
        pytest.param({"compiled": True}, tf.distribute.get_strategy, marks=pytest.mark.long),
        pytest.param({"chunk_size": 3}, mirrored_strategy, marks=pytest.mark.long),
    ],
    ids=["eager", "compiled", "replicas-and-chunks"],
)
def test_nothing_is_changed_from_the_failed_step_on(folders, options, make_strategy):
    """Weights and moments keep every bit, in the step and in the next one, that would be good."""
    training = Training(folders, strategy=make_strategy(), **options)
    training.train(training.good)
    training.poison()
    before = training.state()
    training.train(training.good)
    trained = training.state()
    assert not _equal(before, trained) and training.model.guard.failure() is None
    training.train(training.bad)
    assert _equal(training.state(), trained)
    training.train(training.good)
    assert _equal(training.state(), trained)
    failure = training.model.guard.failure()
    assert failure.step == 3
    assert np.isnan(failure.loss) and np.isnan(failure.gradient_norm)
    assert failure.left_out == 0 and list(failure.keys) == [NAME]
    np.testing.assert_array_equal(failure.keys[NAME], training.bad[NAME]["key"])


@pytest.mark.parametrize("sizes", [(3, 5), (5, finite.MOST_KEYS // 2 + 7)])
def test_each_group_keeps_its_own_keys(sizes):
    """On two replicas; what is not remembered is counted."""
    strategy, room = mirrored_strategy(), finite.MOST_KEYS // 2
    with strategy.scope():
        guard = finite.FiniteGuard()

    def step():
        first = tf.distribute.get_replica_context().replica_id_in_sync_group * 100_000
        # Not in the order of their names.
        batches = {
            name: {"key": tf.range(size, dtype=tf.int64) + tf.cast(first, tf.int64) + start}
            for name, size, start in zip(("words", "pairs"), sizes, (0, 50_000))
        }
        one = tf.constant(1.0)
        return guard.allows(one / 0.0, one, False, tf.constant(6, tf.int64), batches)

    allowed = strategy.run(tf.function(step))
    assert not any(bool(each) for each in strategy.experimental_local_results(allowed))
    failure = guard.failure()
    assert (failure.step, failure.left_out) == (7, 2 * max(0, sizes[1] - room))
    for name, size, start in zip(("words", "pairs"), sizes, (0, 50_000)):
        own = np.arange(min(size, room)) + start
        np.testing.assert_array_equal(failure.keys[name], [*own, *(own + 100_000)])


def test_gradients_that_a_loss_scale_overflows_are_no_failure(folders):
    """The optimizer lowers its scale and goes on, as it is meant to."""
    training = Training(folders, scaled=True)
    scale = float(training.optimizer.loss_scale)
    weights = [v.numpy() for v in training.model.variables]
    training.train(training.good)
    # It is the only step yet, and a report cannot hold its norm.
    norm = next(m for m in training.metrics if m.name == "gradient_norm")
    assert np.isnan(norm.result())
    assert float(training.optimizer.loss_scale) < scale
    assert _equal([v.numpy() for v in training.model.variables], weights)
    assert training.model.guard.failure() is None
    training.poison()
    training.train(training.bad)
    assert training.model.guard.failure().step == 2


def test_the_guard_is_in_no_checkpoint(folders, tmp_path):
    """Another run must not begin with a failure of this one."""
    model = task_of(folders, NAME).build_model()
    prefix = tf.train.Checkpoint(model=model, **model.checkpoint_items).write(str(tmp_path / "c"))
    keys = [np.prod(shape) for _, shape in tf.train.list_variables(prefix)]
    assert len(keys) > 20 and 16_384 not in keys


@pytest.fixture(scope="module")
def two_folders(tmp_path_factory, vocabulary):
    """Returns group -> settings, both with the default seed; the second folder has more records."""
    folder = tmp_path_factory.mktemp("two")
    found = {}
    for group, count in (("cmlm", 20), ("mlm", 60)):
        documents = [
            dataclasses.replace(document, id=f"{group}-{number}")
            for number, document in enumerate(make_documents(count, seed=count))
        ]
        write_records(folder / group, documents, vocabulary)
        found[group] = data(folder / group)
    return found


def _trainer(epochs, resolver=None, chief=True):
    """Stands for a trainer in `failed_step`."""
    extended = SimpleNamespace(
        should_checkpoint=chief, _in_multi_worker_mode=lambda: resolver is not None
    )
    return SimpleNamespace(
        optimizer=SimpleNamespace(learning_rate=0.5),
        model=SimpleNamespace(data_positions=SimpleNamespace(epochs=lambda: epochs)),
        strategy=SimpleNamespace(extended=extended, cluster_resolver=resolver),
    )


def _keys(epoch, numbers):
    """Returns the keys of example 1 of records, read with seed 0."""
    epoch_key = hashing.fold(tf.constant(0, tf.int64), epoch)
    return hashing.fold(hashing.fold(epoch_key, tf.constant(numbers)), 1).numpy()


def test_each_group_is_looked_up_in_its_own_records(two_folders, tmp_path, capsys):
    """Equal seeds give equal keys in both folders: only the group tells them apart."""
    numbers = {"cmlm": [4, 9], "mlm": [4, 45, 9]}
    epochs = {"cmlm": 7_000, "mlm": 0}
    keys = {group: _keys(epochs[group], each) for group, each in numbers.items()}
    failure = Failure(3, float("nan"), 1.0, keys, 0)
    error = failed_step(failure, _trainer(epochs), two_folders, str(tmp_path))
    found = json.loads((tmp_path / "failed_step.json").read_text())
    for group, each in numbers.items():
        # Records are written in the order of the documents.
        folder = two_folders[group].input_path
        names = [
            f"{folder}/{shard.name}#{number}"
            for shard in load_manifest(folder).shards
            for number in range(shard.records)
        ]
        assert found["records"][group] == [f"{names[n]} ({group}-{n})" for n in each]
        assert found["keys"][group] == keys[group].tolist()
    first = found["records"]["cmlm"][0]
    assert f"its batch is {first}, " in str(error) and "and 2 more" in str(error)
    assert f"({tmp_path}/failed_step.json lists all)" in str(error)
    assert capsys.readouterr().err.startswith("step 3: loss nan, ")


@pytest.mark.parametrize(
    ("task_id", "jobs", "chief", "name"),
    [
        (0, ["worker"], True, "failed_step.json"),
        (1, ["worker"], False, "failed_step.worker1.json"),
        (0, ["chief", "worker"], False, "failed_step.worker1.json"),
    ],
)
def test_workers_write_files_of_their_own(two_folders, tmp_path, task_id, jobs, chief, name):
    """Each knows its own share only, and says so; also when it does not remember all of it."""
    resolver = SimpleNamespace(task_id=task_id, cluster_spec=lambda: SimpleNamespace(jobs=jobs))
    failure = Failure(3, float("nan"), 1.0, {"mlm": _keys(0, [2])}, 40)
    trainer = _trainer({"mlm": 0}, resolver, chief)
    message = str(failed_step(failure, trainer, two_folders, str(tmp_path)))
    assert [path.name for path in tmp_path.glob("failed_step*")] == [name]
    found = json.loads((tmp_path / name).read_text())
    worker = 0 if chief else 1
    assert (found["worker"], found["examples_left_out"]) == (worker, 40)
    assert f"worker {worker}'s share of its batch is {found['records']['mlm'][0]} (" in message
    assert "lists these, but not the records of 40 more examples)" in message
