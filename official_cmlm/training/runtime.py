"""The devices and the precision of a run, and whether XLA compiles its steps.

Where `runtime.enable_xla` is null, XLA's choice is a function of the configuration and of the kind
of device, never of a measured time: XLA changes the last bits of a step, and random batches are
padded to another length with it, where dropout draws other masks. So a training that is repeated or
resumed must make the same choice; a resumed training keeps the choice that is stored in its folder.
"""

import contextlib
import dataclasses
import math
from pathlib import Path

import tensorflow as tf
from official.common import distribute_utils
from official.core import config_definitions as cfg

from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.processor import hides_bfloat16, multiplies_bfloat16
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.yaml_loading import read_yaml
from official_cmlm.training.config import (
    ALL_GPUS,
    AUTO_PRECISION,
    PJRT,
    SentenceEncoderExperimentConfig,
)
from official_cmlm.training.jax_loop import choose_half_precision

_SEVERAL = ("mirrored", "multi_worker_mirrored")
_PRECISIONS = ("float32", "bfloat16", "float16")
# NVIDIA GPUs multiply float16 in tensor cores from this compute capability on.
_TENSOR_CORES = (7, 0)
# Steps on a GPU after which the compilation of a shape, which takes tens of seconds, is repaid if
# each saves some tens of milliseconds. An estimate, not measured.
_STEPS_A_SHAPE = 1000


def num_replicas(runtime: cfg.RuntimeConfig) -> int:
    """Returns the number of replicas of a run, as far as its configuration tells.

    TPU cores and other workers are known only when the run starts, which checks again.
    """
    return max(1, num_gpus(runtime)) if runtime.distribution_strategy in _SEVERAL else 1


def num_gpus(runtime: cfg.RuntimeConfig) -> int:
    """Returns the number of GPUs of this machine that a run uses; 0: its CPU."""
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
    count = len(tf.config.list_physical_devices("GPU"))
    return min(count, 1) if runtime.distribution_strategy == "one_device" else count


@dataclasses.dataclass(frozen=True)
class XlaChoice:
    """The decision whether XLA compiles the steps, and its reason.

    Attributes:
      compiled: whether XLA compiles the steps.
      reason: in words.
      possible: whether XLA could compile the steps.
    """

    compiled: bool
    reason: str
    possible: bool = True

    def __str__(self) -> str:
        """Returns the line that a training prints."""
        return f"XLA: {'on' if self.compiled else 'off'}, {self.reason} (runtime.enable_xla)"


def choose_xla(
    params: SentenceEncoderExperimentConfig, num_gpus: int, model_dir: str = ""
) -> XlaChoice:
    """Chooses whether XLA compiles the steps of a training whose `runtime.enable_xla` is null.

    Args:
      num_gpus: GPUs of this machine that the training uses.
      model_dir: the training's folder; if it is resumed there, it keeps its choice. Empty: none.
    """
    choice = _choice_of_new(params, num_gpus)
    earlier = _read_choice(model_dir) if model_dir else None
    # On other devices than before, the kept choice may not be possible.
    return earlier if earlier and (choice.possible or not earlier.compiled) else choice


def _choice_of_new(params: SentenceEncoderExperimentConfig, num_gpus: int) -> XlaChoice:
    runtime, task = params.runtime, params.task
    data = [config for _, where, config in task.list_data() if where.endswith("train_data")]
    if runtime.distribution_strategy in ("tpu", PJRT):
        return XlaChoice(
            False, f"{runtime.distribution_strategy} compiles every step itself", False
        )
    if not num_gpus:
        several = runtime.distribution_strategy == "multi_worker_mirrored"
        return XlaChoice(False, "on CPUs compiled steps are slower", not several)
    if not all(config.bucket_boundaries for config in data):
        # Random batches would all be padded to seq_length, and their last ones left out.
        return XlaChoice(False, "random batches have no fixed shapes (bucket_boundaries)")
    shapes = step_shapes(data)
    if params.trainer.train_steps < _STEPS_A_SHAPE * shapes:
        return XlaChoice(
            False,
            f"{params.trainer.train_steps} steps do not repay compiling {shapes} "
            f"shape{'s' if shapes > 1 else ''}",
        )
    return XlaChoice(
        True, f"each of {shapes} shapes is compiled once" if shapes > 1 else "one shape"
    )


def step_shapes(data: list[DataConfig]) -> int:
    """Returns the maximum number of distinct step shapes: one for each combination of buckets."""
    different = {repr(config.as_dict()): config for config in data}
    return math.prod(max(1, len(config.bucket_boundaries)) for config in different.values())


def compilation_notes(params: SentenceEncoderExperimentConfig) -> list[str]:
    """Returns a line that says how often XLA compiles the step, if more than once."""
    by_field = {w: data for _, w, data in params.task.list_data() if w.endswith("train_data")}
    times = step_shapes(list(by_field.values()))
    if times == 1 or not is_compiled(params.runtime):
        return []
    several = [
        f"{w}.bucket_boundaries" for w, data in by_field.items() if len(data.bucket_boundaries) > 1
    ]
    return [
        f"XLA compiles the step {times} times, each time when batches of a new length come; one "
        f"number in {list_names(several)} compiles it once, and pads all batches to that length"
    ]


