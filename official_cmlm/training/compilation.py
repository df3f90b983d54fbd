"""Whether XLA compiles the steps of a training whose `runtime.enable_xla` is null.

The decision is a function of the configuration and of the kind of device, never of a measured time:
XLA changes the last bits of a step, and random batches are padded to another length with it, where
dropout draws other masks. So a training that is repeated or resumed must decide alike: a resumed
one keeps what its folder says.
"""

import contextlib
import dataclasses
import math
from pathlib import Path

from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.yaml_loading import read_yaml
from official_cmlm.errors import UserError
from official_cmlm.training.config import PJRT, SentenceEncoderExperimentConfig


@dataclasses.dataclass(frozen=True)
class Decision:
    """Whether XLA compiles the steps, and why.

    Attributes:
      compiled: whether it does.
      reason: in words.
      possible: whether it could.
    """

    compiled: bool
    reason: str
    possible: bool = True

    def __str__(self) -> str:
        """The line that a training prints."""
        return f"XLA: {'on' if self.compiled else 'off'}, {self.reason} (runtime.enable_xla)"


def decide(params: SentenceEncoderExperimentConfig, num_gpus: int) -> Decision:
    """Decides for a new training.

    Args:
      params: the experiment.
      num_gpus: GPUs of this machine that it uses.
    """
    runtime, task = params.runtime, params.task
    data = [config for _, where, config in task.used_data() if where.endswith("train_data")]
    if runtime.distribution_strategy in ("tpu", PJRT):
        return Decision(
            False, f"{runtime.distribution_strategy} compiles every step by itself", False
        )
    if not num_gpus:
        several = runtime.distribution_strategy == "multi_worker_mirrored"
        return Decision(False, "on CPUs compiled steps are slower", not several)
    if not all(config.bucket_boundaries for config in data):
        # Random batches would all be padded to seq_length, and their last ones left out.
        return Decision(False, "random batches have no fixed shapes (bucket_boundaries)")
    shapes = step_shapes(data)
    if params.trainer.train_steps < _STEPS_A_SHAPE * shapes:
        return Decision(
            False,
            f"{params.trainer.train_steps} steps do not repay compiling {shapes} "
            f"shape{'s' if shapes > 1 else ''}",
        )
    return Decision(
        True, f"each of {shapes} shapes is compiled once" if shapes > 1 else "one shape"
    )


# Steps on a GPU after which the compilation of a shape, which takes tens of seconds, is repaid if
# each saves some tens of milliseconds. An estimate, not measured.
_STEPS_A_SHAPE = 1000


def step_shapes(data: list[DataConfig]) -> int:
    """Shapes that a step is compiled for at most: a bucket of each pipeline.

    Args:
      data: of each objective; equal ones share a pipeline.
    """
    different = {repr(config.as_dict()): config for config in data}
    return math.prod(max(1, len(config.bucket_boundaries)) for config in different.values())


def resumed(model_dir: str) -> Decision | None:
    """What the training in a folder decided that has a checkpoint; None if there is none."""
    # It only keeps a decision: what is wrong with these files is reported where they are used.
    with contextlib.suppress(UserError, OSError):
        if checkpoints_of(model_dir):
            values = read_yaml(Path(model_dir) / "params.yaml")
            runtime = values.get("runtime") if isinstance(values, dict) else None
            known = runtime.get("enable_xla") if isinstance(runtime, dict) else None
            if isinstance(known, bool):
                return Decision(known, f"as {model_dir} was begun")
    return None
