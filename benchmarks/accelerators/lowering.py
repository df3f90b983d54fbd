"""Writes an experiment's training step, built by TensorFlow, into a file that JAX compiles."""

import json
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
from official.modeling import performance

from benchmarks.accelerators.cases import Case, overrides, write_records
from experiments import registry
from official_cmlm.training.jax_loop import portable_step
from official_cmlm.training.runtime import resolve_runtime
from official_cmlm.training.step import optimizer_variables
from official_cmlm.training.step_module import lower
from official_cmlm.training.task import SentenceEncoderTask


def write_step(
    case: Case, output: Path, params_override: str, platform: str = "tpu", examples: int = 0
) -> dict[str, Any]:
    """Builds an experiment with random weights and writes its whole training step.

    Args:
      case: the training to build.
      output: the file, see `jax_loop.portable_step`.
      params_override: further fields, as in `experiments.train`.
      platform: `tpu` or `cuda`; the case's remedies are for the memory of a TPU.
      examples: examples of a step; 0: the device's share of the published batch.

    Returns:
      `weights`, the number of trained weights; `batch`, name of a sequence -> shape of its tokens;
      `remat`, `vocabulary_block_size` and `dtype`.
    """
    with tempfile.TemporaryDirectory() as folder:
        published = registry.load(case.experiment)
        own = overrides(published, case, Path(folder), examples, platform == "tpu")
        file = Path(folder) / "own.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(own), encoding="utf-8")
        params, _ = resolve_runtime(registry.load(case.experiment, [str(file)], params_override))
        write_records(params, Path(folder))
        if params.runtime.mixed_precision_dtype:
            performance.set_mixed_precision_policy(params.runtime.mixed_precision_dtype)
        task = SentenceEncoderTask(params.task, static_shapes=True)
        features = next(iter(task.build_inputs(params.task.train_data)))
        model = task.build_model()
    optimizer = task.create_optimizer(params.trainer.optimization(), params.runtime)
    # The optimizers create this variable lazily; the step function must not create it.
    _ = optimizer.iterations
    metrics = task.build_metrics()

    def step(features: dict[str, dict]) -> None:
        task.train_step(features, model, optimizer, metrics)

    def variables() -> list[tf.Variable]:
        counted = (variable for metric in metrics for variable in metric.variables)
        return [*model.variables, *optimizer_variables(optimizer), *counted]

    module = lower(step, features, variables, platform)
    output.write_bytes(portable_step(module, features, platform))
    return {
        "weights": sum(v.shape.num_elements() for v in model.trainable_variables),
        "batch": {
            f"{group}/{name}": list(value["input_word_ids"].shape)
            for group, values in features.items()
            for name, value in values.items()
            if isinstance(value, dict)
        },
        "remat": params.task.encoder.remat,
        "vocabulary_block_size": max(
            getattr(objective, "vocabulary_block_size", 0) for objective in task.chosen.values()
        ),
        "dtype": params.runtime.mixed_precision_dtype or "float32",
    }
