"""Writes a training into a folder in which `run_lowered.py` trains by JAX, without TensorFlow.

The folder is an encoder directory, whose weights that program writes. Besides, it holds:

    lowered.json             variables, metrics and steps, by the indices that all files use
    step_N_PLATFORM.bin      a step for the shapes of some batches, see `jax_loop.portable_step`
    batches.npz              tensor I of batch B as `B/I`, integers in the smallest type
    state.npz                variable I as `I`, where `lowered.json` does not say its value
"""

import json
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, atomic_write_text
from official_cmlm.modeling.language_model_head import head_variables
from official_cmlm.modeling.sentence_encoder import encoder_variables
from official_cmlm.training.config import AUTO_PRECISION, PJRT, SentenceEncoderExperimentConfig
from official_cmlm.training.jax_loop import AHEAD, COMPILER_OPTIONS, portable_step
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.run import describe_run, prepare

CONTENTS = "lowered.json"
# Weights of fewer numbers are never drawn again.
_SMALL = 4096


def write_lowered(
    params: SentenceEncoderExperimentConfig,
    folder: str,
    program: Path,
    num_batches: int = 0,
    platforms: Sequence[str] = ("cpu",),
    redraw: bool = False,
) -> None:
    """Lowers a training's steps and writes them with its batches and its initial variables.

    Args:
      params: the experiment; its runtime is replaced by `pjrt`, and precision `auto` by bfloat16.
      folder: folder to write.
      program: the program that trains there, which is copied beside the steps.
      num_batches: batches to write; 0: one for each training step.
      platforms: JAX's names of the kinds of device that may train.
      redraw: whether large random weights are left out: the program draws others of the same mean
        and deviation.

    Raises:
      UserError: as a training does; if the folder is in use; if weights are to be drawn that
        `init_checkpoint` gives.
    """
    if Path(folder, CONTENTS).exists():
        raise UserError(f"{folder}: holds a lowered training already; name another folder")
    if redraw and params.task.init_checkpoint:
        raise UserError("redraw: the weights of task.init_checkpoint are not random; leave it out")
    runtime = params.runtime.replace(distribution_strategy=PJRT)
    if runtime.mixed_precision_dtype == AUTO_PRECISION:
        runtime = runtime.replace(mixed_precision_dtype="bfloat16")
    run = prepare(params.replace(runtime=runtime), "train", folder)
    with run.guard():
        trainer = run.build_trainer(None)
        describe_run(run.params, run.task, run.mode, folder)
        trainer.initialize()
        steps, count = {}, num_batches or run.params.trainer.train_steps
        batches, order = iter(trainer.train_dataset), []
        with (
            atomic_write(Path(folder, "batches.npz")) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
            progress.bar(count, "batch", "writing batches") as bar,
        ):
            for number in range(count):
                batch = next(batches)
                tensors = tf.nest.flatten(batch)
                shapes = tuple((tuple(t.shape), t.dtype) for t in tensors)
                if shapes not in steps:
                    # A step for CUDA differs from others, but not in its variables and their order.
                    modules = {
                        cuda: trainer.device_loop.lower(batch, "cuda" if cuda else "")
                        for cuda in {platform == "cuda" for platform in platforms} or {False}
                    }
                    steps[shapes] = len(steps), next(iter(modules.values()))
                    for platform in platforms:
                        step = portable_step(modules[platform == "cuda"], batch, platform)
                        Path(folder, f"step_{len(steps) - 1}_{platform}.bin").write_bytes(step)
                order.append(steps[shapes][0])
                for i, tensor in enumerate(tensors):
                    with archive.open(f"{number}/{i}.npy", "w") as member:
                        np.save(member, _narrow(tensor.numpy()))
                bar.update()
        modules = [module for _, module in steps.values()]
        weights, metrics = _weights(trainer.model), trainer.step_metrics
        variables = _Variables(
            [*(v for m in modules for v in m.captured if isinstance(v, tf.Variable))],
            [*weights.values(), *(v for m in metrics for v in m.variables)],
        )
        drawn = {v.ref() for v in trainer.model.trainable_variables} if redraw else set()
        described, state = _describe(variables.list, drawn)
        with atomic_write(Path(folder, "state.npz")) as file:
            np.savez_compressed(file, **state)
        guard = trainer.model.guard.variables
        contents = {
            "train_steps": run.params.trainer.train_steps,
            "ahead": AHEAD,
            "compiler_options": COMPILER_OPTIONS,
            "batches": order,
            "variables": described,
            "steps": [
                {
                    "updated": variables.find(module.captured[i] for i in module.updated),
                    "read": variables.find(module.captured[i] for i in module.read),
                }
                for module in modules
            ],
            "names": [".".join(path) for path, _ in _paths(batch)],
            "encoder": run.task.encoder_config.as_dict(),
            "metrics": {m.name: variables.find(m.variables) for m in metrics},
            "guard": variables.find(guard),
            "weights": dict(zip(weights, variables.find(weights.values()))),
        }
    shutil.copy(program, folder)
    atomic_write_text(Path(folder, CONTENTS), json.dumps(contents))


class _Variables:
    """Variables, each once, in order.

    Attributes:
      list: the variables.
    """

    def __init__(self, *parts: Iterable[tf.Variable]) -> None:
        self.list = list({v.ref(): v for part in parts for v in part}.values())
        self._places = {v.ref(): i for i, v in enumerate(self.list)}

    def find(self, variables: Iterable[tf.Variable]) -> list[int]:
        """Returns the places of variables in `list`."""
        return [self._places[v.ref()] for v in variables]


def _weights(model: MultiObjectiveModel) -> dict[str, tf.Variable]:
    """Returns the variables that an encoder directory stores, by name: see `encoder_weights`."""
    weights = dict(encoder_variables(model.encoder))
    if model.head is not None:
        weights |= {f"language_model_head/{k}": v for k, v in head_variables(model.head).items()}
    places = {f"objectives/{name}/": p for name, p in model.projections.items()}
    if model.encoder.projection is not None:
        places[""] = model.encoder.projection
    for place, projection in places.items():
        for kind, variables in (("kernel", projection.kernels), ("bias", projection.biases)):
            weights |= {f"{place}projection/{kind}_{i}": v for i, v in enumerate(variables)}
    return weights


def _describe(
    variables: Sequence[tf.Variable], drawn: set[Any]
) -> tuple[list[dict], dict[str, np.ndarray]]:
    """Returns what `lowered.json` says of each variable, and the values that it does not say."""
    rows, state = [], {}
    for i, variable in enumerate(variables):
        value = variable.numpy()
        row = {"shape": list(value.shape), "dtype": value.dtype.name}
        if value.size and (value == value.flat[0]).all():
            row["fill"] = value.flat[0].item()
        elif variable.ref() in drawn and value.size >= _SMALL:
            row["normal"] = [float(value.mean()), float(value.std())]
        else:
            state[str(i)] = value
        rows.append(row)
    return rows, state


def _paths(features: dict, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Returns (path, tensor) of nested features in the order of `tf.nest.flatten`."""
    if not isinstance(features, dict):
        return [(path, features)]
    return [row for name in sorted(features) for row in _paths(features[name], (*path, name))]


def _narrow(array: np.ndarray) -> np.ndarray:
    """Returns integers in the smallest type that holds them; the program widens them again."""
    if array.dtype.kind not in "iu" or not array.size:
        return array
    low, high = np.min_scalar_type(array.min()), np.min_scalar_type(array.max())
    dtype = np.promote_types(low, high)
    # No integer type holds a number below zero beside one of 64 bits.
    return array.astype(dtype) if dtype.kind in "iu" else array
