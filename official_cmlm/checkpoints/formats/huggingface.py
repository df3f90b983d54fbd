"""Imports Hugging Face and sentence-transformers folders with NumPy, without PyTorch.

A sentence-transformers folder has a `modules.json`, which says how token outputs become a vector.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import Tensors
from official_cmlm.checkpoints.encoder_directory import (
    NO_SETTINGS,
    PROMPTS,
    EncodingSettings,
    check_vocabulary_size,
)
from official_cmlm.checkpoints.formats.huggingface_config import encoder_config
from official_cmlm.checkpoints.formats.huggingface_tensors import (
    ARCHITECTURES,
    encoder_names,
    from_huggingface,
    head_names,
    is_ignored,
    normal_name,
)
from official_cmlm.checkpoints.formats.huggingface_tokenizer import (
    model_max_length,
    read_vocabulary,
)
from official_cmlm.checkpoints.formats.imported_encoder import ImportedEncoder, ImportOptions
from official_cmlm.checkpoints.formats.published_files import (
    ADVICE,
    get_typed,
    read_json,
    read_tensors,
    weight_files,
)
from official_cmlm.common import files
from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.configs.encoder import POOLINGS, EncoderConfig
from official_cmlm.tokenization import SentencePieceVocabulary

MODULES = "modules.json"
# The switch of a pooling in older configurations -> its name, as newer configurations have it.
_POOLINGS = {
    pooling.exported_as: name
    for name, pooling in POOLINGS.items()
    if pooling.exported_as and not (pooling.pooler or pooling.weighted)
}
# `activation_function` of a module `Dense` -> `EncoderConfig.dense_activation`.
DENSE_ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "none",
}


@dataclasses.dataclass(frozen=True)
class Dense:
    """A module `Dense`, a layer on the pooled vector.

    Attributes:
      kernel: float32 `[hidden, size]`.
      bias: float32 `[size]`.
      activation: one of `configs.encoder.DENSE_ACTIVATIONS`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    activation: str


@dataclasses.dataclass(frozen=True)
class Modules:
    """The modules of a sentence-transformers folder; a Hugging Face folder has only the first.

    Attributes:
      transformer: folder of the Hugging Face files.
      pooling: `mean`, `max` or `cls`; empty: the folder does not say.
      word_weights: float32 `[vocab]`, the weight of each token in the mean; None: all are equal.
      dense: the layers on the pooled vector: none, one, or the pooler and one after it.
      normalize: whether the embedding is scaled to length 1.
      max_seq_length: in tokens; None if the folder does not say.
      lower_case: whether texts are lower-cased before the tokenizer.
      encoding: prompts, the name of the default prompt, and the similarity.
    """

    transformer: Path
    pooling: str = ""
    word_weights: np.ndarray | None = None
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    max_seq_length: int | None = None
    lower_case: bool = False
    encoding: EncodingSettings = NO_SETTINGS


