"""Scores an encoder by the papers' protocols: `python -m experiments.evaluate --encoder=… …`.

Writes `results.json`, `results.md` with the papers' own rows and `report.html` with the figures.
Embeddings are kept beside them, so a run that was stopped goes on where it was. `--suites=?` lists
the suites, `--suites=sts,?` the options of one.
"""

import inspect
import os
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "encoder",
        None,
        "An encoder directory, a folder of export.export_tfhub, a sentence-transformers folder, or"
        " package.module:object. Required.",
    )
    flags.DEFINE_list(
        "suites", ["sts"], "Suites to run, or 'all' for all but mteb. '?' lists them."
    )
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
    flags.DEFINE_string("name", None, "What tables call the encoder. Default: its folder's name.")
    flags.DEFINE_integer(
        "max_seq_length", None, "Longer texts are cut, in tokens. Default: the encoder's own."
    )
    flags.DEFINE_enum(
        "precision", "float32", ["float32", "bfloat16"], "Of encoder directories' products."
    )
    flags.DEFINE_bool(
        "strict", False, "Whether data that differs from the published files is an error."
    )
    flags.DEFINE_string(
        "compare", None, "results.json of another encoder to show beside. Default: none."
    )


def main(argv: list[str]) -> int:
    """Runs the binary; 1 if something that was asked for could not be scored."""
    del argv
    from official_cmlm.evaluation.suites import SUITES

    if "?" in FLAGS.suites:
        _list_suites([name for name in FLAGS.suites if name != "?"])
        return 0
    for name in ("encoder", "data_dir", "output_dir"):
        if not FLAGS[name].value:
            raise UserError(f"--{name} is missing; see --help")
    names = list(FLAGS.suites)
    if "all" in names:
        unknown = [name for name in names if name not in SUITES and name != "all"]
        names = [name for name in SUITES if name in names or name != "mteb"] + unknown
    cli.quiet_tensorflow()
    from official_cmlm.evaluation.report import driver

    options = driver.parse_options(names, FLAGS.set)
    compare = driver.read_results(Path(FLAGS.compare)) if FLAGS.compare else None
    from official_cmlm.encoders import open_encoder

    encoder = open_encoder(FLAGS.encoder, FLAGS.max_seq_length, FLAGS.precision)
    results = driver.run(
        encoder,
        FLAGS.encoder,
        FLAGS.name or encoder.name,
        Path(os.path.expanduser(FLAGS.data_dir)),
        Path(os.path.expanduser(FLAGS.output_dir)),
        options,
        FLAGS.strict,
        compare,
    )
    failures = [f"{name}: {line}" for name in names for line in results["suites"][name]["failures"]]
    for line in failures:
        print(f"failed: {line}")
    print(f"results: {FLAGS.output_dir}/results.md, report.html, results.json")
    return cli.EXIT_USER_ERROR if failures else 0


def _list_suites(names: list[str]) -> None:
    from official_cmlm.evaluation.suites import SUITES, suite

    for name in names or SUITES:
        print(f"{name}: {SUITES.get(name, '')}")
        if names:
            kinds = [kind for kind in suite(name).Options.__mro__ if kind is not object]
            print("\n\n".join(inspect.getdoc(kind) for kind in kinds))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
