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
from official_cmlm.common.validation import OneOf, at_least

from . import registry

_PROGRAM = Path(__file__).parent / "run_lowered.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoweringRequest(registry.ExperimentRequest):
    """A training, and what of it is written.

    Attributes:
      output_dir: folder to write.
      batches: batches to write; a longer training reads them again, in order. Default: 0, one for
        each training step.
      platforms: kinds of device that may train: cpu, cuda, rocm, tpu.
      redraw: leave large random weights out; the other machine draws others of the same mean and
        deviation.
      init_checkpoint: encoder to start from, as in experiments.train. Default: as
        task.init_checkpoint says.
    """

    output_dir: str
    batches: Annotated[int, at_least(0)] = 0
    platforms: Annotated[tuple[str, ...], OneOf(("cpu", "cuda", "rocm", "tpu"))] = ("cpu", "cuda")
    redraw: bool = False
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
    params = request.load(request.init_checkpoint)
    from official_cmlm.training.lowered import write_lowered

    options = (request.batches, request.platforms, request.redraw)
    write_lowered(params, folder, _PROGRAM, *options)
    print(f"{folder}: train with `python {Path(folder, _PROGRAM.name)}`")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
