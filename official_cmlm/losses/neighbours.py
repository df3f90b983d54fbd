"""QuickThought's loss, which classifies each sentence's neighbours among those of the batch."""

import tensorflow as tf


def neighbour_cross_entropy(
    anchors: tf.Tensor,
    candidates: tf.Tensor,
    offset: tf.Tensor | int = 0,
    *,
    places: tf.Tensor,
    distance: int,
    logit_scale: float,
    normalize: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Computes the cross-entropy of candidates with the even distribution over the neighbours.

    With φ the inner product (cosine if `normalize`), s the scale and T_i the neighbours of i:

        ℓ_i = −1/|T_i| Σ_{t ∈ T_i} log( exp s φ(a_i, c_t) / (1 + Σ_{j ≠ i} exp s φ(a_i, c_j)) )

    as Logeswaran and Lee 2018 trained (github.com/lajanugen/S2V, `src/s2v_model.py`). Their code
    sets the score of the sentence itself to 0, which gives the 1 in the sum and has no gradient.

    Args:
      anchors: float `[batch, dim]`, sentences by the one encoder.
      candidates: float `[all, dim]`, the sentences of all replicas by the other encoder; row
        `offset + i` is sentence i itself.
      offset: int scalar, row of the first anchor's sentence.
      places, distance: see `are_neighbours`.
      logit_scale, normalize: s, and whether both sides are L2-normalised first.

    Returns:
      float32 `[batch]` losses in nats, 0 for a sentence without a neighbour in the batch; and
      float32 `[batch]`, 1 where a neighbour has the largest score of all but the sentence itself.
    """
    anchors, candidates = tf.cast(anchors, tf.float32), tf.cast(candidates, tf.float32)
    if normalize:
        anchors = tf.math.l2_normalize(anchors, axis=-1)
        candidates = tf.math.l2_normalize(candidates, axis=-1)
    rows = tf.range(tf.shape(anchors)[0]) + offset
    itself = tf.one_hot(rows, tf.shape(candidates)[0], on_value=True, off_value=False)
    logits = logit_scale * tf.matmul(anchors, candidates, transpose_b=True)
    logits = tf.where(itself, 0.0, logits)
    targets = tf.cast(are_neighbours(rows, places, distance), tf.float32)
    targets = tf.math.divide_no_nan(targets, tf.reduce_sum(targets, axis=1, keepdims=True))
    # The gradient of the cross-entropy assumes that targets sum to 1, which some do not.
    losses = tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    losses *= tf.reduce_sum(targets, axis=1)
    best = tf.argmax(tf.where(itself, logits.dtype.min, logits), axis=1)
    return losses, tf.cast(tf.gather(targets, best, batch_dims=1) > 0, tf.float32)


def are_neighbours(rows: tf.Tensor, places: tf.Tensor, distance: int) -> tf.Tensor:
    """Returns which sentences stand at most `distance` before or after each of `rows`.

    Args:
      rows: int32 `[batch]`, numbers of sentences among all.
      places: float32 `[all, 3]`: two numbers that tell the record of each sentence, and its place
        in the record.
      distance: in sentences, at least 1.

    Returns:
      bool `[batch, all]`.
    """
    own = tf.gather(places, rows)[:, tf.newaxis]
    same_record = tf.reduce_all(own[..., :2] == places[tf.newaxis, :, :2], axis=2)
    apart = tf.abs(own[..., 2] - places[tf.newaxis, :, 2])
    return same_record & (apart > 0) & (apart <= distance)
