"""The flags of every binary that reads text, and the options made of them."""

import math

from absl import flags

from data_prep.readers import READER_NAMES, ReadOptions, expand_inputs
from data_prep.readers.document import DOCUMENTS_BY, LINES
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
        " separated by commas; plain or gzip. Required.",
    )
    flags.DEFINE_enum(
        "reader",
        "auto",
        READER_NAMES,
        "Form of the input: text, jsonl (one JSON object a line, with 'text' and optionally 'lang'"
        " and 'id'), or auto, which reads .jsonl, .jsonl.gz and .json.gz as jsonl, the rest as"
        " text.",
    )
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
    flags.mark_flag_as_required("input")


def options() -> ReadOptions:
    """The reading options that the flags ask for.

    Raises:
      UserError: a flag's value is out of range.
    """
    if not 0 < FLAGS.max_line_mb < math.inf:
        raise UserError(f"--max_line_mb is {FLAGS.max_line_mb:g}; give a positive number of MiB")
    return ReadOptions(
        documents_by=FLAGS.documents_by,
        lines=FLAGS.lines,
        language=FLAGS.language,
        max_line_bytes=max(1, int(FLAGS.max_line_mb * (1 << 20))),
    )


def input_paths() -> list[str]:
    """The files that --input stands for; raises `UserError` as `readers.expand_inputs` does."""
    return expand_inputs(FLAGS.input)
