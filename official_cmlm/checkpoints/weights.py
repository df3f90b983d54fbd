"""Reads the weights of encoder directories into Keras models."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, check_same
from official_cmlm.checkpoints.imported_encoder import ImportedEncoder, Tensors
from official_cmlm.checkpoints.integrity import checkpoints_of, refuse_damage
from official_cmlm.configs.encoder import OWN_VECTOR, EncoderConfig, VectorOverride
from official_cmlm.configs.yaml_loading import read_yaml
from official_cmlm.errors import UserError
from official_cmlm.modeling.language_model_head import build_language_model_head, head_variables
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel, encoder_variables
from official_cmlm.tokenization import Vocabulary
from official_cmlm.validation import check_fields

# Prefix of the weights of objectives in a training's checkpoint.
_OBJECTIVES = "model/objectives/"
# Kernels of CMLM's projection P there; an encoder that carries P itself has it elsewhere.
_KERNEL = re.compile(
    rf"{_OBJECTIVES}([^/]+)/projection/kernel(?:_|s/)(\d+)/\.ATTRIBUTES/VARIABLE_VALUE"
)


def is_sentence_encoder(directory: EncoderDirectory, language_models: Collection[str]) -> bool:
    """Returns whether the sentence vector of an encoder directory was made to be one.

    It was not in a language model, whose pooling nothing has chosen. Directories of earlier
    versions do not say: then what trained them decides, or whether they have a language-model head.

    Args:
      directory: the encoder directory.
      language_models: names of the objectives that train no sentence vector.
    """
    if "for_sentences" in directory.values:
        return directory.values["for_sentences"]
    params = directory.path / "params.yaml"
    task = (read_yaml(params) or {}).get("task") if params.exists() else None
    objectives = (task or {}).get("objectives") or {}
    trained = {name for name, settings in objectives.items() if settings is not None}
    if trained:
        return not trained <= set(language_models)
    if directory.config.normalize or directory.checkpoint is None:
        return True
    return not _has_head(checkpoint_of(directory.path))


def checkpoint_of(path: str | os.PathLike) -> str:
    """Finds the prefix of a checkpoint: the newest one of a folder, or `path` if it is a prefix.

    Raises:
      UserError: without a checkpoint, or if files of the folder's newest one are missing.
    """
    path = os.fspath(path)
    known = checkpoints_of(path)
    if known and not tf.io.gfile.exists(f"{known[0]}.index"):
        refuse_damage(known[0])
    prefix = known[0] if known else path
    if not tf.io.gfile.exists(f"{prefix}.index"):
        raise UserError(f"{path}: no checkpoint there; train first, or name another folder")
    return prefix


def non_finite(variables: Iterable[tf.Variable]) -> list[str]:
    """Returns the names of variables with a NaN or an infinity; their devices compare them."""
    floating = [variable for variable in variables if variable.dtype.is_floating]
    # They are read together, so that the host waits for a device only once.
    finite = [tf.reduce_all(tf.math.is_finite(each.read_value())) for each in floating]
    flags = tf.stack(finite).numpy() if finite else ()
    return [variable.name for variable, good in zip(floating, flags) if not good]


def named(names: list[str], shown: int = 3) -> str:
    """Returns the first names and the number of the others, for messages."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def load_encoder(
    directory: EncoderDirectory,
    override: VectorOverride = OWN_VECTOR,
    max_seq_length: int | None = None,
) -> SentenceEncoderModel:
    """Rebuilds the encoder of an encoder directory with its latest weights.

    Args:
      directory: the encoder directory.
      override: the vector that the encoder returns. Default: its own.
      max_seq_length: what texts will be cut to, in tokens. Default: the directory's own length.

    Raises:
      UserError: if the directory has no such vector, or no undamaged vocabulary and checkpoint.
    """
    padding_id = directory.vocabulary.special_ids["pad"]
    prefix = _newest(directory)
    config, owner = _overridden(directory, override, prefix, max_seq_length, padding_id)
    encoder = SentenceEncoderModel(config, random_weights=False)
    items: dict[str, Any] = {"encoder": encoder}
    if owner is not None:
        dense = {} if encoder.dense is None else {"dense": encoder.dense}
        items["encoder"] = tf.train.Checkpoint(bert=encoder.bert, **dense)
        objective = tf.train.Checkpoint(projection=encoder.projection)
        objectives = tf.train.Checkpoint(**{owner: objective})
        items["model"] = tf.train.Checkpoint(objectives=objectives)
    _restore(prefix, encoder.variables, **items)
    chosen = override.pooling is not None and config.pooled_by.pooler
    if chosen and not encoder.bert.pooler_layer.kernel.numpy().any():
        raise UserError(
            f"{directory.path}: its encoder has no pooler, which pooling {config.pooling} reads; "
            "take cls"
        )
    return encoder


