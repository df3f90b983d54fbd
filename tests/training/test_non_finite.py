"""A non-finite step changes nothing, and no step after it does."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.training.step import optimizer_variables
from tests.conftest import two_replicas
from tests.training.all_objectives import batch_of, task_of
from tests.training.helpers import optimizer_config
from tests.training.step_values import distribute

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
            batch = distribute(self.strategy, batch)
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
        pytest.param({"chunk_size": 3}, two_replicas, marks=pytest.mark.long),
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


def test_overflow_of_a_loss_scale_is_not_a_failure(folders):
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
    names = [name for name, _ in tf.train.list_variables(prefix)]
    assert len(names) > 20 and not [name for name in names if "guard" in name]
