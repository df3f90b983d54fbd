"""Trains a sentence encoder: `cmlm train cmlm/english_base …`.

Model Garden's training driver with this project's experiments. The model directory is an encoder
directory from the first checkpoint on: `SentenceEncoder.load` and `export.export_tfhub` accept it.

`--experiment=?` lists the experiments.
"""

import dataclasses
import os
import shlex
import sys
from typing import Annotated

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.common.files import check_writable, read_text
from official_cmlm.common.validation import OneOf

from . import registry

_MODES = ("train", "eval", "train_and_eval", "continuous_eval", "train_and_post_eval")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRequest(registry.ExperimentRequest):
    """A training by an experiment's name.

    Attributes:
      experiment: name of an experiment: the path of its YAML file below experiments/, '?' lists
        all; or a YAML file of your own, which ends in .yaml. Required.
      mode: the work: train, eval (the latest checkpoint), train_and_eval (in turn),
        continuous_eval (each new checkpoint), train_and_post_eval (eval once at the end).
      model_dir: folder for checkpoints, params.yaml and summaries. Required.
      init_checkpoint: encoder to start from: an encoder directory, a public folder, or a name such
        as mini-en or org/model; the encoder takes its sizes, and from a sentence encoder pooling,
        normalisation and length. Default: as task.init_checkpoint says, normally random weights.
      tpu: name or grpc:// address of a TPU to train on. Default: none.
    """

    experiment: str | None = None
    mode: Annotated[str, OneOf(_MODES)] = "train_and_eval"
    model_dir: str | None = None
    init_checkpoint: str | None = None
    tpu: str | None = None


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(TrainingRequest)
    cli.define_import_module()


def main() -> None:
    """Runs the binary."""
    request = cli.read(TrainingRequest)
    if request.experiment in (None, "?", "list"):
        print(f"experiments:\n{registry.list_files(registry.experiment_files())}")
        if request.experiment is None:
            raise UserError("--experiment is missing; name one of these")
        return
    if not request.model_dir:
        raise UserError("--model_dir is missing; name the folder for checkpoints")
    model_dir = os.path.expanduser(request.model_dir)
    # With several workers only the chief writes there, and only TensorFlow knows which one it is.
    if "TF_CONFIG" not in os.environ:
        check_writable(model_dir, is_folder=True)
    for file in request.config_file:
        read_text(file, "check --config_file")
    cli.import_tensorflow()
    cli.import_modules()
    notes: list[str] = []
    params = request.load(request.init_checkpoint, notes)
    for line in notes if "train" in request.mode else ():
        print(line, file=sys.stderr)
    if request.tpu:
        runtime = params.runtime.replace(tpu=request.tpu, distribution_strategy="tpu")
        params = params.replace(runtime=runtime)
    from official_cmlm.training.run import run

    run(params, request.mode, model_dir)
    if "train" in request.mode and not cli.is_part():
        announce_encoder(model_dir)


def announce_encoder(model_dir: str) -> None:
    """Prints a training's last lines: where its encoder and its curve are, and what may follow."""
    from official_cmlm.training.curve import CURVE_NAME
    from official_cmlm.training.progress import HISTORY_NAME

    curve, history = (os.path.join(model_dir, name) for name in (CURVE_NAME, HISTORY_NAME))
    if not os.path.exists(curve):
        why = "too few reports" if is_installed("matplotlib") else "matplotlib is not installed"
        curve = f"not drawn ({why}); its figures are in {history}"
    print(f"encoder: {model_dir}\ncurve:   {curve}", file=sys.stderr)
    print(f"next:    cmlm export {shlex.quote(model_dir)} --to=tfhub", file=sys.stderr)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
