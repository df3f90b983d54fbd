"""The flags that several binaries share, and the options made of them.

A binary calls some of the `define_…` functions once, before `cli.run`, never while it is imported.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.input_files import is_file, is_remote
from official_cmlm.common.languages import check_language_tag
from official_cmlm.common.validation import OneOf, between
from official_cmlm.records.pairs import SCALE_END, check_scale
from official_cmlm.tokenization import Vocabulary, load_vocabulary

from .counts import Counts
from .output.documents import RecordOptions
from .output.folder import check_place
from .readers import (
    READER_NAMES,
    Document,
    ReadOptions,
    TextFile,
    expand_inputs,
    expand_text_files,
    read_documents,
)
from .readers.pairs import FORMATS, PairInput, inputs_of
from .readers.tfds import PREFIX
from .stages.exclusion import Exclusion

# Read at each call, so that tests can set them.
FLAGS = flags.FLAGS
# One byte, for flags of megabytes and mebibytes.
LEAST_MB = 1e-6
# This is longer than any word; the tokenizer's buffers have this size too.
MOST_WORD_BYTES = 1_000_000
# Options of reading that hold for files of any kind, and for data sets.
_FAULTS = ("max_line_bytes", "max_expanded_bytes", "on_error")
_DATASETS = ("tfds_data_dir", "tfds_split")
# The parts of a pair that columns of a table hold.
_COLUMNS = ("first", "second", "label", "negative", "score")


@dataclasses.dataclass(frozen=True)
class TextInput:
    """The text that is read.

    Attributes:
      input: text to read: files, directories (all files below them) or glob patterns, ** included,
        separated by commas; plain, gzip or zstd; local, or of a remote file system such as gs://.
        Each may have a language in front, as in de:books/*.txt, for the documents that do not name
        their own. This or --tfds is required.
      reader: form of the input: text; jsonl (one JSON object a line, with 'text' and optionally
        'lang' and 'id'); wet or warc (crawl files; of HTML the main text); docstrings (of Python's
        source files); tfds (--tfds alone); or auto, which goes by the extension, .jsonl, .json.gz,
        .wet, .warc or .py, perhaps with .gz or .zst, and reads the rest as text.
      tfds: data sets of TensorFlow Datasets to read, e.g. wikipedia/20230601.en. They must have
        been prepared before: nothing is downloaded.
    """

    input: tuple[str, ...] = ()
    reader: Annotated[str, OneOf(READER_NAMES)] = "auto"
    tfds: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PairsInput:
    """The pairs that are read.

    Attributes:
      input: files of pairs; see --format. This or --tfds is required.
      tfds: data sets of TensorFlow Datasets to read in place of files, e.g. para_crawl/ende, whose
        texts are the features that --languages names (en-de), or --columns. They must have been
        prepared before: nothing is downloaded.
      languages: language of each file; for a table also en-de, the first and the second text; for
        moses always two.
      format: lines: every two files belong together, line by line; moses: the same, and only the
        part that both names begin with is given (corpus for corpus.en, corpus.de); tsv: each file
        is a table of two texts and, if there is one, a label (entailment, neutral or
        contradiction), without quotes; table: a .csv or .tsv with the names of its columns in
        front, a .jsonl, .json or .parquet, and --columns; nli: tables with a first line that names
        columns, or JSON lines, with sentence1, sentence2 and gold_label, which
        data_prep.mine_negatives refuses, as it does all pairs with labels; triples: tables of an
        anchor, its positive and, where there is one, a hard negative, or JSON lines with anchor,
        positive and negative, as data_prep.mine_negatives writes them. Any may be gzip or zstd.
      header: whether the first line of tsv or triples names columns.
      columns: for --format=table the columns of both texts; for --tfds the features.
      label_column: for --format=table or --tfds the column of a label, if any.
      negative_column: for --format=table or --tfds the column of a hard negative, if any.
      score_column: for --format=table or --tfds the column of a score, how similar both texts are,
        if any.
      score_min: the least score that the column may have, for texts that have nothing in common.
      score_max: the largest score that it may have, for texts that say the same.
    """

    input: tuple[str, ...] = ()
    tfds: tuple[str, ...] = ()
    languages: tuple[str, ...] | None = None
    format: Annotated[str, OneOf(FORMATS)] = "lines"
    header: bool = False
    columns: tuple[str, ...] = ()
    label_column: str = ""
    negative_column: str = ""
    score_column: str = ""
    score_min: Annotated[float, SCALE_END] = 0.0
    score_max: Annotated[float, SCALE_END] = 1.0

    def __post_init__(self) -> None:
        check_scale(self.score_column, self.score_min, self.score_max)


@dataclasses.dataclass(frozen=True)
class OutputFile:
    """The file that a binary writes.

    Attributes:
      output: file to write; it appears when complete.
      overwrite: whether to replace a file of that name.
    """

    output: str
    overwrite: bool = False


@dataclasses.dataclass(frozen=True)
class RecordsOutput:
    """The folder of records, and the vocabulary that they are made with.

    Attributes:
      vocab_file: the vocabulary: a vocab.txt of WordPiece, a merges.txt of byte-level BPE with its
        vocab.json, or a folder that holds one, e.g. an imported encoder.
      output_dir: folder to write; it appears when complete.
      overwrite: whether to replace existing records.
      lower_case: whether the vocabulary is uncased. Default: as the .json beside the vocabulary
        says; required without one.
      max_bytes_per_word: longer words become [UNK], in bytes of UTF-8. Default: as the .json beside
        the vocabulary says, else 1000.
      exclude: evaluation files, such as those of STS, SentEval and Tatoeba: files, directories or
        glob patterns, of text, tables or JSON. Their sentences are left out: a document is cut
        there, a row of pairs goes whole. A file that cannot be read is an error, or with
        --on_error=skip a warning.
    """

    vocab_file: str
    output_dir: str
    overwrite: bool = False
    lower_case: bool | None = None
    max_bytes_per_word: Annotated[int, between(1, MOST_WORD_BYTES)] | None = None
    exclude: tuple[str, ...] = ()


def define_reading() -> None:
    """Defines the flags of the input, and of how it is read."""
    cli.define(TextInput)
    cli.define(ReadOptions, skip=("max_document_bytes", "directory"))


def define_pairs(skip: Sequence[str] = ()) -> None:
    """Defines the flags of the input of pairs but `skip`, of data sets and of faults."""
    cli.define(PairsInput, skip=skip)
    cli.define(ReadOptions, skip=other_fields(ReadOptions, (*_FAULTS, *_DATASETS)))


def define_records() -> None:
    """Defines the flags of documents records."""
    cli.define(RecordsOutput)
    cli.define(RecordOptions, skip=("one_sentence_a_line", "max_characters"))


def define_pairs_records() -> None:
    """Defines the flags of pairs records."""
    cli.define(RecordsOutput)
    cli.define(RecordOptions, skip=other_fields(RecordOptions, ("keep_text", "shard_bytes")))


def other_fields(kind: type, names: Sequence[str]) -> list[str]:
    """Returns the fields of a dataclass but these, for `cli.define`."""
    return [field.name for field in dataclasses.fields(kind) if field.name not in names]


def pair_inputs(languages: list[str]) -> list[PairInput]:
    """Returns the inputs that the flags of `define_pairs` name.

    Raises:
      UserError: as `inputs_of` does; without any input, or with both kinds; or for a flag that the
        format does not have.
    """
    options = cli.read(PairsInput)
    _check_datasets(_DATASETS)
    if bool(options.input) == bool(options.tfds) or (options.tfds and options.format != "lines"):
        raise UserError(
            "name files of pairs with --input, or data sets with --tfds, which has no --format; "
            "both together take two runs"
        )
    # A data set has the flags of a table, but need not have columns.
    form = "table" if options.tfds else options.format
    needed = (0, 2) if options.tfds else (2 * (form == "table"),)
    if len(options.columns) not in needed:
        raise UserError(
            f"--columns={','.join(options.columns)}: --format=table needs two, those of both texts,"
            " e.g. --columns=premise,hypothesis; other formats have none"
        )
    for flag, forms in (
        ("header", ("tsv", "triples")),
        ("negative_column", ("table",)),
        ("label_column", ("table",)),
        ("score_column", ("table",)),
    ):
        if getattr(options, flag) and form not in forms:
            raise UserError(f"--{flag}: only --format={' or '.join(forms)} has it; leave it out")
    names = (*options.columns, options.label_column, options.negative_column, options.score_column)
    columns = {part: name for part, name in zip(_COLUMNS, names) if name}
    paths = [PREFIX + name for name in options.tfds] or list(options.input)
    form, scores = "tfds" if options.tfds else form, (options.score_min, options.score_max)
    return inputs_of(paths, languages, form, columns, scores)


def reading_options() -> ReadOptions:
    """Returns the reading options; raises `UserError` if --language is not a language tag."""
    check_language_tag(FLAGS.language, "language")
    data_dir = FLAGS.tfds_data_dir
    if data_dir and not is_remote(data_dir):
        # A worker may start in another directory.
        data_dir = os.path.abspath(data_dir)
    return cli.read(ReadOptions, tfds_data_dir=data_dir)


def text_files() -> list[TextFile]:
    """Returns the files of --input and the data sets of --tfds.

    Raises:
      UserError: neither is given, --reader asks for data sets alone and there is --input, a flag
        that only data sets have is given without any, or as `readers.expand_text_files` does.
    """
    if FLAGS.reader == "tfds" and (FLAGS.input or not FLAGS.tfds):
        raise UserError("--reader=tfds reads no files; name data sets with --tfds")
    _check_datasets((*_DATASETS, "text_feature"))
    named = [TextFile(PREFIX + name) for name in FLAGS.tfds]
    if named and not FLAGS.input:
        return named
    suffix = ".py" if FLAGS.reader == "docstrings" else ""
    return expand_text_files(FLAGS.input, suffix) + named


def _check_datasets(names: Sequence[str]) -> None:
    """Raises `UserError` for a flag that only data sets have, without any data set."""
    for name in names:
        if FLAGS[name].present and not FLAGS.tfds:
            raise UserError(f"--{name}: only data sets, which --tfds names, have it; leave it out")


def read_text(files: Sequence[TextFile], counts: Counts) -> Iterator[Document]:
    """Yields the documents of the files of `text_files`; raises as `read_documents` does."""
    return read_documents(files, reading_options(), counts, FLAGS.reader)


def check_files(paths: Sequence[str], flag: str) -> None:
    """Raises `UserError`, which names the flag, for a path that is neither file nor data set."""
    for path in paths:
        if not path.startswith(PREFIX) and not is_file(path):
            raise UserError(f"{path}: no such file; check {flag}")


def check_output_dir(inputs: Iterable[str], overwrite: bool = True) -> None:
    """Checks --output_dir before any work; see `output.folder.check_place`.

    Args:
      inputs: paths of the files that are read; the files of other flags are added.
      overwrite: whether it may hold records already.
    """
    named = [FLAGS.vocab_file, *list_excluded_paths()]
    if "quality_model" in FLAGS and FLAGS.quality_model:
        named.append(FLAGS.quality_model)
    check_place(FLAGS.output_dir, [*inputs, *named], overwrite)


def vocabulary() -> Vocabulary:
    """Returns the vocabulary that the flags name; raises as `load_vocabulary` does."""
    return load_vocabulary(FLAGS.vocab_file, FLAGS.lower_case, FLAGS.max_bytes_per_word)


def list_excluded_paths() -> list[str]:
    """Returns the files of evaluation sentences; raises as `expand_inputs` does."""
    if not FLAGS.exclude:
        return []
    try:
        return expand_inputs(FLAGS.exclude)
    except UserError as error:
        # `expand_inputs` names --input, the flag of most files.
        raise UserError(str(error).replace("--input", "--exclude")) from None


def exclusion(reading: ReadOptions, counts: Counts) -> Exclusion | None:
    """Returns the sentences that may not be trained on; `counts` notes files that are skipped.

    Raises:
      UserError: as `Exclusion.of` does.
    """
    paths = list_excluded_paths()
    if not paths:
        return None
    excluded = Exclusion.of(paths, reading)
    counts.add_exclusion_faults(excluded.faults)
    return excluded
