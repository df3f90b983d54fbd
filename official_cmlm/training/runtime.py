"""The devices and the precision of a run, and whether XLA compiles its step."""

import tensorflow as tf
from official.common import distribute_utils
from official.core import config_definitions as cfg

from official_cmlm.errors import UserError
from official_cmlm.training.compilation import Decision, decide, resumed
from official_cmlm.training.config import ALL_GPUS, PJRT, SentenceEncoderExperimentConfig

_SEVERAL = ("mirrored", "multi_worker_mirrored")
_PRECISIONS = ("float32", "bfloat16", "float16")


def num_replicas(runtime: cfg.RuntimeConfig) -> int:
    """Number of replicas of a run, as far as its configuration tells.

    TPU cores and other workers are known only when the run starts, which checks again.
    """
    return max(1, num_gpus(runtime)) if runtime.distribution_strategy in _SEVERAL else 1


def num_gpus(runtime: cfg.RuntimeConfig) -> int:
    """Number of GPUs of this machine that a run uses; 0: its CPU."""
    if runtime.distribution_strategy == PJRT:
        if runtime.num_gpus > 1:
            raise UserError(
                f"runtime.num_gpus is {runtime.num_gpus}, but runtime.distribution_strategy pjrt "
                "trains on one device; set it to 1, or the strategy to mirrored"
            )
        # TensorFlow's own part runs on the CPU.
        return 0
    if runtime.num_gpus != ALL_GPUS:
        return runtime.num_gpus
    found = len(tf.config.list_physical_devices("GPU"))
    return min(found, 1) if runtime.distribution_strategy == "one_device" else found


def xla_decision(params: SentenceEncoderExperimentConfig, model_dir: str) -> Decision:
    """Whether XLA compiles the steps if `runtime.enable_xla` is null; see `compilation`.

    Args:
      params: the experiment.
      model_dir: its folder; a training that goes on there keeps its decision. Empty: none.
    """
    found = decide(params, num_gpus(params.runtime))
    kept = resumed(model_dir) if model_dir else None
    # On other devices it may not be possible.
    return kept if kept and (found.possible or not kept.compiled) else found


def prepared(params: SentenceEncoderExperimentConfig) -> SentenceEncoderExperimentConfig:
    """Resolves the settings that depend on this machine.

    The number of GPUs, the precision and whether XLA compiles the step are made explicit. Shapes
    become static where it does, as always on a TPU.

    Raises:
      UserError: if the step cannot be compiled, or the precision is unknown.
    """
    runtime = params.runtime
    runtime = runtime.replace(num_gpus=num_gpus(runtime), mixed_precision_dtype=_precision(runtime))
    name = runtime.distribution_strategy
    if runtime.enable_xla is None:
        runtime = runtime.replace(enable_xla=decide(params, runtime.num_gpus).compiled)
    if not (runtime.enable_xla or name in ("tpu", PJRT)):
        return params.replace(runtime=runtime)
    if name == PJRT:
        # JAX compiles the whole step; TensorFlow must not compile parts of it.
        runtime = runtime.replace(enable_xla=False)
    elif name == "mirrored" and runtime.num_gpus <= 1:
        # One device needs no merging of replicas, which XLA cannot compile on a CPU.
        runtime = runtime.replace(distribution_strategy="one_device")
    elif name == "multi_worker_mirrored" and not runtime.num_gpus:
        raise UserError(
            f"runtime.enable_xla: XLA cannot compile a step of {name} on CPUs; set it to false, or "
            "runtime.distribution_strategy to one_device"
        )
    task = params.task.replace(static_shapes=True)
    if name == "tpu":
        # It compiles validation too.
        task = task.replace(static_validation=True)
    return params.replace(runtime=runtime, task=task)


def _precision(runtime: cfg.RuntimeConfig) -> str | None:
    """Model Garden's name of a precision; Keras's `mixed_…` names are accepted too."""
    dtype, scale = runtime.mixed_precision_dtype, runtime.loss_scale
    if not dtype:
        return None
    name = dtype.removeprefix("mixed_")
    if name not in _PRECISIONS:
        raise UserError(
            f"runtime.mixed_precision_dtype is {dtype!r}; choose one of {', '.join(_PRECISIONS)}"
        )
    if scale not in (None, "dynamic") and not (isinstance(scale, (int, float)) and scale > 0):
        raise UserError(f"runtime.loss_scale must be `dynamic` or a number above 0, got {scale!r}")
    return name


def devices(strategy: tf.distribute.Strategy) -> str:
    """Readable description of a strategy's devices, e.g. `8 GPUs`."""
    kinds = [tf.DeviceSpec.from_string(d).device_type for d in strategy.extended.worker_devices]
    workers = strategy.num_replicas_in_sync // len(kinds)
    text = f"{len(kinds)} {kinds[0]}{'s' if len(kinds) > 1 else ''}"
    return text if workers == 1 else f"{workers} workers of {text}"


def create_strategy(runtime: cfg.RuntimeConfig) -> tf.distribute.Strategy:
    """Creates the distribution strategy of a configuration.

    Call it before TensorFlow runs anything else, as multi-worker strategies require.

    Raises:
      UserError: if it cannot be created.
    """
    name = runtime.distribution_strategy
    if name == "tpu" and runtime.tpu is None:
        raise UserError(
            "runtime.distribution_strategy is tpu but no TPU is named; pass --tpu=…, or set "
            "runtime.distribution_strategy to mirrored or one_device"
        )
    if name == PJRT:
        # TensorFlow would reserve the GPU memory that JAX needs.
        tf.config.set_visible_devices([], "GPU")
        return tf.distribute.OneDeviceStrategy("CPU:0")
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
    """Whether this process is the chief worker, which writes checkpoints and reports."""
    return strategy.extended.should_checkpoint
