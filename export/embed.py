"""Embeds files of texts, however many: `python -m export.embed`.

    python -m export.embed --model_dir=work/model --input=sentences.txt --output_dir=work/vectors

Row i of the output is text i of the input: a line of a text file, an object of a JSONL file, a row
of a Parquet file. Rows come in shards, .npy or Parquet, which manifest.json lists when all of them
are there. The same command goes on with what is left after it was stopped, or killed.
"""

import os
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.embeddings import PRECISIONS
from official_cmlm.errors import UserError
from official_cmlm.files import check_writable
from official_cmlm.input_files import expand_inputs, is_remote

from .embedding import rows, run, worker

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags: input, output, encoder, and the form of the embeddings."""
    flags.DEFINE_string(
        "model_dir",
        None,
        "Encoder directory: a --model_dir of experiments.train, or an import. Required.",
    )
    flags.DEFINE_list("input", None, "Files, folders or patterns of texts. Required.")
    flags.DEFINE_enum(
        "format",
        "auto",
        rows.FORMATS,
        "Format of the input. auto: .jsonl, .ndjson and .parquet by name, all else text lines.",
    )
    flags.DEFINE_string(
        "text_field",
        "text",
        "Field of JSON objects, or column of Parquet files, that holds the text.",
    )
    flags.DEFINE_string(
        "id_field",
        "",
        "Field of JSON objects, or column of Parquet files, with an id that goes into the output."
        " Default: the number of the row.",
    )
    flags.DEFINE_string(
        "output_dir", None, "Folder to write; manifest.json appears in it at the end. Required."
    )
    flags.DEFINE_enum(
        "output_format",
        "npy",
        worker.OUTPUTS,
        "npy: arrays [rows, dim]; parquet: columns id and embedding.",
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
    flags.DEFINE_integer(
        "batch_size", 64, "Most texts a batch.", lower_bound=1, upper_bound=1_000_000
    )
    flags.DEFINE_integer(
        "max_seq_length",
        None,
        "Longer texts are cut to this many tokens. Default: the encoder directory's own length.",
        lower_bound=3,
        upper_bound=1_000_000,
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
        "Prompt of the encoder directory, such as query or document, to put before each text."
        " Default: the directory's default prompt, if it has one.",
    )
    flags.DEFINE_string("prompt", None, "A prompt of your own in place of it.")
    flags.DEFINE_enum(
        "precision",
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
    flags.DEFINE_string(
        "backend",
        "tensorflow",
        "What computes: one of official_cmlm.backends. auto is decided once, for all processes.",
    )
    flags.DEFINE_string(
        "arithmetic",
        "float32",
        "Precision of the computation, as of SentenceEncoder.load: float32, bfloat16.",
    )
    cli.define_vector_override()
    cli.required("model_dir", "input", "output_dir")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    from official_cmlm.backends import BACKENDS
    from official_cmlm.backends.onnx import is_exported
    from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, encoder_digest

    if FLAGS.backend not in BACKENDS:
        raise UserError(f"--backend={FLAGS.backend}: take one of {', '.join(BACKENDS)}")
    model_dir = Path(os.path.abspath(os.path.expanduser(FLAGS.model_dir)))
    if FLAGS.backend == "tensorflow" or not is_exported(model_dir):
        EncoderDirectory.open(model_dir)
    paths = expand_inputs(FLAGS.input)
    for path in paths:
        if is_remote(path):
            raise UserError(f"{path}: only local files are read; copy it here first")
    reading = rows.Reading(FLAGS.format, FLAGS.text_field, FLAGS.id_field)
    for path in paths:
        reading.form_of(path)
    if FLAGS.output_format == "parquet":
        from official_cmlm.extras import check_extra

        check_extra("data", "pyarrow")
    output = Path(os.path.expanduser(FLAGS.output_dir)).absolute()
    check_writable(output, is_folder=True)
    names = ("backend", "arithmetic", "max_seq_length", "pooling", "sentence_vector", "prompt_name")
    names += ("prompt", "precision", "dim", "normalize", "on_long", "batch_size", "output_format")
    # For the processes, which take the environment over.
    cli.quiet_tensorflow()
    job = run.Job(
        [os.path.abspath(path) for path in paths],
        reading,
        worker.Settings(str(model_dir), **{name: FLAGS[name].value for name in names}),
        encoder_digest(model_dir, with_ranges=True),
        FLAGS.shard_rows,
        FLAGS.calibration_rows,
    )
    cli.announce(f"embedding {len(paths)} files in {FLAGS.workers} processes …")
    outcome = run.run(job, output, FLAGS.workers, FLAGS.overwrite)
    manifest = outcome.manifest
    shards = manifest["shards"]
    for name, what in (
        ("cut_texts", "texts were cut to the encoder's length; --on_long=windows reads them all"),
        ("mended_texts", "texts had bytes that are not UTF-8, which became U+FFFD"),
    ):
        if count := sum(shard[name] for shard in shards):
            cli.warn(f"{count} of {manifest['rows']} {what}")
    speed = ""
    if outcome.seconds:
        speed = f"; {outcome.computed / outcome.seconds:.1f} texts/s in {outcome.seconds:.1f} s"
    print(
        f"{FLAGS.output_dir}: {manifest['rows']} rows of {manifest['columns']} "
        f"{manifest['dtype']} in {len(shards)} shards, {outcome.computed} rows embedded now{speed}"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
