"""The flags of every binary that writes records, and what is made of them."""

import math

from absl import flags

from data_prep.documents import RecordOptions
from data_prep.readers import ReadOptions, ReadReport, expand_inputs
from data_prep.stages.exclusion import Exclusion
from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.tokenization import Vocabulary, load_vocabulary

FLAGS = flags.FLAGS


def define() -> None:
    """Defines the flags of documents records; called as `reader_flags.define` is."""
    define_common()
    flags.DEFINE_integer(
        "max_sentences",
        256,
        "Sentences of a record at most; longer documents are cut into several records in order.",
        lower_bound=2,
    )
    flags.DEFINE_integer(
        "min_sentences", 1, "Sentences that a document must have, or it is dropped and counted."
    )


def define_common() -> None:
    """Defines the flags that records of documents and of pairs share; part of `define`."""
    flags.DEFINE_string(
        "vocab_file",
        None,
        "Vocabulary: a vocab.txt of WordPiece, a merges.txt of byte-level BPE with its vocab.json,"
        " or a folder that holds one, e.g. an imported encoder. Required.",
    )
    flags.DEFINE_string("output_dir", None, "Folder to write; it appears when complete. Required.")
    flags.DEFINE_bool("overwrite", False, "Whether to replace records that are there already.")
    flags.DEFINE_bool(
        "lower_case",
        None,
        "Whether the vocabulary is uncased. Default: as the .json beside the vocabulary says; must"
        " be given where there is none.",
    )
    flags.DEFINE_integer(
        "max_bytes_per_word",
        None,
        "Longer words become [UNK], in bytes of UTF-8. Default: as the .json beside the vocabulary"
        " says, else 1000.",
        lower_bound=1,
    )
    flags.DEFINE_list(
        "exclude",
        [],
        "Evaluation files, such as those of STS, SentEval and Tatoeba: files, directories or glob"
        " patterns, of text, tables or JSON. Their sentences are left out: a document is cut"
        " there, a row of pairs goes whole. A file that cannot be read is an error, or with"
        " --on_error=skip a warning.",
    )
    flags.DEFINE_float(
        "shard_mb",
        16.0,
        "Size of a shard, in megabytes (10^6 bytes). Training mixes the documents of 16 shards.",
    )
    flags.DEFINE_bool(
        "keep_text",
        False,
        "Whether to store the text too, for views that work on characters; about doubles the size.",
    )
    cli.required("vocab_file", "output_dir")


def megabytes(name: str) -> int:
    """The bytes that a flag gives in units of 10^6; `UserError` if that is no positive number."""
    value = FLAGS[name].value
    if not 0 < value < math.inf:
        raise UserError(f"--{name} is {value:g}; give a positive number")
    return max(1, int(value * 1e6))


def vocabulary() -> Vocabulary:
    """The vocabulary that the flags name; raises as `load_vocabulary` does."""
    return load_vocabulary(FLAGS.vocab_file, FLAGS.lower_case, FLAGS.max_bytes_per_word)


def options() -> RecordOptions:
    """How the flags want documents to become records."""
    return RecordOptions(
        one_sentence_a_line=FLAGS.lines == "sentences",
        max_sentences=FLAGS.max_sentences,
        min_sentences=FLAGS.min_sentences,
        keep_text=FLAGS.keep_text,
    )


def excluded_paths() -> list[str]:
    """The files of evaluation sentences; raises as `expand_inputs` does."""
    if not FLAGS.exclude:
        return []
    try:
        return expand_inputs(FLAGS.exclude)
    except UserError as error:
        # Readers speak of the flag that names most files.
        raise UserError(str(error).replace("--input", "--exclude")) from None


def exclusion(reading: ReadOptions, report: ReadReport) -> Exclusion | None:
    """The sentences that may not be trained on, if any; `report` notes files that are skipped.

    Raises:
      UserError: as `Exclusion.of` does.
    """
    paths = excluded_paths()
    if not paths:
        return None
    found = Exclusion.of(paths, reading)
    report.exclusion_faults += found.faults
    return found
