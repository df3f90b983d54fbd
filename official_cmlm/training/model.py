"""The trained model: the encoder, the language-model head and the objectives on top of them."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import tensorflow as tf
import tf_keras

from official_cmlm.inputs.data_position import CHECKPOINT_NAME, DataPositions
from official_cmlm.modeling.dropout import DropoutStream
from official_cmlm.modeling.language_model_head import build_language_model_head
from official_cmlm.modeling.pooling import Projection
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives import ObjectiveConfig, ObjectiveOutput, objectives
from official_cmlm.objectives.base import Prediction, Vectors, combine
from official_cmlm.objectives.encode import Encode, own_first_row
from official_cmlm.training.non_finite import FiniteGuard


class MultiObjectiveModel(tf_keras.Model):
    """A model that runs every objective on its features; shared inputs are encoded once.

    Attributes:
      encoder: the shared `SentenceEncoderModel`.
      head: the shared language-model head, or None if no objective needs one.
      data_positions: the data position of each group.
      guard: stops training at a non-finite loss.
    """

    def __init__(
        self,
        encoder: SentenceEncoderModel,
        chosen: dict[str, ObjectiveConfig],
        static_shapes: bool = False,
        data_positions: DataPositions | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Builds the objectives.

        Args:
          chosen: settings by objective name, already checked.
          static_shapes: whether no tensor shape may depend on values, as XLA requires.
          data_positions: the positions of the training data. Default: none.
          groups: group of features -> the objectives that read it. Default: each objective is a
            group of its own.
        """
        super().__init__(name="multi_objective_model", autocast=False)
        self.encoder = encoder
        self._static_shapes = static_shapes
        self.data_positions = data_positions or DataPositions(())
        classes = {name: objectives()[name] for name in chosen}
        self.head = (
            build_language_model_head(encoder)
            if any(config.needs_language_model_head() for config in chosen.values())
            else None
        )
        self.objectives = {
            name: classes[name](config, encoder, self.head, static_shapes=static_shapes)
            for name, config in chosen.items()
        }
        # A plain dict would be tracked by Keras, and saved in checkpoints.
        self._groups = MappingProxyType(dict(groups or {name: (name,) for name in chosen}))
        self.guard = FiniteGuard()

    @tf.autograph.experimental.do_not_convert
    def call(
        self,
        features: dict[str, dict],
        training: bool | None = None,
        step_key: tf.Tensor | None = None,
    ) -> dict[str, ObjectiveOutput]:
        """Maps group -> features, see `build_inputs` of the task, to objective name -> output.

        Args:
          training: whether dropout is on.
          step_key: int64 scalar, a hash of seed and step that decides the dropout masks. Default:
            masks come from Keras's generator.
        """
        vectors, predicted = self.parts(features, step_key, training=training)
        return {
            name: combine(objective, objective.compare(vectors[name]), predicted[name])
            for name, objective in self.objectives.items()
            if name in vectors
        }

    def vectors(
        self, features: dict[str, dict], step_key: tf.Tensor, first_rows: dict[str, tf.Tensor]
    ) -> dict[str, Vectors]:
        """Returns objective name -> the vectors that it compares, of a part of a training batch."""
        return {
            name: self.objectives[name].vectors(batch, encode)
            for name, batch, encode in self._by_objective(features, True, step_key, first_rows)
        }

    def parts(
        self,
        features: dict[str, dict],
        step_key: tf.Tensor | None,
        first_rows: dict[str, tf.Tensor] | None = None,
        training: bool | None = True,
    ) -> tuple[dict[str, Vectors], dict[str, Prediction | None]]:
        """Returns each objective's vectors and predictions, of a batch or of a part of it.

        Args:
          features, step_key, training: see `call`.
          first_rows: group -> row in the global batch of its first example, int64 scalar. Default:
            the first row of this replica's share.
        """
        vectors, predicted = {}, {}
        for name, batch, encode in self._by_objective(features, training, step_key, first_rows):
            vectors[name] = self.objectives[name].vectors(batch, encode)
            predicted[name] = self.objectives[name].predict(batch, encode, vectors[name])
        return vectors, predicted

    def _by_objective(
        self,
        features: dict[str, dict],
        training: bool | None,
        step_key: tf.Tensor | None,
        first_rows: dict[str, tf.Tensor] | None,
    ) -> Iterator[tuple[str, dict, Encode]]:
        """Yields (name, features, encoder) of each objective; a group shares one `Encode`."""
        for group, batch in features.items():
            stream = None
            if step_key is not None:
                first_row = first_rows[group] if first_rows else own_first_row(batch)
                stream = DropoutStream(step_key, first_row, self._static_shapes)
            encode = Encode(self.encoder, training, stream, batch)
            for name in self._groups[group]:
                yield name, batch, encode

    @property
    def checkpoint_items(self) -> dict[str, tf_keras.layers.Layer | tf.train.Checkpoint]:
        """Items with a name of their own in checkpoints, to be restored without the objectives."""
        items = {"encoder": self.encoder, CHECKPOINT_NAME: self.data_positions.variables}
        if self.head is not None:
            items["language_model_head"] = self.head
        return items

    @property
    def projections(self) -> dict[str, Projection]:
        """The projection P of each objective that has one besides the encoder, by name."""
        own = {name: getattr(x, "projection", None) for name, x in self.objectives.items()}
        return {
            name: projection
            for name, projection in own.items()
            if isinstance(projection, Projection) and projection is not self.encoder.projection
        }
