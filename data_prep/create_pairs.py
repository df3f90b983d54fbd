"""Turns bitext and labelled pairs into pairs records: `cmlm create-pairs`.

    # Translations, line by line:
    cmlm create-pairs --input=train.en,train.de --languages=en,de --vocab_file=vocab.txt \
        --to=records/en-de
    # Natural language inference, one table a language, row-aligned:
    cmlm create-pairs --format=tsv --row_aligned --header --input=nli.en.tsv,nli.de.tsv \
        --languages=en,de --vocab_file=… --to=…
    # corpus.en and corpus.de, as OPUS has every corpus; SNLI or MultiNLI as published:
    cmlm create-pairs --format=moses --input=corpus --languages=en-de …
    cmlm create-pairs --format=nli --input=train.jsonl --languages=en …
    # A table with names, as from a spreadsheet or a data frame (.csv, .jsonl, .parquet, …):
    cmlm create-pairs --format=table --columns=premise,hypothesis --label_column=label \
        --input=train.parquet --languages=en …
    # A prepared data set of TensorFlow Datasets, and the features of both languages:
    cmlm create-pairs --tfds=para_crawl/ende --languages=en-de …
    # Questions, answers and hard negatives, each after the encoder's prompt:
    cmlm create-pairs --format=triples --input=mined.jsonl --languages=en --roles=query,document \
        --vocab_file=work/encoder …
"""

import dataclasses
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import read_prompts

from . import common_flags
from .counts import Counts, guard_faults
from .output.documents import RecordOptions
from .output.pair_filters import FilterOptions, PairFilter
from .output.report import Summary, write_report
from .readers import ReadOptions, get_stored_size
from .readers.pairs import TABLES
from .stages.language_id import identify

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Options:
    """The rows that become records.

    Attributes:
      row_aligned: whether row i of every table says the same in the language of its table.
      drop_empty: whether to leave out rows with an empty text, instead of stopping.
      check_language: whether to leave out rows with a text that is surely in another language than
        its own.
      roles: roles of the first and of the second text, such as query,document, in the encoder that
        --vocab_file names. In the token ids each text begins with the encoder's prompt for its
        role, a hard negative with that of the second text. Default: no prompts.
      filter: the other filters.
    """

    row_aligned: bool = False
    drop_empty: bool = False
    check_language: bool = False
    roles: tuple[str, ...] = ()
    filter: FilterOptions = dataclasses.field(default_factory=FilterOptions)


def define_flags() -> None:
    """Defines the flags of the input, of its filters and of records."""
    common_flags.define_pairs()
    cli.define(Options)
    common_flags.define_pairs_records()
    cli.require_flags("languages")


def main() -> int:
    """Runs the binary."""
    inputs = common_flags.pair_inputs(FLAGS.languages)
    if FLAGS.row_aligned and FLAGS.format not in TABLES:
        raise UserError("--row_aligned joins tables; pass --format=tsv, table or nli with it")
    languages = [language for pair_input in inputs for language in set(pair_input.languages)]
    if FLAGS.row_aligned and len(languages) != len(inputs):
        raise UserError(
            f"--row_aligned: --languages={','.join(FLAGS.languages)}: each table needs one language"
        )
    if FLAGS.row_aligned and len(set(languages)) != len(languages):
        raise UserError(f"--row_aligned: --languages={','.join(languages)} names one twice")
    paths = [path for pair_input in inputs for path in pair_input.paths]
    common_flags.check_files(paths, "--input")
    reading, filter_options = cli.read(ReadOptions), cli.read(FilterOptions)
    common_flags.check_output_dir(paths, FLAGS.overwrite)
    vocabulary = common_flags.vocabulary()
    prompts = read_prompts(FLAGS.vocab_file, FLAGS.roles) if FLAGS.roles else ("", "")
    cli.import_tensorflow()
    from official_cmlm.records import pairs as schema

    from .output.folder import ShardWriter, fill_folder
    from .output.pairs import align, pair_records

    counts = Counts()
    keep = PairFilter(
        filter_options,
        detect=identify if FLAGS.check_language else None,
        exclusion=common_flags.exclusion(reading, counts),
    )
    row_size = len(inputs) if FLAGS.row_aligned else 1
    total_bytes = sum(get_stored_size(path, reading) for path in paths)
    summary = Summary()
    tables = [pair_input.read(counts, FLAGS.header, reading) for pair_input in inputs]
    if FLAGS.row_aligned:
        # A row needs all tables, so the tables are read, and fail, as one file.
        parts = [(",".join(paths), align(tables, paths))]
    else:
        parts = [(s.name, ((pair,) for pair in table)) for s, table in zip(inputs, tables)]
    rows = (row for part in parts for row in guard_faults(*part, FLAGS.on_error, counts))
    with fill_folder(Path(FLAGS.output_dir), FLAGS.overwrite) as folder:
        writer = ShardWriter(folder, schema.KIND, cli.read(RecordOptions).shard_bytes)
        with progress.bar(total_bytes, "B", "pairs", unit_scale=True) as bar:
            for language, row in pair_records(
                rows, vocabulary, counts, keep, FLAGS.keep_text, FLAGS.drop_empty, prompts
            ):
                writer.write(language, *row)
                bar.update(min(counts.bytes, total_bytes) - bar.n)
        writer.close()
        if not counts.documents:
            counts.raise_if_all_failed(len(parts))
            names = ",".join(FLAGS.input or FLAGS.tfds)
            raise UserError(f"{names}: no usable pair; check --format and --header")
        vocabulary.save(folder)
        manifest = counts.manifest(
            vocabulary, writer.shards, FLAGS.keep_text, schema.KIND, row_size
        )
        if FLAGS.roles:
            roles = {"roles": list(FLAGS.roles), "prompts": list(prompts)}
            manifest = dataclasses.replace(manifest, **roles)
        write_report(manifest, folder)
        manifest.save(folder)
    return summary.show(FLAGS.output_dir, manifest, counts, len(paths))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
