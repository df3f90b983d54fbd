"""The Model Garden task: builds the model and the inputs, and sums the objectives' losses."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory

from official_cmlm.checkpoints.encoder_directory import describe
from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.checkpoints.weights import (
    checkpoint_of,
    restore_objectives,
    restore_pretrained,
)
from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.data.sts import ScoredPairs, read_sts_benchmark
from official_cmlm.evaluation.metrics.similarity import similarity_spearman
from official_cmlm.inputs.checks import (
    check_examples,
    check_running_text,
    check_text,
    unusable_records,
)
from official_cmlm.inputs.data_position import DataPositions
from official_cmlm.inputs.pipeline import Augment, Replicas, build_dataset, check_batches
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.views import RecordFacts, View
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives import ObjectiveOutput, objectives
from official_cmlm.objectives.base import weighted_sum
from official_cmlm.records.corruption import report_damaged_shard
from official_cmlm.records.manifest import (
    Manifest,
    check_kind,
    check_vocabulary,
    load_folders,
    load_records_vocabulary,
)
from official_cmlm.tokenization import Vocabulary, load_vocabulary
from official_cmlm.training.config import SentenceEncoderTaskConfig, get_objectives
from official_cmlm.training.inherited_fields import (
    encoding_length,
    is_for_sentences,
    source_of_weights,
)
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.step import (
    GRADIENT_NORM,
    FiniteMean,
    batch_counts,
    count_metrics,
    train_step,
)

STS_METRIC = "sts_spearman"


@dataclasses.dataclass(frozen=True)
class Group:
    """Objectives that read the same view of the same records, and so share a pipeline.

    Attributes:
      objectives: their names.
      augments: functions of all objectives that add features to a batch, each function once.
    """

    objectives: tuple[str, ...]
    data: DataConfig
    view: View
    augments: tuple[Augment, ...]

    @property
    def name(self) -> str:
        """The key of its batches, and of its data position in checkpoints."""
        return "+".join(self.objectives)


@task_factory.register_task_cls(SentenceEncoderTaskConfig)
class SentenceEncoderTask(base_task.Task):
    """A weighted sum of objectives over one shared encoder."""

    def __init__(
        self,
        params: SentenceEncoderTaskConfig,
        logging_dir: str | None = None,
        name: str | None = None,
        static_shapes: bool = False,
        static_validation: bool = False,
    ) -> None:
        """Checks the whole configuration and opens the records' manifests.

        Args:
          params, logging_dir, name: as in the base class.
          static_shapes: whether no tensor shape of a training step may depend on values, as XLA
            requires. Default false: no logits are computed for unused prediction slots.
          static_validation: whether the random batches of a validation are padded to `seq_length`,
            and its incomplete batches left out, as TPUs need.

        Raises:
          UserError: for the first invalid setting.
        """
        super().__init__(params, logging_dir=logging_dir, name=name)
        params.check()
        self.chosen = get_objectives(params.objectives)
        self._static_shapes, self._static_validation = static_shapes, static_validation
        for _, where, data in params.list_data():
            data.check(where)
        # Folders -> their manifest; the manifests of large folders take a second to read.
        self._manifests: dict[tuple[str, ...], Manifest] = {}
        self.vocabulary = self._open_vocabulary()
        size = params.encoder.vocab_size
        if size not in (0, len(self.vocabulary)):
            raise UserError(
                f"task.encoder.vocab_size is {size}, the vocabulary has {len(self.vocabulary)} "
                f"entries; set it to {len(self.vocabulary)}, or to 0 to take the records' own"
            )
        self._sts_pairs = self._open_sts()
        for name, where, data in params.list_data():
            manifest = self.manifest(data)
            self.chosen[name].check_records(data, self._facts(data), where)
            view = self._view(name, data)
            check_running_text(data, manifest, view, self.vocabulary)
            check_text(data, manifest, view)

    def manifest(self, data: DataConfig, kind: str = "") -> Manifest:
        """Returns the manifest of the records of a pipeline, loaded once; see `load_folders`."""
        folders = tuple(data.folders())
        if folders not in self._manifests:
            self._manifests[folders] = load_folders(folders, kind)
        check_kind(folders[0], self._manifests[folders], kind)
        return self._manifests[folders]

    def _open_sts(self) -> ScoredPairs | None:
        path = self.task_config.sts_file
        if not path:
            return None
        pairs = read_sts_benchmark(Path(path))
        if len(pairs.gold) < 2:
            raise UserError(
                f"task.sts_file={path}: {len(pairs.gold)} scored pairs; it takes the tab-separated "
                "columns of STS-B's sts-dev.csv"
            )
        return pairs

    def _view(self, name: str, data: DataConfig) -> View:
        """Returns the view of an objective."""
        return self.chosen[name].view(data, self._facts(data))

    def _facts(self, data: DataConfig) -> RecordFacts:
        manifest = self.manifest(data)
        return RecordFacts(
            self.vocabulary,
            manifest.row_size,
            tuple(sorted(manifest.languages)),
            tuple(manifest.labels),
            bool(manifest.negatives),
            manifest.vector_size,
            bool(manifest.scores),
        )

    def _open_vocabulary(self) -> Vocabulary:
        """Returns the encoder's vocabulary, after checking that all records were made with it."""
        params = self.task_config
        vocabulary = load_vocabulary(params.vocab_file) if params.vocab_file else None
        for name, _, data in params.list_data():
            manifest = self.manifest(data, self.chosen[name].record_kind)
            # All folders must have one vocabulary, so the first one's is read.
            folder = data.folders()[0]
            if vocabulary is None:
                vocabulary = load_records_vocabulary(folder, manifest)
            check_vocabulary(folder, manifest, vocabulary)
        return vocabulary

    @property
    def encoder_config(self) -> EncoderConfig:
        """The encoder's configuration with what depends on its vocabulary."""
        padding_id = self.vocabulary.special_ids["pad"]
        return self.task_config.encoder.for_vocabulary(len(self.vocabulary), padding_id)

    def describe(self, folder: str, model_dir: str) -> None:
        """Writes an encoder directory without its weights, of the training in `model_dir`."""
        start = source_of_weights(self.task_config.init_checkpoint, model_dir)
        length = encoding_length(start, self.task_config.longest_sequence())
        is_encoder = is_for_sentences(start, self.chosen)
        # Prompts and similarity are those of the start.
        settings = start.settings if start else None
        describe(folder, self.encoder_config, self.vocabulary, length, is_encoder, settings)

    def input_folders(self) -> list[str]:
        """Returns all record folders that the task reads, each once."""
        used = self.task_config.list_data()
        return list(dict.fromkeys(folder for _, _, data in used for folder in data.folders()))

    def training_data(self) -> dict[str, DataConfig]:
        """Returns group, as in `build_inputs`, -> the records of its batches."""
        return {group.name: group.data for group in self.train_groups}

    def steps_of(self, epochs: int, num_replicas: int) -> int:
        """Returns the number of steps of `epochs` epochs of the training records.

        Raises:
          UserError: see `Plan.steps`; or epochs of several objectives have different lengths.
        """
        steps_by_group = {}
        for group in self.train_groups:
            shape = (self.manifest(group.data), group.view, num_replicas, None, self._static_shapes)
            steps_by_group[group.name] = Plan.of(group.data, *shape).steps(epochs, num_replicas)
        if len(set(steps_by_group.values())) > 1:
            lengths = ", ".join(f"{name}: {steps} steps" for name, steps in steps_by_group.items())
            raise UserError(
                f"trainer.train_epochs is {epochs}, but the objectives' epochs differ in length "
                f"({lengths}); "
                "set trainer.train_steps instead"
            )
        return next(iter(steps_by_group.values()))

    def check_validation_data(self) -> None:
        """Raises `UserError` if an objective has no records to be evaluated on."""
        for name in self._without_validation():
            raise UserError(
                f"objective {name} has no validation records; set "
                "task.validation_data.input_path, or choose --mode=train"
            )

    def _without_validation(self) -> list[str]:
        """Returns the objectives without validation records."""
        validated = {name for name, _, data in self.task_config.list_data() if not data.is_training}
        return [name for name in self.chosen if name not in validated]

    def check_batch_sizes(self, num_replicas: int) -> None:
        """Raises `UserError` unless all batches divide by the replicas and have enough examples."""
        for name, where, data in self.task_config.list_data():
            smallest = min(size for _, size in data.buckets(num_replicas, where))
            needed = self.chosen[name].min_batch_size()
            if smallest < needed:
                raise UserError(
                    f"{where}.global_batch_size {data.global_batch_size} leaves {name} nothing to "
                    f"compare an example with; it needs at least {needed} examples a step"
                )

    def check_padding(self) -> None:
        """Raises `UserError` if hosts would pad to different lengths, on which a loss depends."""
        for name, where, data in self.task_config.list_data():
            one_length = data.bucket_boundaries or self._static_shapes
            if not data.is_training or data.streams < 2 or one_length:
                continue
            if self.chosen[name].counts_padding():
                raise UserError(
                    f"{where}.streams is {data.streams}: each host would pad its share of a batch "
                    f"to another length, on which the loss of {name} depends; set it to 1"
                )

    def check_inputs(self, is_training: bool, num_replicas: int = 1) -> None:
        """Raises `UserError` if the inputs of training, or of validation, cannot be built.

        Calls `inputs.checks.check_examples` for everything that the objectives read.
        """
        with report_damaged_shard(self.input_folders()):
            for group in self.groups(is_training):
                manifest = self.manifest(group.data)
                check_examples(group.data, manifest, group.view)
                if not is_training:
                    shape = (num_replicas, self._static_validation)
                    check_batches(group.data, manifest, group.view, *shape)

    def notes(self) -> list[str]:
        """Returns lines to print before training: how many records an objective cannot use."""
        return [
            f"{name}: {line}"
            for name, where, data in self.task_config.list_data()
            if data.is_training
            for line in unusable_records(data, self.manifest(data), self._view(name, data), where)
        ]

    def resume_notes(self, reached: dict[str, np.ndarray], num_replicas: int) -> list[str]:
        """Returns lines to print: the groups whose data restart from the beginning, and why."""
        lines = []
        for group in self.train_groups:
            data, position = group.data, reached.get(group.name)
            if position is None:
                reason = "the checkpoint has no data position for it"
            elif not Plan.of(data, self.manifest(data), group.view, num_replicas, position).resumes:
                reason = "records, settings or batch sizes differ from those of the checkpoint"
            else:
                continue
            lines.append(f"{group.name}: its data restart from the beginning, {reason}")
        return lines

    def build_model(self) -> MultiObjectiveModel:
        """Builds the encoder and the objectives with initial weights."""
        # Objectives that share records in training may have validation records of their own.
        groups = [*self.train_groups]
        if not self._without_validation():
            groups += self.groups(is_training=False)
        return MultiObjectiveModel(
            SentenceEncoderModel(self.encoder_config),
            self.chosen,
            self._static_shapes,
            DataPositions(group.name for group in self.train_groups),
            {group.name: group.objectives for group in groups},
        )

    @classmethod
    def create_optimizer(
        cls, optimizer_config: Any, runtime_config: Any = None, dp_config: Any = None
    ) -> tf_keras.optimizers.Optimizer:
        """Creates the optimizer, and its count of steps, which the step must not create."""
        optimizer = super().create_optimizer(optimizer_config, runtime_config, dp_config)
        _ = optimizer.iterations
        return optimizer

    def initialize(self, model: MultiObjectiveModel) -> None:
        """Loads `init_checkpoint` into a new model."""
        restored, start = set(), self.task_config.init_checkpoint
        if start:
            # One checkpoint gives everything, even if the training there saves another meanwhile.
            source = checkpoint_of(start) if checkpoints_of(start) else start
            with_head = restore_pretrained(source, model.encoder, model.head, self.vocabulary)
            for name, config in self.chosen.items():
                if config.needs_trained_head() and not with_head:
                    raise UserError(
                        f"{start} has no language-model head, which {name} takes its generator "
                        "from; start from a language model, e.g. one that mlm trained"
                    )
            restored = restore_objectives(source, model.objectives)
        for name, objective in model.objectives.items():
            if name not in restored:
                objective.initialize(model.encoder)
            objective.load_named()

    def build_inputs(
        self,
        params: DataConfig,
        input_context: tf.distribute.InputContext | None = None,
        reached: dict[str, np.ndarray] | None = None,
    ) -> tf.data.Dataset:
        """Returns batches by group: `Group.name` -> features; see `check_inputs`.

        With several groups, each step takes one batch of each group, and a validation pass ends
        with the shortest group.

        Args:
          params: says whether the batches are for training.
          input_context: the replicas of this host. Default: one replica.
          reached: group -> data position at which a resumed training goes on. Default: none.
        """
        replicas = Replicas.of(input_context)
        static = self._static_shapes if params.is_training else self._static_validation
        batches = {}
        for group in self.groups(params.is_training):
            position = (reached or {}).get(group.name)
            manifest = self.manifest(group.data)
            plan = Plan.of(group.data, manifest, group.view, replicas.total, position, static)
            batches[group.name] = build_dataset(plan, group.augments, replicas)
        return tf.data.Dataset.zip(batches)

    @functools.cached_property
    def train_groups(self) -> list[Group]:
        """The groups of the training data."""
        return self.groups(is_training=True)

    def groups(self, is_training: bool) -> list[Group]:
        """Divides the objectives into groups that share a pipeline."""
        groups: list[Group] = []
        for name, config in self.chosen.items():
            data = self.task_config.data_of(config, is_training)
            view, augments = self._view(name, data), config.augments(self._facts(data).special)
            for i, other in enumerate(groups):
                if other.view == view and other.data.as_dict() == data.as_dict():
                    more = tuple(a for a in augments if a not in other.augments)
                    groups[i] = dataclasses.replace(
                        other,
                        objectives=(*other.objectives, name),
                        augments=(*other.augments, *more),
                    )
                    break
            else:
                groups.append(Group((name,), data, view, tuple(augments)))
        return groups

    def build_losses(
        self,
        labels: dict,
        model_outputs: dict[str, ObjectiveOutput],
        aux_losses: list[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Returns the weighted sum: float32 scalar whose mean over replicas is the global loss."""
        return weighted_sum(model_outputs, self.chosen)

    # Nothing below branches on tensors; AutoGraph's conversion would dominate the start-up time.
    @tf.autograph.experimental.do_not_convert
    def train_step(
        self,
        inputs: dict[str, dict],
        model: MultiObjectiveModel,
        optimizer: tf_keras.optimizers.Optimizer,
        metrics: list[tf_keras.metrics.Metric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Computes a step and updates the metrics; see `training.step.train_step`."""
        loss, norm, outputs = train_step(
            model, optimizer, inputs, self.task_config.train_data.seed, self.task_config.chunk_size
        )
        sequences = {group.name: group.view.sequences for group in self.train_groups}
        values = {GRADIENT_NORM: norm, **batch_counts(inputs, sequences)}
        for metric in metrics or []:
            if metric.name in values:
                metric.update_state(values[metric.name])
        self.process_metrics(metrics or [], inputs, outputs)
        return {self.loss: loss}

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        metrics = [
            tf_keras.metrics.Mean(f"{name}/{metric}")
            for name in self.chosen
            for metric in objectives()[name].metric_directions
        ]
        if training:
            metrics += [FiniteMean(GRADIENT_NORM), *count_metrics()]
        return metrics

    def process_metrics(
        self,
        metrics: list[tf_keras.metrics.Metric],
        labels: dict,
        model_outputs: dict[str, ObjectiveOutput],
        **kwargs: object,
    ) -> None:
        if not metrics:
            return
        by_name = {metric.name: metric for metric in metrics}
        for name, output in model_outputs.items():
            for metric, (total, weight) in output.metrics.items():
                by_name[f"{name}/{metric}"].update_state(
                    tf.math.divide_no_nan(total, weight), sample_weight=weight
                )

    def sts_scorer(self, model: MultiObjectiveModel) -> Callable[[], float] | None:
        """Returns a function that scores `sts_file` with the model's current weights, if it is set.

        It encodes at the length, and with the prompts, of the encoder that the training leaves.
        """
        if self._sts_pairs is None:
            return None
        config = self.task_config
        start = source_of_weights(config.init_checkpoint, self.logging_dir)
        length = encoding_length(start, config.longest_sequence())
        settings = start.settings if start else None
        encoder = SentenceEncoder(model.encoder, self.vocabulary, length, settings=settings)
        return lambda: similarity_spearman(encoder.encode, self._sts_pairs)

    def reduce_aggregated_logs(
        self, aggregated_logs: Callable[[], float], global_step: tf.Tensor | None = None
    ) -> dict[str, float]:
        """Returns the score of `sts_file`; `Trainer.eval_end` passes the scorer as the logs."""
        return {STS_METRIC: aggregated_logs()}
