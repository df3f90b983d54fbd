"""An encoder's weights as arrays, with their names and shapes."""

import dataclasses
import math

import numpy as np

from official_cmlm.configs.encoder import EncoderConfig

Tensors = dict[str, np.ndarray]
# The weight of a token that counts nothing, as a share of the mean one.
_LEAST_SHARE = 1e-12
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


def make_centred_basis(width: int) -> np.ndarray:
    """Returns orthonormal rows `[width - 1, width]` of mean 0.

    A layer normalisation changes only the length of `vector @ make_centred_basis(width)`.
    """
    # These are rows of the discrete cosine transform. Their numbers are of similar sizes, which is
    # good for 8 bits.
    angles = np.arange(1, width)[:, np.newaxis] * (np.arange(width) + 0.5) * (np.pi / width)
    return np.cos(angles) * math.sqrt(2 / width)


def hold_table(
    config: EncoderConfig, rows: np.ndarray, weights: np.ndarray, basis: np.ndarray | None = None
) -> EncoderWeights:
    """Returns an encoder without blocks whose vector points as the weighted mean of a table's rows.

    The normalisation after the table of words takes mean and length of each row. So a row is stored
    as a direction that has a mean of 0, in one column more than it has; its length counts in its
    token's weight; and a dense layer turns the mean of the tokens back. The vector is that mean but
    for its length, which the encoder's `normalize` sets to 1. Tokens that count nothing are zero
    rows, so that a text without others has the zero vector.

    Args:
      config: the other settings of the encoder.
      rows: the table, `[entries, columns]`.
      weights: how much each entry counts, at least 0, `[entries]`.
      basis: `[columns, size]`, by which the mean is multiplied. Default: it stays as it is.
    """
    columns = rows.shape[1]
    basis, width = np.eye(columns) if basis is None else basis, columns + 1
    size = {"vocab_size": len(rows), "hidden_size": width, "embedding_width": 0}
    none = {"num_layers": 0, "num_attention_heads": 1, "relative_position_buckets": 0}
    pooled = {"pooling": "weighted_mean", "padded_length": 0, "padding_id": 0}
    dense = {"dense_size": basis.shape[1], "dense_activation": "none"}
    config = config.replace(**size, **none, **pooled, **dense)
    lengths = np.linalg.norm(np.asarray(rows, np.float64), axis=1)
    mean = (weights * lengths).mean() or 1.0
    shares = weights * lengths / mean
    is_used = shares > _LEAST_SHARE
    directions = rows * (is_used / np.where(is_used, lengths, 1))[:, np.newaxis]
    turn = make_centred_basis(width)
    encoder = {name: np.zeros(shape) for name, shape in encoder_shapes(config).items()}
    encoder |= {
        "word_embeddings/embeddings": directions @ turn * math.sqrt(width),
        "embeddings/layer_norm/gamma": np.ones(width),
        "token_weights/embeddings": np.log(np.maximum(shares, _LEAST_SHARE))[:, np.newaxis],
        "dense/kernel": turn.T @ basis * (mean / math.sqrt(width)),
    }
    arrays = {name: np.asarray(array, np.float32) for name, array in encoder.items()}
    return EncoderWeights(config, arrays)
