"""An encoder's weights as arrays, with their names and shapes."""

import dataclasses
import math

import numpy as np

from official_cmlm.configs.encoder import EncoderConfig

Tensors = dict[str, np.ndarray]
# Kernel `[N - 1, in, out]` and bias `[N - 1, out]` of each layer of CMLM's projection.
Layers = list[tuple[np.ndarray, np.ndarray]]
_BLOCK_VECTORS = (
    "self_attention/attention_output/bias",
    "self_attention_layer_norm/gamma",
    "self_attention_layer_norm/beta",
    "output/bias",
    "output_layer_norm/gamma",
    "output_layer_norm/beta",
)


@dataclasses.dataclass(frozen=True)
class EncoderWeights:
    """An encoder's weights, and the config that they fit.

    Attributes:
      config: the encoder's config.
      encoder: weights by the names of `encoder_shapes`, float32.
      projection: CMLM's projection, layer by layer; empty where the vector needs none.
      head: weights of the language-model head by the names of `head_shapes`; None without one.
    """

    config: EncoderConfig
    encoder: Tensors
    projection: Layers = dataclasses.field(default_factory=list)
    head: Tensors | None = None


def encoder_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each encoder weight by name.

    BERT's pooler is always among them, CMLM's projection never.
    """
    hidden, heads, inner = config.hidden_size, config.num_attention_heads, config.intermediate_size
    split, width = (heads, hidden // heads), config.token_width
    shapes: dict[str, tuple[int, ...]] = {
        "word_embeddings/embeddings": (config.vocab_size, width),
        "position_embedding/embeddings": (config.max_position_embeddings, width),
        "type_embeddings/embeddings": (max(config.type_vocab_size, 1), width),
        "embeddings/layer_norm/gamma": (width,),
        "embeddings/layer_norm/beta": (width,),
    }
    if config.embedding_width:
        shapes["embedding_projection/kernel"] = (width, hidden)
        shapes["embedding_projection/bias"] = (hidden,)
    for layer in range(config.num_layers):
        scope = f"transformer/layer_{layer}"
        for name in ("query", "key", "value"):
            shapes[f"{scope}/self_attention/{name}/kernel"] = (hidden, *split)
            shapes[f"{scope}/self_attention/{name}/bias"] = split
        shapes[f"{scope}/self_attention/attention_output/kernel"] = (*split, hidden)
        shapes[f"{scope}/intermediate/kernel"] = (hidden, inner)
        shapes[f"{scope}/intermediate/bias"] = (inner,)
        shapes[f"{scope}/output/kernel"] = (inner, hidden)
        shapes |= {f"{scope}/{name}": (hidden,) for name in _BLOCK_VECTORS}
    if config.relative_position_buckets:
        table = (config.relative_position_buckets, heads)
        shapes["relative_attention_bias/embeddings"] = table
    shapes["pooler_transform/kernel"] = (hidden, hidden)
    shapes["pooler_transform/bias"] = (hidden,)
    if config.dense_size:
        shapes["dense/kernel"] = (hidden, config.dense_size)
        shapes["dense/bias"] = (config.dense_size,)
    if config.pooled_by.weighted:
        shapes["token_weights/embeddings"] = (config.vocab_size, 1)
    return shapes


def head_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each weight of the language-model head by name."""
    hidden, width = config.hidden_size, config.token_width
    return {
        "transform/dense/kernel": (hidden, width),
        "transform/dense/bias": (width,),
        "transform/LayerNorm/gamma": (width,),
        "transform/LayerNorm/beta": (width,),
        "output_bias/bias": (config.vocab_size,),
    }


def flat_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of a weight without a dimension for heads: `[in, out]` or `[out]`."""
    if "self_attention/attention_output/kernel" in name:
        return (math.prod(shape[:-1]), shape[-1])
    if name.endswith("kernel"):
        return (shape[0], math.prod(shape[1:]))
    return (math.prod(shape),) if name.endswith("bias") else shape
