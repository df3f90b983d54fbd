"""Learns a WordPiece vocabulary from text: `python -m data_prep.build_vocab --help`."""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from absl import flags

from data_prep import reader_flags
from data_prep.readers import ReadOptions, ReadReport, read_documents
from official_cmlm import cli, progress
from official_cmlm.errors import UserError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_BYTES_PER_WORD = 1000
_PREFIX = "##"
# Paragraphs wait on disk between the two passes beyond this size, in bytes.
_SPOOL_BYTES = 64 << 20
# What a compressed byte stands for, about; only the size of the sample depends on it.
_GZIP_RATIO = 3

FLAGS = flags.FLAGS


def learn_wordpiece(
    paragraphs: Iterable[str], vocab_size: int, lower_case: bool, min_frequency: int
) -> list[str]:
    """Learns a WordPiece vocabulary; the same paragraphs always give the same one.

    Args:
      paragraphs: the text; read once.
      vocab_size: entries wanted, the special tokens included. There are fewer if the text does
        not have so many pieces of `min_frequency`.
      lower_case: whether to lower-case and to strip accents, before all else.
      min_frequency: a pair of pieces seen less often in the text is not joined.

    Returns:
      The entries in the order of their ids: special tokens, characters, characters within words
      (with the prefix ##), then longer pieces, the earliest learned first.

    Raises:
      UserError: no text; a vocabulary too small for its characters; a number out of range.
    """
    if vocab_size <= len(SPECIAL_TOKENS):
        raise UserError(f"vocab_size is {vocab_size}; give more than {len(SPECIAL_TOKENS)}")
    if min_frequency < 1:
        raise UserError(f"min_frequency is {min_frequency}; give at least 1")
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
        for paragraph in paragraphs:
            spool.write(" ".join(paragraph.split()).encode(errors="replace") + b"\n")
        # The trainer numbers the characters within words as its hash table yields them, which
        # differs from run to run, and breaks ties by these numbers. So a first pass without
        # merges finds the characters, and the second gets them in a fixed order.
        alphabet = set(_train(_lines(spool), SPECIAL_TOKENS, 0, lower_case, 1))
        alphabet.difference_update(SPECIAL_TOKENS)
        if not alphabet:
            raise UserError("the input holds no text to learn a vocabulary from; check --input")
        order = sorted(alphabet, key=lambda entry: (len(entry) > 1, entry))
        needed = len(SPECIAL_TOKENS) + len(order)
        if vocab_size < needed:
            raise UserError(
                f"vocab_size is {vocab_size}, but the special tokens and the text's"
                f" {len(order)} characters alone take {needed}; raise --vocab_size to more"
            )
        first = (*SPECIAL_TOKENS, *order)
        return _train(_lines(spool), first, vocab_size, lower_case, min_frequency)


def _lines(spool: IO[bytes]) -> Iterator[str]:
    spool.seek(0)
    return (line.decode() for line in spool)


