"""Imports Google's BERT releases: TF1 and Model Garden checkpoints, TF-Hub and Keras SavedModels.

Weights are found by the names that the variables had when they were saved, so the object that
contained the encoder does not matter. Sizes come from the shapes of the weights; all other settings
come from `bert_config.json`, from an experiment's `params.yaml`, or from a run of the SavedModel.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2 as pb2

from official_cmlm.checkpoints.encoder_arrays import (
    Tensors,
    encoder_shapes,
    flat_shape,
    head_shapes,
)
from official_cmlm.checkpoints.encoder_directory import (
    NO_SETTINGS,
    EncoderDirectory,
    EncodingSettings,
    check_vocabulary_size,
)
from official_cmlm.checkpoints.formats.huggingface_tokenizer import guess_lower_case
from official_cmlm.checkpoints.formats.imported_encoder import ImportedEncoder, ImportOptions
from official_cmlm.checkpoints.formats.published_files import read_json
from official_cmlm.checkpoints.integrity import VALUE
from official_cmlm.checkpoints.weights import model_of
from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.configs.encoder import ACTIVATIONS, EncoderConfig
from official_cmlm.configs.yaml_loading import read_yaml
from official_cmlm.tokenization import Vocabulary, WordPieceVocabulary, load_vocabulary
from official_cmlm.tokenization.sentence_piece import MODEL_NAME

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
# Weights that this project's TF-Hub modules name without their layer: name there -> name here.
_ALONE = {
    "kernel": "dense/kernel",
    "bias": "dense/bias",
    "embeddings": "token_weights/embeddings",
}
# The tokenizers of these releases limit a word to 100 or 200 characters; `huggingface_tokenizer`
# explains the factor.
_MAX_BYTES_PER_WORD = 300
# Other names of the tanh approximation, which the releases call `gelu`.
_GELUS = ("gelu_new", "gelu_pytorch_tanh")
# Largest difference of token outputs that counts as equal; the two GELUs differ by more.
_TOLERANCE = 1e-4
_CONFIG_KEYS = {
    "hidden_act": "hidden_activation",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
    "initializer_range": "initializer_range",
    "num_attention_heads": "num_attention_heads",
}


def read_google_bert(path: Path, options: ImportOptions) -> ImportedEncoder:
    """Reads a folder with a checkpoint, a checkpoint's prefix, or a SavedModel's folder.

    Raises:
      UserError: if something is missing, damaged, contradictory or not representable.
    """
    saved_model = path if (path / "saved_model.pb").exists() else None
    prefix = str(path / "variables" / "variables") if saved_model else _prefix(path)
    folder = saved_model or Path(prefix).parent
    notes, exported, encoding = [], EncoderDirectory.is_at(folder / "assets"), NO_SETTINGS
    if exported:
        # A module that this project exported holds all settings.
        described = EncoderDirectory.open(folder / "assets")
        config, length = described.config, described.max_seq_length
        encoding = EncodingSettings.of_values(described.values, folder)
        weights = _name_weights(prefix, exported=True)
        if not weights:
            raise UserError(
                f"{path}: holds no encoder, as a module `preprocess`; name the `encoder` beside it"
            )
        if dim := described.values.get("dim"):
            notes.append(f"the module gives the first {dim} components, this encoder gives all")
    else:
        weights = _name_weights(prefix)
        config = _config(folder, prefix, weights)
        length = config.max_seq_length
        if not options.pooling:
            notes.append(f"pooling not given: {config.pooling}")
    if config.num_projections:
        raise UserError(f"{path}: modules with projected sentence vectors cannot be imported")
    config = config.replace(pooling=options.pooling or config.pooling)
    encoder = _take(prefix, weights, encoder_shapes(config))
    has_head = "transform/dense/kernel" in weights and not options.drop_head
    head = _take(prefix, weights, head_shapes(config)) if has_head else None
    vocabulary = (
        options.vocabulary() if options.vocab_file else _vocabulary(folder, prefix, options)
    )
    check_vocabulary_size(prefix, vocabulary, config.vocab_size)
    imported = ImportedEncoder(
        config=config,
        vocabulary=vocabulary,
        max_seq_length=length,
        encoder=encoder,
        head=head,
        notes=notes,
        for_sentences=bool(options.pooling) or exported,
        encoding=encoding,
    )
    return _with_known_activation(path, imported) if saved_model else imported


def _prefix(path: Path) -> str:
    """Finds the checkpoint that a folder, an index file or a prefix names."""
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
    """Builds the config: sizes from the weights, the rest from the configuration beside them."""
    needed = ("word_embeddings/embeddings", "position_embedding/embeddings")
    needed += ("type_embeddings/embeddings", "transformer/layer_0/intermediate/kernel")
    needed += ("transformer/layer_0/self_attention/query/kernel",)
    missing = [name for name in needed if name not in weights or weights[name].ndim < 2]
    if missing:
        raise UserError(f"{prefix}: holds no BERT encoder (no {missing[0]})")
    fields, source = _read_fields(folder)
    query = weights["transformer/layer_0/self_attention/query/kernel"]
    heads = query.shape[1] if query.ndim == 3 else fields.get("num_attention_heads")
    if not heads:
        raise UserError(f"{folder}: no bert_config.json with num_attention_heads; add the file")
    numbers = [int(m[1]) for name in weights if (m := re.match(r"transformer/layer_(\d+)/", name))]
    rows, width = weights["word_embeddings/embeddings"].shape[:2]
    inner = weights["transformer/layer_0/intermediate/kernel"]
    fields = {k: v for k, v in fields.items() if k in _CONFIG_KEYS.values() and v is not None}
    if fields.get("hidden_activation") in _GELUS:
        fields["hidden_activation"] = "gelu"
    sizes = {
        "vocab_size": rows,
        "hidden_size": inner.shape[0],
        "embedding_width": width if width != inner.shape[0] else 0,
        "num_layers": max(numbers) + 1,
        "num_attention_heads": heads,
        "intermediate_size": inner.shape[1],
        "max_position_embeddings": weights["position_embedding/embeddings"].shape[0],
        "type_vocab_size": weights["type_embeddings/embeddings"].shape[0],
    }
    return EncoderConfig.read(fields | sizes, source)


def _read_fields(folder: Path) -> tuple[dict[str, Any], Path]:
    """Reads fields of `EncoderConfig` from a configuration file; returns them and its path."""
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
            lower_case = _read_lower_case(prefix)
        if lower_case is None:
            lower_case = guess_lower_case(tokens)
        # TF-Hub modules are used with tensorflow-text's preprocessing.
        of_hub = (folder / "saved_model.pb").exists()
        normalization = "tensorflow_text" if of_hub else "bert"
        return WordPieceVocabulary(tokens, lower_case, _MAX_BYTES_PER_WORD, normalization)
    raise UserError(f"{folder}: has no vocab.txt; name the file with --vocab_file")


def _read_lower_case(prefix: str) -> bool | None:
    """Reads the casing that a TF-Hub module stores as a variable; None if it stores none."""
    reader, key = tf.train.load_checkpoint(prefix), f"do_lower_case{VALUE}"
    return bool(reader.get_tensor(key)) if reader.has_tensor(key) else None


def _name_weights(prefix: str, exported: bool = False) -> Tensors:
    """Reads each weight with a name of an encoder or a head: this project's name -> array.

    With `exported`, the checkpoint is in a TF-Hub module of this project, which names some weights
    without their layer.
    """
    with guard_reading(prefix, "fetch it again"):
        reader = tf.train.load_checkpoint(prefix)
        keys = reader.get_variable_to_shape_map()
        if _OBJECT_GRAPH in keys:
            named = [(key, _NAME.match(name)) for key, name in _object_names(reader).items()]
            named = [(key, match[1]) for key, match in named if match]
            if exported:
                keys = {name: key for key, name in _object_names(reader).items()}
                named += [(keys[name], ours) for name, ours in _ALONE.items() if name in keys]
        else:
            named = [(key, _tf1_name(key)) for key in keys]
            named = [(key, name) for key, name in named if _NAME.match(name)]
        weights: Tensors = {}
        for key, name in named:
            if name in weights:
                raise UserError(f"{prefix}: holds two encoders ({name} twice); name one of them")
            weights[name] = np.asarray(reader.get_tensor(key), np.float32)
        return weights


def _object_names(reader: Any) -> dict[str, str]:
    """Reads the object graph: checkpoint key -> the variable's full name."""
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


