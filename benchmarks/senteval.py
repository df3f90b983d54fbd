"""Speed of evaluation by SentEval, and its agreement with the toolkit: `benchmarks.senteval`.

    python -m benchmarks.senteval --data_dir=path/to/data

Scores an imported all-MiniLM-L6-v2 by the fast configuration: once with encoding, then once more
with the embeddings that the first run kept, so that the classifiers' trainings are timed alone.
With SentEval's files it compares the mean over --seeds with the scores that the original toolkit
printed for the same encoder and files (PyTorch on CPU; 5 folds, rmsprop, batch 128, tenacity 3,
epoch size 2). Without them it times one task, whose sentences are taken from the text.
"""

import json
import tempfile
import time
from pathlib import Path

from absl import flags

from benchmarks import shared
from official_cmlm import cli

FLAGS = flags.FLAGS
# Scores that facebookresearch/SentEval printed for all-MiniLM-L6-v2 with one seed, 1111.
TOOLKIT = {
    ("MR", "accuracy"): 76.07,
    ("CR", "accuracy"): 81.96,
    ("SST2", "accuracy"): 81.55,
    ("SST5", "accuracy"): 42.53,
    ("TREC", "accuracy"): 91.0,
    ("MRPC", "accuracy"): 72.29,
    ("MRPC", "f1"): 80.9,
    ("SICK-E", "accuracy"): 83.19,
    ("SICK-R", "pearson"): 86.54,
    ("SICK-R", "spearman"): 79.90,
    ("STS-B", "pearson"): 82.10,
    ("STS-B", "spearman"): 82.45,
}
_FILES = Path("senteval") / "downstream"


def define_flags() -> None:
    """Defines the seeds, and the size of the task without files."""
    shared.define_text_flags()
    shared.define_model_flag()
    flags.DEFINE_integer("seeds", 5, "Trainings to average.", lower_bound=1)
    flags.DEFINE_integer("sentences", 10_662, "Sentences of the task without files.", 100)


def main(argv: list[str]) -> None:
    """Times the evaluation, and compares its scores with the toolkit's."""
    del argv
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), shared.data_dir()
        encoder = shared.encoder_directory(folder)
        is_published = data is not None and (data / _FILES).is_dir()
        tasks = list(dict.fromkeys(task for task, _ in TOOLKIT)) if is_published else ["MR"]
        if not is_published:
            data = _write_task(folder)
        for figure in ("with_encoding", "alone"):
            began = time.monotonic()
            _run(encoder, data, folder, tasks, 1)
            print(f"figure senteval_seconds_{figure} {time.monotonic() - began:.1f}", flush=True)
        if is_published:
            _compare(_run(encoder, data, folder, tasks, FLAGS.seeds))


def _write_task(folder: Path) -> Path:
    """Writes files of MR's form, whose classes are sentences of even and of odd length."""
    sentences = shared.real_sentences(shared.text_files(folder), FLAGS.sentences)
    (folder / _FILES / "MR").mkdir(parents=True)
    for number, kind in enumerate(("pos", "neg")):
        lines = [one for one in sentences if len(one) % 2 == number]
        path = folder / _FILES / "MR" / f"rt-polarity.{kind}"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def _run(
    encoder: str, data: Path, folder: Path, tasks: list[str], seeds: int
) -> dict[tuple[str, str], float]:
    """Returns (task, metric) -> score; embeddings are kept in the folder from run to run."""
    shared.run_module(
        "experiments.evaluate",
        *(f"--encoder={encoder}", f"--data_dir={data}", f"--output_dir={folder}/scores"),
        *("--suites=senteval", f"--set=senteval.tasks={','.join(tasks)}"),
        *("--set=senteval.configuration=fast", f"--set=senteval.seeds={seeds}"),
    )
    results = json.loads((folder / "scores" / "results.json").read_text(encoding="utf-8"))
    scores = results["suites"]["senteval"]["scores"]
    return {(score["task"], score["metric"]): score["value"] for score in scores}


def _compare(ours: dict[tuple[str, str], float]) -> None:
    """Prints our scores beside the toolkit's, and the differences."""
    for key, theirs in TOOLKIT.items():
        print(f"  {key[0]:7s} {key[1]:9s} {ours[key]:6.2f} {theirs:6.2f}")
    differences = [abs(ours[key] - theirs) for key, theirs in TOOLKIT.items()]
    print(f"figure senteval_largest_difference {max(differences):.2f}")
    print(f"figure senteval_mean_difference {sum(differences) / len(differences):.2f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
