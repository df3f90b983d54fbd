"""The configuration of a whole experiment."""

import dataclasses

from official.core import config_definitions as cfg
from official.modeling import optimization
from official.modeling.hyperparams import base_config

from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.objectives import ObjectiveConfig, objectives


def chosen_objectives(config: base_config.Config) -> dict[str, ObjectiveConfig]:
    """The objectives that an `ObjectivesConfig` sets, by name; those at null take no part."""
    return {
        name: getattr(config, name) for name in objectives() if getattr(config, name) is not None
    }


# One optional field an objective; a new objective appears here by being registered.
ObjectivesConfig = dataclasses.make_dataclass(
    "ObjectivesConfig",
    [
        (name, objective.config_class | None, dataclasses.field(default=None))
        for name, objective in objectives().items()
    ],
    bases=(base_config.Config,),
)


@dataclasses.dataclass
class SentenceEncoderTaskConfig(cfg.TaskConfig):
    """What is trained, on which records, by which objectives.

    Attributes:
      init_checkpoint: an encoder directory, a model directory or a checkpoint to start from; empty
        (default) starts from random weights.
      encoder: the encoder's shape.
      objectives: which losses are summed, each with its weight and settings.
      vocab_file: the vocabulary that the encoder is meant for; empty (default) takes the one that
        travels with the training records. Records made with another one are refused.
      chunk_size: examples that a replica encodes at a time in training; 0 (default) is all of its
        batch. The loss and its gradient are the same: negatives still come from the whole global
        batch (gradient cache, Gao et al. 2021b, "Scaling Deep Contrastive Learning Batch Size under
        Memory Limited Setup"), means over predictions are accumulated. Memory then grows with
        `chunk_size` instead of the batch; what is compared is encoded twice.
      static_shapes: keep every shape of a step free of values, as XLA demands (TPUs,
        `jit_compile`). Default false: nothing is computed for unused prediction slots.
      train_data, validation_data: the records of every objective that names none of its own.
      sts_file: sentence pairs with people's scores in the form of STS-B's `sts-dev.csv`. With it
        every validation also gives `sts_spearman`, Spearman's correlation of the embeddings'
        cosines with the scores times 100, by which Mirror-BERT (§3) and CMLM-CSE (§4.2) are chosen;
        `trainer.best_checkpoint_eval_metric: sts_spearman` keeps the best, with
        `trainer.best_checkpoint_metric_comp: higher` and a `best_checkpoint_export_subdir`. Empty
        (default): none.
    """

    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    objectives: ObjectivesConfig = dataclasses.field(default_factory=ObjectivesConfig)
    vocab_file: str = ""
    sts_file: str = ""
    chunk_size: int = 0
    static_shapes: bool = False
    train_data: DataConfig = dataclasses.field(default_factory=DataConfig)
    validation_data: DataConfig = dataclasses.field(
        default_factory=lambda: DataConfig(is_training=False)
    )

    def data_of(self, objective: ObjectiveConfig, is_training: bool) -> DataConfig:
        """The records that an objective reads."""
        split = "train_data" if is_training else "validation_data"
        data = getattr(objective, split) or getattr(self, split)
        return data.replace(is_training=is_training)

    def used_data(self) -> list[tuple[str, str, DataConfig]]:
        """(objective, name of the field, records) for all data that is read.

        Validation data without an `input_path` is not: a training need not validate.
        """
        used = []
        for name, objective in chosen_objectives(self.objectives).items():
            for split in ("train_data", "validation_data"):
                own = getattr(objective, split) is not None
                where = f"task.objectives.{name}.{split}" if own else f"task.{split}"
                data = self.data_of(objective, split == "train_data")
                if split == "train_data" or data.input_path:
                    used.append((name, where, data))
        return used

    def check(self) -> None:
        """Raises `UserError` for anything that cannot work, before records or models are opened."""
        self.encoder.check()
        if self.chunk_size < 0:
            raise UserError(f"task.chunk_size must be 0 or more, got {self.chunk_size}")
        if self.chunk_size and self.static_shapes:
            raise UserError(
                f"task.chunk_size is {self.chunk_size}, but chunks are of unequal size and "
                "task.static_shapes (runtime.enable_xla and TPUs need it) allows none; set it to 0"
            )
        chosen = chosen_objectives(self.objectives)
        if not chosen:
            raise UserError(
                f"task.objectives is empty; choose at least one of {', '.join(objectives())}"
            )
        for name, config in chosen.items():
            config.check(self.encoder, f"task.objectives.{name}")
        for name, where, data in self.used_data():
            extra = chosen[name].extra_positions()
            needed = data.seq_length + extra
            if needed > self.encoder.max_seq_length:
                raise UserError(
                    f"task.objectives.{name} needs {needed} positions ({where}.seq_length "
                    f"{data.seq_length} + {extra} projected vectors), "
                    f"task.encoder.max_position_embeddings leaves "
                    f"{self.encoder.max_seq_length}; raise it or lower seq_length"
                )


# `runtime.num_gpus`: all that this machine has, or its CPU.
ALL_GPUS = -1
# `runtime.distribution_strategy`: steps run on JAX's device, see `training.jax_loop`.
PJRT = "pjrt"


@dataclasses.dataclass
class SentenceEncoderExperimentConfig(cfg.ExperimentConfig):
    """A Model Garden experiment whose task is a sum of objectives."""

    task: SentenceEncoderTaskConfig = dataclasses.field(default_factory=SentenceEncoderTaskConfig)
    trainer: cfg.TrainerConfig = dataclasses.field(
        default_factory=lambda: cfg.TrainerConfig(
            optimizer_config=optimization.OptimizationConfig()
        )
    )
    # Model Garden's own default, 0, is the CPU even where there are GPUs.
    runtime: cfg.RuntimeConfig = dataclasses.field(
        default_factory=lambda: cfg.RuntimeConfig(num_gpus=ALL_GPUS)
    )


def check_start(init_checkpoint: str) -> None:
    """Raises `UserError` if an experiment needs an `--init_checkpoint` and none was given."""
    if init_checkpoint.startswith("<"):
        raise UserError(
            f"this experiment starts from {init_checkpoint.strip('<>')}; pass its folder with "
            "--init_checkpoint=… (official_cmlm.checkpoints.import_checkpoint makes one of public "
            "weights)"
        )
