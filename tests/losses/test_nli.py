"""Features and loss of natural language inference in half precision."""

import pytest
import tensorflow as tf

from official_cmlm.losses.nli import nli_features, nli_loss


def test_features_of_half_precision_vectors():
    u = tf.constant([[1.0 + 2.0**-7]], tf.bfloat16)
    features = nli_features(u, u)
    assert features.dtype == tf.float32
    assert float(features[0, 3]) == (1.0 + 2.0**-7) ** 2


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_loss_of_half_precision_logits(dtype):
    """Logits in half precision give a loss in float32 that does not overflow."""
    losses, _ = nli_loss(tf.constant([[0.0, 6e4, 0.0]], dtype), tf.constant([0]))
    assert losses.dtype == tf.float32
    assert float(losses[0]) == pytest.approx(6e4, rel=1e-2)
