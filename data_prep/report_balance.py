"""Shows how records are spread over languages: `python -m data_prep.report_balance --records=…`.

Prints the table and writes it, with a figure, as balance.md and balance.svg beside the records.
"""

from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.common.files import check_output
from official_cmlm.records.manifest import load_manifest

from .output.report import DEFAULT_EXPONENT, FIGURE, TABLE, table, write_report

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the records and of the smoothing."""
    flags.DEFINE_string("records", None, "Folder of records, documents or pairs. Required.")
    flags.DEFINE_string("output_dir", "", "Folder for the files. Default: that of the records.")
    flags.DEFINE_bool(
        "overwrite", False, "Whether to replace these files, which are beside the records already."
    )
    flags.DEFINE_float(
        "exponent",
        DEFAULT_EXPONENT,
        "Exponent of the smoothing to show, as task.train_data.language_exponent: 1 as the data"
        " are, 0 all languages alike.",
        lower_bound=0,
        upper_bound=1,
    )
    cli.required("records")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    cli.announce("drawing the balance of languages …")
    manifest = load_manifest(FLAGS.records)
    folder = Path(FLAGS.output_dir or FLAGS.records)
    for name in (TABLE, FIGURE):
        check_output(folder / name, FLAGS.overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    write_report(manifest, folder, FLAGS.exponent)
    print(table(manifest, FLAGS.exponent), end="")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
