"""Exports an encoder for ONNX Runtime: `python -m export.export_onnx`.

Writes a sentence-transformers folder with graphs of float32 and of 8-bit weights below `onnx/`.
`SentenceEncoder.load(folder, backend="onnx")` and sentence-transformers (`backend="onnx"`) load it,
and so does any program with ONNX Runtime and the package `tokenizers`.
"""

from absl import flags

from official_cmlm import cli
from official_cmlm.backends.onnx_graph import PRECISIONS
from official_cmlm.extras import check_extra
from official_cmlm.files import check_writable

FLAGS = flags.FLAGS


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
    check_extra("onnx", "onnx")
    check_writable(FLAGS.export_dir, is_folder=True, replaced=True)
    cli.import_tensorflow()
    cli.import_modules()
    from . import onnx_folder

    onnx_folder.export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        list(dict.fromkeys(FLAGS.precisions)),
        FLAGS.overwrite,
        FLAGS.seq_length,
        cli.vector_override(),
    )
    print(FLAGS.export_dir)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
