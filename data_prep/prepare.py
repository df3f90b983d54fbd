"""From crawl files to documents records, on one machine or many: `cmlm prepare`.

    # A folder of WET files, two processes:
    cmlm prepare --input=crawl/wet --vocab_file=vocab.txt --to=records --normalise \
        --detect_language=set --quality_rules --deduplicate=near --on_error=skip --workers=2
    # The same on a Dask cluster; the arguments after -- go to Beam's runner:
    cmlm prepare … --runner=Dask -- --dask_client_address=tcp://host:8786

Every stage is off unless its flag is given; without stages the bytes are those that
`data_prep.create_documents` writes. A stopped run, even one stopped by `kill -9`, is resumed by the
same command and writes the same bytes. With several machines input, vocabulary and output must have
the same paths on all of them.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common.beam_workers import BeamWorkers
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between

from . import common_flags
from .create_documents import read_options, write_records
from .pipeline.plan import Options
from .stages.quality_classifier import load_model

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Division:
    """The processes or machines that the work is divided among.

    Attributes:
      workers: processes on this machine. Each takes some ten seconds to start and 1 GiB of memory.
      runner: place of the work: local (--workers processes), InProcess (Apache Beam in this
        process), or the name of a runner of Apache Beam, such as Dask, Flink or Spark, whose own
        flags follow after --. All its workers must see input and output under the same paths.
    """

    workers: Annotated[int, between(1, 1024)] = 1
    runner: str = "local"


def define_flags() -> None:
    """Defines the flags of reading, stages and records, and of the work's division."""
    common_flags.define_reading()
    # The flags of the other fields are those of reading and of records.
    constants = ("rows", "shingle_words", "min_shingles", "seed")
    cli.define(Options, skip=("reader", "reading", "records", *constants))
    common_flags.define_records()
    cli.define(Division)


def _find_beam(arguments: Sequence[str]) -> BeamWorkers | None:
    """Returns the runner of Beam that the flags name, if any."""
    if FLAGS.runner != "local":
        return BeamWorkers(FLAGS.runner, arguments)
    if arguments:
        raise UserError(f"unexpected argument {arguments[0]!r}; flags start with --")
    return None


def _warn_of_level(path: str, level: str) -> None:
    """Warns if a classifier learned from texts of another kind than it is to judge."""
    learned = load_model(path).level
    if (learned == "sentence") != (level == "sentence"):
        cli.warn(
            f"{path}: learned from {learned}s and is to judge {level}s, of which it was never"
            f" measured; train one with --level={'sentence' if level == 'sentence' else 'document'}"
        )


def main(*arguments: str) -> int:
    """Runs the binary."""
    beam = _find_beam(arguments)
    # A worker may start in another directory.
    options = read_options(model=FLAGS.quality_model and os.path.abspath(FLAGS.quality_model))
    if options.quality.model:
        _warn_of_level(options.quality.model, options.quality.level)
    return write_records(options, FLAGS.workers, beam)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
