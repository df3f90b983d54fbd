"""Trains a sentence encoder: `python -m experiments.train --experiment=cmlm/english_base …`.

Model Garden's training driver with this project's experiments. The model directory is an encoder
directory from the first checkpoint on: `SentenceEncoder.load` and `export.export_tfhub` accept it.

`--experiment=?` lists the experiments.
"""

import os
import sys

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import check_writable, read_text

from . import registry

FLAGS = flags.FLAGS
_MODES = ("train", "eval", "train_and_eval", "continuous_eval", "train_and_post_eval")


def define_flags() -> None:
    """Defines the flags of the binary; names as in Model Garden's driver."""
    flags.DEFINE_string(
        "experiment",
        None,
        "Name of an experiment: the path of its YAML file below experiments/, '?' lists all; or a"
        " YAML file of your own, which ends in .yaml. Required.",
    )
    flags.DEFINE_enum(
        "mode",
        "train_and_eval",
        _MODES,
        "What to do: train, eval (the latest checkpoint), train_and_eval (in turn),"
        " continuous_eval (each new checkpoint), train_and_post_eval (eval once at the end).",
    )
    flags.DEFINE_string(
        "model_dir", None, "Folder for checkpoints, params.yaml and summaries. Required."
    )
    flags.DEFINE_string(
        "data",
        None,
        "Folder of records to train on; it overrides task.train_data.input_path. Default: as the"
        " other values say.",
    )
    flags.DEFINE_multi_string(
        "config_file",
        None,
        "YAML file that overrides the experiment's values; may be repeated, later ones win."
        " Default: none.",
    )
    flags.DEFINE_string(
        "params_override",
        None,
        "Values that override all files: a.b=1,c.d=2 or a YAML mapping. Default: none.",
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Encoder directory to start from, e.g. an imported checkpoint; the encoder takes its sizes,"
        " and from a sentence encoder pooling, normalisation and length."
        " Default: as task.init_checkpoint says, normally random weights.",
    )
    cli.define_import_module()
    flags.DEFINE_string("tpu", None, "Name or grpc:// address of a TPU to train on. Default: none.")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if FLAGS.experiment in (None, "?", "list"):
        print(f"experiments:\n{registry.list_files(registry.experiment_files())}")
        if FLAGS.experiment is None:
            raise UserError("--experiment is missing; name one of these")
        return
    if not FLAGS.model_dir:
        raise UserError("--model_dir is missing; name the folder for checkpoints")
    # With several workers only the chief writes there, and only TensorFlow knows which one it is.
    if "TF_CONFIG" not in os.environ:
        check_writable(os.path.expanduser(FLAGS.model_dir), is_folder=True)
    for file in FLAGS.config_file or []:
        read_text(file, "check --config_file")
    cli.import_tensorflow()
    cli.import_modules()
    notes: list[str] = []
    params = registry.load(
        FLAGS.experiment,
        FLAGS.config_file,
        FLAGS.params_override,
        FLAGS.init_checkpoint,
        notes,
        FLAGS.data,
    )
    for line in notes if "train" in FLAGS.mode else ():
        print(line, file=sys.stderr)
    if FLAGS.tpu:
        runtime = params.runtime.replace(tpu=FLAGS.tpu, distribution_strategy="tpu")
        params = params.replace(runtime=runtime)
    from official_cmlm.training.run import run

    run(params, FLAGS.mode, os.path.expanduser(FLAGS.model_dir))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
