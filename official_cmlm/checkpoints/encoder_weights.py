"""Reads the weights of an encoder directory as arrays, without TensorFlow, and writes them.

`weights.safetensors` has the encoder's weights by the names of `encoder_shapes`, and below these
prefixes:

    language_model_head/          the head's weights by the names of `head_shapes`
    projection/                   the projection P, if the encoder's vector is the mean of P's
                                  vectors: `kernel_0`, `bias_0`, `kernel_1` … for its layers
    objectives/NAME/projection/   the P of an objective of the training

A table or kernel may be int8; then the float32 tensor `NAME/scale`, which lacks the last dimension,
has the factor of each row.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import (
    EncoderWeights,
    Layers,
    Tensors,
    encoder_shapes,
    head_shapes,
)
from official_cmlm.checkpoints.encoder_directory import (
    CHECKPOINT_ENTRY,
    WEIGHTS,
    EncoderDirectory,
    architecture_error,
    checkpoint_id,
)
from official_cmlm.checkpoints.formats.published_files import read_tensors
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.extras import is_installed
from official_cmlm.common.files import (
    atomic_write,
    cache_folder,
    digest,
    is_cached,
    note_cached,
)
from official_cmlm.common.validation import check_fields
from official_cmlm.configs.encoder import OWN_VECTOR, EncoderConfig, VectorOverride

# Prefix of the head's tensors in `weights.safetensors`.
_HEAD = "language_model_head/"
# How `write_weights` stores tables and kernels.
WEIGHT_FORMS = ("float32", "int8")
_SCALE = "/scale"
_FIRST_KERNEL = re.compile(r"objectives/([^/]+)/projection/kernel_0")
_NO_WEIGHTS = "no checkpoint there; train first, or name another folder"
# How often weights are read that a training replaces meanwhile.
_TRIES = 5


def read_weights(
    directory: EncoderDirectory,
    override: VectorOverride = OWN_VECTOR,
    max_seq_length: int | None = None,
    with_head: bool = False,
) -> EncoderWeights:
    """Reads the latest weights of an encoder directory.

    They are read again if a training has saved meanwhile, as the result would mix the weights of
    two checkpoints.

    Args:
      directory: the encoder directory.
      override: the vector that the encoder returns. Default: its own.
      max_seq_length: the length that texts will be cut to, in tokens. Default: the directory's.
      with_head: whether to read the language-model head, if there is one.

    Raises:
      UserError: if the directory has no such vector, or its weights are missing, damaged, not
        finite or of another encoder, or change at each attempt.
    """
    for _ in range(_TRIES):
        before = _identify(directory)
        weights = _read_once(directory, override, max_seq_length, with_head)
        if _identify(directory) == before:
            return weights
    raise UserError(
        f"{directory.path}: a training replaced the weights during each of {_TRIES} attempts to "
        "read them; try again when it has ended, or raise trainer.checkpoint_interval"
    )


def _identify(directory: EncoderDirectory) -> tuple[Path | int | None, ...]:
    """Returns facts of which one changes when the directory's weights are replaced."""
    path = directory.weights_file
    if path is None:
        return (directory.checkpoint,)
    status = path.stat()
    return path, status.st_ino, status.st_mtime_ns, status.st_size


def _read_once(
    directory: EncoderDirectory,
    override: VectorOverride,
    max_seq_length: int | None,
    with_head: bool,
) -> EncoderWeights:
    stored = _open(directory)
    config, owner = _overridden(directory, override, stored, max_seq_length)
    encoder = stored.read("", encoder_shapes(config))
    layers = stored.read_projection(owner) if config.num_projections else []
    is_read = with_head and stored.has_head
    head = stored.read(_HEAD, head_shapes(directory.config)) if is_read else None
    check_finite(stored.source, encoder | _name_layers(layers, owner) | (head or {}))
    chosen = override.pooling is not None and config.pooled_by.pooler
    if chosen and not encoder["pooler_transform/kernel"].any():
        raise UserError(
            f"{directory.path}: its encoder has no pooler, which pooling {config.pooling} reads; "
            "take cls"
        )
    return EncoderWeights(config, encoder, layers, head)


