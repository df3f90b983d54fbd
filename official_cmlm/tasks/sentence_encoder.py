"""The Model Garden task: builds the model and the inputs, and sums the objectives' losses."""

import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory

from official_cmlm.checkpoints.encoder_directory import restore_pretrained
from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.pipeline import Augment, Replicas, View, build_dataset
from official_cmlm.inputs.views import SpecialIds
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives import ObjectiveOutput, objectives
from official_cmlm.records.manifest import check_vocabulary, load_manifest, load_records_vocabulary
from official_cmlm.tasks.config import SentenceEncoderTaskConfig, chosen_objectives
from official_cmlm.tasks.model import MultiObjectiveModel
from official_cmlm.tokenization import Vocabulary, load_vocabulary


@task_factory.register_task_cls(SentenceEncoderTaskConfig)
class SentenceEncoderTask(base_task.Task):
    """A weighted sum of objectives over one shared encoder.

    The base class does the rest: the loss is scaled by the replicas, gradients are summed, and
    float16 losses are scaled.
    """

    def __init__(
        self,
        params: SentenceEncoderTaskConfig,
        logging_dir: str | None = None,
        name: str | None = None,
    ) -> None:
        """Checks the whole configuration and opens the records' manifests.

        Raises:
          UserError: for the first thing that cannot work.
        """
        super().__init__(params, logging_dir=logging_dir, name=name)
        params.check()
        self.chosen = chosen_objectives(params.objectives)
        for _, where, data in params.used_data():
            data.check(where)
        self.vocabulary = self._open_vocabulary()
        size = params.encoder.vocab_size
        if size not in (0, len(self.vocabulary)):
            raise UserError(
                f"task.encoder.vocab_size is {size}, the vocabulary has {len(self.vocabulary)} "
                f"entries; set it to {len(self.vocabulary)}, or to 0 to take the records' own"
            )
        self.special = SpecialIds(**self.vocabulary.special_ids, vocab_size=len(self.vocabulary))

    def _open_vocabulary(self) -> Vocabulary:
        """The encoder's vocabulary, after checking that all records were made with it."""
        params = self.task_config
        vocabulary = load_vocabulary(params.vocab_file) if params.vocab_file else None
        for folder in self.input_folders():
            manifest = load_manifest(folder, "documents")
            if vocabulary is None:
                vocabulary = load_records_vocabulary(folder, manifest)
            check_vocabulary(folder, manifest, vocabulary)
        return vocabulary

    def input_folders(self) -> list[str]:
        """All record folders that the task reads, each once."""
        folders = (data.input_path for _, _, data in self.task_config.used_data())
        return list(dict.fromkeys(folders))

    def check_validation_data(self) -> None:
        """Raises `UserError` if an objective has no records to be evaluated on."""
        for name, objective in self.chosen.items():
            if not self.task_config.data_of(objective, is_training=False).input_path:
                raise UserError(
                    f"objective {name} has no validation records; set "
                    "task.validation_data.input_path, or choose --mode=train"
                )

    def check_batch_sizes(self, num_replicas: int) -> None:
        """Raises `UserError` unless every batch divides by the replicas."""
        for _, where, data in self.task_config.used_data():
            data.buckets(num_replicas, where)

    def build_model(self) -> MultiObjectiveModel:
        config = self.task_config.encoder.replace(vocab_size=len(self.vocabulary))
        return MultiObjectiveModel(SentenceEncoderModel(config), self.chosen)

    def initialize(self, model: MultiObjectiveModel) -> None:
        """Loads `init_checkpoint` into a fresh model."""
        if self.task_config.init_checkpoint:
            restore_pretrained(
                self.task_config.init_checkpoint, model.encoder, model.head, self.vocabulary
            )

    def build_inputs(
        self, params: DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns batches by group: the objectives' names joined with `+` -> features.

        Objectives that read the same view of the same records form a group and share a pipeline.
        With several groups a step has one batch of each, and a pass of validation ends with the
        shortest.
        """
        replicas = Replicas.of(input_context)
        groups: list[tuple[DataConfig, View, list[Augment], list[str]]] = []
        for name, config in self.chosen.items():
            data = self.task_config.data_of(config, params.is_training)
            view = objectives()[name].view(config, data, self.special)
            augments = objectives()[name].augments(config, self.special)
            for other, known, all_augments, names in groups:
                if known == view and other.as_dict() == data.as_dict():
                    all_augments.extend(a for a in augments if a not in all_augments)
                    names.append(name)
                    break
            else:
                groups.append((data, view, augments, [name]))
        return tf.data.Dataset.zip(
            {
                "+".join(names): build_dataset(
                    data, load_manifest(data.input_path, "documents"), view, augments, replicas
                )
                for data, view, augments, names in groups
            }
        )

    def build_losses(
        self,
        labels: dict,
        model_outputs: dict[str, ObjectiveOutput],
        aux_losses: list[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The weighted sum; float32 scalar whose mean over replicas is the global loss."""
        chosen = self.chosen
        return tf.add_n([chosen[name].weight * out.loss for name, out in model_outputs.items()])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        return [
            tf_keras.metrics.Mean(f"{name}/{metric}")
            for name in self.chosen
            for metric in objectives()[name].metric_names
        ]

    def process_metrics(
        self,
        metrics: list[tf_keras.metrics.Metric],
        labels: dict,
        model_outputs: dict[str, ObjectiveOutput],
        **kwargs: object,
    ) -> None:
        by_name = {metric.name: metric for metric in metrics}
        for name, output in model_outputs.items():
            for metric, (total, weight) in output.metrics.items():
                by_name[f"{name}/{metric}"].update_state(
                    tf.math.divide_no_nan(total, weight), sample_weight=weight
                )