def _newest(directory: EncoderDirectory) -> str:
    """Returns the prefix of a directory's newest checkpoint; raises as `checkpoint_of`."""
    found = directory.checkpoint
    complete = found is not None and Path(f"{found}.index").exists()
    return str(found) if complete else checkpoint_of(directory.path)


def load_for_export(
    model_dir: str | os.PathLike,
    override: VectorOverride,
    seq_length: int | None,
) -> tuple[EncoderDirectory, SentenceEncoderModel, int]:
    """Opens the encoder directory of an export.

    Returns:
      The directory, its encoder, and what texts are cut to, in tokens.

    Raises:
      UserError: as `load_encoder`; also for a length that the position table does not cover.
    """
    directory = EncoderDirectory.open(model_dir)
    encoder, length = load_encoder(directory, override, seq_length), directory.length(seq_length)
    rows = encoder.config.max_seq_length
    if not 3 <= length <= rows:
        raise UserError(f"--seq_length must be 3 to {rows} (the position table), got {length}")
    return directory, encoder, length


def _overridden(
    directory: EncoderDirectory,
    override: VectorOverride,
    prefix: str,
    max_seq_length: int | None,
    padding_id: int,
) -> tuple[EncoderConfig, str | None]:
    """Applies an override to the config of a directory.

    Args:
      directory: the directory.
      override: the vector that the encoder is to return.
      prefix: its checkpoint, where P is looked for.
      max_seq_length: the length that was chosen for encoding, in tokens, if any.
      padding_id: id of the padding token.

    Returns:
      The config, and the name of the objective that has P; None where the encoder itself has P, or
      needs none.

    Raises:
      UserError: for a vector that the encoder cannot return.
    """
    config, owner = directory.config, None
    if override.layer is not None:
        if not 1 <= override.layer <= config.num_layers:
            raise UserError(
                f"layer {override.layer}: the encoder has layers 1 to {config.num_layers}"
            )
        # The blocks after it are not built.
        config = config.replace(num_layers=override.layer)
    if override.pooling is not None:
        own = config.padded_length if override.pooling == config.pooling else 0
        config = config.replace(pooling=override.pooling, padded_length=0)
        check_fields(config, "encoder")
        if config.pooled_by.padded:
            length = max_seq_length or own or directory.max_seq_length
            config = config.replace(padded_length=min(length, config.max_seq_length))
        config = config.for_vocabulary(config.vocab_size, padding_id)
    if override.sentence_vector not in (None, config.sentence_vector):
        shape = {"num_projections": 0, "projection_depth": 3, "projection_width": 2.0}
        if override.sentence_vector == "projected_mean":
            owner, shape = _projection_of(prefix, config.hidden_size)
        config = config.replace(sentence_vector=override.sentence_vector, **shape)
    config.check()
    return config, owner


def _projection_of(prefix: str, hidden_size: int) -> tuple[str, dict[str, int | float]]:
    """Finds the objective whose weights hold P, and P's shape as fields of `EncoderConfig`."""
    found: dict[str, dict[int, list[int]]] = {}
    try:
        variables = tf.train.list_variables(prefix)
    except (tf.errors.OpError, ValueError):
        refuse_damage(prefix)
        raise
    for key, shape in variables:
        if match := _KERNEL.fullmatch(key):
            found.setdefault(match[1], {})[int(match[2])] = shape
    if not found:
        raise UserError(
            f"{prefix}: has no projection P, which sentence_vector projected_mean reads; a "
            "training with the objective cmlm and num_projections above 1 has one: name its "
            "--model_dir, or leave the sentence vector as it is"
        )
    # No method of the papers has two objectives with projections; the choice is at least fixed.
    name, kernels = sorted(found.items())[0]
    count, _, width = kernels[0]
    return name, {
        "num_projections": count + 1,
        "projection_depth": len(kernels),
        "projection_width": width / hidden_size if len(kernels) > 1 else 2.0,
    }


