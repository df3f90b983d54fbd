"""SentEval's transfer tasks: classifiers on frozen embeddings (Conneau and Kiela 2018)."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from scipy import stats
from sklearn.metrics import f1_score

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.data import senteval as senteval_data
from official_cmlm.evaluation.data.coco import Captioned, read_coco
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.senteval import Examples, Parts
from official_cmlm.evaluation.data.sts import ScoredPairs, join_subsets, read_subsets
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics import cross_validation
from official_cmlm.evaluation.metrics.cross_validation import (
    LogisticRegressionSolver,
    MiniBatchSolver,
)
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig
from official_cmlm.evaluation.metrics.senteval_ranking import RankingConfig, rank_captions
from official_cmlm.evaluation.metrics.senteval_relatedness import predict_relatedness
from official_cmlm.evaluation.metrics.similarity import subset_correlations
from official_cmlm.evaluation.scores import SuiteReport, mean_by_seed
from official_cmlm.evaluation.suite import Metric, SuiteResults, Summary, Task, TextsByRole
from official_cmlm.evaluation.suites import register

# Name -> (folds, training). `literature` is what the toolkit's README asks for in publications,
# `fast` its configuration for prototyping, `hub` that of the colab of the published CMLM modules.
CONFIGURATIONS = {
    "literature": (10, ClassifierConfig()),
    "hub": (10, ClassifierConfig(batch_size=16, epoch_size=6)),
    "fast": (5, ClassifierConfig("rmsprop", batch_size=128, tenacity=3, epoch_size=2)),
}
# The toolkit trains SNLI with these settings, whatever the configuration (`snli.py`).
_SNLI_EPOCHS = {"max_epoch": 15, "epoch_size": 1}
COCO = "COCO"
TASKS = (*senteval_data.TASKS, COCO)
# CMLM's Table 1 averages these tasks; SST is SST2, SICK-R the supervised Pearson correlation.
CMLM_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E", "SICK-R")
# The tasks of DeCLUTR's appendix C.2 that are trained, without SNLI and caption retrieval.
DECLUTR_TASKS = (*CMLM_TASKS, "SST5", "STS-B")
_FOLDED = "inner_kfold"
DEV_METRICS = ("dev_accuracy", "dev_pearson", "dev_mean_recall")
DECLUTR_STS = ("STS12", "STS13", "STS14", "STS15", "STS16")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of SentEval's tasks and their training.

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

    @property
    def numbers(self) -> list[int]:
        """The seeds."""
        return list(range(1111, 1111 + self.seeds))

    @property
    def described(self) -> str:
        """Folds, training and seeds, for tables of scores."""
        folds = CONFIGURATIONS[self.configuration][0]
        training = describe_training(self.configuration)
        if self.solver != "mini_batch":
            training = "logistic regression"
        return f"{self.configuration}: {folds} folds, {training}, {describe_seeds(self.seeds)}"


def describe_training(configuration: str) -> str:
    """Describes optimizer and batches of a configuration."""
    config = CONFIGURATIONS[configuration][1]
    return f"{config.optimizer}, batches of {config.batch_size}"


def describe_seeds(count: int) -> str:
    """Formats a number of seeds: `1 seed`, `5 seeds`."""
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


_DEV = "development set"
METRICS = (
    Metric("accuracy", "accuracy", "%", main=True),
    Metric("pearson", "Pearson's r", "× 100", main=True),
    Metric("spearman", "Spearman's ρ", "× 100"),
    Metric("f1", "F1", "%"),
    Metric("dev_accuracy", "accuracy", "%", _DEV),
    Metric("dev_pearson", "Pearson's r", "× 100", _DEV),
    Metric("mean_recall", "mean recall of captions and images", "%"),
    Metric("dev_mean_recall", "mean recall of captions and images", "%", _DEV),
    *(
        Metric(f"{kind}_recall@{k}", f"recall of {kind}s at {k}", "%")
        for kind in ("caption", "image")
        for k in (1, 5, 10)
    ),
)
_MEANS = {
    "cmlm": "CMLM's tasks",
    "declutr": "DeCLUTR's tasks",
    "declutr_without_coco": "DeCLUTR's tasks but COCO",
    "declutr_dev": "DeCLUTR's tasks, development sets",
    "declutr_dev_with_snli": "DeCLUTR's tasks and SNLI, development sets",
    "declutr_dev_without_coco": "DeCLUTR's tasks but COCO, development sets",
    "main_metrics": "the chosen tasks' main scores",
}
RESULTS = SuiteResults(
    (*METRICS, *(Metric(n, f"mean of {tasks}", names_row=True) for n, tasks in _MEANS.items())),
    averages=r"average|average_of_chosen",
    bars="Classifiers on frozen embeddings, by task",
    axis="accuracy, %; SICK-R and STS-B: Pearson's r × 100",
    references=(("CMLM", "Table 1", "English BERT base", "CMLM base"),),
)


@register("senteval", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields SentEval's tasks and the papers' averages."""
    report.seeds = options.numbers
    report.configuration = options.described
    root = data.folder(
        *("senteval/downstream", "downstream", "."),
        hint=senteval_data.HINT,
        holding=senteval_data.FOLDERS,
    )
    yield from tasks_in(data, root, options)
    years: list[_Year] = []
    if set(DECLUTR_TASKS) <= set(options.tasks):
        folders = {year: root / "STS" / f"{year}-en-test" for year in DECLUTR_STS}
        years = [_Year(year, data, path) for year, path in folders.items() if path.is_dir()]
    yield from years
    yield Summary("", functools.partial(_add_averages, options, years))


