"""Exports an encoder for PyTorch users: `python -m export.export_sentence_transformers`.

Writes a folder that `sentence_transformers.SentenceTransformer(path)` and `transformers` load as it
is. PyTorch is not needed to write it.
"""

from absl import flags

from official_cmlm import cli
from official_cmlm.files import read_object

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags: encoder, export folder and the fields of the model card."""
    cli.define_export()
    flags.DEFINE_bool(
        "language_model_head",
        False,
        "Whether to write the masked-language-model head too, for AutoModelForMaskedLM.",
    )
    flags.DEFINE_string(
        "results_file",
        "",
        "For the model card: results.json of experiments.evaluate, or a JSON file of figures by"
        " name. Default: none.",
    )
    flags.DEFINE_string(
        "license", "", "Licence for the model card, e.g. apache-2.0. Default: none."
    )
    flags.DEFINE_list(
        "datasets", [], "Names of the training data on the model hub, for the card. Default: none."
    )
    flags.DEFINE_list(
        "languages",
        [],
        "Language tags for the model card. Default: those of the training's records.",
    )
    flags.DEFINE_string(
        "base_model",
        "",
        "Model on the hub that training started from, for the card. Default: none.",
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    results = None
    if FLAGS.results_file:
        results = read_object(FLAGS.results_file, "name a file of figures by name")
    from .model_card import Publication

    publication = Publication(
        FLAGS.license, tuple(FLAGS.datasets), tuple(FLAGS.languages), FLAGS.base_model
    )
    publication.check()
    cli.begin_export()
    from . import sentence_transformers_folder

    sentence_transformers_folder.export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        FLAGS.language_model_head,
        results,
        FLAGS.overwrite,
        FLAGS.seq_length,
        cli.vector_override(),
        publication,
    )
    print(FLAGS.export_dir)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
