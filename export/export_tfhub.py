"""Exports an encoder as TF-Hub modules: `cmlm export ENCODER --to=tfhub`.

Writes three SavedModels: `preprocess` (strings to ids), `encoder` (ids to embeddings), to be used
as a pair through `hub.KerasLayer`, and `serving/1` (strings to embeddings) for TensorFlow Serving.
With `--version` it adds a version of the latter to an export.
"""

from official_cmlm import cli
from official_cmlm.encoding import exporting

from .formats.tfhub_options import TfhubOptions


def define_flags() -> None:
    """Defines the flags: encoder, export folder, length, vector and version."""
    exporting.define_flags(TfhubOptions)


def main() -> None:
    """Runs the binary."""
    options = exporting.begin(TfhubOptions)
    from .formats import tfhub

    written = tfhub.export(options)
    for part in written.parts:
        print(f"{options.export_dir}/{part}")
    print(
        f"preprocess pads and cuts to {written.seq_length} tokens, serving cuts to them; a shorter "
        "--seq_length makes the pair faster"
    )
    if written.prompt:
        print(f"the default prompt {written.prompt!r} is put before each text")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
