"""Helpers of the tests of encoder, objectives and task: weights for the oracle, small batches."""

import numpy as np
import tensorflow as tf

VOCAB_SIZE = 100
NUM_HEADS = 2

# Name of the oracle's array -> name of the variable inside a layer of the encoder.
_BLOCK = {
    "query_kernel": "self_attention/query/kernel",
    "query_bias": "self_attention/query/bias",
    "key_kernel": "self_attention/key/kernel",
    "key_bias": "self_attention/key/bias",
    "value_kernel": "self_attention/value/kernel",
    "value_bias": "self_attention/value/bias",
    "output_kernel": "self_attention/attention_output/kernel",
    "output_bias": "self_attention/attention_output/bias",
    "attention_norm_gamma": "self_attention_layer_norm/gamma",
    "attention_norm_beta": "self_attention_layer_norm/beta",
    "intermediate_kernel": "intermediate/kernel",
    "intermediate_bias": "intermediate/bias",
    "ffn_output_kernel": "output/kernel",
    "ffn_output_bias": "output/bias",
    "output_norm_gamma": "output_layer_norm/gamma",
    "output_norm_beta": "output_layer_norm/beta",
}


def randomize(layer, seed=0):
    """Gives every weight a random value, so that no bias is 0, no gamma or variance is 1."""
    rng = np.random.default_rng(seed)
    for variable in layer.weights:
        middle = 1.0 if variable.name.endswith(("gamma:0", "variance:0")) else 0.0
        variable.assign(rng.normal(middle, 0.3, variable.shape))
    return layer


def _weights_by_name(layer):
    return {w.name.removesuffix(":0").removeprefix("bert/"): w.numpy() for w in layer.weights}


def oracle_block(block):
    """Returns the weights of one Transformer block as the reference takes them."""
    named = {
        name: weight.numpy()
        for weight in block.weights
        for name, ending in _BLOCK.items()
        if weight.name.removesuffix(":0").endswith(f"/{ending}")
    }
    # `intermediate` and `self_attention/…/output` end alike; lengths tell a wrong match.
    assert len(named) == len(block.weights) == len(_BLOCK)
    return named


def oracle_encoder(model):
    """Returns the weights of a `SentenceEncoderModel` as `bert_encode` takes them."""
    named = _weights_by_name(model.bert)
    narrow = model.config.embedding_width
    return {
        "embedding_projection_kernel": named["embedding_projection/kernel"] if narrow else None,
        "embedding_projection_bias": named["embedding_projection/bias"] if narrow else None,
        "word_embeddings": named["word_embeddings/embeddings"],
        "position_embeddings": named["position_embedding/embeddings"],
        "type_embeddings": named["type_embeddings/embeddings"],
        "embeddings_norm_gamma": named["embeddings/layer_norm/gamma"],
        "embeddings_norm_beta": named["embeddings/layer_norm/beta"],
        "layers": [oracle_block(block) for block in model.bert.transformer_layers],
    }


def oracle_projection(projection):
    """Returns the N − 1 networks of a `Projection` as `project` takes them."""
    return [
        [(k.numpy()[n], b.numpy()[n]) for k, b in zip(projection.kernels, projection.biases)]
        for n in range(projection.num_projections - 1)
    ]


def oracle_head(head):
    """Returns the weights of the language-model head as `masked_lm_log_probs` takes them."""
    named = _weights_by_name(head)
    return {
        "dense_kernel": named["language_model_head/transform/dense/kernel"],
        "dense_bias": named["language_model_head/transform/dense/bias"],
        "norm_gamma": named["language_model_head/transform/LayerNorm/gamma"],
        "norm_beta": named["language_model_head/transform/LayerNorm/beta"],
        "output_bias": named["language_model_head/output_bias/bias"],
    }


def make_tokens(lengths, padded, seed=0, types=False):
    """Returns rows of random tokens; the padding is random too, and must not matter."""
    rng, noise = np.random.default_rng(seed), np.random.default_rng(1000 + padded)
    ids = noise.integers(0, VOCAB_SIZE, [len(lengths), padded])
    type_ids = noise.integers(0, 2 if types else 1, [len(lengths), padded])
    mask = np.zeros([len(lengths), padded], np.int32)
    for row, length in enumerate(lengths):
        ids[row, :length] = rng.integers(6, VOCAB_SIZE, length)
        type_ids[row, :length] = rng.integers(0, 2 if types else 1, length)
        mask[row, :length] = 1
    return {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.constant(type_ids, tf.int32),
    }


def make_masked(lengths, padded, counts, seed=1):
    """Tokens of which `counts` positions a row are to be predicted, in one slot more than needed.

    The last slot of every row is unused: position 0, weight 0, and an id that must not matter.
    """
    rng = np.random.default_rng(seed + 50)
    slots = max(counts) + 1
    positions = np.zeros([len(lengths), slots], np.int32)
    ids = rng.integers(0, VOCAB_SIZE, [len(lengths), slots])
    weights = np.zeros([len(lengths), slots], np.float32)
    for row, (length, count) in enumerate(zip(lengths, counts)):
        positions[row, :count] = np.sort(rng.choice(length, count, replace=False))
        weights[row, :count] = 1.0
    return {
        **make_tokens(lengths, padded, seed),
        "masked_lm_positions": tf.constant(positions),
        "masked_lm_ids": tf.constant(ids, tf.int32),
        "masked_lm_weights": tf.constant(weights),
    }


def make_pairs(padded=12, first=(5, 9, 3), second=(7, 4, 10), counts=(3, 1, 4)):
    """Features that `cmlm` reads."""
    return {
        "first": make_tokens(first, padded, seed=3),
        "second": make_tokens(second, padded, seed=4),
        "second_masked": make_masked(second, padded, counts, seed=4),
    }


def oracle_pairs(features):
    """Returns the same features as `cmlm_loss` takes them, one dict an example."""
    first, second = features["first"], features["second_masked"]
    rows = {
        "first_word_ids": first["input_word_ids"],
        "first_mask": first["input_mask"],
        "second_word_ids": second["input_word_ids"],
        "second_mask": second["input_mask"],
        **{n: second[n] for n in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")},
    }
    count = len(first["input_word_ids"])
    return [{name: value.numpy()[i] for name, value in rows.items()} for i in range(count)]


def pooling_of(pooling, length=9):
    """Returns the fields of an encoder with a pooling; `mean_padded` pads to `length` tokens."""
    if pooling != "mean_padded":
        return {"pooling": pooling}
    return {"pooling": pooling, "padded_length": length, "padding_id": 3}


def build(objectives, groups=None, **encoder):
    """Returns a `MultiObjectiveModel` with a tiny encoder and random weights."""
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
    from official_cmlm.training.model import MultiObjectiveModel
    from tests.conftest import tiny_encoder_config

    encoder = SentenceEncoderModel(tiny_encoder_config(**encoder))
    return randomize(MultiObjectiveModel(encoder, objectives, groups=groups))


def output_of(objective, features, encode):
    """Returns an objective's output for features, with an encoder of the test's choice."""
    from official_cmlm.objectives.base import combine

    vectors = objective.vectors(features, encode)
    predicted = objective.predict(features, encode, vectors)
    return combine(objective, objective.compare(vectors), predicted)
