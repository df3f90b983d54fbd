"""Training speed, ours and PyTorch's: `python -m benchmarks.train_step`.

Steps of CMLM, MLM and contrastive learning (dropout alone) on real sentences, at three sizes of
encoder, on two threads, against the strongest PyTorch reference: Hugging Face's BERT with `sdpa`
attention on our own batches, its head at masked positions only, fused AdamW, and the fastest of
eager execution and `torch.compile` with and without dynamic shapes, see `train_step_torch`.

Our side is the faster of TensorFlow's kernels and of XLA, as `--ours` names them. Each side is a
process of its own that traces and compiles first. Then they are measured in turn, round by round; a
variant that was not its library's fastest in the first round is ended. A ratio is the median over
the rounds. Run it with the python of `.venv-bench` (`make bench-env`).
"""

import json
import statistics
import tempfile
from pathlib import Path

from absl import flags

from benchmarks import shared
from benchmarks.train_step_examples import (
    SEQ_LENGTH,
    SEQUENCES,
    bucketed,
    evenly,
    write_batches,
)
from official_cmlm import cli

FLAGS = flags.FLAGS
# Tokens. Steps of 8 keep padding at a tenth.
_BUCKETS = ["16", "24", "32", "40", "48", "64", "80", "96", "128", "192", "256"]


def define_flags() -> None:
    """Defines the sizes, the objectives and the variants of both libraries."""
    shared.define_text_flags()
    flags.DEFINE_list("sizes", ["2x128", "4x256", "6x384"], "Layers x width of the encoders.")
    flags.DEFINE_list("objectives", list(SEQUENCES), "Objectives to train by.")
    flags.DEFINE_list("bucket_boundaries", _BUCKETS, "Lengths that batches are padded to.")
    flags.DEFINE_list("ours", ["kernels", "xla"], "Variants of ours: kernels, xla.")
    flags.DEFINE_list(
        "pytorch",
        ["eager", "dynamic", "static"],
        "Variants of the reference; none without PyTorch.",
    )
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("steps", 12, "Batches of a round; 0: of all examples.", lower_bound=0)
    flags.DEFINE_integer("examples", 2048, "Examples of each objective.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 8, "Examples of 256 tokens a step.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Compares each objective at each size."""
    del argv
    with tempfile.TemporaryDirectory() as folder:
        _write_examples(Path(folder))
        for size in FLAGS.sizes:
            for objective in FLAGS.objectives:
                _compare(objective, size, Path(folder, f"{objective}.json"))


def _write_examples(folder: Path) -> None:
    """Writes one file an objective, of whole batches: both libraries then train on all of it."""
    text = shared.sample_of(shared.text_files(folder))
    shared.run_module(
        *("benchmarks.train_step_examples", f"--text={','.join(text)}", f"--output={folder}"),
        f"--vocab_file={shared.vocabulary_file(folder, text)}",
        *(f"--objectives={','.join(FLAGS.objectives)}", f"--examples={FLAGS.examples}"),
    )
    lengths = [int(length) for length in FLAGS.bucket_boundaries]
    buckets = [(length, FLAGS.batch_size * SEQ_LENGTH // length) for length in lengths]
    for objective in FLAGS.objectives:
        file = folder / f"{objective}.json"
        source = json.loads(file.read_text())
        batches = bucketed(source["examples"], buckets)
        write_batches(file, source, evenly(batches, FLAGS.steps))


def _compare(objective: str, size: str, file: Path) -> None:
    """Measures all sides of one objective and size, and prints the ratios."""
    name = f"{objective}_{size}"
    common = [f"--examples_file={file}", f"--objective={objective}", f"--size={size}"]
    ours, pytorch = (
        {f"{library}_{v}": [f"benchmarks.{module}", *common, f"--variant={v}"] for v in variants}
        for library, module, variants in (
            ("ours", "train_step_side", FLAGS.ours),
            ("pytorch", "train_step_torch", FLAGS.pytorch),
        )
    )
    figures = _measured(name, objective, [library for library in (ours, pytorch) if library])
    best = _fastest(figures, ours)
    print(f"{name}: ours is {best}")
    speed = statistics.median(found["per_second"] for found in figures[best])
    print(f"figure train_step_{name}_per_second {speed:.1f}", flush=True)
    if not pytorch:
        return
    reference = _fastest(figures, pytorch)
    print(f"{name}: the reference is {reference}")
    pairs = list(zip(figures[best], figures[reference]))
    for metric, suffix in (("per_second", ""), ("per_core_second", "_a_core_second")):
        ratio = statistics.median(a[metric] / b[metric] for a, b in pairs)
        print(f"ratio train_step_{name}_vs_pytorch{suffix} {ratio:.2f}", flush=True)


def _measured(
    name: str, objective: str, libraries: list[dict[str, list[str]]]
) -> dict[str, list[dict]]:
    """Returns the rounds of each side; slower variants of a library have one round.

    Args:
      name: name of the case.
      objective: the objective of the case.
      libraries: variant -> command, of each library.
    """
    figures: dict[str, list[dict]] = {}
    commands = {side: command for library in libraries for side, command in library.items()}
    with shared.answering(*commands.values()) as started:
        sides = dict(zip(commands, started))
        for number in range(1, FLAGS.rounds + 1):
            for side, process in sides.items():
                figures.setdefault(side, []).append(json.loads(process.ask()))
                line = _line(figures[side][-1], objective)
                print(f"round {number}, {name}, {side}: {line}", flush=True)
            if number == 1:
                for library in libraries:
                    for side in library:
                        if side != _fastest(figures, library):
                            sides.pop(side).end()
    return figures


def _fastest(figures: dict[str, list[dict]], sides: dict[str, list[str]]) -> str:
    """Returns the variant that was fastest in the first round."""
    return max(sides, key=lambda side: figures[side][0]["per_second"])


def _line(found: dict, objective: str) -> str:
    unit = "segments" if objective == "mlm" else "pairs"
    return (
        f"{found['per_second']:.1f} {unit}/s, {found['tokens_per_second']:.0f} tokens/s, "
        f"{found['per_core_second']:.1f} {unit} a core second, {found['peak_mib']:.0f} MiB, "
        f"{found['step_mib']:.0f} MiB of it by steps"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