def has_head(directory: EncoderDirectory) -> bool:
    """Returns whether a directory has a language-model head.

    Raises:
      UserError: if its weights are missing or damaged.
    """
    return _open(directory).has_head


def write_weights(
    folder: Path,
    weights: EncoderWeights,
    form: str = WEIGHT_FORMS[0],
    objectives: Mapping[str, Layers] | None = None,
    checkpoint: str | None = None,
) -> None:
    """Writes `weights.safetensors`, by one rename.

    Args:
      folder: the encoder directory.
      weights: the encoder's, with its head and its own P if it has them.
      form: one of `WEIGHT_FORMS`; biases and norms are float32 in any case.
      objectives: the P of each objective that has one, by name.
      checkpoint: the prefix of the checkpoint that holds the same weights. Default: there is none.
    """
    from safetensors.numpy import save

    head = {f"{_HEAD}{name}": array for name, array in (weights.head or {}).items()}
    arrays = weights.encoder | head | _name_layers(weights.projection, None)
    for owner, layers in (objectives or {}).items():
        arrays |= _name_layers(layers, owner)
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    if form == "int8":
        for name in [name for name in arrays if name.endswith(("/kernel", "/embeddings"))]:
            scale = np.abs(arrays[name]).max(axis=-1) / np.float32(127)
            codes = np.rint(arrays[name] / np.where(scale > 0, scale, 1)[..., None])
            arrays |= {name: codes.astype(np.int8), name + _SCALE: scale}
    origin = {CHECKPOINT_ENTRY: checkpoint_id(Path(checkpoint))} if checkpoint else None
    with atomic_write(folder / WEIGHTS) as file:
        file.write(save(arrays, origin))


def _name_layer(kind: str, number: int, owner: str | None) -> str:
    place = "" if owner is None else f"objectives/{owner}/"
    return f"{place}projection/{kind}_{number}"


def _name_layers(layers: Layers, owner: str | None) -> Tensors:
    """Returns P's kernels and biases by their names in `weights.safetensors`."""
    return {
        _name_layer(kind, number, owner): array
        for number, pair in enumerate(layers)
        for kind, array in zip(("kernel", "bias"), pair, strict=True)
    }