def _train(
    lines: Iterator[str], first: tuple[str, ...], size: int, lower_case: bool, min_frequency: int
) -> list[str]:
    # Not at the top: `--help` need not wait for it.
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=lower_case,
        lowercase=lower_case,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(first),
        continuing_subword_prefix=_PREFIX,
        # The library's own bars, for the part that only it can see; it draws on terminals alone.
        show_progress=sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator(lines, trainer=trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def sample_paragraphs(
    paths: list[str], options: ReadOptions, report: ReadReport, reader: str, max_bytes: float
) -> Iterator[str]:
    """Yields paragraphs spread evenly over all the files, `max_bytes` of UTF-8 at most.

    Which ones depends on the files alone. A sample of compressed files may be smaller, as how
    much text they hold is not known beforehand.

    Raises:
      UserError: as the readers do.
    """
    total = sum(_text_bytes(path) for path in paths)
    share = min(1.0, max_bytes / max(1, total))
    seen = taken = 0
    for document in read_documents(paths, options, report, reader):
        for paragraph in document.paragraphs:
            size = len(paragraph) if paragraph.isascii() else len(paragraph.encode())
            seen += size
            if taken + size <= min(share * seen, max_bytes):
                taken += size
                yield paragraph


def _text_bytes(path: str) -> int:
    try:
        size = os.path.getsize(path)
    except OSError:
        # Opening it will fail too, with a better message.
        return 0
    return size * _GZIP_RATIO if path.endswith(".gz") else size


def check_output(output: Path, overwrite: bool) -> None:
    """Checks the names that `save` will write, before anything is learned.

    Raises:
      UserError: `output` is a folder or is named as its own metadata; it exists and `overwrite` is
        false; or the metadata's name belongs to some other file.
    """
    metadata = output.with_suffix(".json")
    if output.is_dir() or output == metadata:
        raise UserError(f"{output}: not a name for a vocabulary; name a file, such as vocab.txt")
    if output.exists() and not overwrite:
        raise UserError(f"{output}: exists already; pass --overwrite or another --output")
    if metadata.exists() and '"lower_case"' not in metadata.read_text(errors="replace"):
        raise UserError(f"{metadata}: would be replaced, and is no vocabulary's; change --output")


def save(entries: list[str], output: Path, lower_case: bool) -> None:
    """Writes the vocabulary, and `<stem>.json` beside it, each under its name when complete."""
    metadata_path = output.with_suffix(".json")
    output.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"lower_case": lower_case, "max_bytes_per_word": MAX_BYTES_PER_WORD}
    # The metadata first, so that a vocabulary never stands without it.
    _write(metadata_path, json.dumps(metadata) + "\n")
    _write(output, "".join(entry + "\n" for entry in entries))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def define_flags() -> None:
    """Defines the flags of the binary."""
    reader_flags.define()
    flags.adopt_module_key_flags(reader_flags)
    flags.DEFINE_string("output", None, "Vocabulary file to write, one entry a line. Required.")
    flags.DEFINE_bool("overwrite", False, "Whether to replace a vocabulary that is there already.")
    flags.DEFINE_integer("vocab_size", 30522, "Entries wanted, the five special tokens included.")
    flags.DEFINE_bool("lower_case", True, "Whether to lower-case text and to strip its accents.")
    flags.DEFINE_integer(
        "min_frequency", 2, "Times that two pieces must occur side by side to become one."
    )
    flags.DEFINE_float(
        "max_input_mb",
        1000.0,
        "Text to learn from at most, in megabytes (10^6 bytes); of more text, paragraphs spread"
        " evenly over all of it are taken.",
    )
    cli.required("output")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    started = time.monotonic()
    if not 0 < FLAGS.max_input_mb < math.inf:
        raise UserError(f"--max_input_mb is {FLAGS.max_input_mb:g}; give a positive number")
    check_output(Path(FLAGS.output), FLAGS.overwrite)
    report = ReadReport()
    paths = reader_flags.input_paths()
    paragraphs = sample_paragraphs(
        paths,
        reader_flags.options(),
        report,
        FLAGS.reader,
        FLAGS.max_input_mb * 1e6,
    )
    characters = 0

    def counted() -> Iterator[str]:
        nonlocal characters
        total = sum(_text_bytes(path) for path in paths)
        with progress.bar(total, "B", "vocabulary: reading", unit_scale=True) as bar:
            for paragraph in paragraphs:
                characters += len(paragraph)
                bar.update(min(report.bytes, total) - bar.n)
                yield paragraph
            bar.update(total - bar.n)

    entries = learn_wordpiece(counted(), FLAGS.vocab_size, FLAGS.lower_case, FLAGS.min_frequency)
    save(entries, Path(FLAGS.output), FLAGS.lower_case)
    for warning in report.warnings():
        print(f"warning: {warning}", file=sys.stderr)
    fewer = f" (of {FLAGS.vocab_size} asked for; the text has no more)"
    print(
        f"{FLAGS.output}: {len(entries)} entries{fewer if len(entries) < FLAGS.vocab_size else ''}"
        f" from {characters} characters in {time.monotonic() - started:.1f} s"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
