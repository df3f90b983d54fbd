"""Turns text into documents records: `python -m data_prep.create_documents`.

Reads text (see the flags), splits it into sentences, tokenises them and writes TFRecord shards,
the vocabulary and `dataset.json` into a folder. Memory does not grow with the corpus.
"""

import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from data_prep import reader_flags
from data_prep.readers import Document, ReadReport, read_documents
from official_cmlm import cli, progress
from official_cmlm.errors import UserError
from official_cmlm.tokenization import load_vocabulary

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    reader_flags.define()
    flags.adopt_module_key_flags(reader_flags)
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
    flags.DEFINE_integer(
        "max_sentences",
        256,
        "Sentences of a record at most; longer documents are cut into several records in order.",
        lower_bound=2,
    )
    flags.DEFINE_integer(
        "min_sentences", 1, "Sentences that a document must have, or it is dropped and counted."
    )
    flags.DEFINE_float(
        "shard_mb",
        16.0,
        "Size of a shard, in megabytes (10^6 bytes). Training mixes the documents of 16 shards.",
    )
    flags.DEFINE_bool(
        "keep_text",
        False,
        "Whether to store the sentences' text too, for views that work on characters; about"
        " doubles the size.",
    )
    cli.required("vocab_file", "output_dir")


def _with_progress(
    documents: Iterator[Document], report: ReadReport, total_bytes: int
) -> Iterator[Document]:
    """Passes documents through and draws the share of the input's bytes that is read."""
    with progress.bar(total_bytes, "B", "records", unit_scale=True) as bar:
        for document in documents:
            bar.update(min(report.bytes, total_bytes) - bar.n)
            yield document
        bar.update(total_bytes - bar.n)


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if not 0 < FLAGS.shard_mb < math.inf:
        raise UserError(f"--shard_mb is {FLAGS.shard_mb:g}; give a positive number")
    paths = reader_flags.input_paths()
    vocabulary = load_vocabulary(FLAGS.vocab_file, FLAGS.lower_case, FLAGS.max_bytes_per_word)
    cli.quiet_tensorflow()
    from data_prep.documents import RecordOptions, Statistics, records
    from data_prep.sharding import OutputFolder, ShardWriter

    options = RecordOptions(
        one_sentence_a_line=FLAGS.lines == "sentences",
        max_sentences=FLAGS.max_sentences,
        min_sentences=FLAGS.min_sentences,
        keep_text=FLAGS.keep_text,
    )
    output = Path(FLAGS.output_dir)
    report, statistics = ReadReport(), Statistics()
    total_bytes = sum(os.path.getsize(path) for path in paths)
    started, cpu = time.monotonic(), time.process_time()
    with OutputFolder(output, FLAGS.overwrite) as folder:
        documents = read_documents(paths, reader_flags.options(), report, FLAGS.reader)
        documents = _with_progress(documents, report, total_bytes)
        writer = ShardWriter(folder, "documents", int(FLAGS.shard_mb * 1e6))
        for language, record in records(documents, vocabulary, options, statistics):
            writer.write(language, record)
        writer.close()
        if not statistics.sentences:
            raise UserError(
                f"{','.join(FLAGS.input)}: no usable sentence in {len(paths)} file(s); check that "
                "they hold running text, and --reader, --lines and --min_sentences"
            )
        vocabulary.save(folder)
        statistics.counters["byte_sequences_not_utf8"] = sum(report.not_utf8.values())
        statistics.manifest(vocabulary, writer.shards, options.keep_text).save(folder)
    for warning in report.warnings():
        print(f"warning: {warning}", file=sys.stderr)
    seconds = max(time.monotonic() - started, 1e-9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{output}: {statistics.documents} documents, {statistics.sentences} sentences, "
        f"{statistics.tokens} tokens in {len(writer.shards)} shard(s); {seconds:.1f} s "
        f"({time.process_time() - cpu:.1f} CPU-s), "
        f"{statistics.documents / seconds:.0f} documents/s, "
        f"{statistics.tokens / seconds:.0f} tokens/s, peak memory {peak:.0f} MiB"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
