"""SentEval's transfer tasks: classifiers on frozen embeddings (Conneau and Kiela 2018)."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
from scipy import stats
from sklearn.metrics import f1_score

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data import senteval as senteval_data
from official_cmlm.evaluation.data.coco import read_coco
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
from official_cmlm.evaluation.metrics.senteval_ranking import RankingConfig, rank_captions
from official_cmlm.evaluation.metrics.senteval_relatedness import predict_relatedness
from official_cmlm.evaluation.metrics.similarity import subset_correlations
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.validation import OneOf, at_least, check_fields

# Name -> (folds, training). `literature` is what the toolkit's README asks for in publications,
# `fast` its configuration for prototyping, `hub` that of the colab of the published CMLM modules.
CONFIGURATIONS = {
    "literature": (10, ClassifierConfig()),
    "hub": (10, ClassifierConfig(batch_size=16, epoch_size=6)),
    "fast": (5, ClassifierConfig("rmsprop", batch_size=128, tenacity=3, epoch_size=2)),
}
# The toolkit's setting of SNLI, whatever the configuration (`snli.py`).
_SNLI_EPOCHS = {"max_epoch": 15, "epoch_size": 1}
COCO = "COCO"
TASKS = (*senteval_data.TASKS, COCO)
# CMLM's Table 1 averages these; SST is SST2, SICK-R the supervised Pearson correlation.
CMLM_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E", "SICK-R")
# The tasks of DeCLUTR's appendix C.2 that are trained, without SNLI and caption retrieval.
DECLUTR_TASKS = (*CMLM_TASKS, "SST5", "STS-B")
_FOLDED = "inner_kfold"
DEV_METRICS = ("dev_accuracy", "dev_pearson", "dev_mean_recall")
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
      tasks: names of tasks. Default: all but COCO, whose training takes hours on a CPU.
    """

    configuration: Annotated[str, OneOf(tuple(CONFIGURATIONS))] = "fast"
    solver: Annotated[str, OneOf(("mini_batch", "logistic_regression"))] = "mini_batch"
    seeds: Annotated[int, at_least(1)] = 1
    tasks: Annotated[list[str], OneOf(TASKS)] = dataclasses.field(
        default_factory=lambda: list(senteval_data.TASKS)
    )

    def __post_init__(self) -> None:
        check_fields(self, "")
        if not self.tasks:
            raise ValueError("tasks must name at least one")

    @property
    def numbers(self) -> list[int]:
        """The seeds."""
        return list(range(1111, 1111 + self.seeds))

    @property
    def described(self) -> str:
        """Folds, training and seeds, as they stand beside scores."""
        folds = CONFIGURATIONS[self.configuration][0]
        training = training_described(self.configuration)
        if self.solver != "mini_batch":
            training = "logistic regression"
        return f"{self.configuration}: {folds} folds, {training}, {seeds_described(self.seeds)}"


def training_described(configuration: str) -> str:
    """Optimizer and batches of a configuration."""
    config = CONFIGURATIONS[configuration][1]
    return f"{config.optimizer}, batches of {config.batch_size}"


def seeds_described(count: int) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


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
    report.seeds = options.numbers
    report.configuration = options.described
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
        with report.task(title):
            if name == COCO:
                _score_coco(encode, data, root, options, report, title)
            else:
                task = senteval_data.TASKS[name]
                _score_task(encode, data, root, task, options, report, title)


def _score_task(
    encode: Encode,
    data: DataFolder,
    root: Path,
    task: Task,
    options: Options,
    report: SuiteReport,
    title: str,
) -> None:
    parts = task.read(data, root, report.notes)
    sides = ((examples.first, examples.second) for examples in parts.values())
    prepare(encode, *(texts for both in sides for texts in both))
    folds = CONFIGURATIONS[options.configuration][0]
    trainings = {_FOLDED: folds * (folds + 1), "kfold": folds + 1}.get(task.protocol, 1)
    done = report.progress(title, trainings * options.seeds)
    rows = {part: _features(encode, task, examples) for part, examples in parts.items()}
    found: dict[str, list[float]] = {}
    for seed in options.numbers:
        for metric, value in _score(task, parts, rows, options, seed, done).items():
            found.setdefault(metric, []).append(100 * value)
    counts = {
        kind: len(next(parts[part] for part in (kind, "train") if part in parts).labels)
        for kind in ("dev", "test")
    }
    for metric, values in found.items():
        report.add(title, metric, values, counts["dev" if metric in DEV_METRICS else "test"])


