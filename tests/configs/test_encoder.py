"""The size of an encoder, known from its settings alone."""

import math

import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"type_vocab_size": 0},
        {"sentence_vector": "projected_mean", "num_projections": 3},
        {"dense_size": 5, "relative_position_buckets": 8},
        {"embedding_width": 6},
    ],
)
def test_number_of_weights(settings):
    config = tiny_encoder_config(vocab_size=50, **settings)
    model = SentenceEncoderModel(config)
    if model.projection:
        model.projection(tf.zeros([1, config.hidden_size]))
    assert config.num_weights() == sum(math.prod(weight.shape) for weight in model.weights)


def test_more_than_the_machine_holds():
    """Refused before anything is allocated; every size that was read is named."""
    huge = tiny_encoder_config(vocab_size=50, hidden_size=1 << 16, num_layers=1000)
    with pytest.raises(UserError, match=r"encoder: its weights take .* GiB.*hidden_size 65536"):
        SentenceEncoderModel(huge)
