"""Cost of a very large contrastive batch in chunks: `python -m benchmarks.gradient_cache`.

Adjacent sentences of real text as in-batch retrieval, on a 2 × 128 encoder: batches of 16,384 pairs
computed in chunks, against the largest batch that is computed at once, each in a process of its
own, in alternating rounds. Without --text it reads text/en below CMLM_DATA_DIR, else the docstrings
of the installed packages.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Text to read, a folder or pattern. Default: see above.")
    flags.DEFINE_integer("batch_size", 16384, "Pairs of the large batch.", lower_bound=2)
    flags.DEFINE_integer("chunk_size", 1024, "Pairs of it at a time.", lower_bound=1)
    flags.DEFINE_integer("direct_size", 1024, "Pairs of the batch at once.", lower_bound=2)
    flags.DEFINE_integer("seq_length", 32, "Tokens of a sentence; longer ones are cut.")
    flags.DEFINE_integer("rounds", 3, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_string("records", "", "Records to measure one side on. Default: both sides.")


def main(argv: list[str]) -> None:
    """Runs the comparison, or one side of it where --records is given."""
    del argv
    if FLAGS.records:
        print(json.dumps(_measure(FLAGS.records, FLAGS.batch_size, FLAGS.chunk_size)))
        return
    from benchmarks.real_sentences import text_files

    with tempfile.TemporaryDirectory() as folder:
        root, text = Path(folder), ",".join(text_files(FLAGS.text)[:60])
        run_module(
            *("data_prep.build_vocab", f"--input={text}", "--vocab_size=8000"),
            f"--output={root / 'vocab.txt'}",
        )
        run_module(
            *("data_prep.create_documents", f"--input={text}", "--documents_by=file"),
            *(f"--vocab_file={root / 'vocab.txt'}", f"--output_dir={root / 'records'}"),
        )
        sides = {"cached": (FLAGS.batch_size, FLAGS.chunk_size), "direct": (FLAGS.direct_size, 0)}
        rounds: dict[str, list[dict]] = {name: [] for name in sides}
        for _ in range(FLAGS.rounds):
            for name, (batch_size, chunk_size) in sides.items():
                found = _side(root / "records", batch_size, chunk_size)
                rounds[name].append(found)
                print(f"{name}: {batch_size} pairs, chunks of {chunk_size or batch_size}: {found}")
    for name, found in rounds.items():
        print(f"figure peak_MiB_{name} {max(f['peak_MiB'] for f in found):.0f}")
        print(f"figure ms_per_pair_{name} {statistics.median(f['ms_per_pair'] for f in found):.3f}")
    ratios = [
        cached["ms_per_pair"] / direct["ms_per_pair"]
        for cached, direct in zip(rounds["cached"], rounds["direct"])
    ]
    print(f"ratio gradient_cache_time_per_pair {statistics.median(ratios):.2f}")


def _side(records: Path, batch_size: int, chunk_size: int) -> dict:
    return json.loads(
        run_module(
            *("benchmarks.gradient_cache", f"--records={records}"),
            *(f"--batch_size={batch_size}", f"--chunk_size={chunk_size or batch_size}"),
            *(f"--direct_size={FLAGS.direct_size}", f"--seq_length={FLAGS.seq_length}"),
        )
    )


def _measure(records: str, batch_size: int, chunk_size: int) -> dict[str, float]:
    """Milliseconds a pair, at best of a few steps, and the process's largest memory."""
    cli.quiet_tensorflow()
    import tensorflow as tf

    from experiments import registry
    from official_cmlm.training.task import SentenceEncoderTask

    chunk_size = 0 if chunk_size == batch_size else chunk_size
    data = {
        "input_path": records,
        "seq_length": FLAGS.seq_length,
        "segment": "sentence",
        "global_batch_size": batch_size,
        "max_bucket_batch_size": batch_size,
        "bucket_boundaries": [FLAGS.seq_length],
    }
    task = {
        "objectives": {"cmlm": None, "quick_thought": {}},
        "chunk_size": chunk_size,
        "train_data": data,
    }
    params = registry.load("demo", params_override=json.dumps({"task": task}))
    trained = SentenceEncoderTask(params.task)
    model = trained.build_model()
    optimizer = trained.create_optimizer(params.trainer.optimization())
    _ = optimizer.iterations
    step = tf.function(lambda batch: trained.train_step(batch, model, optimizer)["loss"])
    batches = iter(trained.build_inputs(params.task.train_data))
    step(next(batches))
    times = []
    # Enough pairs on either side for a steady figure.
    for _ in range(max(2, 16384 // batch_size)):
        batch = next(batches)
        began = time.monotonic()
        step(batch).numpy()
        times.append(1000 * (time.monotonic() - began) / batch_size)
    return {"ms_per_pair": round(statistics.median(times), 4), "peak_MiB": round(peak_mib())}


if __name__ == "__main__":
    define_flags()
    cli.run(main)
