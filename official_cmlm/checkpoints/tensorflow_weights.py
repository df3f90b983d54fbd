"""The weights of a TensorFlow checkpoint by the names that their variables had when saved."""

import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2 as pb2

from official_cmlm.checkpoints.source import Tensors
from official_cmlm.errors import UserError

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# TF1 name -> ours, in this order.
_TF1_NAMES = (
    (r"^bert/", ""),
    (r"^encoder/", "transformer/"),
    (r"^embeddings/word_embeddings$", "word_embeddings/embeddings"),
    (r"^embeddings/token_type_embeddings$", "type_embeddings/embeddings"),
    (r"^embeddings/position_embeddings$", "position_embedding/embeddings"),
    (r"^embeddings/LayerNorm/", "embeddings/layer_norm/"),
    (r"/attention/self/", "/self_attention/"),
    (r"/attention/output/dense/", "/self_attention/attention_output/"),
    (r"/attention/output/LayerNorm/", "/self_attention_layer_norm/"),
    (r"/intermediate/dense/", "/intermediate/"),
    (r"/output/dense/", "/output/"),
    (r"/output/LayerNorm/", "/output_layer_norm/"),
    (r"^pooler/dense/", "pooler_transform/"),
    (r"^cls/predictions/", ""),
    (r"^output_bias$", "output_bias/bias"),
)
_NAME = re.compile(
    r"^(?:.*/)?((?:word|type)_embeddings/embeddings|position_embedding/embeddings"
    r"|embeddings/layer_norm/(?:gamma|beta)|transformer/layer_\d+/.+/(?:kernel|bias|gamma|beta)"
    r"|(?:embedding_projection|pooler_transform)/(?:kernel|bias)|transform/dense/(?:kernel|bias)"
    r"|relative_attention_bias/embeddings"
    r"|transform/LayerNorm/(?:gamma|beta)|output_bias/bias)$"
)


def named_weights(prefix: str, dense: bool = False) -> Tensors:
    """This project's name -> array, of every weight whose name is an encoder's or a head's.

    Args:
      prefix: of the checkpoint.
      dense: whether an encoder of this project has a dense layer on its vector, whose weights have
        no scope in their names.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        keys = reader.get_variable_to_shape_map()
        if _OBJECT_GRAPH in keys:
            named = [(key, _NAME.match(name)) for key, name in _object_names(reader).items()]
            named = [(key, match[1]) for key, match in named if match]
            if dense:
                alone = {name: key for key, name in _object_names(reader).items()}
                named += [(alone[n], f"dense/{n}") for n in ("kernel", "bias") if n in alone]
        else:
            named = [(key, _tf1_name(key)) for key in keys]
            named = [(key, name) for key, name in named if _NAME.match(name)]
        weights: Tensors = {}
        for key, name in named:
            if name in weights:
                raise UserError(f"{prefix}: holds two encoders ({name} twice); name one of them")
            weights[name] = np.asarray(reader.get_tensor(key), np.float32)
        return weights
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{prefix}: damaged or no checkpoint ({str(error)[:160]}); fetch it again"
        ) from None


def _object_names(reader: Any) -> dict[str, str]:
    """Checkpoint key -> the variable's full name, from the object graph."""
    graph = pb2.TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    return {
        attribute.checkpoint_key: attribute.full_name
        for index, node in enumerate(graph.nodes)
        if index not in slots
        for attribute in node.attributes
    }


def _tf1_name(key: str) -> str:
    if re.search(r"adam|lamb|/(?:m|v)$", key, re.IGNORECASE):
        return ""
    for pattern, ours in _TF1_NAMES:
        key = re.sub(pattern, ours, key)
    return key
