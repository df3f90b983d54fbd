"""What published trainings need of a TPU, without one: `python -m benchmarks.accelerators`.

The whole training step of each experiment (forward and backward pass, clipping, optimizer, metrics)
at one accelerator's share of the published batch goes to the TPU's own compiler, which libtpu
brings; nothing is run. The compiler's account of memory, operations and bytes is printed. Lowering
and compiling are processes of their own. What --work_dir holds for the same flags is not computed
again: use a new folder after a change of the code or of an experiment.
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
from benchmarks.accelerators.tables import needed, tables
from benchmarks.processes import run_module
from official_cmlm import cli
from official_cmlm.files import atomic_write_text

FLAGS = flags.FLAGS
_MODULE = "benchmarks.accelerators"
_GIB = 2**30
_REMEDIES = ("remat", "vocabulary_block_size", "dtype")


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_list("experiments", list(CASES), "Experiments to compile, in this order.")
    flags.DEFINE_string("topology", "v5e:2x2", "TPU, as libtpu calls it; its first core counts.")
    flags.DEFINE_enum(
        "scale", "published", ["published", "tiny"], "Published sizes, or 1 layer x 32 for a test."
    )
    flags.DEFINE_integer(
        "batch", 0, "Examples of a core. Default: the published batch over its accelerators.",
        lower_bound=0,
    )  # fmt: skip
    flags.DEFINE_string(
        "remat", None, "task.encoder.remat. Default: what `cases.CASES` says for the experiment."
    )
    flags.DEFINE_integer(
        "vocabulary_block_size", None, "Of objectives that mask; 0: all. Default: as remat.",
        lower_bound=0,
    )  # fmt: skip
    flags.DEFINE_enum(
        "dtype", "bfloat16", ["float32", "bfloat16"], "runtime.mixed_precision_dtype."
    )
    flags.DEFINE_string("params_override", "", "Further fields, as of experiments.train.")
    flags.DEFINE_list("compiler_options", [], "Options of XLA, name=value.")
    flags.DEFINE_string(
        "work_dir", "", "Folder that keeps lowered steps and results. Default: nothing is kept."
    )
    flags.DEFINE_bool(
        "table",
        False,
        "Print Markdown instead: what --work_dir holds, and the cost model's memory.",
    )
    flags.DEFINE_bool("only_lower", False, "Lower the steps into --work_dir, compile none.")
    flags.DEFINE_string("lower", "", "Lower this one experiment, and write --step.")
    flags.DEFINE_bool("compile", False, "Compile --step.")
    flags.DEFINE_string("step", "", "File of a lowered step.")


def main(argv: list[str]) -> None:
    """Runs the benchmark, or one half of it for one experiment."""
    del argv
    os.environ.update(ENVIRONMENT)
    if FLAGS.lower:
        print(json.dumps(_lowered()))
    elif FLAGS.compile:
        options = dict(option.split("=", 1) for option in FLAGS.compiler_options)
        print(json.dumps(compile_step(Path(FLAGS.step), FLAGS.topology, options)))
    elif FLAGS.table:
        results = sorted(Path(FLAGS.work_dir or ".").glob("*-????????.json"))
        print(tables([json.loads(path.read_text(encoding="utf-8")) for path in results]))
    elif FLAGS.work_dir:
        _compile_all(Path(FLAGS.work_dir))
    else:
        with tempfile.TemporaryDirectory() as folder:
            _compile_all(Path(folder))


def _lowered() -> dict[str, Any]:
    cli.quiet_tensorflow()
    from benchmarks.accelerators.lowering import write_step

    return write_step(
        case_of(FLAGS.lower),
        Path(FLAGS.step),
        FLAGS.scale == "tiny",
        FLAGS.batch,
        {name: FLAGS[name].value for name in _REMEDIES if FLAGS[name].value is not None},
        FLAGS.params_override,
    )


def _compile_all(folder: Path) -> None:
    cases = [case_of(experiment) for experiment in FLAGS.experiments]
    if not FLAGS.only_lower:
        # What is missing is said before the long work.
        topology_device(FLAGS.topology)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for case in cases:
        lowering, compiling = _lowering_flags(case), _given("topology", "compiler_options")
        step, lowered = _lower(case, folder, lowering)
        if FLAGS.only_lower:
            continue
        output = folder / f"{case.name}-{_digest([*lowering, *compiling])}.json"
        if not output.exists():
            found = run_module(_MODULE, "--compile", f"--step={step}", *compiling)
            result = {"settings": " ".join([case.experiment, *lowering, *compiling]), **lowered}
            atomic_write_text(output, json.dumps({**result, **json.loads(found)}, indent=1) + "\n")
        result = json.loads(output.read_text(encoding="utf-8"))
        print(f"{result['settings']}\n  {_described(result)}", flush=True)
        chip, gib = FLAGS.topology.partition(":")[0], needed(result) / _GIB
        lines.append(f"figure {chip}_gib_{case.name} {gib:.2f}")
    print("\n".join(lines))


def _lower(case: Case, folder: Path, settings: list[str]) -> tuple[Path, dict[str, Any]]:
    """The file of a lowered step, and what `lowering.write_step` says about it."""
    step = folder / f"{case.name}-{_digest(settings)}.step"
    about = step.with_suffix(".lowered.json")
    if not about.exists():
        # A process of its own: the weights are gone from memory before the compiler needs it.
        found = run_module(_MODULE, f"--lower={case.experiment}", f"--step={step}", *settings)
        atomic_write_text(about, found + "\n")
    return step, json.loads(about.read_text(encoding="utf-8"))


def _lowering_flags(case: Case) -> list[str]:
    """What a step is lowered with: the flags, and the case's remedies where none are given."""
    given = {name: FLAGS[name].value for name in _REMEDIES if FLAGS[name].value is not None}
    chosen = {**case.remedies, **given}
    remedies = [f"--{name}={chosen[name]}" for name in _REMEDIES if name in chosen]
    return [*_given("scale", "batch"), *remedies, *_given("params_override")]


def _given(*names: str) -> list[str]:
    """Flags that differ from their defaults, as on the command line."""
    return [FLAGS[name].serialize() for name in names if FLAGS[name].value != FLAGS[name].default]


def _digest(settings: list[str]) -> str:
    return hashlib.sha256(" ".join(settings).encode()).hexdigest()[:8]


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