def tasks_in(
    data: DataFolder, root: Path, options: Options, prefix: str = ""
) -> Iterator["_ImageTask | _TextTask"]:
    """Yields the tasks of a downstream folder; `prefix` is put before their names in results."""
    for name in options.tasks:
        if name == COCO:
            yield _ImageTask(f"{prefix}{name}", data, root, options)
        else:
            task = senteval_data.TASKS[name]
            yield _TextTask(f"{prefix}{name}", data, root, options, task)


@dataclasses.dataclass(eq=False)
class TrainedTask(Task):
    """A task that scores classifiers, one trained for each seed on files below `root`."""

    data: DataFolder
    root: Path
    options: Any

    def add(
        self, report: SuiteReport, score: Callable[[int], dict[str, float]], counts: dict[str, int]
    ) -> None:
        """Adds the metrics, 0 to 1, that `score` returns for each seed.

        `counts` has the number of examples of the parts `dev` and `test`.
        """
        by_seed = [score(seed) for seed in report.seeds]
        for metric in by_seed[0]:
            count = counts["dev" if metric in DEV_METRICS else "test"]
            report.add(self.name, metric, [100 * one[metric] for one in by_seed], count)


@dataclasses.dataclass(eq=False)
class _TextTask(TrainedTask):
    """A classification or regression of sentences or pairs of them."""

    trained_by = ("configuration", "solver", "seeds")

    task: senteval_data.Task

    @functools.cached_property
    def _parts(self) -> Parts:
        return self.task.read(self.data, self.root, self.notes)

    def texts(self) -> TextsByRole:
        parts = self._parts.values()
        return {"": [text for part in parts for text in (*part.first, *part.second)]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        task, parts, options = self.task, self._parts, self.options
        folds = CONFIGURATIONS[options.configuration][0]
        trainings = {_FOLDED: folds * (folds + 1), "kfold": folds + 1}.get(task.protocol, 1)
        done = report.progress(self.name, trainings * options.seeds)
        rows = {part: _features(encode, task.name, examples) for part, examples in parts.items()}
        counts = {
            kind: len(next(parts[part] for part in (kind, "train") if part in parts).labels)
            for kind in ("dev", "test")
        }
        self.add(report, lambda seed: self._score(rows, seed, done), counts)

    def _score(
        self, rows: dict[str, Any], seed: int, tick: Callable[[int], None]
    ) -> dict[str, float]:
        """Computes the metrics of one seed, 0 to 1, from the features of each part."""
        task, parts, options = self.task, self._parts, self.options
        folds, config = CONFIGURATIONS[options.configuration]
        if task.name == "SNLI":
            config = dataclasses.replace(config, **_SNLI_EPOCHS)
        mini_batch = options.solver == "mini_batch"
        solver = LogisticRegressionSolver(seed)
        if mini_batch:
            solver = MiniBatchSolver(seed, config, task.num_classes)
        pairs = {part: (rows[part], parts[part].labels) for part in parts}
        if task.protocol == _FOLDED:
            _check_folds(parts["train"].labels, folds)
            dev, accuracy = cross_validation.inner_kfold(pairs["train"], solver, folds, tick)
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
                pairs["train"], rows["test"], solver, folds, tick
            )
        else:
            # The toolkit trains SNLI without weight decay.
            strengths = [1e-9 if mini_batch else 1e9] if task.name == "SNLI" else None
            dev, predicted = cross_validation.train_dev_test(
                pairs["train"], pairs["dev"], rows["test"], solver, strengths
            )
            tick(1)
        scores = {"accuracy": float(np.mean(predicted == labels)), "dev_accuracy": dev}
        if task.name == "MRPC":
            scores["f1"] = float(f1_score(labels, predicted))
        return scores


