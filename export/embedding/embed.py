"""Embeds files of texts, however many: `cmlm embed`.

    cmlm embed data.csv --column=body --to=v.parquet
    cmlm embed sentences.txt --model=work/model --output_dir=work/vectors
    cat data.csv | cmlm embed - --format=csv --column=body --to=v.jsonl

Row i of the output is text i of the input: a row of a table, an object of JSON, a line of text.
The output is one file, or shards in a folder, which manifest.json lists when all of them are there.
The same command goes on with what is left after it was stopped, or killed.
"""

import dataclasses
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import check_output, check_writable
from official_cmlm.common.input_files import expand_inputs, is_remote
from official_cmlm.common.text_files import Reading
from official_cmlm.common.validation import between

from . import run
from .worker import EIGHT_BITS

FLAGS = flags.FLAGS
# Fields that have no flag of their own here: the flags of all encoders decide most of them.
_WITHOUT_FLAG = {"paths", "encoder_digest", "model_dir", "text_name", "arithmetic"}
_OF_ENCODERS = {"backend", "device", "max_seq_length", "pooling", "sentence_vector"}


@dataclasses.dataclass(frozen=True)
class Task:
    """The texts, the place of their embeddings, and the processes that compute them.

    Attributes:
      input: files, folders or patterns of texts; -: standard input, by default lines of text.
      to: file to write, .parquet, .npy or .jsonl; it appears when it is complete.
      output_dir: folder of shards to write instead; manifest.json appears at the end.
      overwrite: whether to replace what another command wrote there.
      workers: processes that embed; each has its own copy of the encoder and its share of the
        cores.
      beam: flags of Apache Beam and its runner, such as
        --beam=--runner=FlinkRunner,--flink_master=…: a pipeline embeds in place of --workers. All
        machines see input and output under the same paths.
    """

    input: tuple[str, ...]
    to: str | None = None
    output_dir: str | None = None
    overwrite: bool = False
    workers: Annotated[int, between(1, 1024)] = 1
    beam: tuple[str, ...] | None = None


def define_flags() -> None:
    """Defines the flags: input, output, encoder, and the form of the embeddings."""
    cli.define_model(required=False)
    cli.define(Task)
    cli.define(run.Request, skip=_WITHOUT_FLAG | _OF_ENCODERS)


def main() -> None:
    """Runs the binary."""
    task = cli.read(Task)
    with tempfile.TemporaryDirectory() as folder:
        if "-" in task.input:
            task = dataclasses.replace(task, input=_keep_standard_input(task.input, Path(folder)))
        embed(task)


def _keep_standard_input(names: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Writes standard input to a file, as it is read twice; returns the names with this file's."""
    if sys.stdin.isatty():
        cli.announce("reading the terminal; Ctrl-D ends the text …")
    # Its name tells the format, unless --format does.
    file = folder / run.STANDARD_INPUT
    with file.open("wb") as output:
        shutil.copyfileobj(sys.stdin.buffer, output)
    return tuple(str(file) if name == "-" else name for name in names)


def embed(task: Task) -> None:
    """Embeds the texts of a task, with the settings of the flags."""
    from official_cmlm.checkpoints.encoder_directory import encoder_digest
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
    from official_cmlm.encoding.backends import BACKENDS
    from official_cmlm.encoding.backends.onnx import has_graphs

    if FLAGS.backend not in BACKENDS:
        raise UserError(f"--backend={FLAGS.backend}: take one of {', '.join(BACKENDS)}")
    cli.take_default_model()
    model_dir = find_encoder(FLAGS.model, FLAGS.revision).absolute()
    if FLAGS.backend == "tensorflow" or not has_graphs(model_dir):
        # A public folder is imported here, once, and not by each process.
        encoder_directory_of(model_dir)
    paths = expand_inputs(task.input)
    reading = cli.read(Reading)
    for path in paths:
        reading.form_of(path)
    output, target = _find_output(task, paths)
    output_format = target.suffix[1:] if target else FLAGS.output_format
    if output_format == "parquet":
        check_extra("parquet", "pyarrow")
    elif FLAGS.keep_columns and output_format == "npy":
        raise UserError("--keep_columns: .npy files have no columns; write .parquet or .jsonl")
    text_name = (FLAGS.column or "text") if FLAGS.keep_columns else ""
    # This is for the processes too, which inherit the environment.
    cli.quiet_tensorflow()
    request = cli.read(
        run.Request,
        paths=[path if is_remote(path) else os.path.abspath(path) for path in paths],
        model_dir=str(model_dir),
        encoder_digest=encoder_digest(model_dir, with_ranges=True),
        arithmetic=FLAGS.precision,
        output_format=output_format,
        text_name="text" if output_format == "jsonl" else text_name,
    )
    where = f"{task.workers} processes" if task.beam is None else "a pipeline of Beam"
    cli.announce(f"embedding {len(paths)} files in {where} …")
    outcome = run.run(request, output, task.workers, task.overwrite, target, task.beam)
    _report(task, outcome)


def _report(task: Task, outcome: run.Outcome) -> None:
    """Prints the size of the output, and warns of texts that were changed."""
    manifest, shards = outcome.manifest, outcome.manifest["shards"]
    if count := manifest["missing_texts"]:
        end = "were left out" if FLAGS.on_missing == "skip" else "have the vector of an empty one"
        cli.warn(f"{count} rows without a text {end}")
    for name, words in (
        ("cut_texts", "texts were cut to the encoder's length; --on_long=windows reads them all"),
        ("mended_texts", "texts or ids had half surrogate pairs, which became U+FFFD"),
    ):
        if count := sum(shard[name] for shard in shards):
            cli.warn(f"{count} of {manifest['rows']} {words}")
    speed = ""
    if outcome.seconds:
        speed = f"; {outcome.computed / outcome.seconds:.1f} texts/s in {outcome.seconds:.1f} s"
    place = "" if task.to else f" in {len(shards)} shards"
    print(
        f"{task.to or task.output_dir}: {manifest['rows']} rows of {manifest['columns']} "
        f"{manifest['dtype']}{place}, {outcome.computed} rows embedded now{speed}"
    )


def _find_output(task: Task, paths: list[str]) -> tuple[Path, Path | None]:
    """Returns the folder of shards and, with `--to`, the file that is made of them."""
    if bool(task.to) == bool(task.output_dir):
        raise UserError("name the output, either by --to or by --output_dir")
    if task.output_dir:
        output = Path(os.path.expanduser(task.output_dir)).absolute()
        check_writable(output, is_folder=True)
        return output, None
    target = Path(os.path.expanduser(task.to)).absolute()
    if target.suffix not in (".npy", ".parquet", ".jsonl"):
        raise UserError(
            f"--to={task.to}: name a .parquet, .npy or .jsonl file, or a folder --output_dir"
        )
    folder = target.with_name(f"{target.name}.unfinished")
    inputs = [path for path in paths if not is_remote(path)]
    check_output(target, task.overwrite, inputs)
    # A run that was killed at its end has written the ids. Old ones would be of other vectors.
    if target.suffix == ".npy" and not folder.exists():
        check_output(run.name_ids(target), task.overwrite, inputs)
    if FLAGS.embedding_precision in EIGHT_BITS and target.suffix != ".parquet":
        raise UserError(
            f"--embedding_precision: one {target.suffix} file has no place for its ranges; write a "
            ".parquet"
        )
    return folder, target


if __name__ == "__main__":
    define_flags()
    cli.run(main)
