"""Learns a WordPiece vocabulary from text: `cmlm build-vocab --help`.

    # One language:
    cmlm build-vocab --input=books --to=vocab.txt
    # A cased vocabulary of many languages, small ones raised as in CMLM §4.4:
    cmlm build-vocab --input=en:crawl/en,de:crawl/de,sw:crawl/sw --smoothing=0.3 --nolower_case \
        --vocab_size=501153 --to=vocab.txt
"""

import dataclasses
import functools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import atomic_write, check_output, read_text
from official_cmlm.common.hashing import Smallest, hash_text
from official_cmlm.common.validation import OneOf, at_least, between

from . import common_flags
from .counts import Counts
from .output.report import finish
from .vocabulary.mixture import sample_paragraphs, smooth_paragraphs, text_bytes
from .vocabulary.top_down import learn_top_down
from .vocabulary.wordpiece import format_coverage, learn_wordpiece

MAX_BYTES_PER_WORD = 1000
# Paragraphs of each language, and characters of each paragraph, that a vocabulary is checked on.
_CHECKED_PARAGRAPHS, _CHECKED_CHARACTERS = 500, 2000
# Name -> function that learns entries; all take the same arguments.
GENERATORS = {"tokenizers": learn_wordpiece, "tensorflow_text": learn_top_down}

FLAGS = flags.FLAGS


def check_outputs(output: Path, overwrite: bool, inputs: Sequence[str] = ()) -> None:
    """Checks the names that `save` will write, before anything is learned.

    Raises:
      UserError: as `files.check_output` does; if `output` is not the name of a file, or is the name
        of its own metadata; if the metadata would replace a file that is not a vocabulary's.
    """
    if not output.name or output.is_dir() or output == output.with_suffix(".json"):
        raise UserError(f"{output}: not a name for a vocabulary; name a file, such as vocab.txt")
    check_output(output, overwrite, inputs)
    metadata = output.with_suffix(".json")
    if metadata.is_file() and '"lower_case"' not in read_text(metadata, "change --output"):
        raise UserError(f"{metadata}: would be replaced, and is no vocabulary's; change --output")
    # Metadata may be replaced: their vocabulary is missing, or may be replaced itself.
    check_output(metadata, True, inputs)


def save(
    entries: list[str],
    output: Path,
    lower_case: bool,
    max_bytes_per_word: int = MAX_BYTES_PER_WORD,
) -> None:
    """Writes the vocabulary, and `<stem>.json` beside it, each under its name when complete."""
    metadata_path = output.with_suffix(".json")
    output.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"lower_case": lower_case, "max_bytes_per_word": max_bytes_per_word}
    with atomic_write(output) as vocabulary_file, atomic_write(metadata_path) as metadata_file:
        for entry in entries:
            vocabulary_file.write(f"{entry}\n".encode("utf-8", "replace"))
        # A full disk is noticed here, before either file has its name.
        vocabulary_file.flush()
        # The metadata get their name first, so that a vocabulary never exists without them.
        metadata_file.write(f"{json.dumps(metadata)}\n".encode())


