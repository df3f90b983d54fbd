"""An encoder as settings, vocabulary and arrays of weights, and the shapes that these have."""

import dataclasses
import math
from typing import Annotated

import numpy as np

from official_cmlm.checkpoints.encoder_directory import NO_SETTINGS, EncodingSettings
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.tokenization import Vocabulary, load_vocabulary

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
class ImportOptions:
    """Settings that override the source's, or that the source lacks.

    Attributes:
      pooling: how token outputs become the sentence vector. Default: as a sentence-transformers
        folder says, else mean.
      vocab_file: vocabulary for sources that carry none. Default: the source's own.
      lower_case: whether a WordPiece vocabulary is uncased. Default: as the source says, else
        whether its entries hold capitals.
      drop_head: whether to leave out the masked-language-model head. Default: keep it.
      drop_surplus: whether to leave out tensors that the encoder has no place for, such as a
        classifier's. Default: refuse and list them.
    """

    pooling: Annotated[str, OneOf(("", "mean", "max", "cls"))] = ""
    vocab_file: str = ""
    lower_case: bool | None = None
    drop_head: bool = False
    drop_surplus: bool = False

    def vocabulary(self) -> Vocabulary:
        """Reads `vocab_file`."""
        return load_vocabulary(self.vocab_file, self.lower_case)


@dataclasses.dataclass(frozen=True)
class ImportedEncoder:
    """An encoder that was read from a public checkpoint.

    Attributes:
      config: the encoder's shape and pooling.
      vocabulary: its vocabulary.
      max_seq_length: default length for encoding, in tokens.
      encoder: weights by the names of `modeling.sentence_encoder.encoder_variables`, float32.
      head: weights of the language-model head by the names of `head_variables`; None without one.
      notes: remarks for the user about this import, one sentence each.
      for_sentences: whether the source or the user says how token outputs become a vector; false
        for plain language models.
      encoding: prompts and the like, if the source has them.
    """

    config: EncoderConfig
    vocabulary: Vocabulary
    max_seq_length: int
    encoder: Tensors
    head: Tensors | None
    notes: list[str]
    for_sentences: bool = True
    encoding: EncodingSettings = NO_SETTINGS


def check_finite(where: str, encoder: ImportedEncoder) -> None:
    """Raises `UserError` if a weight is non-finite."""
    for name, tensor in (encoder.encoder | (encoder.head or {})).items():
        if not np.isfinite(tensor).all():
            raise UserError(
                f"{where}: {name} holds non-finite values; take another checkpoint of the training"
            )


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
