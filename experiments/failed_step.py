"""Tells a person which step was not finite, and which records its batch was made from."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.full_disk import last_checkpoint
from experiments.runtime import is_chief
from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.record_names import document_ids, record_names
from official_cmlm.records.manifest import load_manifest
from official_cmlm.tasks.finite import Failure

FAILED_NAME = "failed_step.json"
# Records that the message itself names; the file has all.
_SHOWN = 3


def failed_step(
    failure: Failure, trainer: Any, data: dict[str, DataConfig], model_dir: str
) -> UserError:
    """The error that stops a training; also writes `failed_step.json` into the model directory.

    Of several workers each knows its own share of the batch and writes a file of its own; all but
    the first one's have the worker's number in their name, `failed_step.worker1.json`.

    Args:
      failure: the step.
      trainer: that took it.
      data: group -> what its batches are read from.
      model_dir: the folder.
    """
    rate = trainer.optimizer.learning_rate
    rate = float(rate(failure.step - 1) if callable(rate) else rate)
    what = (
        f"step {failure.step}: loss {failure.loss:g}, gradient norm {failure.gradient_norm:g}, "
        f"learning rate {rate:g}; the step was not applied"
    )
    # Reading the records' ids can take a while.
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
    name = FAILED_NAME if worker == 0 else f"failed_step.worker{worker}.json"
    path = Path(model_dir) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    named = list(dict.fromkeys(name for group in records.values() for name in group))
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    all_of_them = "all"
    if failure.left_out:
        all_of_them = f"these, and not those of {failure.left_out} more examples"
    share = "its batch is"
    if trainer.strategy.extended._in_multi_worker_mode():
        share = f"worker {worker}'s share of its batch is"
    return UserError(
        f"{what}; {share} {', '.join(named[:_SHOWN])}{more} ({path} lists {all_of_them}); "
        f"{last_checkpoint(model_dir)}; lower the learning rate, or mend these records, "
        "and train on"
    )


def _worker(strategy: Any) -> int:
    """This worker's number; 0 is the one that writes the checkpoints."""
    resolver = strategy.cluster_resolver
    if is_chief(strategy) or resolver is None:
        return 0
    # Where there is a chief by name, the workers are numbered from 0 beside it.
    return resolver.task_id + ("chief" in resolver.cluster_spec().jobs)


def _records(keys: np.ndarray, config: DataConfig, epoch: int) -> list[str]:
    """`folder/shard#number (id)` of each record, once; the key where none fits."""
    folder = config.input_path
    names = record_names(keys, config, load_manifest(folder), epoch)
    ids = document_ids(folder, (name for name in names if name is not None))
    lines = []
    for key, name in zip(keys.tolist(), names):
        source = f" ({ids[name]})" if ids.get(name) else ""
        lines.append(f"key {key}" if name is None else f"{folder}/{name}{source}")
    return list(dict.fromkeys(lines))
