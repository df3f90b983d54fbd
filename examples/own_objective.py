"""An objective outside of the package: alignment and uniformity of neighbouring sentences.

Neighbours should lie near each other, and all sentences spread over the sphere (after Wang and
Isola 2020, "Understanding Contrastive Representation Learning through Alignment and Uniformity on
the Hypersphere"; uniformity is computed for each sentence here). Train with it:

    cmlm train examples/own_objective.yaml --import_module=examples.own_objective --to=work/own \
        --data=work/records
"""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.common.validation import above
from official_cmlm.inputs.views import AdjacentPairs
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives import Objective, ObjectiveConfig, ObjectiveOutput
from official_cmlm.objectives.base import LOWER, register


@dataclasses.dataclass
class AlignmentUniformityConfig(ObjectiveConfig):
    """Settings of `alignment_uniformity`.

    Attributes:
      uniformity_weight: factor of the uniformity beside the alignment. Default 1.
      sharpness: t of exp(-t · squared distance). Default 2 (Wang and Isola 2020).
    """

    uniformity_weight: float = 1.0
    sharpness: Annotated[float, above(0)] = 2.0

    def view(self, data, facts):
        return AdjacentPairs(data.segment, data.seq_length, data.swap_probability, facts.special)

    def min_batch_size(self):
        return 2  # a sentence keeps away from the other examples of its batch


@register("alignment_uniformity")
class AlignmentUniformity(Objective):
    """Mean squared distance of neighbours + log of the mean Gaussian kernel of all others."""

    config_class = AlignmentUniformityConfig
    metric_directions = {"alignment": LOWER, "uniformity": LOWER}  # noqa: RUF012
    in_batch_metrics = frozenset({"uniformity"})  # it depends on the size of the batch

    def vectors(self, features, encode):
        """Returns the vectors of a part of the batch; `compare` needs nothing else."""
        sides = {name: encode(features[name], name)["default"] for name in ("first", "second")}
        return {
            name: tf.math.l2_normalize(tf.cast(vector, tf.float32), axis=-1)
            for name, vector in sides.items()
        }

    def compare(self, vectors):
        first, second = vectors["first"], vectors["second"]
        alignment = tf.reduce_sum(tf.square(first - second), axis=-1)
        # `others` are the sentences of all replicas; this replica's own begin at row `offset`.
        others, offset = gather(first)
        rows = tf.shape(first)[0]
        own = tf.one_hot(offset + tf.range(rows), tf.shape(others)[0])
        distances = 2.0 - 2.0 * tf.matmul(first, others, transpose_b=True)
        exponents = -self.config.sharpness * distances - 1e9 * own
        count = tf.cast(tf.shape(others)[0] - 1, tf.float32)
        uniformity = tf.reduce_logsumexp(exponents, axis=-1) - tf.math.log(count)
        batch = tf.cast(rows, tf.float32)
        sums = {"alignment": tf.reduce_sum(alignment), "uniformity": tf.reduce_sum(uniformity)}
        loss = (sums["alignment"] + self.config.uniformity_weight * sums["uniformity"]) / batch
        return ObjectiveOutput(loss, {name: (total, batch) for name, total in sums.items()})