def read_huggingface(path: Path, options: ImportOptions) -> ImportedEncoder:
    """Reads a folder, or one safetensors file and the other files of its folder.

    Raises:
      UserError: if something is missing, damaged, contradictory or not representable.
    """
    folder = path if path.is_dir() else path.parent
    says_pooling = bool((folder / MODULES).exists() or options.pooling)
    modules = read_modules(folder) if (folder / MODULES).exists() else Modules(folder)
    transformer = modules.transformer
    weights = weight_files(transformer) if path.is_dir() else {path: None}
    values = read_json(transformer / "config.json", required=True)
    config, model_type = encoder_config(transformer / "config.json", values)
    config = config.replace(
        pooling=options.pooling or modules.pooling or config.pooling,
        normalize=modules.normalize,
    )
    vocabulary = (
        options.vocabulary()
        if options.vocab_file
        else read_vocabulary(transformer, options.lower_case)
    )
    if isinstance(vocabulary, SentencePieceVocabulary):
        # Multilingual MiniLM and E5 have 35 rows more than entries.
        vocabulary = vocabulary.pad(config.vocab_size)
    check_vocabulary_size(str(transformer), vocabulary, config.vocab_size)
    if modules.lower_case and not getattr(vocabulary, "lower_case", False):
        raise UserError(
            f"{transformer}: sentence_bert_config.json lower-cases texts for a cased tokenizer; "
            "that cannot be represented"
        )
    architecture = ARCHITECTURES[model_type]
    of_head = set(head_names(config, model_type).values()) | set(architecture.tied)
    expected = set(encoder_names(config, model_type).values()) | of_head
    if options.drop_head:
        expected -= of_head
    tensors, others = read_tensors(
        weights, lambda name: normal_name(name, architecture) in expected
    )
    surplus = {normal_name(name, architecture) for name in others if not is_ignored(name)}
    if options.drop_surplus:
        surplus = set()
    if options.drop_head:
        surplus -= of_head
    renamed = {normal_name(name, architecture): tensor for name, tensor in tensors.items()}
    if len(renamed) < len(tensors):
        raise UserError(f"{transformer}: holds two encoders; name one of them")
    if not renamed:
        raise UserError(f"{transformer}: the weight files hold no tensors; download them again")
    encoder, head = from_huggingface(str(transformer), renamed, config, model_type, surplus)
    notes = [] if says_pooling else [f"pooling not given: {config.pooling}"]
    if modules.word_weights is not None:
        if len(modules.word_weights) != config.vocab_size:
            raise UserError(
                f"{folder}: WordWeights has {len(modules.word_weights)} entries, the encoder "
                f"{config.vocab_size}; fetch both again"
            )
        config = config.replace(pooling="weighted_mean")
        encoder["token_weights/embeddings"] = np.log(modules.word_weights)[:, np.newaxis]
    for dense in modules.dense:
        config, notes = _with_dense(transformer, config, dense, encoder, notes)
    length = modules.max_seq_length or model_max_length(transformer) or config.max_seq_length
    return ImportedEncoder(
        config=config,
        vocabulary=vocabulary,
        # The position table has no rows for longer texts.
        max_seq_length=min(length, config.max_seq_length),
        encoder=encoder,
        head=head,
        notes=notes,
        for_sentences=says_pooling,
        encoding=modules.encoding,
    )


def _with_dense(
    where: Path, config: EncoderConfig, dense: Dense, encoder: Tensors, notes: list[str]
) -> tuple[EncoderConfig, list[str]]:
    """Puts the weights of a module `Dense` into `encoder`; returns the new config and notes.

    BERT's pooler is such a layer: on the first token, with tanh and as many outputs as inputs.
    """
    hidden, size = dense.kernel.shape
    if hidden != config.hidden_size:
        raise UserError(
            f"{where}: has outputs of {config.hidden_size} components, the module Dense takes "
            f"{hidden}; fetch both again"
        )
    if config.pooling == "cls" and dense.activation == "tanh" and size == hidden:
        own = encoder["pooler_transform/kernel"]
        if own.any() and not np.array_equal(own, dense.kernel):
            notes = [*notes, "the module Dense takes the place of BERT's own pooler"]
        encoder |= {"pooler_transform/kernel": dense.kernel, "pooler_transform/bias": dense.bias}
        return config.replace(pooling="cls_pooler"), notes
    if config.dense_size:
        raise UserError(
            f"{where}: two modules Dense cannot be represented unless the first is BERT's pooler: "
            "on the first token, with tanh and as wide as the encoder"
        )
    encoder |= {"dense/kernel": dense.kernel, "dense/bias": dense.bias}
    return config.replace(dense_size=size, dense_activation=dense.activation), notes


def list_modules(folder: Path) -> list[tuple[str, str]]:
    """Reads kind and path of each module from `modules.json`; empty without that file.

    Raises:
      UserError: if the file is damaged, or a path leads out of the folder.
    """
    path = folder / MODULES
    if not path.exists():
        return []
    listed = files.read_json(path, ADVICE)
    with guard_reading(path, ADVICE):
        modules = [(str(m["type"]).rsplit(".", 1)[-1], str(m["path"])) for m in listed]
    for _, name in modules:
        # The empty path is the folder itself.
        files.join_inside(folder, name or ".", path)
    return modules


