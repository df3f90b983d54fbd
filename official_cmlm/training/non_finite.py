"""Stops training at a non-finite loss: the step and those after it are not applied.

The error names the records of the step. The code that runs inside the compiled step uses no host
callbacks, no strings and only static shapes.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.integrity import last_checkpoint
from official_cmlm.common.errors import UserError, named
from official_cmlm.common.files import write_json
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.record_names import document_ids, record_names
from official_cmlm.records.manifest import load_folders
from official_cmlm.training.runtime import is_chief

# Most example keys that a replica stores, in equal parts for its groups: int64, 128 KiB.
MOST_KEYS = 16_384
_NONE = -1


@dataclasses.dataclass(frozen=True)
class Failure:
    """A step with a non-finite loss or gradient norm.

    Attributes:
      step: counted from 1.
      loss, gradient_norm: of the global batch; the norm is measured before clipping.
      keys: group -> int64 `[examples]`, example keys of this host's replicas, see `inputs.hashing`.
      left_out: number of examples whose keys were not stored, see `MOST_KEYS`.
    """

    step: int
    loss: float
    gradient_norm: float
    keys: dict[str, np.ndarray]
    left_out: int


class FiniteGuard:
    """A store of the first non-finite step, which is not saved in checkpoints.

    Create it in the scope of the model's distribution strategy.

    Attributes:
      variables: all variables that it uses.
    """

    def __init__(self) -> None:
        # Each replica has its own copies, which are equal except for the keys.
        self._step = _own_variable(tf.constant(_NONE, tf.int64))
        self._values = _own_variable(tf.zeros([2]))
        self._keys = _own_variable(tf.fill([MOST_KEYS], tf.constant(_NONE, tf.int64)))
        self._left_out = _own_variable(tf.constant(0, tf.int64))
        self.variables = [self._step, self._values, self._keys, self._left_out]
        # The groups of the traced step, in the order of the stored keys.
        self._groups: tuple[str, ...] = ()

    def allows(
        self,
        loss: tf.Tensor,
        norm: tf.Tensor,
        scaled: bool,
        iterations: tf.Tensor,
        features: dict[str, dict],
    ) -> tf.Tensor:
        """Returns whether this step may be applied: bool scalar, equal on all replicas.

        Args:
          loss: loss of the global batch, float32 scalar.
          norm: norm of the global batch's gradients, float32 scalar.
          scaled: whether the loss is scaled. Non-finite gradients are then normal, and only the
            loss is checked.
          iterations: steps before this one, int64 scalar.
          features: group -> features, with `key`, of this replica.
        """
        finite = tf.math.is_finite(loss)
        if not scaled:
            finite = tf.logical_and(finite, tf.math.is_finite(norm))
        before = tf.equal(self._step, _NONE)
        self._groups = tuple(sorted(features))

        def remember() -> tf.Tensor:
            self._remember_keys([features[group]["key"] for group in self._groups])
            self._values.assign(tf.stack([loss, norm]))
            self._step.assign(tf.cast(iterations, tf.int64) + 1)
            return tf.constant(False)

        first = tf.logical_and(before, tf.logical_not(finite))
        return tf.cond(first, remember, lambda: tf.logical_and(before, finite))

    def _remember_keys(self, keys: list[tf.Tensor]) -> None:
        """Stores `keys`, int64 `[examples]` of each group."""
        room = MOST_KEYS // len(keys)
        parts, left_out = [], tf.constant(0, tf.int64)
        for each in keys:
            count = tf.shape(each)[0]
            rest = tf.fill([tf.maximum(room - count, 0)], tf.constant(_NONE, tf.int64))
            parts.append(tf.ensure_shape(tf.concat([each[:room], rest], axis=0), [room]))
            left_out += tf.cast(tf.maximum(count - room, 0), tf.int64)
        unused = tf.fill([MOST_KEYS - room * len(keys)], tf.constant(_NONE, tf.int64))
        self._keys.assign(tf.concat([*parts, unused], axis=0))
        self._left_out.assign(left_out)

    def failure(self) -> Failure | None:
        """Returns the stored failure, read by the host; None if all steps were finite."""
        step = int(_values_of(self._step)[0])
        if step == _NONE:
            return None
        loss, norm = _values_of(self._values)[0]
        stored, room = np.stack(_values_of(self._keys)), MOST_KEYS // len(self._groups)
        keys = {}
        for number, group in enumerate(self._groups):
            own = stored[:, number * room : (number + 1) * room].ravel()
            keys[group] = own[own != _NONE]
        left_out = sum(int(value) for value in _values_of(self._left_out))
        return Failure(step, float(loss), float(norm), keys, left_out)


def _own_variable(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _values_of(variable: tf.Variable) -> list[np.ndarray]:
    strategy = tf.distribute.get_strategy()
    strategy = getattr(variable, "distribute_strategy", strategy)
    return [value.numpy() for value in strategy.experimental_local_results(variable)]


def failed_step(
    failure: Failure, trainer: Any, data: dict[str, DataConfig], model_dir: str
) -> UserError:
    """Writes `failed_step.json` into the model directory; returns the error that stops training.

    Each worker knows only its own share of the batch and writes its own file. The file of a
    non-chief worker has the worker's number in its name, e.g. `failed_step.worker1.json`.
    """
    rate = trainer.optimizer.learning_rate
    rate = float(rate(failure.step - 1) if callable(rate) else rate)
    what = (
        f"step {failure.step}: loss {failure.loss:g}, gradient norm {failure.gradient_norm:g}, "
        f"learning rate {rate:g}; the step was not applied"
    )
    # Reading the record ids can take a while.
    print(f"{what}; looking for its records", file=sys.stderr, flush=True)
    epochs = trainer.model.data_positions.epochs()
    records = {
        group: _records(keys, data[group], epochs[group]) for group, keys in failure.keys.items()
    }
    worker = _worker(trainer.strategy)
    values = {
        "step": failure.step,
        "loss": repr(failure.loss),
        "gradient_norm": repr(failure.gradient_norm),
        "learning_rate": rate,
        "worker": worker,
        "records": records,
        "keys": {group: keys.tolist() for group, keys in failure.keys.items()},
        "examples_left_out": failure.left_out,
    }
    name = "failed_step.json" if worker == 0 else f"failed_step.worker{worker}.json"
    path = Path(model_dir) / name
    write_json(path, values)
    names = list(dict.fromkeys(name for group in records.values() for name in group))
    all_of_them = "all"
    if failure.left_out:
        all_of_them = f"these, but not the records of {failure.left_out} more examples"
    share = "its batch is"
    if trainer.strategy.extended._in_multi_worker_mode():
        share = f"worker {worker}'s share of its batch is"
    return UserError(
        f"{what}; {share} {named(names)} ({path} lists {all_of_them}); "
        f"{last_checkpoint(model_dir)}; lower the learning rate, or correct these records, then "
        "run the same command to resume"
    )


def _worker(strategy: Any) -> int:
    """Returns this worker's number; 0 is the chief."""
    resolver = strategy.cluster_resolver
    if is_chief(strategy) or resolver is None:
        return 0
    # In a cluster with a job `chief`, the other workers are numbered from 0 again.
    return resolver.task_id + ("chief" in resolver.cluster_spec().jobs)


def _records(keys: np.ndarray, config: DataConfig, epoch: int) -> list[str]:
    """Returns `folder/shard#number (id)` of each record, once; `key N` for an unknown record."""
    names = record_names(keys, config, load_folders(config.folders()), epoch)
    ids = document_ids(name for name in names if name is not None)
    lines = []
    for key, name in zip(keys.tolist(), names):
        document_id = f" ({ids[name]})" if ids.get(name) else ""
        lines.append(f"key {key}" if name is None else f"{name}{document_id}")
    return list(dict.fromkeys(lines))
