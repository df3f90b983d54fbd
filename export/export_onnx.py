"""Exports an encoder for ONNX Runtime: `python -m export.export_onnx`.

Writes a sentence-transformers folder with graphs of float32 and of 8-bit weights below `onnx/`.
`SentenceEncoder.load(folder, backend="onnx")` and sentence-transformers (`backend="onnx"`) load it,
and so does any program with ONNX Runtime and the package `tokenizers`.
"""

import os
from collections.abc import Sequence

from absl import flags

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import write_published_settings
from official_cmlm.checkpoints.formats.huggingface_config import ROBERTAS, model_type_of
from official_cmlm.common.files import output_folder, read_object, stage_folder, write_json
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride
from official_cmlm.encoding.backends.onnx import is_exported
from official_cmlm.encoding.backends.onnx_graph import PRECISIONS, SUBFOLDER, graph_name, graph_of

from .export_sentence_transformers import OWN_FILES
from .export_sentence_transformers import write as write_sentence_transformers
from .formats.huggingface_tokenizer import write_tokenizer
from .formats.left_out import warn_of_classifier

FLAGS = flags.FLAGS
# Architectures whose tokenizers give no token types, so that programs do not pass them either.
_WITHOUT_TYPES = (*ROBERTAS, "distilbert", "mpnet")


def define_flags() -> None:
    """Defines the flags: encoder, export folder and precisions."""
    cli.define_export()
    flags.DEFINE_multi_enum(
        "precisions",
        list(PRECISIONS),
        list(PRECISIONS),
        "Graphs to write: float32; 8-bit weights for processors with AVX2; and for those with "
        "VNNI (or 64-bit ARM). Default: all.",
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    cli.begin_export()
    export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        list(dict.fromkeys(FLAGS.precisions)),
        FLAGS.overwrite,
        FLAGS.seq_length,
        cli.vector_override(),
    )
    print(FLAGS.export_dir)


def export(
    model_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    precisions: Sequence[str] = tuple(PRECISIONS),
    overwrite: bool = False,
    seq_length: int | None = None,
    override: VectorOverride = OWN_VECTOR,
) -> None:
    """Writes the folder; it appears under its name when it is complete.

    It is what `export_sentence_transformers` writes, and `onnx/` with a graph for each
    precision. Where sentence-transformers has no module for the vector, only the tokenizer and the
    graphs are written, whose output `sentence_embedding` is the vector.

    Args:
      model_dir, output_dir, overwrite, seq_length, override: see
        `export_sentence_transformers.export`.
      precisions: keys of `backends.onnx_graph.PRECISIONS`.

    Raises:
      UserError: if `model_dir` is not an encoder directory, or if `output_dir` exists already.
    """
    from official_cmlm.checkpoints.find_encoder import load_for_export
    from official_cmlm.checkpoints.weights import weights_of

    output = output_folder(output_dir, overwrite, is_exported, OWN_FILES)
    directory, encoder, length = load_for_export(model_dir, override, seq_length)
    warn_of_classifier(directory.path)
    config, vocabulary = encoder.config, directory.vocabulary
    weights = weights_of(encoder)
    model_type = model_type_of(config, vocabulary)
    known = config.sentence_vector == "pooled" and config.pooled_by.exported_as is not None
    # PyTorch's libraries have no such network.
    known = known and not config.embedding_width
    with stage_folder(output) as partial:
        if known:
            write_sentence_transformers(partial, directory, encoder, length)
        else:
            write_tokenizer(partial, vocabulary, model_type, config.max_seq_length)
            settings = directory.settings.for_export(config.pooling, config.sentence_vector)
            write_published_settings(partial, settings)
        (partial / SUBFOLDER).mkdir()
        for precision in precisions:
            graph = graph_of(
                weights, vocabulary, length, precision, model_type not in _WITHOUT_TYPES
            )
            (partial / SUBFOLDER / graph_name(precision)).write_bytes(graph)
        # Programs that do not read sentence-transformers' settings cut and pad to this length.
        path = partial / "tokenizer_config.json"
        write_json(path, read_object(path) | {"model_max_length": length})


if __name__ == "__main__":
    define_flags()
    cli.run(main)
