"""The configuration of a whole experiment."""

import dataclasses
from typing import Annotated, Any

from official.core import config_definitions as cfg
from official.modeling import optimization
from official.modeling.hyperparams import base_config

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import at_least, between, check_fields
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.configs.schedule import ScheduleConfig, with_schedule
from official_cmlm.objectives import ObjectiveConfig, objectives


def get_objectives(config: base_config.Config) -> dict[str, ObjectiveConfig]:
    """Returns the objectives that an `ObjectivesConfig` sets, by name, but none set to null."""
    return {
        name: getattr(config, name) for name in objectives() if getattr(config, name) is not None
    }


# One optional field per objective; registering an objective adds its field.
ObjectivesConfig = dataclasses.make_dataclass(
    "ObjectivesConfig",
    [
        (name, objective.config_class | None, dataclasses.field(default=None))
        for name, objective in objectives().items()
    ],
    bases=(base_config.Config,),
    namespace={"unknown_key_hint": "; --import_module takes the module of one of your own"},
)


def objective_notes(before: base_config.Config, now: base_config.Config) -> list[str]:
    """Returns a line if a resumed training has other objectives than were trained until here.

    Their records are not compared: `SentenceEncoderTask.resume_notes` tells what restarts.
    """
    old, new = get_objectives(before), get_objectives(now)
    changes = [f"{name} was removed" for name in old if name not in new]
    changes += [f"{name} was added" for name in new if name not in old]
    for name, config in new.items():
        for key, value in config.as_dict().items() if name in old else ():
            earlier = old[name].as_dict()[key]
            if key not in ("train_data", "validation_data") and value != earlier:
                changes.append(f"{name}.{key} was {earlier!r}, is {value!r}")
    return [f"task.objectives: {'; '.join(changes)}"] if changes else []


@dataclasses.dataclass
class TrainingEncoderConfig(EncoderConfig, base_config.Config):
    """`EncoderConfig` as a part of Model Garden's configs, which take only parts of their kind."""


@dataclasses.dataclass
class SentenceEncoderTaskConfig(cfg.TaskConfig):
    """Settings of a training: the encoder, the objectives and their records.

    Attributes:
      init_checkpoint: an encoder directory, a model directory or a checkpoint to start from; empty
        (default) starts from random weights.
      encoder: the encoder's shape.
      objectives: which losses are summed, each with its weight and settings.
      vocab_file: the encoder's vocabulary; empty (default) takes the vocabulary that is stored with
        the training records. Records made with another vocabulary are refused.
      chunk_size: examples that a replica encodes at a time in training; 0 (default): its whole
        batch. Loss and gradients do not change: negatives still come from the whole global batch
        (gradient cache, Gao et al. 2021b, "Scaling Deep Contrastive Learning Batch Size under
        Memory Limited Setup"), and means over predictions are accumulated. Memory then grows with
        `chunk_size` instead of the batch size; examples that are compared are encoded twice. Chunks
        are nearly equal. Where XLA compiles the step, sizes that divide the batch compile faster.
      train_data, validation_data: the records of every objective without records of its own.
      sts_file: sentence pairs with human scores, in the format of STS-B's `sts-dev.csv`. With it,
        every validation also reports `sts_spearman`, 100 times Spearman's correlation of the
        embeddings' cosines with the scores. Texts get the start's default prompt, if it has one.
        Mirror-BERT (§3) and CMLM-CSE (§4.2) choose their checkpoints by it. To keep the best
        checkpoint, set `trainer.best_checkpoint_eval_metric: sts_spearman`,
        `trainer.best_checkpoint_metric_comp: higher` and a `best_checkpoint_export_subdir`. Empty
        (default): none.
    """

    encoder: TrainingEncoderConfig = dataclasses.field(default_factory=TrainingEncoderConfig)
    objectives: ObjectivesConfig = dataclasses.field(default_factory=ObjectivesConfig)
    vocab_file: str = ""
    sts_file: str = ""
    chunk_size: Annotated[int, at_least(0)] = 0
    train_data: DataConfig = dataclasses.field(default_factory=DataConfig)
    validation_data: DataConfig = dataclasses.field(
        default_factory=lambda: DataConfig(is_training=False)
    )

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is EncoderConfig:
            value = TrainingEncoderConfig(**value.as_dict())
        super().__setattr__(name, value)

    def data_of(self, objective: ObjectiveConfig, is_training: bool) -> DataConfig:
        """Returns the records that an objective reads."""
        split = "train_data" if is_training else "validation_data"
        data = getattr(objective, split) or getattr(self, split)
        return data.replace(is_training=is_training)

    def list_data(self) -> list[tuple[str, str, DataConfig]]:
        """Lists (objective, name of the field, data config) of all data that a run reads.

        Validation data without folders is left out: validation is optional.
        """
        used = []
        for name, objective in get_objectives(self.objectives).items():
            for split in ("train_data", "validation_data"):
                own = getattr(objective, split) is not None
                where = f"task.objectives.{name}.{split}" if own else f"task.{split}"
                data = self.data_of(objective, split == "train_data")
                if split == "train_data" or data.folders():
                    used.append((name, where, data))
        return used

    def longest_sequence(self) -> int:
        """Returns the longest sequence of the training data, in tokens."""
        chosen = get_objectives(self.objectives).values()
        return max(self.data_of(config, is_training=True).seq_length for config in chosen)

    def check(self) -> None:
        """Raises `UserError` for invalid settings, before records or models are opened."""
        self.encoder.check()
        check_fields(self, "task")
        chosen = get_objectives(self.objectives)
        if not chosen:
            raise UserError(
                f"task.objectives is empty; choose at least one of {', '.join(objectives())}"
            )
        for name, config in chosen.items():
            config.check(self.encoder, f"task.objectives.{name}")
            if self.chunk_size and config.mixes_examples():
                raise UserError(
                    f"task.chunk_size is {self.chunk_size}, but the batch normalisation of "
                    f"task.objectives.{name}.projection_head needs the whole batch at once; set it "
                    "to 0, or the head to mlp"
                )
        for name, where, data in self.list_data():
            extra = chosen[name].extra_positions()
            needed = data.seq_length + extra
            if needed > self.encoder.max_seq_length:
                raise UserError(
                    f"task.objectives.{name} needs {needed} positions ({where}.seq_length "
                    f"{data.seq_length} + {extra} projected vectors), "
                    f"task.encoder.max_position_embeddings leaves "
                    f"{self.encoder.max_seq_length}; raise it or lower seq_length"
                )


