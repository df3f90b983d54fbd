"""Training steps of published experiments on a TPU and a GPU, without one.

For each experiment, the whole training step (forward and backward pass, clipping, optimizer,
metrics) at one accelerator's share of the published batch is compiled for the device by its own
compiler: libtpu, or JAX's plugin for CUDA, which takes the description of an H100. Nothing is run.
The step computes in bfloat16; on a TPU of 16 GiB with the settings of `cases.CASES` that save
memory, on an H100 without any. The compiler's account of memory, operations and bytes is printed;
of a GPU also the number of kernels, the least time that their bytes and products take, and the
share of the chip's peak that this is. Lowering and compiling run in processes of their own. Results
that --work_dir holds for the same flags are not computed again: use a new folder after a change of
the code or of an experiment.

    python -m benchmarks.accelerators --device=h100 --experiments=cmlm/english_base --examples=128
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.accelerators.cases import CASES, case_of
from benchmarks.accelerators.compiling import (
    ENVIRONMENT,
    H100_PEAK,
    compile_step,
    find_device,
    lower_step,
    platform_of,
)
from benchmarks.shared import in_new_process
from official_cmlm import cli
from official_cmlm.common.files import atomic_write_text

FLAGS = flags.FLAGS
_GIB = 2**30


def define_flags() -> None:
    """Defines which steps are compiled, and for which device."""
    flags.DEFINE_list("experiments", list(CASES), "Experiments to compile, in this order.")
    flags.DEFINE_string(
        "device", "v5e:2x2", "h100, or a TPU as libtpu calls it, of which the first core counts."
    )
    flags.DEFINE_integer(
        "examples", 0, "Examples of a step. Default: the share of the published batch."
    )
    flags.DEFINE_string(
        "params_override",
        "",
        "Further fields, e.g. task.encoder.remat=none; see experiments.train.",
    )
    flags.DEFINE_string("work_dir", "", "Folder that keeps results. Default: nothing is kept.")


def main() -> None:
    """Compiles each experiment."""
    # Processes that this one starts inherit these variables.
    os.environ.update(ENVIRONMENT)
    cases = [case_of(experiment) for experiment in FLAGS.experiments]
    # A missing package is reported before the long work.
    find_device(FLAGS.device)
    settings = [
        FLAGS[name].serialize()
        for name in ("params_override", "device", "examples")
        if FLAGS[name].value != FLAGS[name].default
    ]
    digest = hashlib.sha256(" ".join(settings).encode()).hexdigest()[:8]
    lines, chip = [], FLAGS.device.partition(":")[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.work_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            output, step = folder / f"{case.name}-{digest}.json", Path(temporary) / "step"
            if not output.exists():
                # Lowering runs in a process of its own, so that its weights are freed before the
                # compiler needs the memory.
                changes = (FLAGS.params_override, platform_of(FLAGS.device), FLAGS.examples)
                figures = in_new_process(lower_step, case, step, *changes)
                figures |= in_new_process(compile_step, step, FLAGS.device)
                figures = {"settings": " ".join([case.experiment, *settings]), **figures}
                atomic_write_text(output, json.dumps(figures, indent=1) + "\n")
            result = json.loads(output.read_text(encoding="utf-8"))
            print(f"{result['settings']}\n  {_describe(result)}", flush=True)
            needed = result["total"] if "total" in result else result["wanted"]
            lines.append(f"figure {chip}_gib_{case.name} {needed / _GIB:.2f}")
            if "floor" in result:
                lines.append(f"figure {chip}_floor_ms_{case.name} {1e3 * result['floor']:.1f}")
    print("\n".join(lines))


def _describe(result: dict[str, Any]) -> str:
    shapes = ", ".join(f"{name} {size[0]} x {size[1]}" for name, size in result["batch"].items())
    text = f"{result['weights'] / 1e6:.1f} M weights; {shapes}; {result['seconds']:.0f} s: "
    if "total" not in result:
        return text + (
            f"DOES NOT FIT: wants {result['wanted'] / _GIB:.2f} of "
            f"{result['available'] / _GIB:.2f} GiB"
        )
    text += (
        f"arguments {result['arguments'] / _GIB:.2f} GiB, temporaries "
        f"{result['temporaries'] / _GIB:.2f} GiB, total {result['total'] / _GIB:.2f} GiB, "
        f"{result['flops'] / 1e12:.2f} TFLOP, {result['bytes_accessed'] / 1e9:.1f} GB accessed"
    )
    if "floor" in result:
        share = result["flops"] / result["floor"] / H100_PEAK
        text += (
            f", {result['kernels']} kernels, floor {1e3 * result['floor']:.1f} ms, at most "
            f"{share:.0%} of the peak"
        )
    return text


if __name__ == "__main__":
    define_flags()
    cli.run(main)