def load_head(
    directory: EncoderDirectory, encoder: SentenceEncoderModel
) -> tf_keras.layers.Layer | None:
    """Loads a directory's language-model head, tied to `encoder`; None if it has none."""
    prefix = _newest(directory)
    if not _has_head(prefix):
        return None
    head = build_language_model_head(encoder)
    _restore(prefix, head.variables, language_model_head=head)
    return head


def _has_head(prefix: str) -> bool:
    return any(
        name.startswith("language_model_head/") for name, _ in tf.train.list_variables(prefix)
    )


def restore_pretrained(
    path: str | os.PathLike,
    encoder: SentenceEncoderModel,
    head: tf_keras.layers.Layer | None,
    vocabulary: Vocabulary,
) -> bool:
    """Loads weights from an encoder directory, or from a checkpoint inside one, into a new model.

    The language-model head is loaded if both sides have one; returns whether it was.

    Raises:
      UserError: without a checkpoint, or if its encoder has another shape or vocabulary.
    """
    prefix = checkpoint_of(path)
    directory = EncoderDirectory.open(os.path.dirname(prefix))
    check_same(f"init_checkpoint {path} holds", directory, encoder.config, vocabulary)
    items, variables = {"encoder": encoder}, list(encoder.variables)
    with_head = head is not None and _has_head(prefix)
    if with_head:
        items["language_model_head"] = head
        variables += head.variables
    _restore(prefix, variables, **items)
    return with_head


def _restore(prefix: str, variables: list[tf.Variable], **items: Any) -> None:
    """Restores the items of a checkpoint; afterwards `variables` must be finite."""
    try:
        status = tf.train.Checkpoint(**items).read(prefix)
        status.assert_existing_objects_matched().expect_partial()
    except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
        refuse_damage(prefix)
        raise UserError(
            f"{prefix}: cannot be read into this encoder ({str(error)[:200]}); it was written for "
            "another architecture"
        ) from None
    wrong = non_finite(variables)
    if wrong:
        raise UserError(
            f"{prefix}: holds non-finite weights ({named(wrong)}), so every embedding would be "
            "NaN; take an earlier checkpoint, or train again with a lower learning rate"
        )


def restore_objectives(
    path: str | os.PathLike, objectives: dict[str, tf_keras.layers.Layer]
) -> set[str]:
    """Restores the objectives that a checkpoint also holds, with weights of the same shapes.

    Args:
      path: a model directory or a checkpoint.
      objectives: name -> objective, as `MultiObjectiveModel` has them.

    Returns:
      The names of those that were restored.
    """
    prefix = checkpoint_of(path)
    stored: dict[str, Counter] = {name: Counter() for name in objectives}
    for key, shape in tf.train.list_variables(prefix):
        name = key.removeprefix(_OBJECTIVES).partition("/")[0]
        if key.startswith(_OBJECTIVES) and name in stored and "OPTIMIZER_SLOT" not in key:
            stored[name][tuple(shape)] += 1
    same = {
        name: objective
        for name, objective in objectives.items()
        if objective.own_weights()
        and stored[name] == Counter(tuple(v.shape) for v in objective.own_weights())
    }
    if same:
        layers = tf.train.Checkpoint(**same)
        root = tf.train.Checkpoint(model=tf.train.Checkpoint(objectives=layers))
        root.read(prefix).assert_existing_objects_matched().expect_partial()
    return set(same)


def build(imported: ImportedEncoder) -> tuple[SentenceEncoderModel, tf_keras.layers.Layer | None]:
    """Builds the encoder and, if the import has one, its language-model head, from arrays."""
    model = SentenceEncoderModel(imported.config, random_weights=False)
    _assign(encoder_variables(model), imported.encoder)
    if imported.head is None:
        return model, None
    head = build_language_model_head(model)
    _assign(head_variables(head), imported.head)
    return model, head


def _assign(variables: dict[str, tf.Variable], tensors: Tensors) -> None:
    if variables.keys() != tensors.keys():
        raise ValueError(
            f"weights got {sorted(tensors.keys() - variables.keys())} too many and "
            f"{sorted(variables.keys() - tensors.keys())} too few"
        )
    for name, variable in variables.items():
        variable.assign(tensors[name])
