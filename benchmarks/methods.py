"""Trains every method for minutes; compares a score before and after the training.

    CMLM_DATA_DIR=… python -m benchmarks.methods --work_dir=work/methods

Small encoders (4 layers × 128), each from the experiment file of its paper with sizes, batches,
steps and learning rates for two CPU cores. Every method is scored before and after on data that it
has not seen. A finished training is not repeated.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
SEED = 1
# Objectives whose loss compares no examples of a batch.
_WITHOUT_NEGATIVES = ("mlm", "cmlm", "nli")
# Examples of a validation pass at most.
HELD_OUT = 2000
_ENCODER = {
    "vocab_size": 0,
    "hidden_size": 128,
    "num_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": 79,
    "type_vocab_size": 2,
    "position_offset": 0,
}


@dataclasses.dataclass(frozen=True)
class Method:
    """One training and its score.

    Attributes:
      experiment: its file.
      start: the method whose encoder it starts from, or None.
      data: records of `methods_data`; `{name: records}` gives objectives their own.
      score: `sts`, `translation`, or a validation metric.
      steps: of the training.
      batch_size: examples a step at 64 tokens.
      learning_rate: at its top.
      held_out_batch: examples of a validation batch, among which it retrieves; of documents two
        anchors and their positives each.
      changes: further values of `task`.
    """

    experiment: str
    start: str | None
    data: str | dict[str, str]
    score: str
    steps: int
    batch_size: int = 64
    learning_rate: float = 4.5e-4
    held_out_batch: int = 100
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)


def _objective(name: str, **values: Any) -> dict[str, Any]:
    return {"objectives": {name: values}}


METHODS = {
    "mlm": Method(
        "mlm/english_base", None, "books", "mlm/masked_token_accuracy", 1500, learning_rate=9e-4
    ),
    "cmlm": Method(
        "cmlm/english_base", "mlm", "books", "cmlm/masked_token_accuracy", 800, batch_size=32
    ),
    "quick_thought": Method(
        "quick_thought/english_base", "mlm", "books", "quick_thought/recall_at_1", 1500
    ),
    "declutr": Method(
        "declutr/base",
        "mlm",
        "books",
        "declutr/recall_at_1",
        150,
        batch_size=16,
        held_out_batch=24,
        changes=_objective("declutr", min_span_length=16, max_span_length=64),
    ),
    "simcse": Method("simcse/bert_base", "mlm", "sentences", "sts", 200),
    "cmlm_cse": Method(
        "cmlm_cse/bert_base",
        "mlm",
        "sentences",
        "sts",
        200,
        changes=_objective("cmlm_cse", lexical_layers=3, fusion_layers=1),
    ),
    "mirror_bert": Method(
        "mirror_bert/sentence_bert", "mlm", "sentences", "sts", 100, batch_size=100
    ),
    "mirror_bert_drophead": Method(
        "mirror_bert/sentence_drophead", "mlm", "sentences", "sts", 100, batch_size=100
    ),
    "bitext": Method("bitext/s2", "mlm", "pairs", "translation", 1000),
    "cmlm_bitext": Method(
        "bitext/s3",
        "cmlm",
        {"cmlm": "books", "bitext_retrieval": "pairs"},
        "translation",
        800,
        batch_size=32,
    ),
    "nli": Method("nli/cross_lingual", "bitext", {"nli": "inferences"}, "nli/nli_accuracy", 2000),
}


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("work_dir", "work/methods", "Folder for texts, records and encoders.")
    flags.DEFINE_list("only", [], "Methods to train, with those that they start from. Default: all")
    flags.DEFINE_string("output", "", "Markdown file for the table. Default: print only.")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if unknown := [name for name in FLAGS.only if name not in METHODS]:
        raise UserError(f"--only={unknown[0]}: there are {', '.join(METHODS)}")
    cli.quiet_tensorflow()
    from benchmarks.methods_data import prepare

    work_dir = Path(FLAGS.work_dir)
    folders = prepare(work_dir)
    chosen = set(FLAGS.only or METHODS)
    while more := {METHODS[name].start for name in chosen} - chosen - {None}:
        chosen |= more
    rows = [
        _run(name, method, work_dir, folders) for name, method in METHODS.items() if name in chosen
    ]
    table = "\n".join(
        [
            "| method | experiment | scored by | before | after | steps | seconds |",
            "|---|---|---|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    )
    print(table)
    if FLAGS.output:
        Path(FLAGS.output).write_text(table + "\n", encoding="utf-8")


def _run(name: str, method: Method, work_dir: Path, folders: dict[str, Path]) -> list[str]:
    """Trains a method if that is not done; returns its line of the table."""
    from experiments import chains

    model_dir = work_dir / "models" / name
    start = None if method.start is None else str(work_dir / "models" / method.start)
    overrides = json.dumps(_overrides(method, folders))
    stage = chains.Stage(name, method.experiment)
    score = _scorer(method, work_dir, folders)
    times = model_dir / "seconds.json"
    if not times.exists():
        began = time.monotonic()
        chains.run_experiment(stage, model_dir, start, overrides)
        times.write_text(json.dumps(time.monotonic() - began))
    seconds = json.loads(times.read_text())
    before, after = score(start, overrides), score(str(model_dir), overrides)
    print(f"{name}: {method.score} {before:.1f} -> {after:.1f}", flush=True)
    described = method.score
    if described.endswith("recall_at_1"):
        # Of 2AN vectors, an anchor itself is no candidate.
        spans = 4 if name == "declutr" else 1
        described += f" among {spans * method.held_out_batch - (spans > 1)}"
    return [
        f"`{name}`",
        f"`{method.experiment}`",
        described,
        f"{before:.1f}",
        f"{after:.1f}",
        str(method.steps),
        f"{seconds:.0f}",
    ]


def _overrides(method: Method, folders: dict[str, Path]) -> dict[str, Any]:
    """What makes the paper's experiment a small one."""
    batch = {
        "seq_length": 64,
        "segment": "sentence",
        "global_batch_size": method.batch_size,
        "max_bucket_batch_size": 2 * method.batch_size,
        "seed": SEED,
    }
    held_out = {
        "global_batch_size": method.held_out_batch,
        "max_bucket_batch_size": method.held_out_batch,
        "bucket_boundaries": [64],
        "max_examples": HELD_OUT,
        "drop_remainder": True,
    }

    def data(objective: str, records: str) -> dict[str, Any]:
        # In-batch negatives are of random batches, as in the experiments' files.
        buckets = [16, 32, 64] if objective in _WITHOUT_NEGATIVES else []
        name = f"{records}_held_out"
        unseen = folders[name if name in folders else records]
        return {
            "train_data": {
                **batch,
                "bucket_boundaries": buckets,
                "input_path": str(folders[records]),
            },
            "validation_data": {**batch, **held_out, "input_path": str(unseen)},
        }

    task: dict[str, Any] = {"encoder": _ENCODER, "objectives": {}}
    if isinstance(method.data, dict):
        for objective, records in method.data.items():
            task["objectives"][objective] = data(objective, records)
    else:
        task |= data(method.experiment.partition("/")[0], method.data)
        if method.data == "pairs":
            task["objectives"]["bitext_retrieval"] = {"train_data": None, "validation_data": None}
    if method.start is not None and method.experiment.startswith(("bitext", "cmlm")):
        task["objectives"].setdefault("cmlm", None if "s2" in method.experiment else {})
    for objective, values in method.changes.get("objectives", {}).items():
        task["objectives"].setdefault(objective, {}).update(values)
    return {
        "task": task,
        "trainer": {
            "train_steps": method.steps,
            "steps_per_loop": 100,
            "summary_interval": 100,
            "checkpoint_interval": method.steps,
            "best_checkpoint_export_subdir": "",
            "schedule": {"type": "linear", "peak": method.learning_rate, "warmup_share": 0.1},
            "optimizer_config": {
                "optimizer": {"type": "adamw", "adamw": {"weight_decay_rate": 0.01}}
            },
        },
    }


