"""The trained model: the encoder, the language-model head and the objectives on top of them."""

import dataclasses
import zlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from official_cmlm.inputs.hashing import fold
from official_cmlm.modeling.dropout import DropoutStream
from official_cmlm.modeling.language_model_head import build_language_model_head
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel
from official_cmlm.objectives import ObjectiveConfig, ObjectiveOutput, objectives
from official_cmlm.objectives.base import Encode, Prediction, Vectors
from official_cmlm.training.data_positions import NAME, DataPositions
from official_cmlm.training.non_finite import FiniteGuard


class MultiObjectiveModel(tf_keras.Model):
    """Runs every objective on its features; inputs that objectives share are encoded once.

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
    ) -> None:
        """Builds the objectives.

        Args:
          encoder: the encoder.
          chosen: settings by objective name, already checked.
          static_shapes: whether no tensor shape may depend on values, as XLA requires.
          data_positions: those of the training data. Default: none.
        """
        super().__init__(name="multi_objective_model", autocast=False)
        self.encoder = encoder
        self.data_positions = data_positions or DataPositions(())
        classes = {name: objectives()[name] for name in chosen}
        self.head = (
            build_language_model_head(encoder)
            if any(config.needs_language_model_head() for config in chosen.values())
            else None
        )
        self.objectives = {
            name: classes[name](config, encoder, self.head) for name, config in chosen.items()
        }
        for objective in self.objectives.values():
            objective.static_shapes = static_shapes
        self.guard = FiniteGuard()

    @tf.autograph.experimental.do_not_convert
    def call(
        self,
        features: dict[str, dict],
        training: bool | None = None,
        step_key: tf.Tensor | None = None,
        first_rows: dict[str, tf.Tensor] | None = None,
    ) -> dict[str, ObjectiveOutput]:
        """Maps group -> features, see `build_inputs` of the task, to objective name -> output.

        Args:
          features: the batches.
          training: whether dropout is on.
          step_key: int64 scalar, a hash of seed and step that decides the dropout masks. Default:
            masks come from Keras's generator.
          first_rows: group -> row in the global batch of its first example, int64 scalar. Default:
            the first row of this replica's share.
        """
        return {
            name: self.objectives[name](batch, encode=encode)
            for name, batch, encode in self._each(features, training, step_key, first_rows)
        }

    def vectors(
        self, features: dict[str, dict], step_key: tf.Tensor, first_rows: dict[str, tf.Tensor]
    ) -> dict[str, Vectors]:
        """Objective name -> the vectors that it compares, of a part of a training batch."""
        return {
            name: self.objectives[name].vectors(batch, encode)
            for name, batch, encode in self._each(features, True, step_key, first_rows)
        }

    def parts(
        self, features: dict[str, dict], step_key: tf.Tensor, first_rows: dict[str, tf.Tensor]
    ) -> tuple[dict[str, Vectors], dict[str, Prediction | None]]:
        """The vectors, as `vectors` returns them, and each objective's predictions."""
        vectors, predicted = {}, {}
        for name, batch, encode in self._each(features, True, step_key, first_rows):
            vectors[name] = self.objectives[name].vectors(batch, encode)
            predicted[name] = self.objectives[name].predict(batch, encode, vectors[name])
        return vectors, predicted

    def _each(
        self,
        features: dict[str, dict],
        training: bool | None,
        step_key: tf.Tensor | None,
        first_rows: dict[str, tf.Tensor] | None,
    ) -> Iterator[tuple[str, dict, Encode]]:
        """(name, features, encoder) of each objective; the encoder caches its outputs."""
        encode = _Memo(self.encoder, training)
        for names, batch in features.items():
            if step_key is not None:
                first_row = first_rows[names] if first_rows else own_first_row(batch)
                encode.streams = DropoutStream(step_key, first_row)
            for name in names.split("+"):
                yield name, batch, encode

    @property
    def checkpoint_items(self) -> dict[str, tf_keras.layers.Layer | tf.train.Checkpoint]:
        """Items with a name of their own in checkpoints, to be restored without the objectives."""
        items = {"encoder": self.encoder, NAME: self.data_positions.variables}
        if self.head is not None:
            items["language_model_head"] = self.head
        return items


def own_first_row(batch: dict) -> tf.Tensor:
    """Row in the global batch of this replica's first example: int64 scalar."""
    context = tf.distribute.get_replica_context()
    replica = 0 if context is None else context.replica_id_in_sync_group
    return tf.cast(replica, tf.int64) * tf.cast(tf.shape(batch["key"])[0], tf.int64)


class _Memo:
    """Calls the encoder and caches its outputs by input tensors.

    CMLM and retrieval both encode s1 of a pair. With the cache they share one pass, and so one
    dropout mask: the weighted sum of their losses is then a loss of one sentence vector.
    """

    def __init__(self, encoder: SentenceEncoderModel, training: bool | None) -> None:
        self._encoder = encoder
        self.training = training
        # The dropout stream of the group that is being computed.
        self.streams: DropoutStream | None = None
        # The tensors are kept with the outputs: an id is unique only while its object is alive.
        self._known: dict[tuple, tuple[list, dict]] = {}

    def stream(self, name: str) -> DropoutStream | None:
        """See `objectives.base.Encode`."""
        if self.streams is None:
            return None
        key = fold(self.streams.key, zlib.crc32(name.encode()))
        return dataclasses.replace(self.streams, key=key)

    def __call__(
        self,
        inputs: dict[str, tf.Tensor] | list[dict[str, tf.Tensor]],
        name: str,
        views: int = 1,
        shared_masks: bool = False,
        with_tokens: bool = False,
    ) -> dict[str, tf.Tensor]:
        parts = inputs if isinstance(inputs, list) else [inputs]
        extra = [part for part in ("dense_inputs", "output_positions") if part in parts[0]]
        names = [*INPUT_NAMES, *extra]
        tensors = [[part[name] for part in parts] for name in names]
        key = (views, shared_masks, with_tokens, *extra, *(id(t) for row in tensors for t in row))
        if key not in self._known:
            joined = [row[0] if len(row) == 1 else tf.concat(row, axis=0) for row in tensors]
            outputs = self._encoder(
                dict(zip(names, joined)),
                training=self.training,
                views=views,
                shared_masks=shared_masks,
                stream=self.stream(name),
                vector_only=not with_tokens,
            )
            self._known[key] = (tensors, outputs)
        return self._known[key][1]