# Value of `runtime.num_gpus`: all GPUs of this machine, or its CPU if it has none.
ALL_GPUS = -1
# Value of `runtime.mixed_precision_dtype`: half precision where the devices have it.
AUTO_PRECISION = "auto"
# Value of `runtime.distribution_strategy`: steps run on JAX's device, see `training.jax_loop`.
PJRT = "pjrt"


@dataclasses.dataclass
class SentenceEncoderTrainerConfig(cfg.TrainerConfig):
    """Model Garden's fields: how long a training is, how often it reports, saves and validates.

    Attributes:
      train_epochs: length of the training in passes over the training records, in place of
        `train_steps`, which the training computes from the records, the batches and the replicas;
        of two sources the later one that names either wins. Random batches only, of a method with
        one example a sentence or pair. null (default): `train_steps` says it.
      schedule: the learning rate of each step. null (default): as `optimizer_config.learning_rate`
        and `optimizer_config.warmup` say, which have all of Model Garden's other schedules.
    """

    optimizer_config: optimization.OptimizationConfig = dataclasses.field(
        default_factory=optimization.OptimizationConfig
    )
    train_epochs: Annotated[int, between(1, 2**31)] | None = None
    schedule: ScheduleConfig | None = None

    def optimization(self) -> optimization.OptimizationConfig:
        """Returns the optimizer's settings, learning rate and warm-up included."""
        return with_schedule(self)


@dataclasses.dataclass
class SentenceEncoderRuntimeConfig(cfg.RuntimeConfig):
    """Where and how steps run: Model Garden's fields.

    Attributes:
      num_gpus: GPUs to use. Default -1: all of the machine. Model Garden's default, 0, means the
        CPU even on a machine with GPUs.
      mixed_precision_dtype: `bfloat16`, or `float16`, whose loss is scaled; `float32` or null
        (default): single precision; `auto`: `float16` on GPUs with units for it, `bfloat16` on
        TPUs and on processors that multiply it, else `float32`; with `pjrt` `bfloat16` on TPUs
        and on GPUs with units for it, else `float16` on such GPUs, else `float32`.
        `auto` is for the published runs of Mirror-BERT (appendix K), DeCLUTR, SimCSE and DiffCSE,
        which used automatic mixed precision, and for this project's own recipes.
      enable_xla: whether XLA compiles the training step, once for each length bucket. null
        (default): where it pays, see `training.runtime`; the training prints what was decided.
    """

    num_gpus: int = ALL_GPUS
    enable_xla: bool | None = None


@dataclasses.dataclass
class SentenceEncoderExperimentConfig(cfg.ExperimentConfig):
    """A Model Garden experiment whose task is a sum of objectives."""

    task: SentenceEncoderTaskConfig = dataclasses.field(default_factory=SentenceEncoderTaskConfig)
    trainer: SentenceEncoderTrainerConfig = dataclasses.field(
        default_factory=SentenceEncoderTrainerConfig
    )
    runtime: SentenceEncoderRuntimeConfig = dataclasses.field(
        default_factory=SentenceEncoderRuntimeConfig
    )


def check_start(init_checkpoint: str) -> None:
    """Raises `UserError` if an experiment needs an `--init_checkpoint` and none was given."""
    if init_checkpoint.startswith("<"):
        raise UserError(
            f"this experiment starts from {init_checkpoint.strip('<>')}; pass --init_checkpoint=… "
            "with its folder, a public one too, or its name org/model on the Hugging Face hub"
        )
