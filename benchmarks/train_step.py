"""Training speed, ours and PyTorch's: `python -m benchmarks.train_step`.

Steps of CMLM, MLM and contrastive learning (dropout alone) on real sentences, at three sizes of
encoder, on two threads, against the strongest PyTorch reference: Hugging Face's BERT with `sdpa`
attention on our own batches, its head at masked positions only, fused AdamW, and the fastest of
eager execution and `torch.compile` with and without dynamic shapes, see `train_step_torch`. With
`--precision=bfloat16` each library computes by its own mixed precision.

Our side is the faster of TensorFlow's kernels and of XLA, as `--ours` names them. Each side is a
process of its own that traces and compiles first. Then they are measured in turn, round by round; a
variant that was not its library's fastest in the first round is ended. A ratio is the median over
the rounds. Run it with the python of `.venv-bench` (`make bench-env`).
"""

import contextlib
import tempfile
from collections.abc import Callable

from absl import flags

from benchmarks import shared, train_step_side, train_step_torch
from benchmarks.train_step_examples import (
    SEQ_LENGTH,
    SEQUENCES,
    Examples,
    choose_evenly,
    examples_of,
    fill_buckets,
)
from official_cmlm import cli

FLAGS = flags.FLAGS
# The side that this process measures.
_ready: list[Callable[[], dict[str, float]]] = []
# Lengths in tokens. Steps of 8 keep the share of padding at a tenth.
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
    flags.DEFINE_enum("precision", "float32", ["float32", "bfloat16"], "Arithmetic of both.")
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("steps", 12, "Batches of a round; 0: of all examples.", lower_bound=0)
    flags.DEFINE_integer("examples", 2048, "Examples of each objective.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 8, "Examples of 256 tokens a step.", lower_bound=1)


def main() -> None:
    """Compares each objective at each size."""
    examples = _examples()
    for size in FLAGS.sizes:
        for batches in examples:
            _compare(batches, size)


def _examples() -> list[Examples]:
    """Returns whole batches of each objective: both libraries then train on all of them."""
    with tempfile.TemporaryDirectory() as folder:
        text = shared.sample_of(shared.text_files(folder))
        vocabulary = shared.vocabulary_file(folder, text)
        results = shared.in_new_process(
            examples_of, text, vocabulary, folder, FLAGS.objectives, FLAGS.examples
        )
    lengths = [int(length) for length in FLAGS.bucket_boundaries]
    buckets = [(length, FLAGS.batch_size * SEQ_LENGTH // length) for length in lengths]
    return [
        Examples(objective, size, pad, choose_evenly(fill_buckets(examples, buckets), FLAGS.steps))
        for objective, (size, pad, examples) in results.items()
    ]


def _compare(examples: Examples, size: str) -> None:
    """Measures all sides of one objective and size, and prints the ratios."""
    name = f"{examples.objective}_{size}"
    libraries = [
        {f"ours_{variant}": (train_step_side.prepare, variant) for variant in FLAGS.ours},
        {f"pytorch_{variant}": (train_step_torch.prepare, variant) for variant in FLAGS.pytorch},
    ]
    figures = _measure_sides([library for library in libraries if library], examples, size)
    best = _fastest(figures, libraries[0])
    print(f"{name}: ours is {best}")
    print(f"figure train_step_{name}_per_second {shared.median(figures[best], 'per_second'):.1f}")
    if not FLAGS.pytorch:
        return
    reference = _fastest(figures, libraries[1])
    print(f"{name}: the reference is {reference}")
    for metric, suffix in (("per_second", ""), ("per_core_second", "_a_core_second")):
        ratio = f"train_step_{name}_vs_pytorch{suffix}"
        shared.print_ratio(ratio, metric, figures[best], figures[reference])


def _measure_sides(
    libraries: list[dict[str, tuple]], examples: Examples, size: str
) -> shared.Rounds:
    """Returns the rounds of each side; slower variants of a library have one round.

    `libraries` has, of each library, side -> (function that prepares it, variant).
    """
    with contextlib.ExitStack() as stack:
        processes = {
            side: stack.enter_context(shared.new_process())
            for library in libraries
            for side in library
        }
        preparations = [
            processes[side].submit(_prepare, prepare, examples, size, variant, FLAGS.precision)
            for library in libraries
            for side, (prepare, variant) in library.items()
        ]
        for preparation in preparations:
            preparation.result()

        def measure(rounds: range) -> shared.Rounds:
            calls = {
                side: lambda process=process: process.submit(_measure).result()
                for side, process in processes.items()
            }
            return shared.in_turns(rounds, calls, f"{examples.objective}_{size}, ")

        figures = measure(range(1, 2))
        for library in libraries:
            for side in library.keys() - {_fastest(figures, library)}:
                processes.pop(side).shutdown()
        for side, results in measure(range(2, FLAGS.rounds + 1)).items():
            figures[side] += results
    return figures


def _prepare(prepare: Callable[..., Callable[[], dict]], *arguments: object) -> None:
    """Makes a side ready in this process, for `_measure`."""
    _ready.append(prepare(*arguments))


def _measure() -> dict[str, float]:
    """Returns the figures of a round of the side that is ready in this process."""
    return _ready[0]()


def _fastest(figures: shared.Rounds, sides: dict[str, tuple]) -> str:
    """Returns the variant that was fastest in the first round."""
    return max(sides, key=lambda side: figures[side][0]["per_second"])


if __name__ == "__main__":
    define_flags()
    cli.run(main)
