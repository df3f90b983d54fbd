"""Turns bitext and labelled pairs into pairs records: `python -m data_prep.create_pairs`.

    # Translations, line by line:
    python -m data_prep.create_pairs --input=train.en,train.de --languages=en,de \
        --vocab_file=vocab.txt --output_dir=records/en-de
    # Natural language inference, one table a language, row-aligned:
    python -m data_prep.create_pairs --format=tsv --row_aligned --header \
        --input=nli.en.tsv,nli.de.tsv --languages=en,de --vocab_file=… --output_dir=…
"""

import math
import os
import time
from pathlib import Path

from absl import flags

from data_prep.readers import ReadReport
from data_prep.readers.document import DEFAULT_MAX_LINE_BYTES
from data_prep.readers.pairs import FORMATS, sources
from official_cmlm import cli, progress
from official_cmlm.errors import UserError
from official_cmlm.tokenization import load_vocabulary

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_list("input", None, "Files of pairs; see --format. Required.")
    flags.DEFINE_list(
        "languages",
        None,
        "Language of each file; of a table also en-de, the first and the second text. Required.",
    )
    flags.DEFINE_enum(
        "format",
        "lines",
        FORMATS,
        "lines: every two files belong together, line by line; tsv: each file is a table of two"
        " texts and, if there is one, a label (entailment, neutral or contradiction).",
    )
    flags.DEFINE_bool(
        "row_aligned",
        False,
        "Whether row i of every table says the same in the language of its table.",
    )
    flags.DEFINE_bool("header", False, "Whether the first line of a table names its columns.")
    flags.DEFINE_bool(
        "drop_empty", False, "Whether to leave out rows with an empty text, instead of stopping."
    )
    flags.DEFINE_string("vocab_file", None, "Vocabulary, as for create_documents. Required.")
    flags.DEFINE_bool("lower_case", None, "Whether the vocabulary is uncased. Default: its own.")
    flags.DEFINE_string("output_dir", None, "Folder to write; it appears when complete. Required.")
    flags.DEFINE_bool("overwrite", False, "Whether to replace records that are there already.")
    flags.DEFINE_float("shard_mb", 16.0, "Size of a shard, in megabytes.")
    flags.DEFINE_integer("max_line_mb", None, "Longest line allowed, in MiB. Default: 16.", 1)
    flags.DEFINE_bool("keep_text", False, "Whether to store the texts too.")
    cli.required("input", "languages", "vocab_file", "output_dir")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    all_sources = sources(FLAGS.input, FLAGS.languages, FLAGS.format)
    if FLAGS.row_aligned and FLAGS.format != "tsv":
        raise UserError("--row_aligned joins tables; pass --format=tsv with it")
    languages = [language for source in all_sources for language in set(source.languages)]
    if FLAGS.row_aligned and len(languages) != len(all_sources):
        raise UserError(
            f"--row_aligned: --languages={','.join(FLAGS.languages)}: each table needs one language"
        )
    if FLAGS.row_aligned and len(set(languages)) != len(languages):
        raise UserError(f"--row_aligned: --languages={','.join(languages)} names one twice")
    if not 0 < FLAGS.shard_mb < math.inf:
        raise UserError(f"--shard_mb is {FLAGS.shard_mb:g}; give a positive number")
    for path in FLAGS.input:
        if not os.path.isfile(path):
            raise UserError(f"{path}: no such file; check --input")
    vocabulary = load_vocabulary(FLAGS.vocab_file, FLAGS.lower_case)
    cli.quiet_tensorflow()
    from data_prep.pairs import PairOptions, align, records
    from data_prep.sharding import OutputFolder, ShardWriter
    from data_prep.statistics import Statistics
    from official_cmlm.records import pairs as schema

    report, statistics = ReadReport(), Statistics()
    options = PairOptions(FLAGS.keep_text, FLAGS.drop_empty)
    row_size = len(all_sources) if FLAGS.row_aligned else 1
    total_bytes = sum(os.path.getsize(path) for path in FLAGS.input)
    started = time.monotonic()
    max_line_bytes = (FLAGS.max_line_mb or 0) << 20 or DEFAULT_MAX_LINE_BYTES
    tables = [s.read(report, FLAGS.header, max_line_bytes) for s in all_sources]
    if FLAGS.row_aligned:
        rows = align(tables, FLAGS.input)
    else:
        rows = ((pair,) for table in tables for pair in table)
    with OutputFolder(Path(FLAGS.output_dir), FLAGS.overwrite) as folder:
        writer = ShardWriter(folder, schema.KIND, int(FLAGS.shard_mb * 1e6))
        with progress.bar(total_bytes, "B", "pairs", unit_scale=True) as bar:
            for language, row in records(rows, vocabulary, options, statistics):
                writer.write(language, *row)
                bar.update(min(report.bytes, total_bytes) - bar.n)
        writer.close()
        if not statistics.documents:
            raise UserError(f"{','.join(FLAGS.input)}: no usable pair; check --format and --header")
        statistics.counters["byte_sequences_not_utf8"] = sum(report.not_utf8.values())
        vocabulary.save(folder)
        statistics.manifest(
            vocabulary,
            writer.shards,
            FLAGS.keep_text,
            kind=schema.KIND,
            row_size=row_size,
        ).save(folder)
    seconds = max(time.monotonic() - started, 1e-9)
    print(
        f"{FLAGS.output_dir}: {statistics.documents} rows, {statistics.sentences // 2} pairs, "
        f"{statistics.tokens} tokens in {len(writer.shards)} shard(s); {seconds:.1f} s"
        + "".join(f", {name} {n}" for name, n in sorted(statistics.counters.items()) if n)
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
