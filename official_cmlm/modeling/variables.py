"""Names of the weights: Model Garden's names, without the scopes around the encoder."""

import re

import tensorflow as tf
import tf_keras

# The scopes in which `build_bert` and `build_language_model_head` create their weights.
_ENCODER_SCOPE = "bert/"
_HEAD_SCOPE = "language_model_head/"


def encoder_variables(model: tf_keras.Model) -> dict[str, tf.Variable]:
    """The encoder's weights by name.

    Args:
      model: a `SentenceEncoderModel`.

    Returns:
      Name -> variable, e.g. `word_embeddings/embeddings` `[vocab, width]`, where the table is not
      as wide as the encoder also `embedding_projection/kernel` `[width, hidden]`,
      `transformer/layer_0/self_attention/query/kernel` `[hidden, heads, hidden / heads]`,
      `transformer/layer_0/output/kernel` `[inner, hidden]`, `pooler_transform/bias` `[hidden]`,
      and `dense/kernel`, `dense/bias` where the encoder has such a layer.
    """
    variables = bert_variables(model.bert)
    if model.dense is not None:
        variables |= {"dense/kernel": model.dense.kernel, "dense/bias": model.dense.bias}
    return variables


def bert_variables(bert: tf_keras.Model) -> dict[str, tf.Variable]:
    """The weights of an encoder's network by name, see `encoder_variables`."""
    return _by_name(bert.weights, _ENCODER_SCOPE)


def head_variables(head: tf_keras.layers.Layer) -> dict[str, tf.Variable]:
    """The language-model head's own weights by name, e.g. `transform/dense/kernel`."""
    return {
        name: variable
        for name, variable in _by_name(head.weights, _HEAD_SCOPE).items()
        if name != "word_embeddings/embeddings"
    }


def _by_name(variables: list[tf.Variable], scope: str) -> dict[str, tf.Variable]:
    pattern = re.compile(rf"^(?:.*/)?{scope}|:\d+$|^{_ENCODER_SCOPE}")
    return {pattern.sub("", variable.name): variable for variable in variables}
