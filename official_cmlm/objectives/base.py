"""The base classes of objectives, and the registry of all objectives."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import above, check_fields
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import RecordFacts, SpecialIds, View
from official_cmlm.losses.replicas import global_mean
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.encode import Encode

# Whether higher or lower values of a metric are better.
HIGHER, LOWER = "higher", "lower"


@dataclasses.dataclass
class ObjectiveConfig(base_config.Config):
    """Settings of every objective.

    Attributes:
      record_kind: kind of the records that it reads, `documents` or `pairs`; a class variable.
      prediction_weight: factor of the mean over predictions in the loss; a class variable, or in
        subclasses a property of fields.
      weight: factor of its loss in the task's sum; finite and above 0.
      train_data, validation_data: the objective's own records; null (default): the task's.
    """

    weight: Annotated[float, above(0)] = 1.0
    train_data: DataConfig | None = None
    validation_data: DataConfig | None = None

    record_kind: ClassVar[str] = "documents"
    prediction_weight: ClassVar[float] = 1.0

    def check(self, encoder_config: base_config.Config, where: str) -> None:
        """Raises `UserError` for invalid settings, before anything is built."""
        check_fields(self, where)

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        """Raises `UserError` for records that the objective cannot use; `where` names `data`."""

    @abc.abstractmethod
    def view(self, data: DataConfig, facts: RecordFacts) -> View:
        """Returns the view of the records that the objective reads.

        Every config overrides it; `register` refuses an objective whose config does not.
        """

    def augments(self, special: SpecialIds) -> list[Augment]:
        """Returns functions that add features to the view's padded batches."""
        return []

    def needs_language_model_head(self) -> bool:
        """Returns whether `head` must be built; all objectives share one."""
        return False

    def needs_trained_head(self) -> bool:
        """Returns whether the training must start from an encoder with a trained head."""
        return False

    def counts_padding(self) -> bool:
        """Returns whether its loss depends on how far a batch is padded."""
        return False

    def mixes_examples(self) -> bool:
        """Returns whether a vector depends on the other examples of the batch.

        It can then not be computed in chunks.
        """
        return False

    def method_data(self) -> dict[str, Any]:
        """Returns the fields of its data that belong to the method, with their values.

        Arms of a study have these values, or are refused.
        """
        return {}

    def min_batch_size(self) -> int:
        """Returns the smallest global batch with a loss: 2 if examples are mutual negatives."""
        return 1

    def extra_positions(self) -> int:
        """Returns how many position ids it needs besides those of the longest sequence."""
        return 0


@dataclasses.dataclass(frozen=True)
class ObjectiveOutput:
    """One step's result on one replica.

    Attributes:
      loss: float32 scalar; its mean over the replicas is the loss of the global batch.
      metrics: name -> (sum, weight), float32 scalars; a metric is sum of sums / sum of weights.
    """

    loss: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The loss over the predictions of one part of a batch; the objective's loss is their mean.

    Attributes:
      total: float32 scalar, the sum of losses.
      weight: float32 scalar, the number of predictions.
      metrics: as in `ObjectiveOutput`.
    """

    total: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]


Vectors = dict[str, tf.Tensor]
"""Name -> float `[rows, dim]`; vectors of the parts of a batch are concatenated."""


class Objective(tf_keras.layers.Layer):
    """A loss on one view of the records.

    A subclass is registered under a name, and computes its loss from the features of the view that
    its config returns. It may own weights that only training needs; they are saved in checkpoints
    and never exported.

    A loss has up to two terms, so that a batch can be computed in parts. A term that compares all
    examples of the global batch with each other (`compare`) depends only on their `vectors`. A term
    that is a mean over predictions (`predict`) does not depend on other examples.

    Attributes:
      config_class: the dataclass of its settings, an `ObjectiveConfig`.
      metric_directions: for each key of its output's `metrics`, whether a `HIGHER` or a `LOWER`
        value is better.
      in_batch_metrics: the metrics that are measured among the examples of a batch, and so depend
        on its size.
      is_language_model: whether it trains a language model, and no sentence vector.
      head: the language-model head that all objectives share; None unless this one needs it.
      static_shapes: whether no shape may depend on values, as XLA requires.
    """

    config_class: ClassVar[type[ObjectiveConfig]] = ObjectiveConfig
    metric_directions: ClassVar[dict[str, str]] = {}
    in_batch_metrics: ClassVar[frozenset[str]] = frozenset()
    is_language_model: ClassVar[bool] = False

    def __init__(
        self,
        config: ObjectiveConfig,
        encoder: SentenceEncoderModel,
        head: tf_keras.layers.Layer | None,
        static_shapes: bool = False,
    ) -> None:
        # Float features are weights and counts, which must not be cast under a half-precision
        # policy.
        super().__init__(name=type(self).__name__.lower(), autocast=False)
        self.config = config
        # Keras saves every layer that is an attribute, so a head that is not used is not set.
        self.head = head if config.needs_language_model_head() else None
        self.static_shapes = static_shapes
        self._shared = {id(v) for layer in (encoder, head) if layer for v in layer.weights}
        self.add_layers(encoder)

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        """Sets the objective's own layers as attributes. Default: none."""

    def own_weights(self) -> list[tf.Variable]:
        """Returns the weights that are neither the encoder's nor the language-model head's."""
        return [variable for variable in self.weights if id(variable) not in self._shared]

    def initialize(self, encoder: SentenceEncoderModel) -> None:
        """Sets the initial weights before a training's first step, from those of `encoder`.

        It is not called if the objective's own weights are restored from `init_checkpoint`.
        """

    def load_named(self) -> None:
        """Loads weights that the config names, before a training's first step. Default: none."""

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        """Returns the vectors of a part of the batch for `compare` and `predict`. Default: none."""
        return {}

    def compare(self, vectors: Vectors) -> ObjectiveOutput | None:
        """Returns the loss among all examples, its factor included. Default: none."""
        return None

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction | None:
        """Returns the loss of single predictions, without its factor. Default: none."""
        return None

    def num_predictions(self, features: dict) -> tf.Tensor:
        """Returns the weight that `predict` will return, from the features: float32 scalar."""
        return tf.constant(0.0)

    @property
    def prediction_weight(self) -> float:
        """Factor of `predict`'s mean in the loss."""
        return self.config.prediction_weight

    def no_metrics(self) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
        """Returns every metric with sum and weight 0."""
        return {name: (tf.constant(0.0), tf.constant(0.0)) for name in self.metric_directions}


