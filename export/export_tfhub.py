"""Exports an encoder as TF-Hub modules: `python -m export.export_tfhub`.

Writes three SavedModels: `preprocess` (strings to ids), `encoder` (ids to embeddings), to be used
as a pair through `hub.KerasLayer`, and `serving/1` (strings to embeddings) for TensorFlow Serving.
With `--version` it adds a version of the latter to an export.
"""

from absl import flags

from official_cmlm import cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags: encoder, export folder, length, prompt and version."""
    cli.define_export()
    flags.DEFINE_bool(
        "normalize", None, "Whether vectors have length 1. Default: as the encoder has it."
    )
    flags.DEFINE_integer(
        "dim",
        None,
        "Leading components of the vector to keep, of an encoder that was trained for it. "
        "Default: all.",
        lower_bound=1,
        upper_bound=1_000_000,
    )
    flags.DEFINE_integer(
        "version",
        None,
        "Number of the serving model, of which TensorFlow Serving takes the highest; 0: the next "
        "free one. To an export that is there only this version is added, or with --overwrite "
        "replaced. Default: 1, in a new export.",
        lower_bound=0,
        upper_bound=1_000_000_000,
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    cli.begin_export()
    from .formats import tfhub

    written = tfhub.export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        FLAGS.seq_length,
        FLAGS.overwrite,
        cli.vector_override(),
        FLAGS.normalize,
        FLAGS.dim,
        FLAGS.version,
    )
    for part in written.parts:
        print(f"{FLAGS.export_dir}/{part}")
    print(
        f"preprocess pads and cuts to {written.seq_length} tokens, serving cuts to them; a shorter "
        "--seq_length makes the pair faster"
    )
    if written.prompt:
        print(f"the default prompt {written.prompt!r} is put before each text")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
