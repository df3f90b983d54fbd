"""Writes the TF-Hub pair and the serving model of an encoder directory."""

import dataclasses
import os
import tempfile
from pathlib import Path

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_directory import CONFIG_NAME
from official_cmlm.checkpoints.find_encoder import load_for_export
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import check_own, read_text, stage_folder, write_json
from official_cmlm.configs.encoder import OWN_VECTOR, EncoderConfig, VectorOverride
from official_cmlm.encoding.classifier import Classifier, read_layer
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel
from official_cmlm.tokenization import Vocabulary

from .left_out import warn_of_classifier
from .model_card import without_folders
from .preprocessing import Preprocess, is_lower_case
from .serving import Serving, shortened, write_configuration, write_warm_up

# TensorFlow Serving takes the number of a version as the name of a model's folder.
PARTS = ("preprocess", "encoder", "serving/1")
# Regular expressions of the files of a module, and of an export.
_OF_MODULE = r"(saved_model|keras_metadata|fingerprint)\.pb|(assets(\.extra)?|variables)/[\w.-]+"
_OWN_FILES = rf"(models|batching)\.config|(preprocess|encoder|serving(/1)?)/({_OF_MODULE})"


@dataclasses.dataclass(frozen=True)
class Exported:
    """The result of `export`.

    Attributes:
      parts: folders in the export.
      seq_length: default length of the preprocess module, in tokens.
      prompt: the text that preprocess and serving model put before each text.
    """

    parts: tuple[str, ...]
    seq_length: int
    prompt: str


def export(
    model_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    seq_length: int | None = None,
    overwrite: bool = False,
    override: VectorOverride = OWN_VECTOR,
    normalize: bool | None = None,
    dim: int | None = None,
    version: int | None = None,
) -> Exported:
    """Exports `output_dir/preprocess`, `output_dir/encoder` and `output_dir/serving/1`.

    Everything is built in float32, also after training in another precision. The folder appears
    under its name when all three are complete. A classifier in `model_dir` becomes a signature of
    the serving model, where the vector is the encoder's own. With a `version`, an existing export
    gets that version of the serving model and otherwise stays as it is.

    Args:
      model_dir: an encoder directory.
      output_dir: folder to write.
      seq_length: default length of the preprocess module and of serving, in tokens, 3 to the length
        of the position table; None takes the directory's.
      overwrite: replace an earlier export, or its version of that number.
      override: the vector that the modules compute. Default: the encoder's own.
      normalize: whether vectors have length 1. Default: as the encoder has it.
      dim: leading components of the vector that are kept, for encoders that were trained for it
        (`matryoshka_dims`); of length 1 again where vectors are normalised. Default: all.
      version: number of the serving model, of which servers take the highest; 0 is the next free
        one. Default: 1, in a new export.

    Returns:
      What was written.

    Raises:
      UserError: if `model_dir` is not an encoder directory or has no such vector, or if
        `output_dir` exists, or would lose versions.
    """
    output = Path(output_dir).resolve()
    version, added = _checked_version(output, version, overwrite)
    place = output / "serving" / str(version) if added else output
    tf_keras.mixed_precision.set_global_policy("float32")
    directory, encoder, seq_length = load_for_export(model_dir, override, seq_length)
    vocabulary, width = directory.vocabulary, encoder.config.embedding_size
    if dim is not None and not 1 <= dim <= width:
        raise UserError(f"--dim must be 1 to {width}, the width of its embeddings; got {dim}")
    if normalize is not None:
        encoder.config = encoder.config.replace(normalize=normalize)
    own_vector = override == OWN_VECTOR and normalize is None and dim is None
    layer = None
    if not own_vector:
        warn_of_classifier(directory.path)
    elif Classifier.is_at(directory.path):
        layer = read_layer(directory.path, width)
    prompt, longest = directory.settings.default_prompt, encoder.config.max_seq_length
    with stage_folder(place) as partial, tempfile.TemporaryDirectory() as folder:
        described = {"encoder": encoder.config.as_dict(), "max_seq_length": seq_length}
        described |= directory.settings.values()
        if dim is not None:
            described["dim"] = dim
        assets = _assets(directory.path, Path(folder), vocabulary, described)
        preprocess = Preprocess(vocabulary, seq_length, longest, assets, prompt)
        if added:
            _save_serving(Serving(preprocess, encoder, dim, layer=layer), partial)
            return Exported((f"serving/{version}",), seq_length, prompt)
        tf.saved_model.save(preprocess, str(partial / "preprocess"))
        core = functional_encoder(encoder, dim)
        for name, path in assets.items():
            setattr(core, name, tf.saved_model.Asset(path))
        core.do_lower_case = tf.Variable(is_lower_case(vocabulary), trainable=False)
        core.save(str(partial / "encoder"), include_optimizer=False, save_format="tf")
        serving = Serving(preprocess, encoder, dim, layer=layer)
        _save_serving(serving, partial / "serving" / str(version))
        write_configuration(partial)
    return Exported((*PARTS[:2], f"serving/{version}"), seq_length, prompt)


