"""Reads the weights of an encoder directory as arrays, without TensorFlow, and writes them.

They are in `weights.safetensors` if a public checkpoint was imported, else in the newest checkpoint
of a training. In `weights.safetensors`, a table or kernel may be int8; then the float32 tensor
`NAME/scale`, which lacks the last dimension, has the factor of each row.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.encoder_directory import WEIGHTS, EncoderDirectory
from official_cmlm.checkpoints.formats.imported_encoder import Tensors, encoder_shapes, head_shapes
from official_cmlm.checkpoints.formats.published_files import read_tensors
from official_cmlm.checkpoints.tensor_bundle import TensorBundle
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.files import atomic_write
from official_cmlm.common.validation import check_fields
from official_cmlm.configs.encoder import OWN_VECTOR, EncoderConfig, VectorOverride

# Prefix of the head's tensors in `weights.safetensors`.
_HEAD = "language_model_head/"
# How `write_weights` stores tables and kernels.
WEIGHT_FORMS = ("float32", "int8")
_SCALE = "/scale"
# Path to the objectives in a training's checkpoint. CMLM's objective holds the projection P; if the
# encoder's vector is the mean of projections, the encoder holds P too.
_OBJECTIVES = ("model", "objectives")
# Module in the names of weights -> names of the objects that lead to it in a checkpoint.
_ENCODER_OBJECTS = {
    "word_embeddings": "bert/_embedding_layer",
    "position_embedding": "bert/_position_embedding_layer",
    "type_embeddings": "bert/_type_embedding_layer",
    "embeddings/layer_norm": "bert/_embedding_norm_layer",
    "embedding_projection": "bert/_embedding_projection",
    "pooler_transform": "bert/_pooler_layer",
    "self_attention/query": "_attention_layer/_query_dense",
    "self_attention/key": "_attention_layer/_key_dense",
    "self_attention/value": "_attention_layer/_value_dense",
    "self_attention/attention_output": "_attention_layer/_output_dense",
    "self_attention_layer_norm": "_attention_layer_norm",
    "intermediate": "_intermediate_dense",
    "output": "_output_dense",
    "output_layer_norm": "_output_layer_norm",
}
_HEAD_OBJECTS = {"transform/dense": "dense", "transform/LayerNorm": "layer_norm"}
# Weight -> path in the graph of objects, where a slash belongs to the name of a single object.
_WHOLE_NAMES = {
    "relative_attention_bias/embeddings": (
        "bert",
        "relative_bias",
        "relative_attention_bias/embeddings",
    ),
    "output_bias/bias": ("output_bias/bias",),
}


@dataclasses.dataclass(frozen=True)
class EncoderWeights:
    """An encoder's weights, and the config that they fit.

    Attributes:
      config: the encoder's config.
      encoder: weights by the names of `modeling.sentence_encoder.encoder_variables`, float32.
      projection: kernels `[N - 1, in, out]` and biases `[N - 1, out]` of CMLM's projection, layer
        by layer; empty where the vector needs none.
    """

    config: EncoderConfig
    encoder: Tensors
    projection: list[tuple[np.ndarray, np.ndarray]]


def read_weights(
    directory: EncoderDirectory,
    override: VectorOverride = OWN_VECTOR,
    max_seq_length: int | None = None,
    prefix: str | None = None,
) -> EncoderWeights:
    """Reads the latest weights of an encoder directory.

    Args:
      directory: the encoder directory.
      override: the vector that the encoder returns. Default: its own.
      max_seq_length: the length that texts will be cut to, in tokens. Default: the directory's.
      prefix: a checkpoint in the directory. Default: the newest.

    Raises:
      UserError: if the directory has no such vector, or its weights are missing, damaged, not
        finite or of another encoder.
    """
    stored = _open(directory, prefix)
    config, owner = _overridden(directory, override, stored, max_seq_length)
    encoder = stored.read("encoder", encoder_shapes(config))
    layers = stored.read_projection(owner) if config.num_projections else []
    # These names appear only in the message.
    flat = {
        f"projection/{i}": np.concatenate([*map(np.ravel, pair)]) for i, pair in enumerate(layers)
    }
    _check_finite(directory, encoder | flat)
    chosen = override.pooling is not None and config.pooled_by.pooler
    if chosen and not encoder["pooler_transform/kernel"].any():
        raise UserError(
            f"{directory.path}: its encoder has no pooler, which pooling {config.pooling} reads; "
            "take cls"
        )
    return EncoderWeights(config, encoder, layers)


def has_head(directory: EncoderDirectory) -> bool:
    """Returns whether a directory has a language-model head.

    Raises:
      UserError: if its weights are missing or damaged.
    """
    return _open(directory).has_head


def read_head(directory: EncoderDirectory, prefix: str | None = None) -> Tensors | None:
    """Reads the weights of a directory's language-model head; None if it has none.

    Raises:
      UserError: if they are damaged, not finite or of another encoder.
    """
    stored = _open(directory, prefix)
    if not stored.has_head:
        return None
    head = stored.read("language_model_head", head_shapes(directory.config))
    _check_finite(directory, head)
    return head


def write_weights(
    folder: Path, encoder: Tensors, head: Tensors | None, form: str = WEIGHT_FORMS[0]
) -> None:
    """Writes `weights.safetensors`.

    Args:
      folder: the encoder directory.
      encoder: see `EncoderWeights`.
      head: weights of the language-model head, by the names of `head_shapes`; None without one.
      form: one of `WEIGHT_FORMS`; biases and norms are float32 in any case.
    """
    from safetensors.numpy import save

    arrays = encoder | {f"{_HEAD}{name}": array for name, array in (head or {}).items()}
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    if form == "int8":
        for name in [name for name in arrays if name.endswith(("/kernel", "/embeddings"))]:
            scale = np.abs(arrays[name]).max(axis=-1) / np.float32(127)
            codes = np.rint(arrays[name] / np.where(scale > 0, scale, 1)[..., None])
            arrays |= {name: codes.astype(np.int8), name + _SCALE: scale}
    with atomic_write(folder / WEIGHTS) as file:
        file.write(save(arrays))


class _SafetensorsFile:
    """The weights of an import: one file, which holds the head too and no projection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = set(read_tensors({path: None}, lambda name: False)[1])
        self.has_head = any(name.startswith(_HEAD) for name in self._names)

    def read(self, part: str, shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
        """Reads tensors of these names and shapes."""
        prefix = _HEAD if part == "language_model_head" else ""
        wanted = {f"{prefix}{name}": name for name in shapes}
        scaled = {f"{name}{_SCALE}" for name in wanted} & self._names
        codes = {name.removesuffix(_SCALE) for name in scaled}
        found, _ = read_tensors({self._path: None}, (wanted.keys() | scaled).__contains__, codes)
        for name in codes & found.keys():
            array, scale = found[name], found[name + _SCALE]
            if scale.shape != array.shape[:-1] or not (scale >= 0).all():
                raise UserError(
                    f"{self._path}: {name}{_SCALE} is not a number of 0 or more for each row of "
                    f"{name}; write it again from its source"
                )
            array *= scale[..., None]
        arrays = {name: found[key] for key, name in wanted.items() if key in found}
        _check_shapes(self._path, arrays, shapes)
        return arrays

    def projections(self) -> dict[str, list[tuple[int, ...]]]:
        """Returns an empty dict, as an import has no objectives."""
        return {}


class _Checkpoint:
    """The weights of a training: TensorFlow's checkpoint of objects."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._bundle = TensorBundle.open(prefix)
        self.has_head = bool(self._bundle.children(["language_model_head"]))

    def read(self, part: str, shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
        """Reads tensors of these names and shapes."""
        arrays = {}
        for name in shapes:
            key = self._bundle.key([part, *_objects_of(name)])
            if key is not None:
                arrays[name] = np.asarray(self._bundle.read(key), np.float32)
        _check_shapes(self._prefix, arrays, shapes)
        return arrays

    def projections(self) -> dict[str, list[tuple[int, ...]]]:
        """Returns the shapes of P's kernels, by the objective that holds it."""
        found = {}
        for name in self._bundle.children(_OBJECTIVES):
            keys = self._projection_keys((*_OBJECTIVES, name), "kernel")
            found |= {name: [*map(self._bundle.shape, keys)]} if keys else {}
        return found

    def read_projection(self, owner: str | None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Reads P of the objective `owner`, or of the encoder if that is None, layer by layer."""
        path = ("encoder",) if owner is None else (*_OBJECTIVES, owner)
        parts = [
            [self._bundle.read(key) for key in self._projection_keys(path, kind)]
            for kind in ("kernel", "bias")
        ]
        return list(zip(*parts, strict=True))

    def _projection_keys(self, path: Sequence[str], kind: str) -> list[str]:
        """Lists the keys of P's kernels or biases, in order."""
        children = self._bundle.children([*path, "projection"])
        count = sum(name.startswith(f"{kind}_") for name in children)
        paths = [[*path, "projection", f"{kind}_{number}"] for number in range(count)]
        return [key for each in paths if (key := self._bundle.key(each)) is not None]


def _open(directory: EncoderDirectory, prefix: str | None = None) -> _Checkpoint | _SafetensorsFile:
    prefix = prefix or directory.checkpoint
    if prefix is not None:
        return _Checkpoint(str(prefix))
    if (directory.path / WEIGHTS).exists():
        return _SafetensorsFile(directory.path / WEIGHTS)
    raise UserError(f"{directory.path}: no checkpoint there; train first, or name another folder")


def _objects_of(name: str) -> list[str]:
    """Returns the names of the objects that lead to a weight."""
    if name in _WHOLE_NAMES:
        return list(_WHOLE_NAMES[name])
    module, _, parameter = name.rpartition("/")
    block = re.match(r"transformer/layer_(\d+)/", module)
    ahead = ["bert", "_transformer_layers", block[1]] if block else []
    module = module.removeprefix(block[0]) if block else module
    objects = _ENCODER_OBJECTS.get(module, _HEAD_OBJECTS.get(module, module))
    return [*ahead, *objects.split("/"), parameter]


def _check_shapes(
    where: str | Path, arrays: Tensors, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    wrong = [
        name for name in shapes if name not in arrays or arrays[name].shape != tuple(shapes[name])
    ]
    if wrong:
        raise UserError(
            f"{where}: cannot be read into this encoder ({list_names(wrong)}); it was written for "
            "another architecture"
        )


def _check_finite(directory: EncoderDirectory, arrays: Tensors) -> None:
    wrong = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if wrong:
        raise UserError(
            f"{directory.checkpoint or directory.path / WEIGHTS}: holds non-finite weights "
            f"({list_names(wrong)}), so every embedding would be NaN; take an earlier checkpoint, "
            "or train again with a lower learning rate"
        )


def _overridden(
    directory: EncoderDirectory,
    override: VectorOverride,
    stored: _Checkpoint | _SafetensorsFile,
    max_seq_length: int | None,
) -> tuple[EncoderConfig, str | None]:
    """Returns a directory's config with an override, and the name of the objective that has P.

    The name is None if the encoder itself has P, or if the vector needs no P.
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
        if config.pooled_by.weighted and not directory.config.pooled_by.weighted:
            raise UserError(
                f"{directory.path}: has no weights of tokens for pooling {override.pooling}; train "
                "with that pooling first"
            )
        if config.pooled_by.padded:
            length = max_seq_length or own or directory.max_seq_length
            config = config.replace(padded_length=min(length, config.max_seq_length))
        config = config.for_vocabulary(config.vocab_size, directory.vocabulary.special_ids["pad"])
    if override.sentence_vector not in (None, config.sentence_vector):
        shape = {"num_projections": 0, "projection_depth": 3, "projection_width": 2.0}
        if override.sentence_vector == "projected_mean":
            owner, shape = _shape_of_projection(directory, stored, config.hidden_size)
        config = config.replace(sentence_vector=override.sentence_vector, **shape)
    config.check()
    return config, owner


def _shape_of_projection(
    directory: EncoderDirectory, stored: _Checkpoint | _SafetensorsFile, hidden_size: int
) -> tuple[str, dict[str, int | float]]:
    """Finds the objective whose weights hold P, and P's shape as fields of `EncoderConfig`."""
    found = stored.projections()
    if not found:
        raise UserError(
            f"{directory.checkpoint or directory.path}: has no projection P, which sentence_vector "
            "projected_mean reads; a training with the objective cmlm and num_projections above 1 "
            "has one: name its --model_dir, or leave the sentence vector as it is"
        )
    # No method of the papers has two objectives with projections. The sort makes the choice the
    # same each time.
    name, kernels = sorted(found.items())[0]
    count, _, width = kernels[0]
    return name, {
        "num_projections": count + 1,
        "projection_depth": len(kernels),
        "projection_width": width / hidden_size if len(kernels) > 1 else 2.0,
    }
