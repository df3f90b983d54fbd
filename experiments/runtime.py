"""On what a run computes: its devices, and whether XLA compiles the step."""

import tensorflow as tf
from official.common import distribute_utils
from official.core import config_definitions as cfg

from official_cmlm.errors import UserError
from official_cmlm.tasks.config import SentenceEncoderExperimentConfig

_SEVERAL = ("mirrored", "multi_worker_mirrored")


def num_replicas(runtime: cfg.RuntimeConfig) -> int:
    """How many replicas a run will have, as far as its configuration says.

    A TPU's cores and other workers are known only to the run itself, which checks again.
    """
    return max(1, runtime.num_gpus) if runtime.distribution_strategy in _SEVERAL else 1


def prepared(params: SentenceEncoderExperimentConfig) -> SentenceEncoderExperimentConfig:
    """The experiment with static shapes where XLA compiles its step, as on a TPU it always does.

    Raises:
      UserError: if the step cannot be compiled.
    """
    runtime = params.runtime
    name = runtime.distribution_strategy
    if not (runtime.enable_xla or name == "tpu"):
        return params
    if params.task.chunk_size:
        raise UserError(
            f"task.chunk_size is {params.task.chunk_size}, but XLA compiles no step in chunks of "
            "unequal size; set it to 0, or runtime.enable_xla to false"
        )
    if name in _SEVERAL and not runtime.num_gpus:
        raise UserError(
            f"runtime.enable_xla: XLA compiles no step that {name} divides among CPUs; set it to "
            "false, or runtime.distribution_strategy to one_device"
        )
    return params.replace(task=params.task.replace(static_shapes=True))


def create_strategy(runtime: cfg.RuntimeConfig) -> tf.distribute.Strategy:
    """The strategy that a configuration names; before anything else runs, as workers demand.

    Raises:
      UserError: if it cannot be.
    """
    name = runtime.distribution_strategy
    if name == "tpu" and runtime.tpu is None:
        raise UserError(
            "runtime.distribution_strategy is tpu but no TPU is named; pass --tpu=…, or set "
            "runtime.distribution_strategy to mirrored or one_device"
        )
    try:
        return distribute_utils.get_distribution_strategy(
            distribution_strategy=name,
            all_reduce_alg=runtime.all_reduce_alg,
            num_gpus=runtime.num_gpus,
            tpu_address=runtime.tpu,
        )
    except ValueError as error:
        raise UserError(f"runtime.distribution_strategy={name}: {error}") from None


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes."""
    return strategy.extended.should_checkpoint