@dataclasses.dataclass(frozen=True)
class Options:
    """The vocabulary that is learned.

    Attributes:
      output: vocabulary file to write, one entry a line.
      overwrite: whether to replace a vocabulary that is there already.
      generator: tokenizers joins pairs of pieces, from characters up; tensorflow_text is TensorFlow
        Text's generator, which CMLM §4.4 names: it selects substrings of whole words, takes much
        more time and memory, and needs the extra "train". Both count the same words.
      vocab_size: entries wanted, the five special tokens included.
      lower_case: whether to lower-case text and to strip its accents.
      min_frequency: times that two pieces must occur side by side to become one; with
        tensorflow_text, times that a piece must occur.
      smoothing: exponent S of the languages' shares p of all words, which become p^S / Σ p^S: 1, as
        the data are, to 0, all alike; CMLM §4.4 takes 0.3. Name each file's language in --input, as
        in de:books/*.txt, unless the documents name theirs. Below 1 the text is read twice.
      max_bytes_per_word: longer words become [UNK], in bytes of UTF-8; written beside the
        vocabulary. 100, which tensorflow_text takes by default, loses unspaced Thai, Lao and Khmer.
      max_input_mb: text to learn from at most, in megabytes (10^6 bytes); of more text, paragraphs
        spread evenly over all of it are taken, or with --smoothing chosen by a hash.
      check: whether to read the vocabulary again and to print, of each language, the tokens per
        word and the share of [UNK] in some of its text.
    """

    output: str
    overwrite: bool = False
    generator: Annotated[str, OneOf(tuple(GENERATORS))] = "tokenizers"
    vocab_size: Annotated[int, between(6, 10_000_000)] = 30522
    lower_case: bool = True
    min_frequency: Annotated[int, between(1, 1_000_000_000)] = 2
    smoothing: Annotated[float, between(0, 1)] = 1.0
    max_bytes_per_word: Annotated[int, between(1, common_flags.MOST_WORD_BYTES)] = (
        MAX_BYTES_PER_WORD
    )
    max_input_mb: Annotated[float, at_least(common_flags.LEAST_MB)] = 1000.0
    check: bool = True


def define_flags() -> None:
    """Defines the flags of the input and of the vocabulary."""
    common_flags.define_reading()
    cli.define(Options)


def check(output: Path, entries: list[str], samples: dict[str, list[str]]) -> None:
    """Reads the vocabulary as a training does, and prints the coverage of each language.

    Raises:
      UserError: it does not read as it was learned.
    """
    cli.import_tensorflow()
    from official_cmlm.tokenization import load_vocabulary

    vocabulary = load_vocabulary(output)
    if list(vocabulary.tokens) != entries:
        raise UserError(f"{output}: does not read as it was written; a line end in an entry?")
    print(format_coverage(vocabulary, samples), end="")


def main() -> int:
    """Runs the binary."""
    started = time.monotonic()
    output = Path(FLAGS.output)
    files = tuple(common_flags.text_files())
    check_outputs(output, FLAGS.overwrite, [file.path for file in files])
    if FLAGS.generator == "tensorflow_text":
        check_extra("train", "tensorflow_text")
        cli.import_tensorflow()
    read = functools.partial(common_flags.read_text, files)
    size = text_bytes(files)
    cli.announce(f"reading {len(files)} file(s) …")
    counts, samples = Counts(), defaultdict(lambda: Smallest(_CHECKED_PARAGRAPHS))
    max_bytes = FLAGS.max_input_mb * 1e6
    if FLAGS.smoothing == 1:
        paragraphs = sample_paragraphs(read, size, counts, max_bytes)
    else:
        paragraphs = smooth_paragraphs(read, counts, max_bytes, FLAGS.smoothing)
    characters = 0

    def count_characters() -> Iterator[str]:
        nonlocal characters
        with progress.bar(size, "B", "vocabulary: reading", unit_scale=True) as bar:
            for language, paragraph in paragraphs:
                characters += len(paragraph)
                if FLAGS.check:
                    beginning = paragraph[:_CHECKED_CHARACTERS]
                    samples[language].add(hash_text(beginning), beginning)
                bar.update(min(counts.bytes, size) - bar.n)
                yield paragraph
            bar.update(size - bar.n)

    entries = GENERATORS[FLAGS.generator](
        count_characters(), FLAGS.vocab_size, FLAGS.lower_case, FLAGS.min_frequency
    )
    save(entries, output, FLAGS.lower_case, FLAGS.max_bytes_per_word)
    if FLAGS.check:
        check(output, entries, {name: samples[name].items() for name in sorted(samples)})
    reason = "the text has no more"
    if FLAGS.generator == "tensorflow_text":
        reason = "the threshold that was found yields no more"
    fewer = f" (of {FLAGS.vocab_size} asked for; {reason})"
    return finish(
        f"{output}: {len(entries)} entries"
        f"{fewer if len(entries) < FLAGS.vocab_size else ''}"
        f" from {characters} characters in {time.monotonic() - started:.1f} s",
        counts,
        len(files),
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
