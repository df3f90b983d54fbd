"""Exports an encoder for LiteRT, for phones and small devices: `python -m export.export_litert`.

Writes models of fixed lengths, with float and with 8-bit weights, and the tokenizer.
`examples/encode_litert.py` runs them with the packages `ai-edge-litert` and `tokenizers`.
"""

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.files import check_writable

FLAGS = flags.FLAGS


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
        ["float32", "int8"],
        "float32; or int8, a quarter of the size, with embeddings that differ a little.",
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if not FLAGS.lengths or not all(text.strip().isdecimal() for text in FLAGS.lengths):
        raise UserError(f"--lengths must be whole numbers, such as 64,128; got {FLAGS.lengths}")
    if not FLAGS.weights or set(FLAGS.weights) - {"float32", "int8"}:
        raise UserError(f"--weights must be float32, int8 or both, got {FLAGS.weights}")
    check_writable(FLAGS.export_dir, is_folder=True, replaced=True)
    cli.import_tensorflow()
    cli.import_modules()
    from . import litert

    sizes = litert.export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        sorted({int(text) for text in FLAGS.lengths}),
        FLAGS.weights,
        FLAGS.overwrite,
        cli.vector_override(),
    )
    for name, size in sizes.items():
        print(f"{FLAGS.export_dir}/{name}  {size / 1e6:.1f} MB")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
