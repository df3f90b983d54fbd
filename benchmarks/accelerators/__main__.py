"""Memory of published trainings on a TPU, without one: `python -m benchmarks.accelerators`.

For each experiment, the whole training step (forward and backward pass, clipping, optimizer,
metrics) at one accelerator's share of the published batch is compiled by the TPU's own compiler,
which is a part of libtpu; nothing is run. The step computes in bfloat16 and with the settings of
`cases.CASES` that save memory. The compiler's account of memory, operations and bytes is printed.
Lowering and compiling run in processes of their own. Results that --work_dir holds for the same
flags are not computed again: use a new folder after a change of the code or of an experiment.
--table prints a model of a step's memory instead: the batches that fit other accelerators.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.accelerators.cases import CASES, Case, case_of
from benchmarks.accelerators.compiling import ENVIRONMENT, compile_step, topology_device
from benchmarks.accelerators.memory import table, training_of
from benchmarks.shared import in_new_process
from official_cmlm import cli
from official_cmlm.common.files import atomic_write_text

FLAGS = flags.FLAGS
_GIB = 2**30


def define_flags() -> None:
    """Defines which steps are compiled, and for which TPU."""
    flags.DEFINE_list("experiments", list(CASES), "Experiments to compile, in this order.")
    flags.DEFINE_string("topology", "v5e:2x2", "TPU, as libtpu calls it; its first core counts.")
    flags.DEFINE_string(
        "params_override",
        "",
        "Further fields, e.g. task.encoder.remat=none; see experiments.train.",
    )
    flags.DEFINE_string("work_dir", "", "Folder that keeps results. Default: nothing is kept.")
    flags.DEFINE_bool("table", False, "Print the batches that fit accelerators, by the model.")


def main(argv: list[str]) -> None:
    """Prints the model's table, or compiles each experiment."""
    del argv
    if FLAGS.table:
        print(table())
        return
    # Processes that this one starts inherit these variables.
    os.environ.update(ENVIRONMENT)
    cases = [case_of(experiment) for experiment in FLAGS.experiments]
    # A missing package is reported before the long work.
    topology_device(FLAGS.topology)
    settings = [
        FLAGS[name].serialize()
        for name in ("params_override", "topology")
        if FLAGS[name].value != FLAGS[name].default
    ]
    digest = hashlib.sha256(" ".join(settings).encode()).hexdigest()[:8]
    lines, chip = [], FLAGS.topology.partition(":")[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.work_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            output, step = folder / f"{case.name}-{digest}.json", Path(temporary) / "step"
            if not output.exists():
                # Lowering runs in a process of its own, so that its weights are freed before the
                # compiler needs the memory.
                figures = in_new_process(_lower, case, step, FLAGS.params_override)
                figures |= in_new_process(compile_step, step, FLAGS.topology)
                figures = {"settings": " ".join([case.experiment, *settings]), **figures}
                atomic_write_text(output, json.dumps(figures, indent=1) + "\n")
            result = json.loads(output.read_text(encoding="utf-8"))
            print(f"{result['settings']}\n  {_describe(result)}", flush=True)
            needed = result["total"] if "total" in result else result["wanted"]
            lines.append(f"figure {chip}_gib_{case.name} {needed / _GIB:.2f}")
            if case.experiment in CASES:
                # All objectives have the same number of pairs.
                examples, _ = next(iter(result["batch"].values()))
                block = result["vocabulary_block_size"]
                modelled = training_of(case.experiment).bytes_of(examples, result["remat"], block)
                lines.append(f"figure modelled_gib_{case.name} {modelled / _GIB:.2f}")
    print("\n".join(lines))


def _lower(case: Case, step: Path, params_override: str) -> dict[str, Any]:
    cli.quiet_tensorflow()
    from benchmarks.accelerators.lowering import write_step

    return write_step(case, step, params_override)


def _describe(result: dict[str, Any]) -> str:
    shapes = ", ".join(f"{name} {size[0]} x {size[1]}" for name, size in result["batch"].items())
    text = f"{result['weights'] / 1e6:.1f} M weights; {shapes}; {result['seconds']:.0f} s: "
    if "total" not in result:
        return text + (
            f"DOES NOT FIT: wants {result['wanted'] / _GIB:.2f} of "
            f"{result['available'] / _GIB:.2f} GiB"
        )
    return text + (
        f"arguments {result['arguments'] / _GIB:.2f} GiB, temporaries "
        f"{result['temporaries'] / _GIB:.2f} GiB, total {result['total'] / _GIB:.2f} GiB, "
        f"{result['flops'] / 1e12:.2f} TFLOP, {result['bytes_accessed'] / 1e9:.1f} GB accessed"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
