"""Converts `config.json` of the Hugging Face architectures to `EncoderConfig` and back."""

import typing
from pathlib import Path
from typing import Any

from official_cmlm.checkpoints.formats.published_files import get_typed
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.tokenization import Vocabulary

# Hugging Face's name -> ours. Its `gelu` is exact; ours is the approximation by tanh, as in
# TensorFlow's releases.
_ACTIVATIONS = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}
# Field of `EncoderConfig` -> key of config.json.
_BERT_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "initializer_range": "initializer_range",
}
_DISTILBERT_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_activation": "activation",
    "dropout_rate": "dropout",
    "attention_dropout_rate": "attention_dropout",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "initializer_range",
}
_MPNET_KEYS = {ours: t for ours, t in _BERT_KEYS.items() if ours != "type_vocab_size"} | {
    "relative_position_buckets": "relative_attention_num_buckets",
}
_MPNET_BUCKETS = 32
# These share a network; only their tokenizers differ.
ROBERTAS = ("roberta", "xlm-roberta", "camembert")
_KEYS = {
    "bert": _BERT_KEYS,
    **dict.fromkeys(ROBERTAS, _BERT_KEYS),
    "distilbert": _DISTILBERT_KEYS,
    "mpnet": _MPNET_KEYS,
}
# `model_type` -> prefix of the library's classes.
CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "mpnet": "MPNet",
}
# Hugging Face's defaults for keys that config.json lacks, and where an architecture has others.
_COMMON_DEFAULTS = {
    "hidden_activation": "gelu",
    "dropout_rate": 0.1,
    "attention_dropout_rate": 0.1,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "type_vocab_size": 2,
}
_DEFAULTS = {
    "distilbert": {"type_vocab_size": 0},
    "mpnet": {"type_vocab_size": 0, "relative_position_buckets": _MPNET_BUCKETS},
}
# The first token's row in the position table: RoBERTa counts positions from the padding's id + 1.
_ROBERTA_OFFSET = 2
# Settings that change the network, and the values that this project's encoder implements.
_ONLY = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "adapters": (None,),
}


def encoder_config(path: Path, values: dict[str, Any]) -> tuple[EncoderConfig, str]:
    """Converts a `config.json` into an `EncoderConfig`.

    Returns:
      The config, with default pooling, and the `model_type`.

    Raises:
      UserError: for a model type or a setting that the encoder cannot represent, by name.
    """
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in _KEYS:
        raise UserError(
            f"{path}: model_type {model_type!r} cannot be imported; known: {', '.join(_KEYS)} "
            "(mBERT, MiniLM and LaBSE are bert, DistilRoBERTa is roberta)"
        )
    for key, allowed in _ONLY.items():
        if key in values and values[key] not in allowed:
            raise UserError(
                f"{path}: {key} is {values[key]!r}, only {allowed[0]!r} can be represented"
            )
    embedding, hidden = values.get("embedding_size"), values.get("hidden_size")
    if embedding not in (None, hidden):
        raise UserError(
            f"{path}: embedding_size {embedding} differs from hidden_size {hidden}; factorised "
            "embeddings cannot be imported"
        )
    fields: dict[str, Any] = _COMMON_DEFAULTS | _DEFAULTS.get(model_type, {})
    hints = typing.get_type_hints(EncoderConfig)
    for field, key in _KEYS[model_type].items():
        if field == "hidden_activation":
            fields[field] = values.get(key, fields[field])
            continue
        fields[field] = get_typed(path, values, key, hints[field], fields.get(field))
        if fields[field] is None:
            raise UserError(f"{path}: {key} must be a number, got None; fetch it again")
    activation = fields["hidden_activation"]
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise UserError(
            f"{path}: activation {activation!r} cannot be represented; known: "
            f"{', '.join(_ACTIVATIONS)}"
        )
    fields["hidden_activation"] = _ACTIVATIONS[activation]
    if model_type in (*ROBERTAS, "mpnet"):
        offset = values.get("pad_token_id", 1)
        if offset != _ROBERTA_OFFSET - 1:
            raise UserError(f"{path}: pad_token_id {offset!r}, RoBERTa's positions need it to be 1")
        fields["position_offset"] = _ROBERTA_OFFSET
    if model_type == "mpnet" and fields["relative_position_buckets"] != _MPNET_BUCKETS:
        raise UserError(
            f"{path}: relative_attention_num_buckets is {fields['relative_position_buckets']}, "
            f"only {_MPNET_BUCKETS} can be represented: the reference library uses no other"
        )
    for name in ("vocab_size", "max_position_embeddings"):
        if fields[name] < 1:
            raise UserError(f"{path}: {name} must be at least 1, got {fields[name]}")
    return EncoderConfig.read(fields, path), model_type


def model_type_of(config: EncoderConfig, vocabulary: Vocabulary) -> str:
    """Returns the Hugging Face architecture of an encoder, but for its `embedding_width`."""
    if config.relative_position_buckets:
        shape = (config.relative_position_buckets, config.position_offset, config.type_vocab_size)
        if shape == (_MPNET_BUCKETS, _ROBERTA_OFFSET, 0):
            return "mpnet"
        raise UserError(
            "encoder.relative_position_buckets has a counterpart in Hugging Face's library only if "
            f"it is {_MPNET_BUCKETS}, with position_offset {_ROBERTA_OFFSET} and type_vocab_size 0 "
            "(MPNet)"
        )
    if config.position_offset == _ROBERTA_OFFSET:
        if vocabulary.kind != "sentencepiece":
            return "roberta"
        return "camembert" if vocabulary.tokens[0] == "<s>NOTUSED" else "xlm-roberta"
    if config.position_offset:
        raise UserError(
            f"encoder.position_offset {config.position_offset} has no counterpart in Hugging "
            f"Face's library; 0 (BERT) and {_ROBERTA_OFFSET} (RoBERTa) have"
        )
    if not config.type_vocab_size and config.layer_norm_epsilon == 1e-12:
        return "distilbert"
    return "bert"


def config_json(config: EncoderConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Builds the `config.json` of an encoder; its inverse is `encoder_config`.

    Args:
      config: the encoder's shape.
      vocabulary: its vocabulary, for the special tokens.

    Raises:
      UserError: if Hugging Face's library has no such network.
    """
    if config.embedding_width:
        raise UserError(
            f"encoder.embedding_width {config.embedding_width} has no counterpart in Hugging "
            "Face's library; export the encoder as ONNX graphs or TF-Hub modules"
        )
    model_type, special_ids = model_type_of(config, vocabulary), vocabulary.special_ids
    fields = config.as_dict()
    spelled = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    fields["hidden_activation"] = spelled[config.hidden_activation]
    values: dict[str, Any] = {
        "architectures": [f"{CLASSES[model_type]}Model"],
        "model_type": model_type,
        **{key: fields[field] for field, key in _KEYS[model_type].items()},
        "pad_token_id": special_ids["pad"],
        "torch_dtype": "float32",
    }
    if model_type == "bert" and not config.type_vocab_size:
        # A DistilBERT with another epsilon is a BERT with one token type whose vector is zero.
        values["type_vocab_size"] = 1
    if model_type != "distilbert":
        values["position_embedding_type"] = "absolute"
        values["bos_token_id"], values["eos_token_id"] = special_ids["cls"], special_ids["sep"]
    if model_type == "bert":
        del values["bos_token_id"], values["eos_token_id"]
    if model_type in (*ROBERTAS, "mpnet") and special_ids["pad"] != _ROBERTA_OFFSET - 1:
        raise UserError("RoBERTa's positions need the padding token to have id 1")
    return values