class _WeightsFile:
    """A file `weights.safetensors`; each tensor is read when it is needed."""

    def __init__(self, path: Path, source: Path) -> None:
        """Reads the names; messages call the weights `source`, which may be a checkpoint."""
        self._path, self.source = path, source
        self._names = read_tensors({path: None}, lambda name: False)[1]
        self.has_head = any(name.startswith(_HEAD) for name in self._names)
        matches = map(_FIRST_KERNEL.fullmatch, self._names)
        self.objectives_with_projection = sorted(match[1] for match in matches if match)

    def read(self, prefix: str, shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
        """Reads tensors of these shapes, by their names after `prefix`."""
        names = {f"{prefix}{name}": name for name in shapes}
        scaled = {f"{name}{_SCALE}" for name in names} & self._names
        codes = {name.removesuffix(_SCALE) for name in scaled}
        is_read, dtypes = (names.keys() | scaled).__contains__, dict.fromkeys(codes, ("I8",))
        tensors, _ = read_tensors({self._path: None}, is_read, dtypes)
        for name in codes & tensors.keys():
            array, scale = tensors[name], tensors[name + _SCALE]
            if scale.shape != array.shape[:-1] or not (scale >= 0).all():
                raise UserError(
                    f"{self._path}: {name}{_SCALE} is not a number of 0 or more for each row of "
                    f"{name}; write it again from its source"
                )
            array *= scale[..., None]
        arrays = {name: tensors[key] for key, name in names.items() if key in tensors}
        wrong = [
            name
            for name, shape in shapes.items()
            if name not in arrays or arrays[name].shape != tuple(shape)
        ]
        if wrong:
            raise architecture_error(self.source, list_names(wrong))
        return arrays

    def read_projection(self, owner: str | None) -> Layers:
        """Reads P of the objective `owner`, or of the encoder if that is None, layer by layer."""
        layers = []
        while (kernel := _name_layer("kernel", len(layers), owner)) in self._names:
            bias = _name_layer("bias", len(layers), owner)
            tensors, _ = read_tensors({self._path: [kernel, bias]}, {kernel, bias}.__contains__)
            layers.append((tensors[kernel], tensors[bias]))
        return layers


def _open(directory: EncoderDirectory) -> _WeightsFile:
    path, checkpoint = directory.weights_file, directory.checkpoint
    if path is not None:
        return _WeightsFile(path, path)
    if checkpoint is None:
        raise UserError(f"{directory.path}: {_NO_WEIGHTS}")
    return _WeightsFile(_convert(directory, checkpoint), checkpoint)


def _convert(directory: EncoderDirectory, checkpoint: Path) -> Path:
    """Returns the file in the cache with the weights of a checkpoint; writes it if it is new."""
    origin = checkpoint_id(checkpoint)
    if origin is None:
        raise UserError(f"{checkpoint}: {_NO_WEIGHTS}")
    folder = cache_folder() / "checkpoints" / digest([], origin)
    if not is_cached(folder):
        if not is_installed("tensorflow"):
            raise UserError(
                f"{directory.path}: no {WEIGHTS} of its newest checkpoint, and reading {checkpoint}"
                ' needs TensorFlow; in the checkout of this project, run pip install ".[train]"'
            )
        from official_cmlm.checkpoints.training_checkpoint import read_checkpoint

        print(
            f"{directory.path}: no {WEIGHTS} of {checkpoint.name}; the weights are read with "
            f"TensorFlow, once, and kept in {folder}",
            file=sys.stderr,
        )
        weights, objectives = read_checkpoint(str(checkpoint), directory.config)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder}: cannot be written ({error.strerror}); set XDG_CACHE_HOME to a folder "
                "that can be written"
            ) from None
        write_weights(folder, weights, objectives=objectives, checkpoint=str(checkpoint))
        note_cached(folder, folder)
    return folder / WEIGHTS


def check_finite(source: str | Path, arrays: Tensors) -> None:
    """Raises `UserError` if a weight is non-finite."""
    wrong = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if wrong:
        raise UserError(
            f"{source}: holds non-finite weights ({list_names(wrong)}), so every embedding would "
            "be NaN; take an earlier checkpoint, or train again with a lower learning rate"
        )


def _overridden(
    directory: EncoderDirectory,
    override: VectorOverride,
    stored: _WeightsFile,
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
            owner, shape = _shape_of_projection(stored, config.hidden_size)
        config = config.replace(sentence_vector=override.sentence_vector, **shape)
    config.check()
    return config, owner


def _shape_of_projection(
    stored: _WeightsFile, hidden_size: int
) -> tuple[str, dict[str, int | float]]:
    """Finds the objective whose weights hold P, and P's shape as fields of `EncoderConfig`."""
    if not stored.objectives_with_projection:
        raise UserError(
            f"{stored.source}: has no projection P, which sentence_vector projected_mean reads; a "
            "training with the objective cmlm and num_projections above 1 has one: name its "
            "--model_dir, or leave the sentence vector as it is"
        )
    # No method of the papers has two objectives with projections. The order makes the choice the
    # same each time.
    name = stored.objectives_with_projection[0]
    kernels = [kernel for kernel, _ in stored.read_projection(name)]
    count, _, width = kernels[0].shape
    return name, {
        "num_projections": count + 1,
        "projection_depth": len(kernels),
        "projection_width": width / hidden_size if len(kernels) > 1 else 2.0,
    }
