"""SentEval's transfer tasks: classifiers on frozen embeddings (Conneau and Kiela 2018)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
from scipy import stats
from sklearn.metrics import f1_score

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data import senteval as senteval_data
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.senteval import Examples, Parts, Task
from official_cmlm.evaluation.data.sts import read_subsets
from official_cmlm.evaluation.encoding import Encode, prepare
from official_cmlm.evaluation.metrics import cross_validation
from official_cmlm.evaluation.metrics.cross_validation import (
    LogisticRegressionSolver,
    MiniBatchSolver,
)
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig
from official_cmlm.evaluation.metrics.senteval_relatedness import predict_relatedness
from official_cmlm.evaluation.metrics.similarity import subset_correlations
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.limits import OneOf, at_least, check_fields

# Name -> (folds, training). `literature` is what the toolkit's README asks for in publications,
# `fast` its configuration for prototyping, `hub` that of the colab of the published CMLM modules.
CONFIGURATIONS = {
    "literature": (10, ClassifierConfig()),
    "hub": (10, ClassifierConfig(batch_size=16, epoch_size=6)),
    "fast": (5, ClassifierConfig("rmsprop", batch_size=128, tenacity=3, epoch_size=2)),
}
# CMLM's Table 1 averages these; SST is SST2, SICK-R the supervised Pearson correlation.
CMLM_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E", "SICK-R")
# The tasks of DeCLUTR's appendix C.2, without caption retrieval, which needs image embeddings.
DECLUTR_TASKS = (*CMLM_TASKS, "SST5", "STS-B")
_FOLDED = "inner_kfold"
DECLUTR_STS = ("STS12", "STS13", "STS14", "STS15", "STS16")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the suite.

    Attributes:
      configuration: folds and training: `fast` (default), `literature` or `hub`; see
        CONFIGURATIONS.
      solver: `mini_batch` (default), the toolkit's PyTorch classifier, or `logistic_regression`,
        which the toolkit uses without PyTorch.
      seeds: number of trainings to average, with seeds 1111, 1112, … (the toolkit's is 1111).
        Default 1; CMLM's paper averages 5.
      tasks: names of tasks. Default: all twelve.
    """

    configuration: Annotated[str, OneOf(tuple(CONFIGURATIONS))] = "fast"
    solver: Annotated[str, OneOf(("mini_batch", "logistic_regression"))] = "mini_batch"
    seeds: Annotated[int, at_least(1)] = 1
    tasks: Annotated[list, OneOf(tuple(senteval_data.TASKS))] = dataclasses.field(
        default_factory=lambda: list(senteval_data.TASKS)
    )

    def __post_init__(self) -> None:
        check_fields(self, "")
        if not self.tasks:
            raise ValueError("tasks must name at least one")