def read_modules(folder: Path) -> Modules:
    """Reads `modules.json` and the configurations that it points to.

    Raises:
      UserError: for modules or settings that the encoder cannot represent, by name.
    """
    path, modules = folder / MODULES, list_modules(folder)
    kinds = [kind for kind, _ in modules]
    places = {kind: folder / name for kind, name in modules}
    dense = ["Dense"] * min(kinds.count("Dense"), 2)
    order = ["Transformer", "WordWeights", "Pooling", *dense, "Normalize"]
    if not {"Transformer", "Pooling"} <= places.keys() or kinds != [k for k in order if k in kinds]:
        raise UserError(
            f"{path}: modules {', '.join(kinds) or 'none'} cannot be represented; "
            "Transformer, Pooling and optionally WordWeights before it, Dense and Normalize can; "
            "StaticEmbedding alone or with Normalize too"
        )
    encoding = EncodingSettings.of_values(read_json(folder / PROMPTS), folder / PROMPTS)
    pooling = places["Pooling"] / "config.json"
    _check_prompts_are_pooled(pooling, encoding)
    transformer = places["Transformer"]
    settings_path = transformer / "sentence_bert_config.json"
    settings = read_json(settings_path)
    length = get_typed(settings_path, settings, "max_seq_length", int)
    if length is not None and length < 3:
        raise UserError(f"{settings_path}: max_seq_length must be at least 3, got {length}")
    return Modules(
        transformer=transformer,
        pooling=_pooling(pooling),
        word_weights=_word_weights(places["WordWeights"]) if "WordWeights" in places else None,
        dense=tuple(_dense(folder / name) for kind, name in modules if kind == "Dense"),
        normalize="Normalize" in places,
        max_seq_length=length,
        lower_case=get_typed(settings_path, settings, "do_lower_case", bool, False),
        encoding=encoding,
    )


def _check_prompts_are_pooled(path: Path, encoding: EncodingSettings) -> None:
    """Raises `UserError` if the tokens of prompts are left out of the pooling."""
    left_out = read_json(path).get("include_prompt") is False
    if left_out and any(encoding.prompts.values()):
        raise UserError(
            f"{path}: include_prompt false leaves prompts out of the pooling; that cannot be "
            f"represented: delete the prompts of {PROMPTS} to import the encoder without them"
        )


def _dense(folder: Path) -> Dense:
    path = folder / "config.json"
    values = read_json(path, required=True)
    activation = values.get("activation_function", next(iter(DENSE_ACTIVATIONS)))
    if not isinstance(activation, str) or activation not in DENSE_ACTIVATIONS:
        raise UserError(
            f"{path}: activation_function {activation!r} cannot be represented; known: "
            f"{', '.join(DENSE_ACTIVATIONS)}"
        )
    for key, only in (("use_residual", False), ("module_input_name", "sentence_embedding")):
        if values.get(key) not in (None, only):
            raise UserError(f"{path}: {key} {values[key]!r}: only {only!r} can be represented")
    tensors, others = read_tensors(weight_files(folder), lambda name: name.startswith("linear."))
    shape = [get_typed(path, values, key, int) for key in ("out_features", "in_features")]
    weight = tensors.get("linear.weight")
    bias = tensors.get("linear.bias", np.zeros(shape[:1], np.float32))
    if others or weight is None or list(weight.shape) != shape or list(bias.shape) != shape[:1]:
        raise UserError(
            f"{folder}: its weights are no linear layer of {shape[1]} to {shape[0]} components, as "
            "its config.json says; fetch both again"
        )
    return Dense(weight.T, bias, DENSE_ACTIVATIONS[activation])


def _word_weights(folder: Path) -> np.ndarray:
    path = folder / "config.json"
    values = read_json(path, required=True)
    words = get_typed(path, values, "vocab", list, [])
    weights = get_typed(path, values, "word_weights", dict, {})
    other = values.get("unknown_word_weight", 1)
    numbers = [weights.get(word, weights.get(str(word).lower(), other)) for word in words]
    if not numbers or not all(type(n) in (int, float) and 0 < n < np.inf for n in numbers):
        raise UserError(
            f"{path}: vocab and word_weights must give each entry a weight above 0; fetch it again"
        )
    return np.array(numbers, np.float32)


def _pooling(path: Path) -> str:
    if not path.exists():
        raise UserError(f"{path}: missing; the pooling's configuration says how to pool")
    values: dict[str, Any] = read_json(path)
    # Newer folders name the mode; older folders have a switch for each mode.
    modes = values.get("pooling_mode")
    if modes is None:
        modes = [
            key for key, on in values.items() if key.startswith("pooling_mode_") and on is True
        ]
    modes = modes if isinstance(modes, list) else [modes]
    only = modes[0] if len(modes) == 1 and isinstance(modes[0], str) else ""
    pooling = _POOLINGS.get(only, only)
    if pooling not in _POOLINGS.values():
        raise UserError(
            f"{path}: pooling {', '.join(map(str, modes)) or 'none'} cannot be represented; one of "
            f"{', '.join(sorted(_POOLINGS.values()))} can"
        )
    return pooling
