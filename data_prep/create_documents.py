"""Turns text into documents records: `python -m data_prep.create_documents`.

Reads text (see the flags), splits it into sentences, tokenises them and writes TFRecord shards,
the vocabulary, `dataset.json` and a report of the languages' balance into a folder. Memory does not
grow with the corpus.
"""

from collections.abc import Iterator
from pathlib import Path

from absl import flags

from data_prep import reader_flags, record_flags
from data_prep.balance import write_report
from data_prep.documents import records
from data_prep.readers import Document, ReadReport, read_documents, size_of
from data_prep.sharding import OutputFolder, ShardWriter, outside_of
from data_prep.statistics import Statistics
from data_prep.summary import Summary, exit_status
from official_cmlm import cli, progress
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    reader_flags.define()
    flags.adopt_module_key_flags(reader_flags)
    record_flags.define()
    flags.adopt_module_key_flags(record_flags)


def _with_progress(
    documents: Iterator[Document], report: ReadReport, total_bytes: int
) -> Iterator[Document]:
    """Passes documents through and draws the share of the input's bytes that is read."""
    with progress.bar(total_bytes, "B", "records", unit_scale=True) as bar:
        for document in documents:
            bar.update(min(report.bytes, total_bytes) - bar.n)
            yield document
        bar.update(total_bytes - bar.n)


def main(argv: list[str]) -> int:
    """Runs the binary."""
    del argv
    shard_bytes = record_flags.megabytes("shard_mb")
    output = Path(FLAGS.output_dir)
    target = OutputFolder(output, FLAGS.overwrite)
    paths = outside_of(output, reader_flags.input_paths())
    vocabulary, options, reading = (
        record_flags.vocabulary(),
        record_flags.options(),
        reader_flags.options(),
    )
    cli.quiet_tensorflow()
    report, statistics = ReadReport(), Statistics()
    exclusion = record_flags.exclusion(reading, report)
    total_bytes = sum(map(size_of, paths))
    summary = Summary()
    with target as folder:
        documents = read_documents(paths, reading, report, FLAGS.reader)
        documents = _with_progress(documents, report, total_bytes)
        writer = ShardWriter(folder, "documents", shard_bytes)
        for language, record in records(documents, vocabulary, options, statistics, exclusion):
            writer.write(language, record)
        writer.close()
        if not statistics.sentences:
            raise UserError(
                f"{','.join(paths[:3])}: no usable sentence in {len(paths)} file(s); check that "
                "they hold running text, and --reader, --lines and --min_sentences"
            )
        vocabulary.save(folder)
        statistics.counters.update(report.counters())
        manifest = statistics.manifest(vocabulary, writer.shards, options.keep_text)
        write_report(manifest, folder)
        manifest.save(folder)
    summary.show(str(output), manifest, report, len(paths))
    return exit_status(manifest.counters)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
