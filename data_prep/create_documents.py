"""Turns text into documents records: `cmlm create-documents`.

    cmlm create-documents --input='books/*.txt' --vocab_file=vocab.txt --to=records
    # Languages of files that do not name their own:
    cmlm create-documents --input='en:books/en/*.txt,de:books/de/*.txt' …

Reads text, splits it into sentences, tokenises them and writes TFRecord shards, the vocabulary,
`dataset.json` and a report of the languages' balance into a folder. Memory does not grow with the
text. `data_prep.prepare` does the same with stages that clean the text, on many processes or
machines; without stages it writes the same bytes.
"""

from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.common.beam_workers import BeamWorkers

from . import common_flags
from .output.documents import RecordOptions
from .pipeline.plan import Options
from .pipeline.run import write_documents

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of reading and of records."""
    common_flags.define_reading()
    common_flags.define_records()


def read_options(**values: Any) -> Options:
    """Returns the options that the flags ask for; `values` of fields take the place of flags.

    Raises:
      UserError: for a value out of range.
    """
    records = cli.read(RecordOptions, one_sentence_a_line=FLAGS.lines == "sentences")
    return cli.read(Options, reading=common_flags.reading_options(), records=records, **values)


def write_records(options: Options, workers: int = 1, beam: BeamWorkers | None = None) -> int:
    """Writes the records that the flags ask for, here and in `prepare`; returns the exit status."""
    files = common_flags.text_files()
    common_flags.check_output_dir(file.path for file in files)
    vocabulary = common_flags.vocabulary()
    exclude = common_flags.list_excluded_paths()
    cli.import_tensorflow()
    return write_documents(
        files, options, vocabulary, FLAGS.output_dir, workers, FLAGS.overwrite, exclude, beam
    )


def main() -> int:
    """Runs the binary."""
    return write_records(read_options())


if __name__ == "__main__":
    define_flags()
    cli.run(main)