def _checked_version(output: Path, version: int | None, overwrite: bool) -> tuple[int, bool]:
    """Returns the number of the serving model, and whether it alone is added to an export."""
    if not output.exists() or not any(output.iterdir()):
        return version or 1, False
    # Earlier releases had no version folder in `serving`.
    if not all((output / part / "saved_model.pb").exists() for part in PARTS[:2]):
        raise UserError(f"{output}: exists and holds no export; name another --export_dir")
    names = (path.name for path in (output / "serving").glob("*") if path.is_dir())
    versions = sorted(int(name) for name in names if name.isdecimal())
    if version is None:
        if not overwrite:
            raise UserError(
                f"{output}: holds an export already; pass --overwrite, --version=0 to add a "
                "version of the serving model, or another name"
            )
        if versions not in ([], [1]):
            raise UserError(
                f"{output}: --overwrite would remove serving/{versions[-1]}; pass --version=N to "
                "write that version alone, or delete it"
            )
        check_own(output, _OWN_FILES)
        return 1, False
    version = version or max(versions, default=0) + 1
    if version in versions:
        if not overwrite:
            raise UserError(
                f"{output}/serving/{version}: exists already; pass --overwrite, or --version=0 for "
                "the next free number"
            )
        check_own(output / "serving" / str(version), _OF_MODULE)
    return version, True


def _save_serving(serving: Serving, folder: Path) -> None:
    signatures = serving.signatures()
    tf.saved_model.save(serving, str(folder), signatures=signatures)
    write_warm_up(folder, signatures)


def functional_encoder(encoder: SentenceEncoderModel, dim: int | None = None) -> tf_keras.Model:
    """Returns the encoder as a Keras model with dict inputs and TF-Hub's outputs.

    Outputs: `default` and `pooled_output`, the sentence embedding, float32
    `[batch, embedding_size]`, or its leading `dim` components, of length 1 only if the config says
    `normalize`; `sequence_output`, float32 `[batch, seq, hidden]`; `encoder_outputs`, a list of
    such tensors, one a layer. It takes `training=`, and its weights can be fine-tuned. Inputs that
    `CheckedInputs` refuses raise `InvalidArgumentError`.
    """
    inputs = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in INPUT_NAMES}
    outputs = encoder(CheckedInputs(encoder.config)(inputs))
    kept = ("default", "pooled_output", "sequence_output", "encoder_outputs")
    outputs = {name: outputs[name] for name in kept}
    if dim is not None:
        vectors = Shortened(dim, encoder.config.normalize)(outputs["default"])
        outputs |= {"default": vectors, "pooled_output": vectors}
    return tf_keras.Model(inputs, outputs, name="cmlm_encoder")


class CheckedInputs(tf_keras.layers.Layer):
    """The encoder's inputs, unchanged; or an `InvalidArgumentError` if they are invalid.

    The encoder itself would give some vector for most of these: masks and types of one row or of
    length 1 are broadcast, a type outside of its table counts as zeros, and so does a word outside
    of its table on GPUs. Rows without a real token are allowed, as padding of a batch.

    An encoder with at most one type has no second segment; it gets type 0 everywhere.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(name="checked_inputs")
        self._config = config

    def call(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Maps a dict of int32 `[batch, seq]` to itself."""
        config = self._config
        inputs = {name: tf.ensure_shape(inputs[name], [None, None]) for name in INPUT_NAMES}
        ids, mask, types = (inputs[name] for name in INPUT_NAMES)
        shape, longest = tf.shape(ids), config.max_seq_length
        if config.type_vocab_size < 2:
            types = tf.zeros_like(types)
        checks = [
            tf.debugging.assert_equal(tf.shape(mask), shape, "input_mask: another shape"),
            tf.debugging.assert_equal(tf.shape(types), shape, "input_type_ids: another shape"),
            tf.debugging.assert_positive(shape[1], "input_word_ids: no tokens"),
            tf.debugging.assert_less_equal(
                shape[1], longest, f"input_word_ids: more than {longest} tokens"
            ),
        ]
        limits = (config.vocab_size, 2, max(config.type_vocab_size, 1))
        for name, values, limit in zip(INPUT_NAMES, (ids, mask, types), limits):
            message = f"{name}: not in 0 to {limit - 1}"
            checks.append(tf.debugging.assert_non_negative(values, message))
            checks.append(tf.debugging.assert_less(values, limit, message))
        with tf.control_dependencies(checks):
            return dict(zip(INPUT_NAMES, map(tf.identity, (ids, mask, types))))


class Shortened(tf_keras.layers.Layer):
    """The leading components of vectors; see `serving.shortened`."""

    def __init__(self, dim: int, normalize: bool) -> None:
        super().__init__(name="shortened")
        self._dim, self._normalize = dim, normalize

    def call(self, vectors: tf.Tensor) -> tf.Tensor:
        """Maps float32 `[batch, embedding_size]` to `[batch, dim]`."""
        return shortened(vectors, self._dim, self._normalize)


def _assets(
    model_dir: Path, folder: Path, vocabulary: Vocabulary, described: dict[str, object]
) -> dict[str, str]:
    """Writes the files for both modules: vocabulary, encoder config, training config.

    Returns:
      Name of the module's attribute -> path.
    """
    names = vocabulary.save(folder)
    write_json(folder / CONFIG_NAME, described)
    # The first file of a vocabulary has its entries, the last one has its settings.
    assets = {
        "vocab_file": str(folder / names[0]),
        "vocab_settings": str(folder / names[-1]),
        "encoder_config": str(folder / CONFIG_NAME),
    }
    if len(names) == 3:
        assets["merges_file"] = str(folder / names[1])
    params = model_dir / "params.yaml"
    if params.exists():
        # The modules are published, so the machine's folders are left out.
        text = without_folders(read_text(params, "it goes into the modules"))
        (folder / "params.yaml").write_text(text, encoding="utf-8")
        assets["training_config"] = os.fspath(folder / "params.yaml")
    return assets
