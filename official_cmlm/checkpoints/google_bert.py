"""Imports Google's BERT releases: TF1 and Model Garden checkpoints, TF-Hub and Keras SavedModels.

Weights are found by the names that the variables had when they were saved, so the object that
contained the encoder does not matter. Sizes come from the shapes of the weights; all other settings
come from `bert_config.json`, from an experiment's `params.yaml`, or from a run of the SavedModel.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.encoder_directory import CONFIG_NAME, read_config
from official_cmlm.checkpoints.huggingface_tokenizer import guess_lower_case
from official_cmlm.checkpoints.json_files import read_json
from official_cmlm.checkpoints.source import (
    ImportOptions,
    Source,
    Tensors,
    check_vocabulary_size,
    encoder_shapes,
    flat_shape,
    head_shapes,
)
from official_cmlm.checkpoints.tensorflow_weights import named_weights
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.configs.yaml_loading import override, read_yaml
from official_cmlm.errors import UserError
from official_cmlm.tokenization import Vocabulary, WordPieceVocabulary, load_vocabulary
from official_cmlm.tokenization.sentence_piece import MODEL_NAME

_VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
# The tokenizers of these releases limit a word to 100 or 200 characters; see huggingface_tokenizer
# for the factor.
_MAX_BYTES_PER_WORD = 300
# The releases' `gelu` is the approximation.
_GELUS = ("gelu_new", "gelu_pytorch_tanh")
_CONFIG_KEYS = {
    "hidden_act": "hidden_activation",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "initializer_range": "initializer_range",
    "num_attention_heads": "num_attention_heads",
}


def read_google_bert(path: Path, options: ImportOptions) -> Source:
    """Reads a folder with a checkpoint, a checkpoint's prefix, or a SavedModel's folder.

    Raises:
      UserError: if something is missing, damaged, contradictory or not representable.
    """
    saved_model = path if (path / "saved_model.pb").exists() else None
    prefix = str(path / "variables" / "variables") if saved_model else _prefix(path)
    folder = saved_model or Path(prefix).parent
    own = folder / "assets" / CONFIG_NAME
    notes = []
    if own.exists():
        # A module that this project exported holds all settings.
        config, length = read_config(own)
        weights = named_weights(prefix, dense=config.dense_size > 0)
        if not weights:
            raise UserError(
                f"{path}: holds no encoder, as a module `preprocess`; name the `encoder` beside it"
            )
        if dim := read_json(own).get("dim"):
            notes.append(f"the module gives the first {dim} components, this encoder gives all")
    else:
        weights = named_weights(prefix)
        config = _config(folder, prefix, weights)
        length = config.max_seq_length
        if not options.pooling:
            notes.append(f"pooling not given: {config.pooling}")
    if config.num_projections:
        raise UserError(f"{path}: modules with projected sentence vectors cannot be imported")
    config = config.replace(pooling=options.pooling or config.pooling)
    shapes = encoder_shapes(config)
    if config.dense_size:
        shapes["dense/kernel"] = (config.hidden_size, config.dense_size)
        shapes["dense/bias"] = (config.dense_size,)
    encoder = _take(prefix, weights, shapes)
    has_head = "transform/dense/kernel" in weights and not options.drop_head
    head = _take(prefix, weights, head_shapes(config)) if has_head else None
    vocabulary = (
        options.vocabulary() if options.vocab_file else _vocabulary(folder, prefix, options)
    )
    check_vocabulary_size(prefix, vocabulary, config.vocab_size)
    return Source(
        config=config,
        vocabulary=vocabulary,
        max_seq_length=length,
        encoder=encoder,
        head=head,
        notes=notes,
        for_sentences=bool(options.pooling) or own.exists(),
    )


def _prefix(path: Path) -> str:
    """The checkpoint that a folder, an index file or a prefix names."""
    if not path.is_dir():
        return str(path).removesuffix(".index")
    try:
        latest = tf.train.latest_checkpoint(str(path))
    except (ValueError, tf.errors.OpError):
        latest = None
    if latest and Path(f"{latest}.index").exists():
        return latest
    indices = sorted(path.glob("*.index"))
    if len(indices) != 1:
        names = ", ".join(index.stem for index in indices) or "none"
        raise UserError(f"{path}: one checkpoint expected, found {names}; name its prefix")
    return str(indices[0]).removesuffix(".index")


def _config(folder: Path, prefix: str, weights: Tensors) -> EncoderConfig:
    """The encoder's config: sizes from the weights, the rest from the configuration beside them."""
    needed = ("word_embeddings/embeddings", "position_embedding/embeddings")
    needed += ("type_embeddings/embeddings", "transformer/layer_0/intermediate/kernel")
    needed += ("transformer/layer_0/self_attention/query/kernel",)
    missing = [name for name in needed if name not in weights or weights[name].ndim < 2]
    if missing:
        raise UserError(f"{prefix}: holds no BERT encoder (no {missing[0]})")
    told, told_by = _told(folder)
    query = weights["transformer/layer_0/self_attention/query/kernel"]
    heads = query.shape[1] if query.ndim == 3 else told.get("num_attention_heads")
    if not heads:
        raise UserError(f"{folder}: no bert_config.json with num_attention_heads; add the file")
    numbers = [int(m[1]) for name in weights if (m := re.match(r"transformer/layer_(\d+)/", name))]
    rows, width = weights["word_embeddings/embeddings"].shape[:2]
    inner = weights["transformer/layer_0/intermediate/kernel"]
    config = EncoderConfig(
        vocab_size=rows,
        hidden_size=inner.shape[0],
        embedding_width=width if width != inner.shape[0] else 0,
        num_layers=max(numbers) + 1,
        num_attention_heads=1,
        intermediate_size=inner.shape[1],
        max_position_embeddings=weights["position_embedding/embeddings"].shape[0],
        type_vocab_size=weights["type_embeddings/embeddings"].shape[0],
    )
    told = {k: v for k, v in told.items() if k in _CONFIG_KEYS.values() and v is not None}
    if told.get("hidden_activation") in _GELUS:
        told["hidden_activation"] = "gelu"
    try:
        override(config, {**told, "num_attention_heads": heads}, str(told_by))
        config.check()
    except UserError as error:
        raise UserError(f"{told_by}: {str(error).removeprefix(f'{told_by}: ')}") from None
    return config