class PairFeatures:
    """Features |u - v| and u∗v of sentence pairs, for SNLI also u and v, computed on access.

    So SNLI's half a million pairs take no more memory than their embeddings.
    """

    def __init__(self, first: np.ndarray, second: np.ndarray, with_both: bool = False) -> None:
        self._first, self._second, self._with_both = first, second, with_both

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        u, v = self._first[index], self._second[index]
        if self._with_both:
            return np.concatenate([u, v, u * v, np.abs(u - v)], axis=1)
        return np.concatenate([np.abs(u - v), u * v], axis=1)


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores SentEval's tasks and the papers' averages; see the package for the arguments."""
    report.seeds = list(range(1111, 1111 + options.seeds))
    root = data.folder(
        *("senteval/downstream", "downstream", "."),
        hint=senteval_data.HINT,
        holding=senteval_data.FOLDERS,
    )
    score_tasks(encode, data, root, options, report)
    _averages(encode, data, root, options, report)


def score_tasks(
    encode: Encode,
    data: DataFolder,
    root: Path,
    options: Options,
    report: SuiteReport,
    prefix: str = "",
) -> None:
    """Scores the tasks of a downstream folder; `prefix` is put before their names in the report."""
    for title in report.remaining(f"{prefix}{name}" for name in options.tasks):
        name = title.removeprefix(prefix)
        task = senteval_data.TASKS[name]
        with report.task(title):
            parts = task.read(data, root, report.notes)
            steps = CONFIGURATIONS[options.configuration][0] if task.protocol == _FOLDED else 1
            done = report.progress(f"{prefix}{name}", steps * options.seeds)
            sides = ((part.first, part.second) for part in parts.values())
            prepare(encode, *(texts for both in sides for texts in both))
            rows = {part: _features(encode, task, examples) for part, examples in parts.items()}
            found: dict[str, list[float]] = {}
            for seed in range(1111, 1111 + options.seeds):
                for metric, value in _score(task, parts, rows, options, seed, done).items():
                    found.setdefault(metric, []).append(100 * value)
                done(0 if task.protocol == _FOLDED else 1)
            count = len(parts.get("test", parts["train"]).labels)
            for metric, values in found.items():
                report.add(f"{prefix}{name}", metric, values, count)


def _features(encode: Encode, task: Task, examples: Examples) -> np.ndarray | PairFeatures:
    first = encode(examples.first)
    if not examples.second:
        return first
    pairs = PairFeatures(first, encode(examples.second), with_both=task.name == "SNLI")
    return pairs if task.name == "SNLI" else pairs[np.arange(len(pairs))]


def _score(
    task: Task,
    parts: Parts,
    rows: dict,
    options: Options,
    seed: int,
    tick: Callable[[int], None],
) -> dict[str, float]:
    """Metrics of one seed, 0 to 1."""
    folds, config = CONFIGURATIONS[options.configuration]
    mini_batch = options.solver == "mini_batch"
    solver = MiniBatchSolver(config) if mini_batch else LogisticRegressionSolver()
    pairs = {part: (rows[part], parts[part].labels) for part in parts}
    if task.protocol == _FOLDED:
        _check_folds(parts["train"].labels, folds)
        accuracy = cross_validation.inner_kfold(
            *pairs["train"], task.num_classes, solver, folds, seed, tick
        )
        return {"accuracy": accuracy}
    labels = parts["test"].labels
    if task.protocol == "relatedness":
        predicted = predict_relatedness(pairs["train"], pairs["dev"], rows["test"], seed)
        return {
            "pearson": float(np.nan_to_num(stats.pearsonr(predicted, labels).statistic)),
            "spearman": float(np.nan_to_num(stats.spearmanr(predicted, labels).statistic)),
        }
    if task.protocol == "kfold":
        _check_folds(parts["train"].labels, folds)
        predicted = cross_validation.kfold(
            pairs["train"], rows["test"], task.num_classes, solver, folds, seed
        )
    else:
        # The toolkit trains SNLI without weight decay.
        strengths = [1e-9 if mini_batch else 1e9] if task.name == "SNLI" else None
        predicted = cross_validation.train_dev_test(
            pairs["train"], pairs["dev"], rows["test"], task.num_classes, solver, seed, strengths
        )
    scores = {"accuracy": float(np.mean(predicted == labels))}
    if task.name == "MRPC":
        scores["f1"] = float(f1_score(labels, predicted))
    return scores


def _check_folds(labels: np.ndarray, folds: int) -> None:
    counts = np.bincount(labels.astype(int))
    # Nested cross-validation splits each training fold again.
    if counts[counts > 0].min() < 2 * folds or (counts > 0).sum() < 2:
        raise UserError(
            f"{folds} folds need two classes of at least {2 * folds} examples, got "
            f"{counts.tolist()}"
        )


def _averages(
    encode: Encode, data: DataFolder, root: Path, options: Options, report: SuiteReport
) -> None:
    """Adds CMLM's nine-task average and DeCLUTR's, each if all of its tasks were scored."""
    single = {
        name: report.get(name, "pearson" if name == "SICK-R" else "accuracy") for name in CMLM_TASKS
    }
    _average(report, "cmlm", single)
    if not set(DECLUTR_TASKS) <= set(options.tasks):
        return
    declutr = {name: report.get(name, "accuracy") for name in DECLUTR_TASKS}
    declutr |= {name: report.get(name, "spearman") for name in ("SICK-R", "STS-B")}
    if declutr["MRPC"] is not None:
        declutr["MRPC"] = (declutr["MRPC"] + report.get("MRPC", "f1")) / 2
    for year in DECLUTR_STS:
        declutr[year] = None
        folder = root / "STS" / f"{year}-en-test"
        if folder.is_dir():
            subsets = read_subsets(data, folder)
            correlations = subset_correlations(encode, subsets)
            declutr[year] = correlations["spearman_mean"]
    _average(report, "declutr_without_coco", declutr)


def _average(report: SuiteReport, metric: str, values: dict[str, float | None]) -> None:
    missing = [name for name, value in values.items() if value is None]
    if missing:
        report.notes.append(f"average {metric}: not computed without {', '.join(missing)}")
    else:
        report.add("average", metric, float(np.mean(list(values.values()))), len(values))
