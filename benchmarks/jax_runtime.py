"""Training on JAX's runtime: tokens a second, share of the device's peak, time waited for input.

`python -m benchmarks.jax_runtime --work_dir=build/jax_runtime` trains CMLM on real text
with `runtime.distribution_strategy: pjrt` and, in turn, with TensorFlow's own XLA (`one_device`,
`enable_xla`), each run a process of `experiments.train` with its whole input pipeline. All batches
have one length, so that the operations of a step are known from the cost model.

The peak is the best rate of a large matrix product on the same device through the same runtime.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.processes import run_module
from benchmarks.real_sentences import text_files
from benchmarks.scaling.cost_model import BatchShape, ModelShape, cmlm_work
from official_cmlm import cli

FLAGS = flags.FLAGS
_PROJECTIONS = 15
# Rows and columns of the matrices whose product is the peak, and products of one step.
_PEAK_SIZE, _PEAK_PRODUCTS = 2048, 8
_STRATEGIES = {
    "pjrt": {"distribution_strategy": "pjrt"},
    "tensorflow_xla": {"distribution_strategy": "one_device", "enable_xla": True},
}


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("work_dir", None, "Folder for records and trainings. Required.")
    flags.DEFINE_string("text", "", "Text files. Default: as CMLM_DATA_DIR, else docstrings.")
    flags.DEFINE_list("sizes", ["4x256", "12x768"], "Encoders: layers x hidden.")
    flags.DEFINE_list("pairs", ["32", "4"], "Pairs a step, one number a size.")
    flags.DEFINE_list("steps", ["40", "12"], "Steps of a run, one number a size.")
    flags.DEFINE_integer("length", 128, "Tokens of each sequence, padding included.")
    flags.DEFINE_integer("rounds", 3, "Runs of each strategy and size.", lower_bound=1)
    flags.DEFINE_integer("vocab_size", 30522, "Entries of the vocabulary.")
    flags.DEFINE_string("dtype", "float32", "runtime.mixed_precision_dtype, e.g. bfloat16.")
    flags.DEFINE_list("strategies", list(_STRATEGIES), "Which to run, in turn.")
    cli.required("work_dir")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    work = Path(FLAGS.work_dir)
    records = _records(work)
    sizes = zip(FLAGS.sizes, map(int, FLAGS.pairs), map(int, FLAGS.steps))
    found: dict[tuple[str, str], list[dict]] = {}
    for size, pairs, steps in sizes:
        for number in range(FLAGS.rounds):
            for strategy in FLAGS.strategies:
                folder = work / f"{size}.{strategy}.{number}.{time.time_ns()}"
                values = _overrides(size, pairs, steps, records, strategy)
                run_module(
                    *("experiments.train", "--experiment=cmlm/english_base", "--mode=train"),
                    *(f"--model_dir={folder}", f"--params_override={json.dumps(values)}"),
                )
                summary = json.loads((folder / "train_summary.json").read_text())
                flops = _work(size, pairs) * summary["steps_per_second"]
                found.setdefault((size, strategy), []).append(summary | {"flops": flops})
                print(f"{size} {strategy}: {summary['tokens_per_second']:.0f} tokens/s", flush=True)
    _report(found, _peak())


def _records(work: Path) -> Path:
    files = ",".join(text_files(FLAGS.text)[:20])
    vocabulary, records = work / "vocab.txt", work / "records"
    if not vocabulary.exists():
        run_module(
            *("data_prep.build_vocab", f"--input={files}", f"--output={vocabulary}"),
            f"--vocab_size={FLAGS.vocab_size}",
        )
    if not (records / "dataset.json").exists():
        run_module(
            *("data_prep.create_documents", f"--input={files}", "--documents_by=file"),
            *(f"--vocab_file={vocabulary}", f"--output_dir={records}"),
        )
    return records


def _overrides(size: str, pairs: int, steps: int, records: Path, strategy: str) -> dict[str, Any]:
    layers, hidden = map(int, size.split("x"))
    encoder = {
        "vocab_size": 0,
        "num_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": FLAGS.length + _PROJECTIONS,
    }
    data = {
        "input_path": str(records),
        "seq_length": FLAGS.length,
        "bucket_boundaries": [FLAGS.length],
        "global_batch_size": pairs,
    }
    trainer = {
        "train_steps": steps,
        "steps_per_loop": steps,
        "summary_interval": steps,
        "checkpoint_interval": steps,
    }
    return {
        "task": {"encoder": encoder, "train_data": data},
        "trainer": trainer,
        "runtime": {"mixed_precision_dtype": FLAGS.dtype, **_STRATEGIES[strategy]},
    }


def _work(size: str, pairs: int) -> float:
    """Operations of a step, see `scaling.cost_model`."""
    layers, hidden = map(int, size.split("x"))
    model = ModelShape(layers, hidden, 4 * hidden, hidden // 64, FLAGS.vocab_size)
    # 31.25 % of the tokens are predicted; every slot is computed where shapes are static.
    predictions = pairs * round(0.3125 * FLAGS.length)
    return cmlm_work(model, BatchShape(pairs, FLAGS.length, predictions)).training_flops


def _peak() -> float:
    """Operations a second of matrix products on JAX's device."""
    cli.quiet_tensorflow()
    import tensorflow as tf

    from official_cmlm.training.jax_loop import JaxLoop

    dtype = tf.as_dtype(FLAGS.dtype)
    left = tf.Variable(tf.cast(tf.random.normal([_PEAK_SIZE] * 2), dtype))
    right = tf.Variable(tf.cast(tf.random.normal([_PEAK_SIZE] * 2) / _PEAK_SIZE**0.5, dtype))
    count = tf.Variable(0)

    def step(batch: dict) -> None:
        value = left + tf.cast(batch["group"]["zero"], dtype)
        for _ in range(_PEAK_PRODUCTS):
            value = value @ right
        left.assign(value)
        count.assign_add(1)

    loop = JaxLoop(step, [count], report=lambda line: None)
    batches = iter(lambda: {"group": {"zero": tf.zeros([])}}, None)
    loop.run(batches, 1)
    best = 0.0
    for _ in range(5):
        started = time.perf_counter()
        loop.run(batches, 4)
        seconds = time.perf_counter() - started
        best = max(best, 4 * _PEAK_PRODUCTS * 2 * _PEAK_SIZE**3 / seconds)
    return best


def _report(found: dict[tuple[str, str], list[dict]], peak: float) -> None:
    def median(size: str, strategy: str, name: str) -> float:
        return statistics.median(summary[name] for summary in found[size, strategy])

    print(f"\n{next(iter(found.values()))[0]['devices'][0]}, {FLAGS.dtype}")
    print(f"figure peak_gflops {peak / 1e9:.1f}")
    for size, strategy in found:
        name = f"{strategy}_{size}"
        print(f"figure {name}_tokens_per_second {median(size, strategy, 'tokens_per_second'):.0f}")
        print(f"figure {name}_share_of_peak {median(size, strategy, 'flops') / peak:.3f}")
        print(f"figure {name}_waiting_share {median(size, strategy, 'waiting_share'):.3f}")
    for size in FLAGS.sizes:
        if set(FLAGS.strategies) == set(_STRATEGIES):
            pairs = zip(found[size, "pjrt"], found[size, "tensorflow_xla"])
            ratios = [a["tokens_per_second"] / b["tokens_per_second"] for a, b in pairs]
            print(f"ratio pjrt_vs_tensorflow_xla_{size} {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
