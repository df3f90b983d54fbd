"""Embeds files of texts, however many: `cmlm embed`.

    cmlm embed --model=work/model --input=data.csv --column=body --to=v.parquet
    cmlm embed --model=work/model --input=sentences.txt --output_dir=work/vectors

Row i of the output is text i of the input: a row of a table, an object of JSON, a line of text.
The output is one file, or shards in a folder, which manifest.json lists when all of them are there.
The same command goes on with what is left after it was stopped, or killed.
"""

import os
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import check_output, check_writable
from official_cmlm.common.input_files import expand_inputs, is_remote
from official_cmlm.common.text_files import FORMATS, SUFFIXES, Reading
from official_cmlm.vectors.embeddings import PRECISIONS

from . import run, worker

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags: input, output, encoder, and the form of the embeddings."""
    cli.define_model()
    flags.DEFINE_list("input", None, "Files, folders or patterns of texts. Required.")
    flags.DEFINE_enum(
        "format",
        "auto",
        FORMATS,
        f"Format of the input. auto: by name, {', '.join(SUFFIXES)}, also with .gz and .zst.",
    )
    flags.DEFINE_string(
        "column",
        "",
        "Column of a table, or field of JSON objects, that holds the text. Default: text, or the"
        " only column of a table.",
    )
    flags.DEFINE_string(
        "id_column",
        "",
        "Column or field with an id that goes into the output. Default: the number of the row.",
    )
    flags.DEFINE_bool(
        "keep_columns",
        False,
        "Whether the text and the input's other columns are written beside the vectors (Parquet).",
    )
    flags.DEFINE_string(
        "to", None, "File to write, .parquet or .npy; it appears when it is complete."
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder of shards to write instead; manifest.json appears at the end."
    )
    flags.DEFINE_enum(
        "output_format",
        "npy",
        worker.OUTPUTS,
        "Format of the shards of --output_dir. npy: arrays [rows, dim]; parquet: columns id and"
        " embedding.",
    )
    flags.DEFINE_bool("overwrite", False, "Whether to replace what another command wrote there.")
    flags.DEFINE_integer(
        "shard_rows",
        10_000,
        "Texts of a shard: what is lost at most, of each worker, if the run is killed.",
        lower_bound=1,
        upper_bound=10_000_000,
    )
    flags.DEFINE_integer(
        "workers",
        1,
        "Processes that embed; each has its own copy of the encoder and its share of the cores.",
        lower_bound=1,
        upper_bound=1024,
    )
    flags.DEFINE_list(
        "beam",
        None,
        "Flags of Apache Beam and its runner, such as --beam=--runner=FlinkRunner,--flink_master=…:"
        " a pipeline embeds in place of --workers. All machines see input and output under the same"
        " paths.",
    )
    flags.DEFINE_integer(
        "batch_size", 64, "Most texts a batch.", lower_bound=1, upper_bound=1_000_000
    )
    flags.DEFINE_enum(
        "on_long",
        "cut",
        ["cut", "error", "windows"],
        "What becomes of longer texts: they are cut and counted, or the run ends, or their vector"
        " is the mean over windows.",
    )
    flags.DEFINE_string(
        "prompt_name",
        None,
        "Prompt of the encoder, such as query, to put before each text. Default: that of documents,"
        " if it has one.",
    )
    flags.DEFINE_string("prompt", None, "A prompt of your own in place of it.")
    flags.DEFINE_enum(
        "embedding_precision",
        "float32",
        PRECISIONS,
        "Precision of the written embeddings. int8 and uint8 take the ranges of the encoder"
        " directory, else those of the first --calibration_rows texts, and store them.",
    )
    flags.DEFINE_integer(
        "calibration_rows",
        10_000,
        "Texts that give the ranges of int8 and uint8.",
        lower_bound=2,
        upper_bound=1_000_000,
    )
    flags.DEFINE_integer(
        "dim",
        None,
        "Dimensions to keep, the first ones, before --normalize. Default: all.",
        lower_bound=1,
        upper_bound=1 << 16,
    )
    flags.DEFINE_bool("normalize", False, "Whether to scale each vector to length 1.")
    cli.required("model", "input")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    from official_cmlm.checkpoints.encoder_directory import encoder_digest
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
    from official_cmlm.encoding.backends import BACKENDS
    from official_cmlm.encoding.backends.onnx import has_graphs

    if FLAGS.backend not in BACKENDS:
        raise UserError(f"--backend={FLAGS.backend}: take one of {', '.join(BACKENDS)}")
    model_dir = find_encoder(FLAGS.model, FLAGS.revision).absolute()
    if FLAGS.backend == "tensorflow" or not has_graphs(model_dir):
        # A public folder is imported here, once, and not by each process.
        encoder_directory_of(model_dir)
    paths = expand_inputs(FLAGS.input)
    reading = Reading(FLAGS.format, FLAGS.column, FLAGS.id_column, FLAGS.keep_columns)
    for path in paths:
        reading.form_of(path)
    output, target = _output(paths)
    output_format = target.suffix[1:] if target else FLAGS.output_format
    if output_format == "parquet":
        check_extra("data", "pyarrow")
    elif FLAGS.keep_columns:
        raise UserError("--keep_columns: .npy files have no columns; write Parquet")
    names = ("backend", "device", "max_seq_length", "pooling", "sentence_vector", "prompt_name")
    names += ("prompt", "dim", "normalize", "on_long", "batch_size")
    # This is for the processes too, which inherit the environment.
    cli.quiet_tensorflow()
    job = run.Job(
        [path if is_remote(path) else os.path.abspath(path) for path in paths],
        reading,
        worker.Settings(
            str(model_dir),
            **{name: FLAGS[name].value for name in names},
            arithmetic=FLAGS.precision,
            precision=FLAGS.embedding_precision,
            output_format=output_format,
            text_name=(FLAGS.column or "text") if FLAGS.keep_columns else "",
        ),
        encoder_digest(model_dir, with_ranges=True),
        FLAGS.shard_rows,
        FLAGS.calibration_rows,
        FLAGS.beam,
    )
    where = f"{FLAGS.workers} processes" if FLAGS.beam is None else "a pipeline of Beam"
    cli.announce(f"embedding {len(paths)} files in {where} …")
    outcome = run.run(job, output, FLAGS.workers, FLAGS.overwrite)
    manifest = outcome.manifest
    if target is not None:
        run.gather(output, manifest, target, FLAGS.overwrite)
    shards = manifest["shards"]
    for name, what in (
        ("cut_texts", "texts were cut to the encoder's length; --on_long=windows reads them all"),
        ("mended_texts", "texts or ids had half surrogate pairs, which became U+FFFD"),
    ):
        if count := sum(shard[name] for shard in shards):
            cli.warn(f"{count} of {manifest['rows']} {what}")
    speed = ""
    if outcome.seconds:
        speed = f"; {outcome.computed / outcome.seconds:.1f} texts/s in {outcome.seconds:.1f} s"
    shown = "" if target else f" in {len(shards)} shards"
    print(
        f"{FLAGS.to or FLAGS.output_dir}: {manifest['rows']} rows of {manifest['columns']} "
        f"{manifest['dtype']}{shown}, {outcome.computed} rows embedded now{speed}"
    )


def _output(paths: list[str]) -> tuple[Path, Path | None]:
    """Returns the folder of shards and, with `--to`, the file that is made of them."""
    if bool(FLAGS.to) == bool(FLAGS.output_dir):
        raise UserError("name the output, either by --to or by --output_dir")
    if FLAGS.output_dir:
        output = Path(os.path.expanduser(FLAGS.output_dir)).absolute()
        check_writable(output, is_folder=True)
        return output, None
    target = Path(os.path.expanduser(FLAGS.to)).absolute()
    if target.suffix not in (".npy", ".parquet"):
        raise UserError(f"--to={FLAGS.to}: name a .parquet or .npy file, or a folder --output_dir")
    check_output(target, FLAGS.overwrite, [path for path in paths if not is_remote(path)])
    in_bytes = FLAGS.embedding_precision in run.EIGHT_BITS
    for flag, wrong in (("id_column", FLAGS.id_column), ("embedding_precision", in_bytes)):
        if wrong and target.suffix == ".npy":
            raise UserError(f"--{flag}: one .npy file has no place for it; write a .parquet")
    return target.with_name(f"{target.name}.unfinished"), target


if __name__ == "__main__":
    define_flags()
    cli.run(main)
