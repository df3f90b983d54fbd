"""From crawl files to documents records, on one machine or many: `python -m data_prep.prepare`.

    # A folder of WET files, two processes:
    python -m data_prep.prepare --input=crawl/wet --vocab_file=vocab.txt --output_dir=records \
        --detect_language=set --quality_rules --deduplicate=near --on_error=skip --workers=2
    # The same on a Dask cluster; what stands after -- goes to Beam's runner:
    python -m data_prep.prepare … --runner=Dask -- --dask_client_address=tcp://host:8786

A run that was stopped, even by `kill -9`, goes on where it was when the same command is given
again, and what it writes is the same to the byte. With several machines input, vocabulary and
output must have the same paths on all of them.
"""

import dataclasses
import os
from pathlib import Path

from absl import flags

from data_prep import reader_flags, record_flags, stage_flags
from data_prep.engine.beam import BeamRunner
from data_prep.engine.local import LocalRunner
from data_prep.engine.options import Options
from data_prep.engine.plan import Plan
from data_prep.engine.running import prepare
from data_prep.locking import locked
from data_prep.readers.opening import is_remote
from data_prep.readers.tfds import PREFIX
from data_prep.sharding import PLAN_FILE, output_folder, outside_of
from data_prep.summary import Summary, exit_status
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    for module in (reader_flags, stage_flags, record_flags):
        module.define()
        flags.adopt_module_key_flags(module)
    flags.DEFINE_float(
        "element_mb",
        64.0,
        "What a worker does at a time, in megabytes (10^6 bytes) as stored; it has shards of its"
        " own. Files are bundled up to this size; larger ones are read in parts of it where"
        " that can be done: plain local JSON lines, text by blank_line, data sets. With"
        " --on_error=skip a fault leaves out the rest of its part.",
    )
    flags.DEFINE_integer(
        "workers",
        1,
        "Processes on this machine. Each takes some ten seconds to start and 1 GiB of memory.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "runner",
        "local",
        "What computes: local (--workers processes), InProcess (Apache Beam in this process), or"
        " the name of a runner of Apache Beam, such as Dask, Flink or Spark, whose own flags stand"
        " after --. All its workers must see input and output under the same paths.",
    )


def options() -> Options:
    """The options that the flags ask for; raises `UserError` where a value is out of range."""
    reading = reader_flags.options()
    if reading.tfds_data_dir and not is_remote(reading.tfds_data_dir):
        data_dir = os.path.abspath(reading.tfds_data_dir)
        reading = dataclasses.replace(reading, tfds_data_dir=data_dir)
    return Options(
        reader=FLAGS.reader,
        reading=reading,
        normalise=FLAGS.normalise,
        language=stage_flags.language_id(),
        quality_rules=FLAGS.quality_rules,
        quality_model=FLAGS.quality_model and os.path.abspath(FLAGS.quality_model),
        quality_threshold=FLAGS.quality_threshold,
        quality_level=FLAGS.quality_level,
        deduplicate=FLAGS.deduplicate,
        deduplicate_paragraphs=FLAGS.deduplicate_paragraphs,
        near_threshold=FLAGS.near_threshold,
        near_bands=FLAGS.near_bands,
        min_paragraph_letters=FLAGS.min_paragraph_letters,
        sample_dropped=FLAGS.sample_dropped,
        records=record_flags.options(),
        shard_bytes=record_flags.megabytes("shard_mb"),
        element_bytes=record_flags.megabytes("element_mb"),
    )


def _runner(arguments: list[str]) -> LocalRunner | BeamRunner:
    if FLAGS.runner != "local":
        return BeamRunner(FLAGS.runner, arguments)
    if arguments:
        raise UserError(f"unexpected argument {arguments[0]!r}; flags start with --")
    return LocalRunner(FLAGS.workers)


def _anchored(wanted: Options, paths: list[str]) -> Options:
    """The options with what relative paths are relative to, as a worker may start elsewhere."""
    files = [path for path in paths if not path.startswith(PREFIX) and not is_remote(path)]
    if all(map(os.path.isabs, files)):
        return wanted
    reading = dataclasses.replace(wanted.reading, directory=os.getcwd())
    return dataclasses.replace(wanted, reading=reading)


def main(argv: list[str]) -> int:
    """Runs the binary."""
    runner = _runner(argv[1:])
    wanted = options()
    # Loads the model, so that a mistake in it is found before any work.
    wanted.chain()
    if is_remote(FLAGS.output_dir):
        raise UserError(
            f"--output_dir={FLAGS.output_dir}: must be on a file system that all workers have;"
            " copy the finished folder"
        )
    output, partial = output_folder(Path(FLAGS.output_dir), FLAGS.overwrite)
    paths = outside_of(output, reader_flags.input_paths())
    wanted = _anchored(wanted, paths)
    vocabulary = record_flags.vocabulary()
    cli.quiet_tensorflow()
    summary = Summary()
    excluded = record_flags.excluded_paths()
    plan = Plan.of(paths, wanted, vocabulary.hash, excluded)
    with locked(output):
        # Another run may have completed it meanwhile.
        output_folder(output, FLAGS.overwrite)
        resumed = (partial / PLAN_FILE).exists()
        with runner:
            manifest, report = prepare(plan, vocabulary, output, partial, runner)
    summary.show(str(output), manifest, report, len(paths), resumed)
    return exit_status(manifest.counters)


if __name__ == "__main__":
    define_flags()
    cli.run(main, arguments=True)
