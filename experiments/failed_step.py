"""Tells a person which step was not finite, and which records its batch was made from."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.full_disk import last_checkpoint
from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.record_names import document_id, record_names
from official_cmlm.records.manifest import load_manifest
from official_cmlm.tasks.finite import Failure

FAILED_NAME = "failed_step.json"
# Records that the message itself names; the file has all.
_SHOWN = 3


def failed_step(
    failure: Failure, trainer: Any, data: list[DataConfig], model_dir: str
) -> UserError:
    """The error that stops a training; also writes `failed_step.json` into the model directory.

    Args:
      failure: the step.
      trainer: that took it.
      data: what the batch may have been read from.
      model_dir: the folder.
    """
    rate = trainer.optimizer.learning_rate
    rate = float(rate(failure.step - 1) if callable(rate) else rate)
    records = _records(failure.keys, data)
    values = {
        "step": failure.step,
        "loss": repr(failure.loss),
        "gradient_norm": repr(failure.gradient_norm),
        "learning_rate": rate,
        "records": records,
        "keys": failure.keys.tolist(),
    }
    path = Path(model_dir) / FAILED_NAME
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    more = f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else ""
    return UserError(
        f"step {failure.step}: loss {failure.loss:g}, gradient norm {failure.gradient_norm:g}, "
        f"learning rate {rate:g}; the step was not applied; its batch is "
        f"{', '.join(records[:_SHOWN])}{more} ({path} lists all); {last_checkpoint(model_dir)}; "
        "lower the learning rate, or mend these records, and train on"
    )


def _records(keys: np.ndarray, data: list[DataConfig]) -> list[str]:
    """`folder/shard#number (id)` of each record, once; the key where none fits."""
    known: dict[int, str] = {}
    for config in data:
        manifest = load_manifest(config.input_path)
        left = np.array([key for key in keys if int(key) not in known], np.int64)
        for key, name in zip(left, record_names(left, config, manifest)):
            if name is not None:
                source = document_id(config.input_path, name)
                suffix = f" ({source})" if source else ""
                known[int(key)] = f"{config.input_path}/{name}{suffix}"
    return list(dict.fromkeys(known.get(int(key), f"key {key}") for key in keys))
