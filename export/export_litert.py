"""Exports an encoder for LiteRT, for phones and small devices: `python -m export.export_litert`.

Writes models of fixed lengths, with float and with 8-bit weights, and the tokenizer.
`examples/encode_litert.py` runs them with the packages `ai-edge-litert` and `tokenizers`.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags, logging

from official_cmlm import cli
from official_cmlm.checkpoints.formats.huggingface_config import model_type_of
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import output_folder, stage_folder, write_json
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride

from .formats.huggingface_tokenizer import OWN_FILES, write_tokenizer
from .formats.left_out import warn_of_classifier

if TYPE_CHECKING:
    import tensorflow as tf

    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

FLAGS = flags.FLAGS
WEIGHTS = ("float32", "int8")
DESCRIPTION = "litert.json"


def define_flags() -> None:
    """Defines the flags: encoder, export folder, lengths and kinds of weights."""
    cli.define_export(cuts=False)
    flags.DEFINE_list(
        "lengths",
        ["64", "128"],
        "Lengths in tokens, a model for each; a text is padded to the shortest that is enough.",
    )
    flags.DEFINE_list(
        "weights",
        list(WEIGHTS),
        "float32; or int8, a quarter of the size, with embeddings that differ a little.",
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if not FLAGS.lengths or not all(text.strip().isdecimal() for text in FLAGS.lengths):
        raise UserError(f"--lengths must be whole numbers, such as 64,128; got {FLAGS.lengths}")
    if not FLAGS.weights or set(FLAGS.weights) - set(WEIGHTS):
        raise UserError(f"--weights must be float32, int8 or both, got {FLAGS.weights}")
    cli.begin_export()
    sizes = export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        sorted({int(text) for text in FLAGS.lengths}),
        FLAGS.weights,
        FLAGS.overwrite,
        cli.vector_override(),
    )
    for name, size in sizes.items():
        print(f"{FLAGS.export_dir}/{name}  {size / 1e6:.1f} MB")


def export(
    model_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    lengths: Sequence[int],
    weights: Sequence[str] = WEIGHTS,
    overwrite: bool = False,
    override: VectorOverride = OWN_VECTOR,
) -> dict[str, int]:
    """Writes one model for each length and each kind of weights, and the tokenizer.

    Args:
      model_dir, output_dir, overwrite, override: see `export_sentence_transformers.export`.
      lengths: tokens of a text, special ones and padding included.
      weights: items of `WEIGHTS`. `int8`: the matrices of layers and embeddings have 8 bits and a
        scale for each row, and the activations that they multiply are quantised when they are
        computed ("dynamic range"); a quarter of the size.

    Returns:
      File name -> bytes.

    Raises:
      UserError: if `model_dir` is not an encoder directory, for a length that its position table
        does not cover, or if `output_dir` exists.
    """
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
    from official_cmlm.checkpoints.weights import load_encoder

    own = rf"{OWN_FILES}|{DESCRIPTION}|encoder_\d+(_int8)?\.tflite"
    output = output_folder(output_dir, overwrite, lambda path: (path / DESCRIPTION).exists(), own)
    directory = encoder_directory_of(find_encoder(model_dir))
    warn_of_classifier(directory.path)
    encoder, vocabulary = load_encoder(directory, override, max(lengths)), directory.vocabulary
    config = encoder.config
    for length in lengths:
        if not 3 <= length <= config.max_seq_length:
            raise UserError(
                f"--lengths must be 3 to {config.max_seq_length} (the position table), got {length}"
            )
    sizes = {}
    with stage_folder(output) as partial:
        for length in lengths:
            for kind, model in zip(weights, convert(encoder, length, weights)):
                name = f"encoder_{length}{'' if kind == WEIGHTS[0] else f'_{kind}'}.tflite"
                (partial / name).write_bytes(model)
                sizes[name] = len(model)
        model_type = model_type_of(config, vocabulary)
        write_tokenizer(partial, vocabulary, model_type, max(lengths))
        encoding = directory.settings
        values = {
            "default_prompt_name": encoding.default_prompt_name,
            "embedding_size": config.embedding_size,
            "lengths": sorted(set(lengths)),
            "normalize": config.normalize,
            "padding_id": vocabulary.special_ids["pad"],
            "prompts": dict(encoding.prompts),
            "weights": list(weights),
        }
        write_json(partial / DESCRIPTION, values)
    return sizes


def convert(
    encoder: "SentenceEncoderModel", length: int, weights: Sequence[str]
) -> Iterator[bytes]:
    """Yields a LiteRT model of each kind of weights.

    It takes `input_word_ids` and `input_mask`, int32 `[1, length]`, special tokens included, and
    gives `default`, the embedding, float32 `[1, embedding_size]`.
    """
    import tensorflow as tf

    spec = [
        tf.TensorSpec([1, length], tf.int32, name=name) for name in ("input_word_ids", "input_mask")
    ]

    @tf.function(input_signature=spec)
    def embed(input_word_ids: "tf.Tensor", input_mask: "tf.Tensor") -> "dict[str, tf.Tensor]":
        inputs = {
            "input_word_ids": input_word_ids,
            "input_mask": input_mask,
            "input_type_ids": tf.zeros_like(input_word_ids),
        }
        return {"default": encoder(inputs, training=False, vector_only=True)["default"]}

    # The converter saves this module. It has only the weights, as Keras would save every call of
    # its layers.
    holder = tf.Module()
    holder.embed, holder.weights = embed, list(encoder.variables)
    functions = [embed.get_concrete_function()]
    for kind in weights:
        converter = tf.lite.TFLiteConverter.from_concrete_functions(functions, holder)
        if kind != WEIGHTS[0]:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        with _quiet():
            yield converter.convert()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the messages that the converter's C++ code writes for its own developers."""
    before = logging.get_verbosity()
    logging.set_verbosity("error")
    try:
        yield
    finally:
        logging.set_verbosity(before)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
