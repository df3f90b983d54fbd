"""Exports an encoder for LiteRT, for phones and small devices: `cmlm export ENCODER --to=litert`.

Writes models of fixed lengths, with float and with 8-bit weights, and the tokenizer.
`examples/encode_litert.py` runs them with the packages `ai-edge-litert` and `tokenizers`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from absl import logging

from official_cmlm import cli
from official_cmlm.checkpoints.formats.huggingface_config import model_type_of
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import write_json
from official_cmlm.common.validation import OneOf
from official_cmlm.encoding import exporting

from .formats.huggingface_tokenizer import OWN_FILES, write_tokenizer

if TYPE_CHECKING:
    import tensorflow as tf

    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

WEIGHTS = ("float32", "int8")
DESCRIPTION = "litert.json"


@dataclasses.dataclass(frozen=True)
class LitertOptions(exporting.ExportOptions):
    """Options of `export`; `seq_length` is the longest of `lengths`.

    Attributes:
      lengths: lengths in tokens, special ones and padding included, a model for each; a text is
        padded to the shortest that is enough.
      weights: forms of the weights: float32; or int8, a quarter of the size, with embeddings
        that differ a little.
    """

    lengths: tuple[int, ...] = (64, 128)
    weights: tuple[Annotated[str, OneOf(WEIGHTS)], ...] = WEIGHTS

    def __post_init__(self) -> None:
        if not self.lengths or not self.weights:
            raise UserError("--lengths and --weights: give at least one of each")


def define_flags() -> None:
    """Defines the flags: encoder, export folder, lengths and kinds of weights."""
    exporting.define_flags(LitertOptions, skip={"seq_length"})


def main() -> None:
    """Runs the binary."""
    options = exporting.begin(LitertOptions)
    for name, size in export(options).items():
        print(f"{options.export_dir}/{name}  {size / 1e6:.1f} MB")


def export(options: LitertOptions) -> dict[str, int]:
    """Writes one model for each length and each kind of weights, and the tokenizer.

    Weights `int8`: the matrices of layers and embeddings have 8 bits and a scale for each row, and
    the activations that they multiply are quantised when they are computed ("dynamic range").

    Returns:
      File name -> bytes.

    Raises:
      UserError: for a length that the encoder's position table does not cover, or as
        `exporting.stage_export` does.
    """
    lengths, weights, sizes = sorted(set(options.lengths)), options.weights, {}
    options = dataclasses.replace(options, seq_length=lengths[-1])
    own = rf"{OWN_FILES}|{DESCRIPTION}|encoder_\d+(_int8)?\.tflite"

    def is_export(path: Path) -> bool:
        return (path / DESCRIPTION).exists()

    with exporting.stage_export(options, is_export, own, "lengths") as (folder, source):
        config, vocabulary = source.weights.config, source.directory.vocabulary
        if lengths[0] < 3:
            rows = config.max_seq_length
            raise UserError(f"--lengths must be 3 to {rows} (the position table), got {lengths[0]}")
        for length in lengths:
            for kind, model in zip(weights, convert(source.encoder, length, weights)):
                name = f"encoder_{length}{'' if kind == WEIGHTS[0] else f'_{kind}'}.tflite"
                (folder / name).write_bytes(model)
                sizes[name] = len(model)
        write_tokenizer(folder, vocabulary, model_type_of(config, vocabulary), lengths[-1])
        encoding = source.directory.settings
        values = {
            "default_prompt_name": encoding.default_prompt_name,
            "embedding_size": config.embedding_size,
            "lengths": lengths,
            "normalize": config.normalize,
            "padding_id": vocabulary.special_ids["pad"],
            "prompts": dict(encoding.prompts),
            "weights": list(weights),
        }
        write_json(folder / DESCRIPTION, values)
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
