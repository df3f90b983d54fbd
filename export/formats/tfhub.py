"""Writes the TF-Hub pair and the serving model of an encoder directory."""

import dataclasses
import os
import tempfile
from pathlib import Path

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_directory import CONFIG_NAME
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import check_own, stage_folder, write_json
from official_cmlm.configs.encoder import OWN_VECTOR, EncoderConfig
from official_cmlm.encoding.classifier import Classifier, read_layer
from official_cmlm.encoding.exporting import Source
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel

from .preprocessing import Preprocess, is_lower_case
from .serving import Serving, shorten, write_configuration, write_warm_up
from .tfhub_options import TfhubOptions

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


def export(options: TfhubOptions) -> Exported:
    """Exports `preprocess`, `encoder` and `serving/1` into the folder.

    Everything is built in float32, also after training in another precision. The folder appears
    under its name when all three are complete. A classifier of the encoder becomes a signature of
    the serving model, where the vector is the encoder's own. With a `version`, an existing export
    gets that version of the serving model and otherwise stays as it is.

    Returns:
      What was written.

    Raises:
      UserError: if the encoder has no such vector, if the folder exists or would lose versions, or
        as `exporting.Source.open` does.
    """
    output, normalize, dim = Path(options.export_dir).resolve(), options.normalize, options.dim
    version, added = _check_version(output, options.version, options.overwrite)
    place = output / "serving" / str(version) if added else output
    tf_keras.mixed_precision.set_global_policy("float32")
    source = Source.open(options)
    directory, encoder, seq_length = source.directory, source.encoder, source.seq_length
    vocabulary, width = directory.vocabulary, encoder.config.embedding_size
    if dim is not None and not 1 <= dim <= width:
        raise UserError(f"--dim must be 1 to {width}, the width of its embeddings; got {dim}")
    if normalize is not None:
        encoder.config = encoder.config.replace(normalize=normalize)
    own_vector = options.override == OWN_VECTOR and normalize is None and dim is None
    layer = None
    if not own_vector:
        source.warn_of_classifier()
    elif Classifier.is_at(directory.path):
        layer = read_layer(directory.path, width)
    prompt, longest = directory.settings.default_prompt, encoder.config.max_seq_length
    with stage_folder(place) as partial, tempfile.TemporaryDirectory() as folder:
        described = {"encoder": encoder.config.as_dict(), "max_seq_length": seq_length}
        described |= directory.settings.values()
        if dim is not None:
            described["dim"] = dim
        assets = _write_assets(source, Path(folder), described)
        preprocess = Preprocess(vocabulary, seq_length, longest, assets, prompt)
        if added:
            _save_serving(Serving(preprocess, encoder, dim, layer=layer), partial)
            return Exported((f"serving/{version}",), seq_length, prompt)
        tf.saved_model.save(preprocess, str(partial / "preprocess"))
        core = build_functional_encoder(encoder, dim)
        for name, path in assets.items():
            setattr(core, name, tf.saved_model.Asset(path))
        core.do_lower_case = tf.Variable(is_lower_case(vocabulary), trainable=False)
        core.save(str(partial / "encoder"), include_optimizer=False, save_format="tf")
        serving = Serving(preprocess, encoder, dim, layer=layer)
        _save_serving(serving, partial / "serving" / str(version))
        write_configuration(partial)
    return Exported((*PARTS[:2], f"serving/{version}"), seq_length, prompt)


def _check_version(output: Path, version: int | None, overwrite: bool) -> tuple[int, bool]:
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


def build_functional_encoder(
    encoder: SentenceEncoderModel, dim: int | None = None
) -> tf_keras.Model:
    """Returns the encoder as a Keras model with dict inputs and TF-Hub's outputs.

    Outputs: `default` and `pooled_output`, the sentence embedding, float32
    `[batch, embedding_size]`, or its leading `dim` components, of length 1 only if the config says
    `normalize`; `sequence_output`, float32 `[batch, seq, hidden]`; `encoder_outputs`, a list of
    such tensors, one a layer. It takes `training=`, and its weights can be fine-tuned. Inputs that
    `CheckedInputs` refuses raise `InvalidArgumentError`.
    """
    inputs = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in INPUT_NAMES}
    outputs = encoder(CheckedInputs(encoder.config)(inputs))
    names = ("default", "pooled_output", "sequence_output", "encoder_outputs")
    outputs = {name: outputs[name] for name in names}
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
    """The leading components of vectors; see `serving.shorten`."""

    def __init__(self, dim: int, normalize: bool) -> None:
        super().__init__(name="shortened")
        self._dim, self._normalize = dim, normalize

    def call(self, vectors: tf.Tensor) -> tf.Tensor:
        """Maps float32 `[batch, embedding_size]` to `[batch, dim]`."""
        return shorten(vectors, self._dim, self._normalize)


def _write_assets(source: Source, folder: Path, described: dict[str, object]) -> dict[str, str]:
    """Writes the files for both modules: vocabulary, encoder config, training config.

    Returns:
      Name of the module's attribute -> path.
    """
    names = source.directory.vocabulary.save(folder)
    write_json(folder / CONFIG_NAME, described)
    # The first file of a vocabulary has its entries, the last one has its settings.
    assets = {
        "vocab_file": str(folder / names[0]),
        "vocab_settings": str(folder / names[-1]),
        "encoder_config": str(folder / CONFIG_NAME),
    }
    if len(names) == 3:
        assets["merges_file"] = str(folder / names[1])
    if params := source.write_params(folder):
        assets["training_config"] = os.fspath(params)
    return assets
