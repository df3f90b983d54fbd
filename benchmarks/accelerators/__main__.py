"""What published trainings need of a TPU, without one: `python -m benchmarks.accelerators`.

The whole training step of each experiment (forward and backward pass, clipping, optimizer, metrics)
at one accelerator's share of the published batch goes to the TPU's own compiler, which libtpu
brings; nothing is run. The compiler's account of memory, operations and bytes is printed. Lowering
and compiling are processes of their own. Results are kept in --output; what is there already for
the same settings is not compiled again.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.accelerators.cases import CASES, case_of
from benchmarks.accelerators.compiling import ENVIRONMENT, compile_step
from benchmarks.processes import run_module
from official_cmlm import cli

FLAGS = flags.FLAGS
_GIB = 2**30
# Flags of each half.
_LOWERING = ("scale", "batch", "remat", "vocabulary_block_size", "dtype", "params_override")
_COMPILING = ("topology", "compiler_options")


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
    flags.DEFINE_string("remat", "", "task.encoder.remat. Default: the experiment's.")
    flags.DEFINE_integer(
        "vocabulary_block_size", None, "Of objectives that mask. Default: the experiment's.",
        lower_bound=0,
    )  # fmt: skip
    flags.DEFINE_enum(
        "dtype", "", ["", "float32", "bfloat16"],
        "runtime.mixed_precision_dtype. Default: the experiment's.",
    )  # fmt: skip
    flags.DEFINE_string("params_override", "", "Further fields, as of experiments.train.")
    flags.DEFINE_list("compiler_options", [], "Options of XLA, name=value.")
    flags.DEFINE_string("output", "", "JSON file that keeps results. Default: none are kept.")
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
    else:
        _compile_all()


def _lowered() -> dict[str, Any]:
    cli.quiet_tensorflow()
    from benchmarks.accelerators.lowering import write_step

    remedies = {
        "remat": FLAGS.remat or None,
        "vocabulary_block_size": FLAGS.vocabulary_block_size,
        "dtype": FLAGS.dtype or None,
    }
    return write_step(
        case_of(FLAGS.lower),
        Path(FLAGS.step),
        FLAGS.scale == "tiny",
        FLAGS.batch,
        {name: value for name, value in remedies.items() if value is not None},
        FLAGS.params_override,
    )


def _compile_all() -> None:
    output = Path(FLAGS.output) if FLAGS.output else None
    kept = json.loads(output.read_text(encoding="utf-8")) if output and output.exists() else {}
    lines = []
    for case in map(case_of, FLAGS.experiments):
        key = " ".join([case.experiment, *_flags(*_LOWERING, *_COMPILING)])
        if key not in kept:
            kept[key] = _measured(case.experiment)
            if output:
                output.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        print(f"{key}\n  {_described(kept[key])}", flush=True)
        chip, gib = FLAGS.topology.partition(":")[0], _needed(kept[key]) / _GIB
        lines.append(f"figure {chip}_gib_{case.name} {gib:.2f}")
    print("\n".join(lines))


def _flags(*names: str) -> list[str]:
    """Flags that differ from their defaults, as on the command line."""
    return [FLAGS[name].serialize() for name in names if FLAGS[name].value != FLAGS[name].default]


def _measured(experiment: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        step = f"--step={folder}/step"
        module = "benchmarks.accelerators"
        # The weights are gone from memory before the compiler needs it.
        lowered = json.loads(run_module(module, f"--lower={experiment}", step, *_flags(*_LOWERING)))
        return lowered | json.loads(run_module(module, "--compile", step, *_flags(*_COMPILING)))


def _needed(result: dict[str, Any]) -> float:
    """Bytes that a step needs, whether the TPU has them or not."""
    return result["total"] if "total" in result else result["wanted"]


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