def _told(folder: Path) -> tuple[dict[str, Any], Path]:
    """Fields of `EncoderConfig` that a configuration file in the folder gives, and the file."""
    path = folder / "bert_config.json"
    if path.exists():
        values = read_json(path)
        return {ours: values[key] for key, ours in _CONFIG_KEYS.items() if key in values}, path
    path = folder / "params.yaml"
    if path.exists():
        values = read_yaml(path)
        try:
            return dict(values["task"]["model"]["encoder"]["bert"]), path
        except (KeyError, TypeError, ValueError):
            pass
    return {}, folder


def _take(prefix: str, weights: Tensors, shapes: dict[str, tuple[int, ...]]) -> Tensors:
    taken: Tensors = {}
    for name, shape in shapes.items():
        if name not in weights:
            if name.startswith("pooler_transform/"):
                taken[name] = np.zeros(shape, np.float32)
                continue
            raise UserError(f"{prefix}: {name} is missing; the checkpoint is incomplete")
        if weights[name].shape not in (shape, flat_shape(name, shape)):
            raise UserError(
                f"{prefix}: {name} has shape {list(weights[name].shape)}, expected {list(shape)} "
                "by the other weights; the encoder is not a plain BERT"
            )
        taken[name] = weights[name].reshape(shape)
    return taken


def _vocabulary(folder: Path, prefix: str, options: ImportOptions) -> Vocabulary:
    if any((folder / "assets" / name).exists() for name in ("merges.txt", MODEL_NAME)):
        return load_vocabulary(folder / "assets")
    for candidate in (folder / "vocab.txt", folder / "assets" / "vocab.txt"):
        if not candidate.exists():
            continue
        if candidate.with_suffix(".json").exists():
            return load_vocabulary(candidate, options.lower_case)
        tokens = load_vocabulary(candidate, lower_case=True).tokens
        lower_case = options.lower_case
        if lower_case is None:
            lower_case = _told_lower_case(prefix)
        if lower_case is None:
            lower_case = guess_lower_case(tokens)
        # TF-Hub modules are used with tensorflow-text's preprocessing.
        of_hub = (folder / "saved_model.pb").exists()
        normalization = "tensorflow_text" if of_hub else "bert"
        return WordPieceVocabulary(tokens, lower_case, _MAX_BYTES_PER_WORD, normalization)
    raise UserError(f"{folder}: has no vocab.txt; name the file with --vocab_file")


def _told_lower_case(prefix: str) -> bool | None:
    """The casing that a TF-Hub module stores as a variable; None if it stores none."""
    reader, key = tf.train.load_checkpoint(prefix), f"do_lower_case/{_VALUE}"
    return bool(reader.get_tensor(key)) if reader.has_tensor(key) else None
