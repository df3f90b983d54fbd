"""What a step measures: examples, real tokens, positions with the padding; the gradients' norm."""

import tensorflow as tf
import tf_keras

EXAMPLES, TOKENS, POSITIONS = "examples", "tokens", "positions"
NAMES = (EXAMPLES, TOKENS, POSITIONS)
# Features that repeat a sequence of the view with some of its tokens hidden.
_COPY = "_masked"


def batch_counts(features: dict[str, dict]) -> dict[str, tf.Tensor]:
    """Sums over a replica's share of a batch: name -> float32 scalar.

    Args:
      features: group -> features. Examples are those of all groups; tokens are the ones of
        `input_mask`, special tokens included, of each sequence of the view once: masked copies are
        the same text.
    """
    counts = dict.fromkeys(NAMES, tf.constant(0.0))
    for batch in features.values():
        counts[EXAMPLES] += tf.cast(tf.shape(batch["key"])[0], tf.float32)
        for name, feature in batch.items():
            if isinstance(feature, dict) and "input_mask" in feature and not name.endswith(_COPY):
                mask = feature["input_mask"]
                counts[TOKENS] += tf.cast(tf.reduce_sum(mask), tf.float32)
                counts[POSITIONS] += tf.cast(tf.size(mask), tf.float32)
    return counts


def count_metrics() -> list[tf_keras.metrics.Metric]:
    """A sum over steps and replicas for each of `NAMES`."""
    return [tf_keras.metrics.Sum(name) for name in NAMES]


class FiniteMean(tf_keras.metrics.Mean):
    """A mean over steps that leaves out values that are not finite; NaN if there are no others.

    Under a loss scale gradients overflow as a matter of course, and such a step is left out too.
    """

    def update_state(
        self, values: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> tf.Operation | None:
        finite = tf.math.is_finite(values)
        weight = tf.cast(finite, self.dtype)
        if sample_weight is not None:
            weight *= tf.cast(sample_weight, self.dtype)
        return super().update_state(tf.where(finite, values, 0.0), sample_weight=weight)

    def result(self) -> tf.Tensor:
        return self.total / self.count
