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
      train_data, validation_data: the records of every objective that names none of its own.
    """

    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    objectives: ObjectivesConfig = dataclasses.field(default_factory=ObjectivesConfig)
    vocab_file: str = ""
    train_data: DataConfig = dataclasses.field(default_factory=DataConfig)
    validation_data: DataConfig = dataclasses.field(
        default_factory=lambda: DataConfig(is_training=False)
    )

    def data_of(self, objective: ObjectiveConfig, is_training: bool) -> DataConfig:
        """The records that an objective reads."""
        if is_training:
            return objective.train_data or self.train_data
        return objective.validation_data or self.validation_data

    def check(self) -> None:
        """Raises `UserError` for anything that cannot work, before records or models are opened."""
        self.encoder.check()
        chosen = chosen_objectives(self.objectives)
        if not chosen:
            raise UserError(
                f"task.objectives is empty; choose at least one of {', '.join(objectives())}"
            )
        for name, config in chosen.items():
            where = f"task.objectives.{name}"
            objectives()[name].check(config, self.encoder, where)
            extra = objectives()[name].extra_positions(config)
            for data in (self.data_of(config, True), self.data_of(config, False)):
                needed = data.seq_length + extra
                if needed > self.encoder.max_position_embeddings:
                    raise UserError(
                        f"{where} needs {needed} positions ({data.seq_length} tokens + {extra} "
                        f"projected vectors), task.encoder.max_position_embeddings is "
                        f"{self.encoder.max_position_embeddings}; raise it or lower seq_length"
                    )


@dataclasses.dataclass
class SentenceEncoderExperimentConfig(cfg.ExperimentConfig):
    """A Model Garden experiment whose task is a sum of objectives."""

    task: SentenceEncoderTaskConfig = dataclasses.field(default_factory=SentenceEncoderTaskConfig)
    trainer: cfg.TrainerConfig = dataclasses.field(
        default_factory=lambda: cfg.TrainerConfig(
            optimizer_config=optimization.OptimizationConfig()
        )
    )