def _scorer(
    method: Method, work_dir: Path, folders: dict[str, Path]
) -> Callable[[str | None, str], float]:
    """A function from (what to start from, overrides) to the score times 100."""

    def score(start: str | None, overrides: str) -> float:
        import tf_keras

        from experiments import registry
        from official_cmlm.evaluation.data.sts import read_sts_benchmark
        from official_cmlm.evaluation.metrics.nearest import next_sentence_recall
        from official_cmlm.evaluation.metrics.similarity import similarity_spearman
        from official_cmlm.sentence_encoder import SentenceEncoder
        from official_cmlm.training.task import SentenceEncoderTask

        tf_keras.utils.set_random_seed(SEED)
        params = registry.load(method.experiment, [], overrides, start)
        task = SentenceEncoderTask(params.task)
        model = task.build_model()
        task.initialize(model)
        if "/" in method.score:
            return 100 * _validate(task, model, method.score)
        encoder = SentenceEncoder(model.encoder, task.vocabulary, 64)
        if method.score == "sts":
            return similarity_spearman(encoder.encode, read_sts_benchmark(folders["sts"]))
        from benchmarks.methods_data import held_out_pairs

        return 100 * next_sentence_recall(encoder.encode, *held_out_pairs(work_dir))

    return score


def _validate(task: Any, model: Any, metric: str) -> float:
    """A metric over the validation data."""
    import tensorflow as tf

    metrics = task.build_metrics(training=False)
    step = tf.function(lambda batch: task.validation_step(batch, model, metrics))
    for batch in task.build_inputs(task.task_config.validation_data):
        step(batch)
    return float(next(m for m in metrics if m.name == metric).result())


if __name__ == "__main__":
    define_flags()
    cli.run(main)