def combine(
    objective: Objective, compared: ObjectiveOutput | None, predicted: Prediction | None
) -> ObjectiveOutput:
    """Returns an objective's output: its comparison plus the weighted mean over its predictions.

    Args:
      objective, compared: the objective, and what its `compare` returned.
      predicted: what its `predict` returned, or the sums over the parts of a batch.
    """
    losses, metrics = [], objective.no_metrics()
    if predicted is not None:
        mean = global_mean(predicted.total, predicted.weight)
        losses.append(objective.prediction_weight * mean)
        metrics |= predicted.metrics
    if compared is not None:
        losses.append(compared.loss)
        metrics |= compared.metrics
    return ObjectiveOutput(tf.add_n(losses), metrics)


def weighted_sum(
    outputs: Mapping[str, ObjectiveOutput], chosen: Mapping[str, ObjectiveConfig]
) -> tf.Tensor:
    """Returns the task's loss, float32 scalar; both arguments are by the objective's name."""
    return tf.add_n([chosen[name].weight * output.loss for name, output in outputs.items()])


_OBJECTIVES: dict[str, type[Objective]] = {}


def register(name: str) -> Callable[[type[Objective]], type[Objective]]:
    """Returns a class decorator that registers an objective under the name that YAML files use.

    Raises:
      UserError: if another class has the name, or if the loss could not be computed in chunks.
    """

    def decorate(objective: type[Objective]) -> type[Objective]:
        where = f"objective {name!r} ({objective.__module__}.{objective.__qualname__})"
        if name in _OBJECTIVES:
            raise UserError(f"{where}: {_OBJECTIVES[name]} has that name already; choose another")
        _check_terms(objective, where)
        _OBJECTIVES[name] = objective
        return objective

    return decorate


def _check_terms(objective: type[Objective], where: str) -> None:
    """Raises `UserError` for a loss that cannot be computed in chunks, see `training.chunks`."""
    if getattr(objective.config_class.view, "__isabstractmethod__", False):
        raise UserError(f"{where}: its config_class does not say what it reads; override `view`")
    if objective.call is not tf_keras.layers.Layer.call:
        raise UserError(
            f"{where} overrides `call`, which a training never uses; override `vectors` and "
            "`compare`, or `predict` and `num_predictions`"
        )
    predicts = objective.predict is not Objective.predict
    if predicts != (objective.num_predictions is not Objective.num_predictions):
        raise UserError(
            f"{where} overrides one of `predict` and `num_predictions`: in chunks its loss would "
            "be zero; override both"
        )
    if not predicts and objective.compare is Objective.compare:
        raise UserError(
            f"{where} has no loss; override `vectors` and `compare`, or `predict` and "
            "`num_predictions`"
        )


def objectives() -> dict[str, type[Objective]]:
    """Returns all objectives by name, in order of registration."""
    return dict(_OBJECTIVES)