class _ImageTask(TrainedTask):
    """COCO: recall of captions by images and of images by captions, and the mean of the six."""

    trained_by = ("seeds",)

    @functools.cached_property
    def _parts(self) -> dict[str, Captioned]:
        return read_coco(self.data, self.root)

    def texts(self) -> TextsByRole:
        return {"": [text for part in self._parts.values() for text in part.captions]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        parts = self._parts
        rows = {part: (one.images, encode(one.captions)) for part, one in parts.items()}
        config = RankingConfig()
        epochs = config.max_epoch + 1
        done = report.progress(self.name, epochs * self.options.seeds)

        def score(seed: int) -> dict[str, float]:
            trained: list[int] = []
            dev, test = rank_captions(
                *(rows[part] for part in ("train", "dev", "test")),
                seed,
                config,
                lambda count: (trained.append(count), done(count)),
            )
            done(epochs - sum(trained))
            means = {"mean_recall": fmean(test.values()), "dev_mean_recall": fmean(dev.values())}
            return means | test

        self.add(report, score, {part: len(one.captions) for part, one in parts.items()})


@dataclasses.dataclass(eq=False)
class _Year(Task):
    """A year of STS, for DeCLUTR's average; nothing is trained on it."""

    data: DataFolder
    folder: Path
    value: float | None = dataclasses.field(default=None, init=False)

    @functools.cached_property
    def _subsets(self) -> dict[str, ScoredPairs]:
        return read_subsets(self.data, self.folder)

    def texts(self) -> TextsByRole:
        return {"": join_subsets(self._subsets).texts}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        self.value = subset_correlations(encode, self._subsets)["spearman_mean"]


def _features(encode: Encode, task: str, examples: Examples) -> np.ndarray | PairFeatures:
    first = encode(examples.first)
    if not examples.second:
        return first
    pairs = PairFeatures(first, encode(examples.second), with_both=task == "SNLI")
    return pairs if task == "SNLI" else pairs[np.arange(len(pairs))]


def _check_folds(labels: np.ndarray, folds: int) -> None:
    counts = np.bincount(labels.astype(int))
    # Nested cross-validation splits each training fold again.
    if counts[counts > 0].min() < 2 * folds or (counts > 0).sum() < 2:
        raise UserError(
            f"{folds} folds need two classes of at least {2 * folds} examples, got "
            f"{counts.tolist()}"
        )


def main_metric(task: str) -> str:
    """Returns the metric that represents a task unless a paper says otherwise."""
    if task == COCO:
        return "mean_recall"
    return "pearson" if senteval_data.TASKS[task].protocol == "relatedness" else "accuracy"


def _add_averages(options: Options, years: Sequence[_Year], report: SuiteReport) -> None:
    """Adds the papers' averages whose tasks were chosen, and the average of all chosen tasks."""
    chosen = set(options.tasks)
    if set(CMLM_TASKS) <= chosen:
        add_average(
            report, "cmlm", {name: report.by_seed(name, main_metric(name)) for name in CMLM_TASKS}
        )
    if set(DECLUTR_TASKS) <= chosen:
        _add_declutr_averages(chosen, years, report)
    if chosen not in (set(senteval_data.TASKS), set(TASKS)) and len(chosen) > 1:
        metrics = {name: main_metric(name) for name in options.tasks}
        values = {name: report.by_seed(name, metric) for name, metric in metrics.items()}
        if add_average(report, "main_metrics", values, "average_of_chosen"):
            listed = ", ".join(f"{name} ({metric})" for name, metric in metrics.items())
            report.notes.append(f"average_of_chosen: the mean of {listed}; no paper's average")


def _add_declutr_averages(chosen: set[str], years: Sequence[_Year], report: SuiteReport) -> None:
    scored = dict.fromkeys(DECLUTR_STS) | {year.name: year.value for year in years}
    test = {name: report.by_seed(name, "accuracy") for name in DECLUTR_TASKS}
    test |= {name: report.by_seed(name, "spearman") for name in ("SICK-R", "STS-B")}
    if test["MRPC"] is not None:
        test["MRPC"] = (test["MRPC"] + report.by_seed("MRPC", "f1")) / 2
    # The paper's code takes these scores for its average over development sets. STS years have no
    # development set, so their scores stay the same.
    dev = {name: report.by_seed(name, "dev_accuracy") for name in DECLUTR_TASKS}
    dev |= {name: report.by_seed(name, "dev_pearson") for name in ("SICK-R", "STS-B")}
    add_average(report, "declutr_without_coco", test | scored)
    add_average(report, "declutr_dev_without_coco", dev | scored)
    if COCO in chosen:
        test[COCO] = report.by_seed(COCO, "mean_recall")
        dev[COCO] = report.by_seed(COCO, "dev_mean_recall")
        add_average(report, "declutr", test | scored)
        add_average(report, "declutr_dev", dev | scored)
        if "SNLI" in chosen:
            dev["SNLI"] = report.by_seed("SNLI", "dev_accuracy")
            add_average(report, "declutr_dev_with_snli", dev | scored)


def add_average(
    report: SuiteReport, metric: str, values: dict[str, np.ndarray | None], task: str = "average"
) -> bool:
    """Adds an average, or a note on the missing tasks; returns whether it was added."""
    lacking = [name for name, value in values.items() if value is None]
    if lacking:
        report.notes.append(f"{task} {metric}: not computed without {', '.join(lacking)}")
    else:
        report.add(task, metric, mean_by_seed(values.values()), len(values))
    return not lacking
