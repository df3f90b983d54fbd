"""Exports an encoder for ONNX Runtime: `cmlm export ENCODER --to=onnx`.

Writes a sentence-transformers folder with graphs of float32 and of 8-bit weights below `onnx/`.
`SentenceEncoder.load(folder, backend="onnx")` and sentence-transformers (`backend="onnx"`) load it,
and so does any program with ONNX Runtime and the package `tokenizers`.
"""

import dataclasses
from typing import Annotated

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import write_published_settings
from official_cmlm.checkpoints.formats.huggingface_config import ROBERTAS, model_type_of
from official_cmlm.common.files import read_object, write_json
from official_cmlm.common.validation import OneOf
from official_cmlm.encoding import exporting
from official_cmlm.encoding.backends.onnx import is_exported
from official_cmlm.encoding.backends.onnx_graph import PRECISIONS, SUBFOLDER, graph_name, graph_of

from .export_sentence_transformers import OWN_FILES
from .export_sentence_transformers import write as write_sentence_transformers
from .formats.huggingface_tokenizer import write_tokenizer

# Architectures whose tokenizers give no token types, so that programs do not pass them either.
_WITHOUT_TYPES = (*ROBERTAS, "distilbert", "mpnet")


@dataclasses.dataclass(frozen=True)
class OnnxOptions(exporting.ExportOptions):
    """Options of `export`.

    Attributes:
      precisions: graphs to write: float32; qint8_avx2, 8-bit weights for processors with AVX2; and
        qint8_avx512_vnni, for those with VNNI (or 64-bit ARM). Default: all.
    """

    precisions: tuple[Annotated[str, OneOf(tuple(PRECISIONS))], ...] = tuple(PRECISIONS)


def define_flags() -> None:
    """Defines the flags: encoder, export folder and precisions."""
    exporting.define_flags(OnnxOptions)


def main() -> None:
    """Runs the binary."""
    options = exporting.begin(OnnxOptions)
    export(options)
    print(options.export_dir)


def export(options: OnnxOptions) -> None:
    """Writes the folder; it appears under its name when it is complete.

    It is what `export_sentence_transformers` writes, and `onnx/` with a graph for each
    precision. Where sentence-transformers has no module for the vector, only the tokenizer and the
    graphs are written, whose output `sentence_embedding` is the vector.

    Raises:
      UserError: as `exporting.stage_export` does.
    """
    with exporting.stage_export(options, is_exported, OWN_FILES) as (folder, source):
        config, vocabulary = source.weights.config, source.directory.vocabulary
        model_type = model_type_of(config, vocabulary)
        has_modules = (
            config.sentence_vector == "pooled" and config.pooled_by.exported_as is not None
        )
        # PyTorch's libraries have no network with an `embedding_width`.
        if has_modules and not config.embedding_width:
            write_sentence_transformers(folder, source)
        else:
            write_tokenizer(folder, vocabulary, model_type, config.max_seq_length)
            settings = source.directory.settings
            write_published_settings(
                folder, settings.for_export(config.pooling, config.sentence_vector)
            )
        length = source.seq_length
        has_types = model_type not in _WITHOUT_TYPES
        (folder / SUBFOLDER).mkdir()
        for precision in dict.fromkeys(options.precisions):
            graph = graph_of(source.weights, vocabulary, length, precision, has_types)
            (folder / SUBFOLDER / graph_name(precision)).write_bytes(graph)
        # Programs that do not read sentence-transformers' settings cut and pad to this length.
        path = folder / "tokenizer_config.json"
        write_json(path, read_object(path) | {"model_max_length": length})


if __name__ == "__main__":
    define_flags()
    cli.run(main)