def _with_known_activation(path: Path, imported: ImportedEncoder) -> ImportedEncoder:
    """Returns the encoder with the activation function that reproduces a SavedModel's outputs.

    The weights do not show which function it is. The SavedModel must map BERT's three inputs to a
    dict with `sequence_output`.
    """
    rng = np.random.default_rng(0)
    length = min(16, imported.config.max_seq_length)
    ids = tf.constant(rng.integers(0, imported.config.vocab_size, [2, length]), tf.int32)
    mask = tf.sequence_mask([length, length - 2], length, tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    advice = "it must map input_word_ids, input_mask and input_type_ids to sequence_output"
    with guard_reading(path, advice):
        expected = tf.saved_model.load(str(path))(inputs, training=False)["sequence_output"]
    differences = {}
    for activation in dict.fromkeys([imported.config.hidden_activation, *ACTIVATIONS]):
        config = imported.config.replace(hidden_activation=activation)
        candidate = dataclasses.replace(imported, config=config)
        got = model_of(candidate)(inputs)["sequence_output"]
        if got.shape != expected.shape:
            raise UserError(
                f"{path}: its sequence_output is {expected.shape}, a BERT encoder's {got.shape}; "
                "it is no plain BERT encoder"
            )
        real = mask.numpy() > 0
        differences[activation] = float(np.abs(got.numpy() - expected.numpy())[real].max())
        if differences[activation] < _TOLERANCE:
            return dataclasses.replace(imported, config=config)
    listed = ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
    raise UserError(
        f"{path}: the imported encoder's outputs differ from the module's own ({listed}); it is no "
        "plain BERT encoder"
    )
