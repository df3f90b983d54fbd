"""Memory of published trainings on a TPU, without one: `python -m benchmarks.accelerators`.

The whole training step of each experiment (forward and backward pass, clipping, optimizer, metrics)
at one accelerator's share of the published batch, with bfloat16 and with what saves memory where
`cases.CASES` says so, goes to the TPU's own compiler, which libtpu brings; nothing is run. The
compiler's account of memory, operations and bytes is printed. Lowering and compiling are processes
of their own. Results that --work_dir holds for the same flags are not computed again: use a new
folder after a change of the code or of an experiment. --table prints a model of a step's memory
instead: the batches that fit other accelerators.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.accelerators.cases import CASES, case_of
from benchmarks.accelerators.compiling import ENVIRONMENT, compile_step, topology_device
from benchmarks.accelerators.memory import table, training_of
from benchmarks.shared import run_module
from official_cmlm import cli
from official_cmlm.files import atomic_write_text

FLAGS = flags.FLAGS
_MODULE = "benchmarks.accelerators"
_GIB = 2**30


def define_flags() -> None:
    """Defines which steps are compiled, and for which TPU."""
    flags.DEFINE_list("experiments", list(CASES), "Experiments to compile, in this order.")
    flags.DEFINE_string("topology", "v5e:2x2", "TPU, as libtpu calls it; its first core counts.")
    flags.DEFINE_enum(
        "scale", "published", ["published", "tiny"], "Published sizes, or 1 layer x 32 for a test."
    )
    flags.DEFINE_string(
        "params_override",
        "",
        "Further fields, e.g. task.encoder.remat=none; see experiments.train.",
    )
    flags.DEFINE_string("work_dir", "", "Folder that keeps results. Default: nothing is kept.")
    flags.DEFINE_bool("table", False, "Print the batches that fit accelerators, by the model.")
    flags.DEFINE_string("lower", "", "The one experiment to lower into --step.")
    flags.DEFINE_bool("compile", False, "Compile --step.")
    flags.DEFINE_string("step", "", "File of a lowered step.")


def main(argv: list[str]) -> None:
    """Runs the benchmark, or one half of it for one experiment."""
    del argv
    os.environ.update(ENVIRONMENT)
    if FLAGS.lower:
        cli.quiet_tensorflow()
        from benchmarks.accelerators.lowering import write_step

        tiny = FLAGS.scale == "tiny"
        found = write_step(case_of(FLAGS.lower), Path(FLAGS.step), tiny, FLAGS.params_override)
        print(json.dumps(found))
    elif FLAGS.compile:
        print(json.dumps(compile_step(Path(FLAGS.step), FLAGS.topology)))
    elif FLAGS.table:
        print(table())
    else:
        _compile_all()


def _compile_all() -> None:
    cases = [case_of(experiment) for experiment in FLAGS.experiments]
    # A missing package is reported before the long work.
    topology_device(FLAGS.topology)
    settings = [
        FLAGS[name].serialize()
        for name in ("scale", "params_override", "topology")
        if FLAGS[name].value != FLAGS[name].default
    ]
    digest = hashlib.sha256(" ".join(settings).encode()).hexdigest()[:8]
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.work_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            output, step = folder / f"{case.name}-{digest}.json", Path(temporary) / "step"
            if not output.exists():
                # A process of its own: the weights leave memory before the compiler needs it.
                lowering = (f"--lower={case.experiment}", f"--step={step}", *settings)
                found = json.loads(run_module(_MODULE, *lowering))
                compiled = run_module(_MODULE, "--compile", f"--step={step}", *settings)
                name = " ".join([case.experiment, *settings])
                found = {"settings": name, **found, **json.loads(compiled)}
                atomic_write_text(output, json.dumps(found, indent=1) + "\n")
            result = json.loads(output.read_text(encoding="utf-8"))
            print(f"{result['settings']}\n  {_described(result)}", flush=True)
            chip, needed = (
                FLAGS.topology.partition(":")[0],
                result.get("total", result.get("wanted")),
            )
            lines.append(f"figure {chip}_gib_{case.name} {needed / _GIB:.2f}")
            if case.experiment in CASES:
                # The pairs of all objectives are as many.
                examples, _ = next(iter(result["batch"].values()))
                block = result["vocabulary_block_size"]
                modelled = training_of(case.experiment).bytes_of(examples, result["remat"], block)
                lines.append(f"figure modelled_gib_{case.name} {modelled / _GIB:.2f}")
    print("\n".join(lines))


def _described(result: dict[str, Any]) -> str:
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
