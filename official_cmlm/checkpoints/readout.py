"""Other vectors than its own, read from a trained encoder: another pooling, CMLM's mean projection.

CMLM §5.1 and appendix A read several vectors from one trained model. No weight changes: a pooling
has none, and the projection P is among the weights that the training kept for its objective.
"""

import dataclasses
import re

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.integrity import refuse_damage
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError

# P in a training's checkpoint, where the encoder itself does not carry it.
_KERNEL = re.compile(
    r"model/objectives/([^/]+)/projection/kernel(?:_|s/)(\d+)/\.ATTRIBUTES/VARIABLE_VALUE"
)


@dataclasses.dataclass(frozen=True)
class Readout:
    """Which vector is read from an encoder, where it is not to be the encoder's own.

    Attributes:
      pooling: one of `configs.encoder.POOLINGS`; None: the encoder's own. `cls_pooler` goes through
        the pooler as the checkpoint has it, which no training but one with that pooling or with
        next-sentence prediction has trained. `mean_padded` pads to the length that longer texts are
        cut to.
      sentence_vector: one of `configs.encoder.SENTENCE_VECTORS`; None: the encoder's own.
    """

    pooling: str | None = None
    sentence_vector: str | None = None

    def __bool__(self) -> bool:
        return bool(self.pooling or self.sentence_vector)

    def __str__(self) -> str:
        chosen = (self.pooling and f"pooling {self.pooling}", self.sentence_vector)
        return ", ".join(part for part in chosen if part)

    def applied(
        self, config: EncoderConfig, checkpoint: str, max_seq_length: int, padding_id: int
    ) -> tuple[EncoderConfig, str | None]:
        """The configuration of the encoder that gives this vector.

        Args:
          config: the encoder's own.
          checkpoint: prefix of its checkpoint, where P is looked for.
          max_seq_length: what texts are cut to, in tokens.
          padding_id: id of the padding token.

        Returns:
          The config, and the name of the objective that has P; None where the encoder has it, or
          needs none.

        Raises:
          UserError: for a vector that the encoder cannot give.
        """
        holder = None
        if self.pooling not in (None, config.pooling):
            length = 0
            if self.pooling == "mean_padded":
                length = min(max_seq_length, config.max_seq_length)
            config = config.replace(pooling=self.pooling, padded_length=length)
            config = config.for_vocabulary(config.vocab_size, padding_id)
        if self.sentence_vector not in (None, config.sentence_vector):
            shape = {"num_projections": 0, "projection_depth": 3, "projection_width": 2.0}
            if self.sentence_vector == "projected_mean":
                holder, shape = _projection_of(checkpoint, config.hidden_size)
            config = config.replace(sentence_vector=self.sentence_vector, **shape)
        config.check()
        return config, holder


OWN_VECTOR = Readout()


def _projection_of(checkpoint: str, hidden_size: int) -> tuple[str, dict[str, int | float]]:
    """The objective whose weights hold P, and P's shape as fields of `EncoderConfig`."""
    found: dict[str, dict[int, list[int]]] = {}
    try:
        variables = tf.train.list_variables(checkpoint)
    except (tf.errors.OpError, ValueError):
        refuse_damage(checkpoint)
        raise
    for key, shape in variables:
        if match := _KERNEL.fullmatch(key):
            found.setdefault(match[1], {})[int(match[2])] = shape
    if not found:
        raise UserError(
            f"{checkpoint}: has no projection P, which sentence_vector projected_mean reads; a "
            "training with the objective cmlm and num_projections above 1 has one: name its "
            "--model_dir, or leave the sentence vector as it is"
        )
    # Two objectives with projections are no method of the papers; the choice is at least fixed.
    name, kernels = sorted(found.items())[0]
    count, _, width = kernels[0]
    return name, {
        "num_projections": count + 1,
        "projection_depth": len(kernels),
        "projection_width": width / hidden_size if len(kernels) > 1 else 2.0,
    }


def projection_items(
    name: str, projection: tf_keras.layers.Layer
) -> dict[str, tf.train.Checkpoint]:
    """Checkpoint items that restore an objective's projection into `projection`."""
    objective = tf.train.Checkpoint(projection=projection)
    objectives = tf.train.Checkpoint(**{name: objective})
    return {"model": tf.train.Checkpoint(objectives=objectives)}
