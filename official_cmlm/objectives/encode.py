"""The encoder as objectives call it: once for the same inputs."""

import dataclasses
import zlib

import tensorflow as tf

from official_cmlm.inputs.hashing import fold
from official_cmlm.modeling.dropout import DropoutStream
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel


def own_first_row(batch: dict) -> tf.Tensor:
    """Returns the row in the global batch of this replica's first example: int64 scalar."""
    context = tf.distribute.get_replica_context()
    replica = 0 if context is None else context.replica_id_in_sync_group
    return tf.cast(replica, tf.int64) * tf.cast(tf.shape(batch["key"])[0], tf.int64)


class Encode:
    """Encoder of one group's batch that caches its outputs by input tensors.

    CMLM and retrieval both encode s1 of a pair. With the cache they share one pass, and so one
    dropout mask: the weighted sum of their losses is then a loss of one sentence vector.

    Each call has a name, and its dropout masks are a function of the name. They do not depend on
    earlier calls.

    Attributes:
      training: whether dropout is on.
    """

    def __init__(
        self,
        encoder: SentenceEncoderModel,
        training: bool | None,
        dropout: DropoutStream | None,
        batch: dict,
    ) -> None:
        self._encoder, self._dropout, self._batch = encoder, dropout, batch
        self.training = training
        # The tensors are kept with the outputs: an id is unique only while its object is alive.
        self._cached: dict[tuple, tuple[list, dict]] = {}

    def stream(self, name: str) -> DropoutStream | None:
        """Returns the dropout stream for a call of this name, here or of another network."""
        if self._dropout is None:
            return None
        key = fold(self._dropout.key, zlib.crc32(name.encode()))
        return dataclasses.replace(self._dropout, key=key)

    def __call__(
        self,
        inputs: dict[str, tf.Tensor] | list[dict[str, tf.Tensor]],
        name: str,
        views: int = 1,
        shared_masks: bool = False,
        with_tokens: bool = False,
        always_dropout: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Returns the vectors or, with `output_positions` among the inputs, the outputs at these.

        They are those of an earlier call with the same tensors, if there was one.

        Args:
          inputs: a batch, or several of one padded length that are encoded as one, end to end.
          name: name of the call.
          views, shared_masks: see `SentenceEncoderModel.call`.
          with_tokens: whether the outputs of all tokens are returned too.
          always_dropout: whether dropout is on in validation too.
        """
        parts = inputs if isinstance(inputs, list) else [inputs]
        extra = [part for part in ("dense_inputs", "output_positions") if part in parts[0]]
        names = [*INPUT_NAMES, *extra]
        tensors = [[part[name] for part in parts] for name in names]
        settings = (views, shared_masks, with_tokens, always_dropout)
        key = (*settings, *extra, *(id(t) for row in tensors for t in row))
        if key not in self._cached:
            stream = self.stream(name)
            if always_dropout and not self.training:
                # The masks are the same in each validation.
                stream = DropoutStream(tf.constant(0, tf.int64), own_first_row(self._batch))
            joined = [row[0] if len(row) == 1 else tf.concat(row, axis=0) for row in tensors]
            outputs = self._encoder(
                dict(zip(names, joined)),
                training=self.training or always_dropout,
                views=views,
                shared_masks=shared_masks,
                stream=stream,
                vector_only=not with_tokens,
            )
            self._cached[key] = (tensors, outputs)
        return self._cached[key][1]
