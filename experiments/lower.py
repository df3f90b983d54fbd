"""Writes a training for a machine without TensorFlow: `cmlm lower EXPERIMENT --data=… --to=FOLDER`.

The steps, the batches and the initial weights are made here; the other machine, which needs only
jax, numpy and flatbuffers, trains by `python FOLDER/run_lowered.py`. From its first checkpoint on
the folder is an encoder directory, which every other program of this project takes.
"""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

from official_cmlm import cli
from official_cmlm.common.files import check_writable
from official_cmlm.common.validation import Flag, at_least

from . import registry

_PROGRAM = Path(__file__).parent / "run_lowered.py"


@dataclasses.dataclass(frozen=True)
class LoweringRequest:
    """A training, and what of it is written.

    Attributes:
      experiment: name of an experiment, as experiments.train lists them, or a YAML file of your
        own.
      output_dir: folder to write.
      data: folder of records. Default: task.train_data.input_path of the experiment.
      batches: batches to write; a longer training reads them again, in order. Default: 0, one for
        each training step.
      platforms: kinds of device that may train: cpu, cuda, rocm, tpu.
      redraw: leave large random weights out; the other machine draws others of the same mean and
        deviation.
      config_file: YAML file that overrides the experiment's values; may be repeated, later ones
        win. Default: none.
      params_override: values that override all files: a.b=1,c.d=2 or a YAML mapping. Default: none.
      init_checkpoint: encoder to start from, as in experiments.train. Default: as
        task.init_checkpoint says.
    """

    experiment: str
    output_dir: str
    data: str | None = None
    batches: Annotated[int, at_least(0)] = 0
    platforms: tuple[str, ...] = ("cpu", "cuda")
    redraw: bool = False
    config_file: Annotated[tuple[str, ...], Flag(repeats=True)] = ()
    params_override: str | None = None
    init_checkpoint: str | None = None


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(LoweringRequest)
    cli.define_import_module()


def main() -> None:
    """Runs the binary."""
    request = cli.read(LoweringRequest)
    folder = os.path.expanduser(request.output_dir)
    check_writable(folder, is_folder=True)
    cli.import_tensorflow()
    cli.import_modules()
    changes = (request.config_file, request.params_override, request.init_checkpoint)
    params = registry.load(request.experiment, *changes, data=request.data)
    from official_cmlm.training.lowered import write_lowered

    options = (request.batches, request.platforms, request.redraw)
    write_lowered(params, folder, _PROGRAM, *options)
    print(f"{folder}: train with `python {Path(folder, _PROGRAM.name)}`")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