def _score_coco(
    encode: Encode,
    data: DataFolder,
    root: Path,
    options: Options,
    report: SuiteReport,
    title: str,
) -> None:
    """Recall of captions by images and of images by captions, and the mean of the six figures."""
    parts = read_coco(data, root)
    prepare(encode, *(found.captions for found in parts.values()))
    rows = {part: (found.images, encode(found.captions)) for part, found in parts.items()}
    config = RankingConfig()
    epochs = config.max_epoch + 1
    done = report.progress(title, epochs * options.seeds)
    scores: dict[str, list[float]] = {}
    for seed in options.numbers:
        trained: list[int] = []
        dev, test = rank_captions(
            *(rows[part] for part in ("train", "dev", "test")),
            seed,
            config,
            lambda count, trained=trained: (trained.append(count), done(count)),
        )
        done(epochs - sum(trained))
        means = {"mean_recall": _mean(test.values()), "dev_mean_recall": _mean(dev.values())}
        for metric, value in (means | test).items():
            scores.setdefault(metric, []).append(100 * value)
    for metric, values in scores.items():
        part = "dev" if metric in DEV_METRICS else "test"
        report.add(title, metric, values, len(parts[part].captions))


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
    if task.name == "SNLI":
        config = dataclasses.replace(config, **_SNLI_EPOCHS)
    mini_batch = options.solver == "mini_batch"
    solver = MiniBatchSolver(config) if mini_batch else LogisticRegressionSolver()
    pairs = {part: (rows[part], parts[part].labels) for part in parts}
    if task.protocol == _FOLDED:
        _check_folds(parts["train"].labels, folds)
        dev, accuracy = cross_validation.inner_kfold(
            *pairs["train"], task.num_classes, solver, folds, seed, tick
        )
        return {"accuracy": accuracy, "dev_accuracy": dev}
    labels = parts["test"].labels
    if task.protocol == "relatedness":
        dev, predicted = predict_relatedness(pairs["train"], pairs["dev"], rows["test"], seed)
        tick(1)
        return {
            "dev_pearson": dev,
            "pearson": float(np.nan_to_num(stats.pearsonr(predicted, labels).statistic)),
            "spearman": float(np.nan_to_num(stats.spearmanr(predicted, labels).statistic)),
        }
    if task.protocol == "kfold":
        _check_folds(parts["train"].labels, folds)
        dev, predicted = cross_validation.kfold(
            pairs["train"], rows["test"], task.num_classes, solver, folds, seed, tick
        )
    else:
        # The toolkit trains SNLI without weight decay.
        strengths = [1e-9 if mini_batch else 1e9] if task.name == "SNLI" else None
        dev, predicted = cross_validation.train_dev_test(
            pairs["train"], pairs["dev"], rows["test"], task.num_classes, solver, seed, strengths
        )
        tick(1)
    scores = {"accuracy": float(np.mean(predicted == labels)), "dev_accuracy": dev}
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


def main_metric(task: str) -> str:
    """The metric that stands for a task where no paper says another: the toolkit's first."""
    if task == COCO:
        return "mean_recall"
    return "pearson" if senteval_data.TASKS[task].protocol == "relatedness" else "accuracy"


def _averages(
    encode: Encode, data: DataFolder, root: Path, options: Options, report: SuiteReport
) -> None:
    """Adds the papers' averages whose tasks were chosen and scored, and that of a choice."""
    chosen = set(options.tasks)
    if set(CMLM_TASKS) <= chosen:
        _average(report, "cmlm", {name: report.get(name, main_metric(name)) for name in CMLM_TASKS})
    if set(DECLUTR_TASKS) <= chosen:
        years = _years(encode, data, root, report)
        test = {name: report.get(name, "accuracy") for name in DECLUTR_TASKS}
        test |= {name: report.get(name, "spearman") for name in ("SICK-R", "STS-B")}
        if test["MRPC"] is not None:
            test["MRPC"] = (test["MRPC"] + report.get("MRPC", "f1")) / 2
        # The paper's code takes these for development sets; years have none, so they stay.
        dev = {name: report.get(name, "dev_accuracy") for name in DECLUTR_TASKS}
        dev |= {name: report.get(name, "dev_pearson") for name in ("SICK-R", "STS-B")}
        _average(report, "declutr_without_coco", test | years)
        _average(report, "declutr_dev_without_coco", dev | years)
        if COCO in chosen:
            test[COCO] = report.get(COCO, "mean_recall")
            dev[COCO] = report.get(COCO, "dev_mean_recall")
            _average(report, "declutr", test | years)
            _average(report, "declutr_dev", dev | years)
            if "SNLI" in chosen:
                dev["SNLI"] = report.get("SNLI", "dev_accuracy")
                _average(report, "declutr_dev_with_snli", dev | years)
    if chosen not in (set(senteval_data.TASKS), set(TASKS)) and len(chosen) > 1:
        metrics = {name: main_metric(name) for name in options.tasks}
        values = {name: report.get(name, metric) for name, metric in metrics.items()}
        if _average(report, "main_metrics", values, "average_of_chosen"):
            listed = ", ".join(f"{name} ({metric})" for name, metric in metrics.items())
            report.notes.append(f"average_of_chosen: the mean of {listed}; no paper's average")


def _years(
    encode: Encode, data: DataFolder, root: Path, report: SuiteReport
) -> dict[str, float | None]:
    """DeCLUTR's figures of STS12 to STS16, which are trained by nothing."""
    found: dict[str, float | None] = dict.fromkeys(DECLUTR_STS)
    for year in DECLUTR_STS:
        folder = root / "STS" / f"{year}-en-test"
        if folder.is_dir():
            with report.task(year):
                subsets = read_subsets(data, folder)
                found[year] = subset_correlations(encode, subsets)["spearman_mean"]
    return found


def _average(
    report: SuiteReport, metric: str, values: dict[str, float | None], task: str = "average"
) -> bool:
    """Adds an average, or a note of what it lacks; returns whether it was added."""
    lacking = [name for name, value in values.items() if value is None]
    if lacking:
        report.notes.append(f"{task} {metric}: not computed without {', '.join(lacking)}")
    else:
        report.add(task, metric, _mean(values.values()), len(values))
    return not lacking


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