def _read_choice(model_dir: str) -> XlaChoice | None:
    """Returns the choice that an earlier run stored in model_dir, or None without a checkpoint."""
    # A damaged or foreign file is reported where it is used.
    with contextlib.suppress(UserError, OSError):
        if checkpoints_of(model_dir):
            values = read_yaml(Path(model_dir) / "params.yaml")
            runtime = values.get("runtime") if isinstance(values, dict) else None
            compiled = runtime.get("enable_xla") if isinstance(runtime, dict) else None
            if isinstance(compiled, bool):
                return XlaChoice(compiled, f"as {model_dir} was begun")
    return None


def resolve_runtime(
    params: SentenceEncoderExperimentConfig, model_dir: str = ""
) -> tuple[SentenceEncoderExperimentConfig, XlaChoice | None]:
    """Resolves the settings that depend on this machine.

    The number of GPUs, the precision and whether XLA compiles the step are made explicit.

    Returns:
      The experiment, and the choice where `runtime.enable_xla` was null.

    Raises:
      UserError: if the step cannot be compiled, or the precision is unknown.
    """
    runtime, choice = params.runtime.replace(num_gpus=num_gpus(params.runtime)), None
    runtime = runtime.replace(mixed_precision_dtype=_precision(runtime))
    name = runtime.distribution_strategy
    if runtime.enable_xla is None:
        choice = choose_xla(params, runtime.num_gpus, model_dir)
        runtime = runtime.replace(enable_xla=choice.compiled)
    if name == PJRT:
        # JAX compiles the whole step; TensorFlow must not compile parts of it.
        runtime = runtime.replace(enable_xla=False)
    elif runtime.enable_xla and name == "mirrored" and runtime.num_gpus <= 1:
        # One device needs no merging of replicas, which XLA cannot compile on a CPU.
        runtime = runtime.replace(distribution_strategy="one_device")
    elif runtime.enable_xla and name == "multi_worker_mirrored" and not runtime.num_gpus:
        raise UserError(
            f"runtime.enable_xla: XLA cannot compile a step of {name} on CPUs; set it to false, or "
            "runtime.distribution_strategy to one_device"
        )
    return params.replace(runtime=runtime), choice


def is_compiled(runtime: cfg.RuntimeConfig) -> bool:
    """Returns whether XLA compiles training steps, whose shapes must then be static."""
    return bool(runtime.enable_xla) or runtime.distribution_strategy in ("tpu", PJRT)


def _precision(runtime: cfg.RuntimeConfig) -> str | None:
    """Returns Model Garden's name of a precision; Keras's `mixed_…` names are accepted too."""
    dtype, scale = runtime.mixed_precision_dtype, runtime.loss_scale
    if dtype == AUTO_PRECISION:
        dtype = _half_precision(runtime)
    if not dtype:
        return None
    name = dtype.removeprefix("mixed_")
    if name not in _PRECISIONS:
        raise UserError(
            f"runtime.mixed_precision_dtype is {dtype!r}; choose one of "
            f"{', '.join((*_PRECISIONS, AUTO_PRECISION))}"
        )
    if scale not in (None, "dynamic") and not (isinstance(scale, (int, float)) and scale > 0):
        raise UserError(f"runtime.loss_scale must be `dynamic` or a number above 0, got {scale!r}")
    if name != "float32" and _on_cpu(runtime) and multiplies_bfloat16() and hides_bfloat16():
        raise UserError(
            f"runtime.mixed_precision_dtype {name}: TensorFlow crashes with it under "
            f"{hides_bfloat16()}; unset that, or set float32"
        )
    return name


def _on_cpu(runtime: cfg.RuntimeConfig) -> bool:
    return not runtime.num_gpus and runtime.distribution_strategy not in ("tpu", PJRT)


def _half_precision(runtime: cfg.RuntimeConfig) -> str | None:
    """Returns the half precision that the devices compute faster; None: none."""
    if runtime.distribution_strategy == "tpu":
        return "bfloat16"
    if runtime.distribution_strategy == PJRT:
        return choose_half_precision()
    if _on_cpu(runtime):
        return "bfloat16" if multiplies_bfloat16() and not hides_bfloat16() else None
    gpus = tf.config.list_physical_devices("GPU")[: runtime.num_gpus]
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    capable = [facts.get("compute_capability", (0, 0)) >= _TENSOR_CORES for facts in details]
    return "float16" if gpus and all(capable) else None


def devices(strategy: tf.distribute.Strategy) -> str:
    """Returns a readable description of a strategy's devices, e.g. `8 GPUs`."""
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
    """Returns whether this process is the chief worker, which writes checkpoints and reports."""
    return strategy.extended.should_checkpoint
