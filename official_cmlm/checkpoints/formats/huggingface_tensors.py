"""Converts tensors of the Hugging Face architectures to this project's weights and back.

PyTorch stores a linear layer as `[out, in]`, with all heads in one dimension. Here kernels are
`[in, out]`, and attention has a dimension for the heads. Both conversions are transpositions and
reshapes, so a round trip gives equal bits.
"""

import dataclasses
import re

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import (
    Tensors,
    encoder_shapes,
    flat_shape,
    head_shapes,
)
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.configs.encoder import EncoderConfig


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The names of tensors of one `model_type`.

    Attributes:
      prefix: prefix of encoder tensors in a checkpoint that also has a head.
      layers: prefix of a block's tensors, with `{}` for its number.
      modules: this project's module (in a block: without the block's prefix) -> Hugging Face's.
      head: this project's module of the language-model head -> Hugging Face's.
      head_bias: the head's output bias.
      tied: tensor that repeats another -> `table` if it repeats the embedding table, `bias` if it
        repeats the output bias.
    """

    prefix: str
    layers: str
    modules: dict[str, str]
    head: dict[str, str]
    head_bias: str
    tied: dict[str, str]


_EMBEDDINGS = {
    "word_embeddings": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "type_embeddings": "embeddings.token_type_embeddings",
    "embeddings/layer_norm": "embeddings.LayerNorm",
    "pooler_transform": "pooler.dense",
}
_WITHOUT_TYPES = {name: theirs for name, theirs in _EMBEDDINGS.items() if name[0] != "t"}
_BLOCK = (
    *("self_attention/query", "self_attention/key", "self_attention/value"),
    *("self_attention/attention_output", "self_attention_layer_norm"),
    *("intermediate", "output", "output_layer_norm"),
)


def _block(names: str) -> dict[str, str]:
    return dict(zip(_BLOCK, names.split(), strict=True))


_BERT_BLOCK = _block(
    "attention.self.query attention.self.key attention.self.value"
    " attention.output.dense attention.output.LayerNorm"
    " intermediate.dense output.dense output.LayerNorm"
)
_DISTILBERT_BLOCK = _block(
    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm"
    " ffn.lin1 ffn.lin2 output_layer_norm"
)
_MPNET_BLOCK = _block(
    "attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm"
    " intermediate.dense output.dense output.LayerNorm"
)
_ROBERTA_HEAD = {
    "head": {"transform/dense": "lm_head.dense", "transform/LayerNorm": "lm_head.layer_norm"},
    "head_bias": "lm_head.bias",
    "tied": {"lm_head.decoder.weight": "table", "lm_head.decoder.bias": "bias"},
}
ARCHITECTURES = {
    "bert": Architecture(
        prefix="bert.",
        layers="encoder.layer.{}.",
        modules=_EMBEDDINGS | _BERT_BLOCK,
        head={
            "transform/dense": "cls.predictions.transform.dense",
            "transform/LayerNorm": "cls.predictions.transform.LayerNorm",
        },
        head_bias="cls.predictions.bias",
        tied={"cls.predictions.decoder.weight": "table", "cls.predictions.decoder.bias": "bias"},
    ),
    "roberta": Architecture(
        prefix="roberta.",
        layers="encoder.layer.{}.",
        modules=_EMBEDDINGS | _BERT_BLOCK,
        **_ROBERTA_HEAD,
    ),
    "distilbert": Architecture(
        prefix="distilbert.",
        layers="transformer.layer.{}.",
        modules=_WITHOUT_TYPES | _DISTILBERT_BLOCK,
        head={"transform/dense": "vocab_transform", "transform/LayerNorm": "vocab_layer_norm"},
        head_bias="vocab_projector.bias",
        tied={"vocab_projector.weight": "table"},
    ),
    "mpnet": Architecture(
        prefix="mpnet.",
        layers="encoder.layer.{}.",
        modules={
            **_WITHOUT_TYPES,
            **_MPNET_BLOCK,
            "relative_attention_bias": "encoder.relative_attention_bias",
        },
        **_ROBERTA_HEAD,
    ),
}
# The network of XLM-R and CamemBERT is RoBERTa's.
ARCHITECTURES |= dict.fromkeys(("xlm-roberta", "camembert"), ARCHITECTURES["roberta"])
# Buffers, and the head that judges two segments; nothing here uses these tensors.
_IGNORED = re.compile(r"embeddings\.(position_ids|token_type_ids)$|^cls\.seq_relationship\.")
_PARAMETERS = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "embeddings": "weight",
}


def normal_name(name: str, architecture: Architecture) -> str:
    """Removes the encoder's prefix from a tensor's name and updates old parameter names."""
    name = name.removeprefix(architecture.prefix)
    # Early conversions kept TensorFlow's parameter names.
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def is_ignored(name: str) -> bool:
    """Returns whether neither the encoder nor its head needs a tensor."""
    return bool(_IGNORED.search(name))


def encoder_names(config: EncoderConfig, model_type: str) -> dict[str, str]:
    """Maps this project's names of encoder weights, pooler included, to Hugging Face's.

    Hugging Face's names are without `Architecture.prefix`.

    Args:
      config: the encoder's shape.
      model_type: key of `ARCHITECTURES`.
    """
    architecture, names = ARCHITECTURES[model_type], {}
    for name in encoder_shapes(config):
        module, _, parameter = name.rpartition("/")
        prefix = ""
        if block := re.match(r"transformer/layer_(\d+)/", module):
            prefix = architecture.layers.format(block[1])
            module = module.removeprefix(block[0])
        # DistilBERT and MPNet have no token types.
        if module in architecture.modules:
            names[name] = f"{prefix}{architecture.modules[module]}.{_PARAMETERS[parameter]}"
    return names


def head_names(config: EncoderConfig, model_type: str) -> dict[str, str]:
    """Maps this project's names of the language-model head's weights to Hugging Face's."""
    architecture = ARCHITECTURES[model_type]
    names = {"output_bias/bias": architecture.head_bias}
    for name in head_shapes(config):
        module, _, parameter = name.rpartition("/")
        if module in architecture.head:
            names[name] = f"{architecture.head[module]}.{_PARAMETERS[parameter]}"
    return names


