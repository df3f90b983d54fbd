"""Scores an encoder by the papers' protocols: `python -m experiments.evaluate --encoder=… …`.

Writes `results.json`, `results.md` with the papers' own rows, and `report.html` with the figures.
Later commands add their suites to these files. Embeddings are kept in the same folder, so an
interrupted run resumes. `--suites=?` lists the suites, `--suites=sts,?` the options of one.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import check_writable

FLAGS = flags.FLAGS

# Scores that are printed; the tables have all.
_MOST_PRINTED = 20


def define_flags() -> None:
    """Defines the encoder, the suites with their options and data, and the output."""
    flags.DEFINE_string(
        "encoder",
        None,
        "An encoder directory, a sentence-transformers, Hugging Face or ONNX folder, a folder of"
        " export.export_tfhub, an installed package of weights, a name org/model of the Hugging"
        " Face hub, or package.module:object. For bli, sts and word_similarity also one a language:"
        " en:path,fr:path. Required.",
    )
    flags.DEFINE_alias("model", "encoder")
    flags.DEFINE_list("suites", ["sts"], "Suites to run, or 'all'. '?' lists them.")
    flags.DEFINE_string(
        "data_dir",
        os.environ.get("CMLM_DATA_DIR"),
        "Folder of evaluation data. Default: the environment variable CMLM_DATA_DIR.",
    )
    flags.DEFINE_string("output_dir", None, "Folder for results and embeddings. Required.")
    flags.DEFINE_multi_string(
        "set",
        [],
        "An option of a suite, e.g. senteval.seeds=5 or sts.split=dev; may be repeated.",
    )
    flags.DEFINE_string("name", None, "Name of the encoder in tables. Default: its folder's name.")
    flags.DEFINE_integer(
        "workers",
        1,
        "Processes that embed texts, each with its own copy of the encoder and its share of the"
        " cores. If CUDA_VISIBLE_DEVICES names devices, each process uses one of them.",
        lower_bound=1,
        upper_bound=1024,
    )
    cli.define_computation()
    flags.DEFINE_integer(
        "layer",
        None,
        "Layer of an encoder directory whose outputs are pooled, from 1. Default: the last one.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "strict", False, "Whether data that differs from the published files is an error."
    )
    flags.DEFINE_multi_string(
        "compare",
        [],
        "results.json of another encoder to show beside this one; up to four, by repeating the flag"
        " or separated by commas. Default: none.",
    )
    flags.DEFINE_bool(
        "save_predictions",
        False,
        "Whether to write the predictions of all pairs of texts, of the suites sts, word_similarity"
        " and qnli, and 95 % intervals of their scores; with --compare also of differences to"
        " encoders whose predictions were written too.",
    )
    cli.define_import_module()


def main(argv: list[str]) -> int:
    """Runs the binary; returns 1 if a task failed, or has no data although it was named."""
    del argv
    from official_cmlm.evaluation import suites

    cli.quiet_tensorflow()
    cli.import_modules()
    if "?" in FLAGS.suites:
        print(suites.describe([name for name in FLAGS.suites if name != "?"]))
        return 0
    for name in ("encoder", "data_dir", "output_dir"):
        if not FLAGS[name].value:
            raise UserError(f"--{name} is missing; see --help")
    check_writable(os.path.expanduser(FLAGS.output_dir), is_folder=True)
    check_extra("evaluate", "scipy", "sklearn")
    from official_cmlm.encoding.encoders import by_language, open_encoder
    from official_cmlm.evaluation.report import driver
    from official_cmlm.evaluation.report.results import read_compared

    names = suites.expand_names(FLAGS.suites)
    options = driver.parse_options(names, FLAGS.set)
    compare = read_compared(FLAGS.compare)
    computation = ("precision", "pooling", "sentence_vector", "layer", "backend", "device")
    flags_of_encoder = {name: FLAGS[name].value for name in (*computation, "revision")}
    encoders = {
        language: open_encoder(path, FLAGS.max_seq_length, FLAGS.workers, **flags_of_encoder)
        for language, path in by_language(FLAGS.encoder).items()
    }
    own_name = ", ".join(f"{key} {encoder.name}".strip() for key, encoder in encoders.items())
    override = dataclasses.replace(cli.vector_override(), layer=FLAGS.layer)
    results = driver.run(
        encoders.get("", encoders),
        f"{FLAGS.encoder} ({override})" if override else FLAGS.encoder,
        FLAGS.name or own_name,
        Path(os.path.expanduser(FLAGS.data_dir)),
        Path(os.path.expanduser(FLAGS.output_dir)),
        options,
        FLAGS.strict,
        compare,
        FLAGS.save_predictions,
    )
    return report(results | {"suites": {name: results["suites"][name] for name in names}})


def report(results: dict[str, Any]) -> int:
    """Prints failures, missing data and the main scores of the suites; returns the exit status."""
    from official_cmlm.evaluation.report import tables

    failures = [
        f"failed: {name}: {line}"
        for name, suite in results["suites"].items()
        for line in suite["failures"]
    ]
    missing = [
        f"no data: {name}: {line}"
        for name, suite in results["suites"].items()
        for line in tables.missing_lines(suite["missing"])
    ]
    print("".join(f"{line}\n" for line in (*failures, *missing)), end="")
    summary = tables.summary(results)
    for suite, task, metric, value, _ in summary.rows[:_MOST_PRINTED] if summary else ():
        print(f"{suite:16s} {task:24s} {value:>8s}  {metric}")
    if summary and len(summary.rows) > _MOST_PRINTED:
        print(f"… {len(summary.rows) - _MOST_PRINTED} more")
    print(f"results: {FLAGS.output_dir}/results.md, report.html, results.json")
    lacking = [name for name, suite in results["suites"].items() if _is_lacking(name, suite)]
    return cli.EXIT_USER_ERROR if failures or lacking else 0


def _is_lacking(name: str, suite: dict) -> bool:
    """Returns whether a suite has no score, or no data for a task, language or pair named."""
    choices = tuple(f"{name}.{option}=" for option in ("tasks", "languages", "pairs"))
    is_chosen = FLAGS.strict or any(setting.startswith(choices) for setting in FLAGS.set)
    return not suite["scores"] or bool(is_chosen and suite["missing"])


if __name__ == "__main__":
    define_flags()
    cli.run(main)
