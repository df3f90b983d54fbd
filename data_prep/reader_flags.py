"""The flags of every binary that reads text, and the options made of them."""

import math

from absl import flags

from data_prep.readers import READER_NAMES, ReadOptions, expand_inputs
from data_prep.readers.document import DEFAULT_MAX_EXPANDED_BYTES, DOCUMENTS_BY, LINES
from data_prep.readers.report import ON_ERROR
from data_prep.readers.tfds import PREFIX
from official_cmlm.errors import UserError

# Read at each call, so that tests can set them.
FLAGS = flags.FLAGS


def define() -> None:
    """Defines the flags; a binary calls it once, before `cli.run`, never while imported.

    The binary then calls `flags.adopt_module_key_flags(reader_flags)`, without which `--help`
    shows the flags of its own module only.
    """
    flags.DEFINE_list(
        "input",
        None,
        "Text to read: files, directories (all files below them) or glob patterns, ** included,"
        " separated by commas; plain, gzip or zstd; local, or of a remote file system such as"
        " gs://. This or --tfds is required.",
    )
    flags.DEFINE_enum(
        "reader",
        "auto",
        READER_NAMES,
        "Form of the input: text; jsonl (one JSON object a line, with 'text' and optionally 'lang'"
        " and 'id'); wet or warc (crawl files; of HTML the main text); docstrings (of Python's"
        " source files); tfds (--tfds alone); or auto, which goes by the extension, .jsonl,"
        " .json.gz, .wet, .warc or .py, perhaps with .gz or .zst, and reads the rest as text.",
    )
    flags.DEFINE_list(
        "tfds",
        [],
        "Data sets of TensorFlow Datasets to read, e.g. wikipedia/20230601.en. They must have been"
        " prepared before: nothing is downloaded.",
    )
    flags.DEFINE_string(
        "tfds_data_dir", None, "Folder in which the data sets were prepared. Default: tfds's own."
    )
    flags.DEFINE_string("tfds_split", "train", "Split of the data sets to read.")
    flags.DEFINE_string("text_feature", "text", "Feature of the data sets that holds the text.")
    flags.DEFINE_enum(
        "documents_by",
        "blank_line",
        DOCUMENTS_BY,
        "Where a document of plain text ends: at a blank_line, or at the end of the file.",
    )
    flags.DEFINE_enum(
        "lines",
        "wrapped",
        LINES,
        "What a line of text is: a part of a paragraph that ends at a blank line (wrapped), a"
        " paragraph by itself (paragraphs), or exactly one sentence (sentences).",
    )
    flags.DEFINE_string(
        "language", "en", "Language code of the documents that do not name their own."
    )
    flags.DEFINE_float(
        "max_line_mb",
        16.0,
        "Longest line allowed, in MiB (2^20 bytes); a longer one is an error. Bounds the memory.",
    )
    define_faults()


def define_faults() -> None:
    """Defines the flags that say what is a fault, and what it does; part of `define`."""
    flags.DEFINE_enum(
        "on_error",
        "fail",
        ON_ERROR,
        "What a file that cannot be read does (cut short, corrupt, UTF-16, a line too long, broken"
        " JSON, …): fail stops; skip names and counts it, leaves out the rest of it and goes on. If"
        " anything was skipped the exit status is 3, or 1 if nothing could be read at all.",
    )
    flags.DEFINE_float(
        "max_expanded_mb",
        DEFAULT_MAX_EXPANDED_BYTES / (1 << 20),
        "Largest record of a crawl file, in MiB (2^20 bytes), as stored or decompressed; and what"
        " a compressed file may give that expands a hundredfold (a zip bomb). More is a fault.",
    )


def megabytes(name: str) -> int:
    """The bytes that a flag gives in MiB; raises `UserError` if that is no positive number."""
    value = FLAGS[name].value
    if not 0 < value < math.inf:
        raise UserError(f"--{name} is {value:g}; give a positive number of MiB")
    return max(1, int(value * (1 << 20)))


def options() -> ReadOptions:
    """The reading options that the flags ask for.

    Raises:
      UserError: a flag's value is out of range.
    """
    return ReadOptions(
        documents_by=FLAGS.documents_by,
        lines=FLAGS.lines,
        language=FLAGS.language,
        max_line_bytes=megabytes("max_line_mb"),
        max_expanded_bytes=megabytes("max_expanded_mb"),
        on_error=FLAGS.on_error,
        tfds_data_dir=FLAGS.tfds_data_dir,
        tfds_split=FLAGS.tfds_split,
        text_feature=FLAGS.text_feature,
    )


def input_paths() -> list[str]:
    """What --input and --tfds stand for, as paths for `readers.reader_for`.

    Raises:
      UserError: neither is given, or as `readers.expand_inputs` does.
    """
    named = data_sets()
    if named and not FLAGS.input:
        return named
    suffix = ".py" if FLAGS.reader == "docstrings" else ""
    return expand_inputs(FLAGS.input or [], suffix) + named


def data_sets() -> list[str]:
    """What --tfds stands for, as paths for `readers.reader_for`.

    Raises:
      UserError: --reader asks for data sets alone, and there is --input, or none is named.
    """
    if FLAGS.reader == "tfds" and (FLAGS.input or not FLAGS.tfds):
        raise UserError("--reader=tfds reads no files; name data sets with --tfds")
    return [PREFIX + name for name in FLAGS.tfds]
