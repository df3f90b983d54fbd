"""Experiments for Model Garden's own driver: a config and a task that bring what its loop lacks.

`official.nlp.train.main`, and every program written as it is, overrides a config, calls its
`validate`, gets the task that belongs to the config's type, and trains in Model Garden's trainer.
That trainer knows neither `trainer.schedule` nor data positions. Its weights are those that
`training.run` computes, and each of the two resumes a folder of the other.
"""

import dataclasses
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import task_factory

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import check_fields
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.data_position import read_positions
from official_cmlm.training.checks import check_trainer
from official_cmlm.training.config import (
    PJRT,
    SentenceEncoderExperimentConfig,
    SentenceEncoderTaskConfig,
    check_start,
)
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.runtime import is_chief, is_compiled, resolve_runtime
from official_cmlm.training.task import SentenceEncoderTask


@dataclasses.dataclass
class ModelGardenTaskConfig(SentenceEncoderTaskConfig):
    """The settings of a task that Model Garden's driver builds.

    Attributes:
      compiled: whether XLA compiles the training step. `ModelGardenExperimentConfig.validate` sets
        it; false (default) before.
      compiled_validation: the same of the validation, as on TPUs.
    """

    compiled: bool = False
    compiled_validation: bool = False


@dataclasses.dataclass
class ModelGardenExperimentConfig(SentenceEncoderExperimentConfig):
    """An experiment as `official.core.exp_factory.get_exp_config` returns it.

    Its fields may be changed until `validate`, which a program without
    `train_utils.parse_configuration` calls itself.
    """

    task: ModelGardenTaskConfig = dataclasses.field(default_factory=ModelGardenTaskConfig)

    def override(self, override_params: Any, is_strict: bool = True) -> None:
        """Overrides fields; refuses `--tf_data_service`, of which the driver makes fields."""
        data = (override_params.get("task") or {}).get("train_data") or {}
        if "tf_data_service_address" in data:
            raise UserError(
                "--tf_data_service: every worker of a tf.data service would send the same batches,"
                " and a checkpoint could not say which were read; leave it out, and set "
                "task.train_data.streams for several hosts"
            )
        super().override(override_params, is_strict)

    def validate(self) -> None:
        """Checks all fields, and makes explicit what depends on this machine and on the steps.

        Afterwards `trainer.optimizer_config` has the learning rate of `trainer.schedule`.

        Raises:
          UserError: for invalid settings, and for those that only `cmlm train` has.
        """
        super().validate()
        check_fields(self, "", recursive=True)
        check_start(self.task.init_checkpoint)
        if not self.trainer.train_steps:
            raise UserError(
                "trainer.train_steps is 0: Model Garden's driver does not count the steps of "
                "trainer.train_epochs; set trainer.train_steps"
            )
        if self.runtime.distribution_strategy == PJRT:
            raise UserError(
                f"runtime.distribution_strategy {PJRT}: only cmlm train has it; take one of "
                "Model Garden's, such as one_device"
            )
        check_trainer(self)
        self.runtime = resolve_runtime(self)[0].runtime
        self.trainer.optimizer_config = self.trainer.optimization()
        self.trainer.schedule = self.trainer.train_epochs = None
        self.task.compiled = is_compiled(self.runtime)
        self.task.compiled_validation = self.runtime.distribution_strategy == "tpu"


@task_factory.register_task_cls(ModelGardenTaskConfig)
class ModelGardenTask(SentenceEncoderTask):
    """A task that does for Model Garden's trainer what `training.run` does for this project's."""

    def __init__(
        self,
        params: ModelGardenTaskConfig,
        logging_dir: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(params, logging_dir, name, params.compiled, params.compiled_validation)

    def build_model(self) -> MultiObjectiveModel:
        """Builds the model; its initial weights are a function of the seed of the records."""
        self.check_padding()
        self.check_batch_sizes(tf.distribute.get_strategy().num_replicas_in_sync)
        tf_keras.utils.set_random_seed(self.task_config.train_data.seed)
        model = super().build_model()
        self._scorer = self.sts_scorer(model)
        return model

    def initialize(self, model: MultiObjectiveModel) -> None:
        """Loads `init_checkpoint`, and makes the folder of a new training an encoder directory."""
        super().initialize(model)
        if self.logging_dir and is_chief(tf.distribute.get_strategy()):
            self.describe(self.logging_dir, self.logging_dir)

    def build_inputs(
        self, params: DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns batches, from the data position of the checkpoint that is to be resumed."""
        self.check_inputs(params.is_training)
        checkpoint = self.logging_dir and tf.train.latest_checkpoint(self.logging_dir)
        resumes = params.is_training and checkpoint
        reached = read_positions(checkpoint, self.training_data()) if resumes else None
        return super().build_inputs(params, input_context, reached)

    def aggregate_logs(self, state: Any = None, step_outputs: Any = None) -> Any:
        """Returns the scorer of `sts_file`, which `reduce_aggregated_logs` calls, or None."""
        return self._scorer