def from_huggingface(
    where: str,
    tensors: Tensors,
    config: EncoderConfig,
    model_type: str,
    surplus: set[str],
) -> tuple[Tensors, Tensors | None]:
    """Renames, transposes and checks tensors.

    Args:
      where: the checkpoint, for messages.
      tensors: the tensors that were read, by `normal_name`.
      config: config of the encoder, from the folder's configuration.
      model_type: key of `ARCHITECTURES`.
      surplus: names of tensors that were not read because the encoder has no place for them.

    Returns:
      The encoder's weights, and the head's or None. A missing pooler is zeros, and so is the table
      of token types if the architecture has none.

    Raises:
      UserError: for missing, surplus, misshapen or untied tensors.
    """
    names, shapes = encoder_names(config, model_type), encoder_shapes(config)
    pooler = [name for name in names if name.startswith("pooler_transform/")]
    if not any(names[name] in tensors for name in pooler):
        names = {name: theirs for name, theirs in names.items() if name not in pooler}
    architecture = ARCHITECTURES[model_type]
    heads = head_names(config, model_type)
    has_head = any(theirs in tensors for theirs in heads.values())
    expected = {*names.values(), *(heads.values() if has_head else ())}
    present = (set(tensors) | surplus) - (set(architecture.tied) if has_head else set())
    check_same_names(where, expected, present)
    encoder = {
        name: _take(where, tensors, theirs, name, shapes[name]) for name, theirs in names.items()
    }
    for name in shapes.keys() - encoder.keys():
        encoder[name] = np.zeros(shapes[name], np.float32)
    if not has_head:
        return encoder, None
    shapes = head_shapes(config)
    head = {
        name: _take(where, tensors, theirs, name, shapes[name]) for name, theirs in heads.items()
    }
    originals = {"table": encoder["word_embeddings/embeddings"], "bias": head["output_bias/bias"]}
    for theirs, what in architecture.tied.items():
        if theirs in tensors and not np.array_equal(
            tensors[theirs], originals[what], equal_nan=True
        ):
            raise UserError(
                f"{where}: {theirs} differs from the tensor that it should repeat (untied head, "
                "tie_word_embeddings: false); pass --drop_head to import the encoder alone"
            )
    return encoder, head


def check_same_names(where: str, expected: set[str], present: set[str]) -> None:
    """Raises `UserError` that lists missing and surplus tensors."""
    missing, surplus = sorted(expected - present), sorted(present - expected)
    if missing:
        raise UserError(
            f"{where}: {len(missing)} tensor(s) missing: {list_names(missing, 8)}; the checkpoint "
            "is incomplete or of another architecture than its configuration says"
        )
    if surplus:
        raise UserError(
            f"{where}: {len(surplus)} tensor(s) that the encoder has no place for: "
            f"{list_names(surplus, 8)}; pass --drop_surplus to import the encoder without them, if "
            "they belong to another task"
        )


def _take(
    where: str, tensors: Tensors, theirs: str, name: str, shape: tuple[int, ...]
) -> np.ndarray:
    """Converts one tensor to this project's layout."""
    tensor, expected = tensors[theirs], flat_shape(name, shape)
    if name.endswith("kernel"):
        expected = expected[::-1]
    if tensor.shape != expected:
        raise UserError(
            f"{where}: {theirs} is {list(tensor.shape)}, the configuration makes it "
            f"{list(expected)}; weights and config.json belong to different models"
        )
    return (tensor.T if name.endswith("kernel") else tensor).reshape(shape)


def to_huggingface(tensors: Tensors, names: dict[str, str]) -> Tensors:
    """Inverts `from_huggingface` for the weights in `names`."""
    result = {}
    for name, theirs in names.items():
        flat = tensors[name].reshape(flat_shape(name, tensors[name].shape))
        result[theirs] = np.ascontiguousarray(flat.T if name.endswith("kernel") else flat)
    return result
