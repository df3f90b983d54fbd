"""Measures the way from real text to training: `python -m benchmarks.real_text`.

Two figures that every user meets: how fast `data_prep.create_documents` turns text into records
and what memory it needs, and what length buckets with logits at truly masked positions save in
training against padding everything to 256 tokens with 80 predictions, as the paper's setting
reads. Without --text it measures on the folder text/en below CMLM_DATA_DIR, else on the docstrings
of the installed packages.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from official_cmlm import cli

FLAGS = flags.FLAGS
# The same 2 × 128 encoder, records and tokens a step on both sides; only the padding differs.
_COMMON = (
    "task.objectives.quick_thought=null,task.objectives.cmlm.num_projections=15,"
    "task.encoder.max_position_embeddings=271,task.train_data.seq_length=256,"
    "task.train_data.global_batch_size={batch},task.train_data.max_bucket_batch_size=0,"
    "task.train_data.input_path={records}"
)
_SIDES = {
    "buckets": ",task.train_data.bucket_boundaries=[16,24,32,48,64,96,128,256]",
    "padded to 256": ",task.train_data.bucket_boundaries=[256]",
}


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Text to read, a folder or pattern. Default: see above.")
    flags.DEFINE_string(
        "vocab_file", "", "Uncased WordPiece vocabulary. Default: 8,000 entries learned here."
    )
    flags.DEFINE_integer("rounds", 3, "Alternating rounds of the training comparison.")
    flags.DEFINE_integer("batch_size", 32, "Pairs a step at 256 tokens.")
    flags.DEFINE_string("output", "", "Markdown file for the table. Default: print only.")


def source_text() -> tuple[str, list[str]]:
    """The text to measure on and the reader flags for it."""
    if FLAGS.text:
        return FLAGS.text, ["--documents_by=file"]
    books = Path(os.environ.get("CMLM_DATA_DIR", "")) / "text" / "en"
    if os.environ.get("CMLM_DATA_DIR") and books.is_dir():
        return str(books), ["--documents_by=file"]
    docstrings = Path("build/docstrings.jsonl")
    if not docstrings.exists():
        run_module("data_prep.docstrings", f"--output={docstrings}")
    return str(docstrings), []


class Side:
    """One way of batching: its model, its pipeline, its compiled step."""

    def __init__(self, experiment: str, overrides: str) -> None:
        import tensorflow as tf

        from experiments import registry
        from official_cmlm.training.task import SentenceEncoderTask

        params = registry.load(experiment, params_override=overrides)
        task = SentenceEncoderTask(params.task)
        model = task.build_model()
        optimizer = task.create_optimizer(params.trainer.optimization())
        dataset = task.build_inputs(params.task.train_data)
        self._iterator = iter(dataset)
        self._step = tf.function(
            lambda batch: task.train_step(batch, model, optimizer)["loss"],
            input_signature=[dataset.element_spec],
        )

    def examples_per_second(self, seconds: float) -> float:
        """Trains for about so many seconds, after one step that is not counted."""
        float(self._step(next(self._iterator)))
        examples, started = 0, time.monotonic()
        while time.monotonic() - started < seconds:
            batch = next(self._iterator)
            float(self._step(batch))
            examples += sum(int(features["key"].shape[0]) for features in batch.values())
        return examples / (time.monotonic() - started)


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    text, reader = source_text()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        vocab_file = FLAGS.vocab_file
        if not vocab_file:
            vocab_file = f"{folder}/vocab.txt"
            run_module(
                "data_prep.build_vocab",
                *(f"--input={text}", f"--output={vocab_file}", "--vocab_size=8000"),
                *("--max_input_mb=20", *reader),
            )
        records = f"{folder}/records"
        print("create_documents …", flush=True)
        summary = run_module(
            "data_prep.create_documents",
            *(f"--input={text}", f"--vocab_file={vocab_file}", "--lower_case=true"),
            *(f"--output_dir={records}", *reader),
        )
        lines.append(summary.replace(records, "create_documents"))
        print(lines[-1], flush=True)
        cli.quiet_tensorflow()
        common = _COMMON.format(batch=FLAGS.batch_size, records=records)
        sides = {name: Side("demo", common + overrides) for name, overrides in _SIDES.items()}
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(FLAGS.rounds + 1):
            for name, side in sides.items():
                speed = side.examples_per_second(20.0)
                # The first round compiles and meets each bucket for the first time.
                if number:
                    speeds[name].append(speed)
                print(f"round {number}, {name}: {speed:.1f} pairs/s", flush=True)
        for name, values in speeds.items():
            lines.append(f"training, {name}: {statistics.median(values):.1f} pairs/s (median)")
        ratios = [a / b for a, b in zip(speeds["buckets"], speeds["padded to 256"])]
        lines.append(f"ratio train_pairs_buckets_vs_256 {statistics.median(ratios):.2f}")
    print("\n".join(lines))
    if FLAGS.output:
        Path(FLAGS.output).write_text("".join(f"- {line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
