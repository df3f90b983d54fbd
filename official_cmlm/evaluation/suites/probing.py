"""SentEval's ten probing tasks: linguistic properties of embeddings (Conneau et al. 2018)."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.cross_validation import MiniBatchSolver, train_dev_test
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Summary, Task, TextsByRole
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.senteval import (
    CONFIGURATIONS,
    TrainedTask,
    add_average,
    describe_seeds,
    describe_training,
)

HINT = (
    "SentEval's data/probing folder (github.com/facebookresearch/SentEval) belongs into "
    "DATA_DIR/senteval/probing: lines of part (tr, va, te), label and sentence, separated by tabs"
)
# The toolkit's names and files.
TASKS = {
    "Length": "sentence_length.txt",
    "WordContent": "word_content.txt",
    "Depth": "tree_depth.txt",
    "TopConstituents": "top_constituents.txt",
    "BigramShift": "bigram_shift.txt",
    "Tense": "past_present.txt",
    "SubjNumber": "subj_number.txt",
    "ObjNumber": "obj_number.txt",
    "OddManOut": "odd_man_out.txt",
    "CoordinationInversion": "coordination_inversion.txt",
}
_PARTS = ("tr", "va", "te")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the probing tasks.

    Attributes:
      configuration: `fast` (default), `literature` or `hub`, as in the suite `senteval`.
      seeds: number of trainings to average, with seeds 1111, 1112, …. Default 1.
      tasks: names of tasks. Default: all ten.
    """

    configuration: Annotated[str, OneOf(tuple(CONFIGURATIONS))] = "fast"
    seeds: Annotated[int, at_least(1)] = 1
    tasks: Annotated[list[str], OneOf(tuple(TASKS))] = dataclasses.field(
        default_factory=lambda: list(TASKS)
    )


RESULTS = SuiteResults(
    (
        Metric("accuracy", "accuracy", "%", main=True),
        Metric("dev_accuracy", "accuracy", "%", "development set"),
    ),
    averages=r"average|average_of_chosen",
    bars="Linguistic properties that a classifier finds in embeddings",
    references=(("DeCLUTR", "Table 3", "Transformer-base", "DeCLUTR-base"),),
)


@register("probing", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields the probing tasks and their average."""
    root = data.folder("senteval/probing", "probing", ".", hint=HINT, holding=list(TASKS.values()))
    report.seeds = list(range(1111, 1111 + options.seeds))
    report.configuration = (
        f"{options.configuration}: {describe_training(options.configuration)}, "
        f"{describe_seeds(options.seeds)}"
    )
    for name in options.tasks:
        yield _Probe(name, data, root, options)
    yield Summary("", functools.partial(_average, options))


class _Probe(TrainedTask):
    """A property that a classifier finds in embeddings."""

    trained_by = ("configuration", "seeds")

    @functools.cached_property
    def _parts(self) -> tuple[list[tuple[list[str], np.ndarray]], int]:
        return _read(self.data, self.root / TASKS[self.name], self.notes)

    def texts(self) -> TextsByRole:
        return {"": [text for texts, _ in self._parts[0] for text in texts]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        config = CONFIGURATIONS[self.options.configuration][1]
        parts, classes = self._parts
        train, dev, test = [(encode(texts), labels) for texts, labels in parts]
        done = report.progress(self.name, self.options.seeds)

        def score(seed: int) -> dict[str, float]:
            solver = MiniBatchSolver(seed, config, classes)
            on_dev, predicted = train_dev_test(train, dev, test[0], solver)
            done(1)
            return {"accuracy": float(np.mean(predicted == test[1])), "dev_accuracy": on_dev}

        self.add(report, score, {"dev": len(dev[1]), "test": len(test[1])})


def _average(options: Options, report: SuiteReport) -> None:
    """Adds the averages over all ten tasks, or those over the tasks that were chosen."""
    everything = set(options.tasks) == set(TASKS)
    if not everything and len(options.tasks) < 2:
        return
    task = "average" if everything else "average_of_chosen"
    for metric in ("accuracy", "dev_accuracy"):
        scores = {name: report.by_seed(name, metric) for name in options.tasks}
        add_average(report, metric, scores, task)
    if not everything and report.get(task, "accuracy") is not None:
        listed = ", ".join(options.tasks)
        report.notes.append(f"average_of_chosen: the mean of {listed}; no paper's average")


def _read(
    data: DataFolder, path: Path, notes: list[str]
) -> tuple[list[tuple[list[str], np.ndarray]], int]:
    """Returns (texts, labels) of training, development and test set, and the number of classes."""
    rows: dict[str, list[tuple[str, str]]] = {part: [] for part in _PARTS}
    lines = data.lines(path, HINT)
    for line in lines:
        columns = line.rstrip().split("\t")
        if len(columns) >= 3 and columns[0] in rows:
            rows[columns[0]].append((" ".join(columns[-1].split()) or ".", columns[1]))
    if not all(rows.values()):
        missing = [part for part in _PARTS if not rows[part]]
        raise UserError(f"{path}: no line of part {', '.join(missing)}; {HINT}")
    classes = {label: i for i, label in enumerate(sorted({label for _, label in rows["tr"]}))}
    rows = {part: [row for row in rows[part] if row[1] in classes] for part in _PARTS}
    if skipped := len(lines) - sum(map(len, rows.values())):
        notes.append(
            f"{path.name}: skipped {skipped} lines, malformed or with a label that part tr lacks"
        )
    if not all(rows.values()):
        raise UserError(f"{path}: parts tr, va and te have no label in common; {HINT}")
    parts = []
    for part in _PARTS:
        # Examples are in the toolkit's order, on which batches depend.
        ordered = sorted(rows[part], key=lambda row: (len(row[0].split()), row[1]))
        labels = np.array([classes[label] for _, label in ordered])
        parts.append(([text for text, _ in ordered], labels))
    return parts, len(classes)
