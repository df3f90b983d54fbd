"""Which scores stand for a suite: in the summary, as bars, beside rows of the papers."""

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from official_cmlm.evaluation.report.papers import paper_tables
from official_cmlm.evaluation.suites import SUITES

Results = dict[str, Any]
# Encoders that fit beside each other in tables, bars and colours.
MAX_ENCODERS = 5


@dataclasses.dataclass(frozen=True)
class Bars:
    """The bar charts of a suite.

    Attributes:
      metrics: of a task the first of these that was scored is drawn.
      axis: quantity and unit.
      title: of the chart.
      decimals: of the values beside the bars.
      references: (paper, table, row) whose values are marked beside the bars: where the paper
        starts from, and its own method.
    """

    metrics: tuple[str, ...]
    axis: str
    title: str
    decimals: int = 1
    references: tuple[tuple[str, str, str], ...] = ()


def _rows(paper: str, table: str, *rows: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((paper, table, row) for row in rows)


# By suite; the others have no bars.
BARS = {
    "senteval": Bars(
        ("accuracy", "pearson"),
        "accuracy, %; SICK-R and STS-B: Pearson's r × 100",
        "Classifiers on frozen embeddings, by task",
        references=_rows("CMLM", "Table 1", "English BERT base", "CMLM base"),
    ),
    "probing": Bars(
        ("accuracy",),
        "accuracy, %",
        "Linguistic properties that a classifier finds in embeddings",
        references=_rows("DeCLUTR", "Table 3", "Transformer-base", "DeCLUTR-base"),
    ),
    "sts": Bars(
        ("spearman_all", "spearman"),
        "Spearman's ρ × 100",
        "Correlation of cosines with human scores of sentence pairs",
        references=_rows("CMLM-CSE", "Table 1", "CMLM-BERT-base", "CMLM-CSE-BERT-base"),
    ),
    "tatoeba": Bars(
        ("accuracy_mean",),
        "accuracy, %, mean of both directions",
        "Translations found as the nearest neighbour, by language",
        references=_rows("CMLM", "Table 5", "mBERT", "CMLM + BR"),
    ),
    "xeval": Bars(
        ("average",),
        "mean over tasks, %",
        "SentEval's tasks, by language",
        references=_rows("CMLM", "Table 3", "mBERT", "CMLM"),
    ),
    "amazon": Bars(
        ("accuracy_frozen",),
        "accuracy, %",
        "Sentiment of reviews, learned in one language, by test language; frozen encoder",
        references=_rows("CMLM", "Table 6 (frozen)", "mBERT", "CMLM"),
    ),
    "bitext_mining": Bars(("f1_best",), "F1, %", "Translations mined from two corpora"),
    "word_similarity": Bars(
        ("spearman",),
        "Spearman's ρ × 100",
        "Correlation of cosines with human scores of word pairs",
        references=(
            *_rows("Mirror-BERT", "Table 16", "mBERT-mp", "mBERT + Mirror"),
            *_rows("Mirror-BERT", "Table 18", "mBERT-mp", "mBERT + Mirror"),
        ),
    ),
    "bli": Bars(
        ("p@1",),
        "precision at 1, %",
        "Word translation, by languages and training dictionary",
        references=_rows("Mirror-BERT", "Table 19", "BERT-mp", "BERT + Mirror"),
    ),
    "entity_linking": Bars(
        ("accuracy@1",),
        "accuracy at 1, %",
        "Mentions linked to the right entity",
        references=_rows("Mirror-BERT", "Table 2", "PubMedBERT", "PubMedBERT + Mirror"),
    ),
    "retrieval": Bars(("ndcg_at_10",), "nDCG@10 × 100", "Documents found by queries"),
    "geometry": Bars(
        ("isotropy",),
        "isotropy score, 0 to 1",
        "Isotropy, by set of texts",
        decimals=3,
        references=_rows("Mirror-BERT", "Table 14", "BERT-mp", "BERT + Mirror"),
    ),
    "mteb": Bars(("main_score",), "main score × 100", "Tasks of the mteb package"),
}
# The scores that stand for suites which have other figures than bars.
_WITHOUT_BARS = {"language_bias": ("share_own",), "qnli": ("auc",)}
_METRICS = {
    "accuracy": "accuracy, %",
    "accuracy_frozen": "accuracy, %, encoder frozen",
    "accuracy_from_english": "accuracy, %, from English",
    "accuracy_mean": "accuracy, %, mean of both directions",
    "accuracy_to_english": "accuracy, %, to English",
    "accuracy_trained": "accuracy, %, encoder trained too",
    "alignment": "alignment of positive pairs, 0 to 4, lower is better",
    "auc": "area under the ROC curve × 100",
    "average": "mean over tasks, %",
    "average_of_part": "mean over a part of the tasks or languages, %",
    "cmlm": "mean of CMLM's tasks",
    "cosine_negative": "mean cosine of pairs that are no duplicates",
    "cosine_positive": "mean cosine of duplicates",
    "declutr": "mean of DeCLUTR's tasks",
    "declutr_dev": "mean of DeCLUTR's tasks, development sets",
    "declutr_dev_with_snli": "mean of DeCLUTR's tasks and SNLI, development sets",
    "declutr_dev_without_coco": "mean of DeCLUTR's tasks but COCO, development sets",
    "declutr_without_coco": "mean of DeCLUTR's tasks but COCO",
    "dev_accuracy": "accuracy, %, development set",
    "dev_mean_recall": "mean recall of captions and images, %, development set",
    "dev_pearson": "Pearson's r × 100, development set",
    "f1": "F1, %",
    "f1_best": "F1, %",
    "isotropy": "isotropy score, 0 to 1",
    "isotropy_unit": "isotropy score of unit vectors, 0 to 1",
    "main_metrics": "mean of the chosen tasks' main scores",
    "main_score": "main score × 100",
    "mean_recall": "mean recall of captions and images, %",
    "mean_vector_norm": "norm of the mean vector",
    "mrr": "MRR × 100",
    "pearson": "Pearson's r × 100",
    "precision": "precision, %",
    "recall": "recall, %",
    "share_own": "neighbours in the query's language, %",
    "spearman": "Spearman's ρ × 100",
    "spearman_average": "Spearman's ρ × 100, mean of the tasks",
    "threshold_best": "threshold of the best F1",
    "uniformity": "uniformity, lower is better",
}
# Metrics of several ranks, parts or languages.
_PATTERNS = (
    (r"accuracy@(\d+)", r"accuracy at \1, %"),
    (r"p@(\d+)", r"precision at \1, %"),
    (r"(caption|image)_recall@(\d+)", r"recall of \1s at \2, %"),
    (r"recall_at_(\d+)", r"recall at \1, %"),
    (r"ndcg_at_(\d+)", r"nDCG@\1 × 100"),
    (r"mrr_at_(\d+)", r"MRR@\1 × 100"),
    (r"map_at_(\d+)", r"MAP@\1 × 100"),
    (r"share_(.+)", r"neighbours in \1, %"),
)
_ENDINGS = {
    # Of mined translations.
    "_best": ", threshold of the best F1",
    "_fixed": ", threshold that was given",
    "_training": ", threshold of the training part",
    "_all": ", all pairs together",
    "_centered": ", centred",
    "_in_dictionary": ", of those in the dictionary",
    "_mean": ", mean of the subsets",
    "_pcr": ", component removed",
    "_unmapped": ", without a map",
    "_wmean": ", mean of the subsets by size",
}
# By suite the names of its own means, whole, as its `evaluate` gives them. Other tasks are named
# after data, and so may be called `all` or `average-prices`; other suites have no means.
_AVERAGES = {
    "senteval": r"average|average_of_chosen",
    "probing": r"average|average_of_chosen",
    "sts": r"average|average of .+",
    "tatoeba": r"macro|macro36",
    "xeval": r"mean",
    "amazon": r"mean",
    "language_bias": r"all",
    "word_similarity": r"\w+\.average",
    "retrieval": r"(macro|NanoBEIR)(-dev|-train)?",
}
# Others are better the higher they are. What is a share of languages is neither.
_LOWER_IS_BETTER = {"mean_vector_norm", "alignment", "uniformity", "share_own", "share_own_pcr"}
_NEITHER = re.compile(r"share_(?!own)|count|cosine_|threshold_")
# More tasks of a group than these are represented in the summary by their averages; more than the
# second number by their mean, if they have no average.
_MOST_TASKS, _MOST_WITHOUT_AVERAGE = 7, 14
_OTHER, _DEVELOPMENT = "other languages", "development and training sets"
_GROUPS = {
    "cross_lingual_simlex": "pairs of words of two languages",
    "multi_simlex": "Multi-SimLex",
    "simlex": "SimLex-999",
}

Score = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Main:
    """A score that stands for its suite.

    Attributes:
      task, metric: its name.
      group: what it is drawn with; empty for the suite's own tasks.
      is_average: whether it is an average of others.
      label: the task, without the name of the group.
    """

    task: str
    metric: str
    group: str
    is_average: bool
    label: str


@dataclasses.dataclass(frozen=True)
class Reference:
    """A row of a paper beside bars.

    Attributes:
      name: the row, with paper and table.
      values: one per bar, in the unit of the suite's scores; None where the paper has none.
    """

    name: str
    values: list[float | None]


def scores(results: Results, suite: str) -> dict[str, Score]:
    """`task/metric` -> score of a suite; empty if the suite was not run."""
    found = results.get("suites", {}).get(suite, {}).get("scores", [])
    return {f"{score['task']}/{score['metric']}": score for score in found}


def suite_names(*parts: Results) -> list[str]:
    """The suites that the first of the encoders ran, in the order of `SUITES`."""
    return _in_order(parts[0].get("suites", {}).keys())


def shown(suite: str, parts: Sequence[Results]) -> Sequence[Results]:
    """The encoders to show in a suite: others only beside scores of the first."""
    return parts if scores(parts[0], suite) else parts[:1]


def only_compared(*parts: Results) -> list[str]:
    """The suites of which others have scores and the first has none."""
    names = {name for part in parts[1:] for name in part.get("suites", {}) if scores(part, name)}
    return _in_order({name for name in names if not scores(parts[0], name)})


def _in_order(names: Collection[str]) -> list[str]:
    return [name for name in SUITES if name in names] + sorted(set(names) - SUITES.keys())


def is_number(value: float | None) -> bool:
    """Whether a score has a value."""
    return value is not None and math.isfinite(value)


def metric_label(metric: str) -> str:
    """Quantity and unit of a metric, for readers; its name where it is not known here."""
    if metric in _METRICS:
        return _METRICS[metric]
    for ending, text in _ENDINGS.items():
        start = metric.removesuffix(ending)
        if start != metric and (label := metric_label(start)) != start:
            return f"{label}{text}"
    for pattern, label in _PATTERNS:
        if found := re.fullmatch(pattern, metric):
            return found.expand(label)
    return metric


def better(metric: str) -> int:
    """1 if higher values of a metric are better, -1 if lower ones, 0 if neither."""
    if _NEITHER.match(metric):
        return 0
    return -1 if metric in _LOWER_IS_BETTER else 1


def main_scores(suite: str, parts: Sequence[Results]) -> list[Main]:
    """The scores that stand for a suite, of any of the encoders, group by group, averages last.

    Of a task the first metric that some encoder has; without subsets of a task that was scored as
    a whole.
    """
    found: dict[str, list[str]] = {}
    for part in parts:
        for score in scores(part, suite).values():
            if is_number(score["value"]) and score["metric"] not in found.get(score["task"], ()):
                found.setdefault(score["task"], []).append(score["metric"])
    whole = {task for task, metrics in found.items() if "spearman_all" in metrics}
    known = BARS[suite].metrics if suite in BARS else _WITHOUT_BARS.get(suite)
    rows = []
    for task, metrics in found.items():
        if task.partition(".")[0] in whole - {task}:
            continue
        wanted = [m for m in known or metrics[:1] if m in metrics][:1]
        # Averages have names of their own, such as the paper's.
        wanted = wanted or (metrics if is_average(suite, task) else [])
        rows += [_main(suite, task, metric, len(wanted) > 1) for metric in wanted]
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: (groups.index(row.group), row.is_average))


def _main(suite: str, task: str, metric: str, with_metric: bool) -> Main:
    group = _group(suite, task)
    label = task.removeprefix(f"{group}.")
    if (with_metric or metric in ("cmlm", "main_metrics")) and is_average(suite, task):
        label = metric_label(metric)
    return Main(task, metric, _GROUPS.get(group, group), is_average(suite, task), label)


def is_average(suite: str, task: str) -> bool:
    """Whether a task is the average of others of its suite."""
    return suite in _AVERAGES and bool(re.fullmatch(_AVERAGES[suite], task))


def _group(suite: str, task: str) -> str:
    if re.search(r"\b(dev|train)\b", task) and suite in ("sts", "senteval"):
        return _DEVELOPMENT
    if suite == "sts":
        return _OTHER if "." in task else ""
    if suite == "word_similarity":
        return task.partition(".")[0] if "." in task else ""
    return ""


def summarized(suite: str, parts: Sequence[Results]) -> list[tuple[str, str, list[Score | None]]]:
    """(task, metric, one score per encoder) of the summary's rows; groups of many as averages.

    A group of many tasks without an average of its own gets the mean of the tasks that all
    encoders have, among those that have any.
    """
    rows = main_scores(suite, parts)
    lines: list[tuple[str, str, list[Score | None]]] = []
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [row for row in rows if row.group == group]
        tasks = [row for row in of_group if not row.is_average]
        averages = [row for row in of_group if row.is_average]
        if len(tasks) > _MOST_TASKS and averages:
            of_group = averages
        elif len(tasks) > _MOST_WITHOUT_AVERAGE:
            lines.append(_mean(suite, parts, tasks))
            continue
        lines += [
            (row.task, row.metric, [_found(part, suite, row) for part in parts]) for row in of_group
        ]
    return lines


def _found(part: Results, suite: str, row: Main) -> Score | None:
    score = scores(part, suite).get(f"{row.task}/{row.metric}")
    return score if score and is_number(score["value"]) else None


def _mean(
    suite: str, parts: Sequence[Results], rows: list[Main]
) -> tuple[str, str, list[Score | None]]:
    found = [[_found(part, suite, row) for row in rows] for part in parts]
    having = [part for part in found if any(part)]
    common = [i for i in range(len(rows)) if all(part[i] for part in having)]
    metrics = dict.fromkeys(rows[i].metric for i in common)
    means: list[Score | None] = [
        {
            "value": math.fsum(part[i]["value"] for i in common) / len(common),
            "count": len(common),
            # Means over tasks of different examples are not compared either.
            "counts": tuple(part[i]["count"] for i in common),
        }
        if common and any(part)
        else None
        for part in found
    ]
    return f"mean of {len(common)} tasks", " and ".join(metrics), means


def references(suite: str, rows: Iterable[Main]) -> list[Reference]:
    """The papers' rows to be marked beside bars: those with a value of any of the bars."""
    found: dict[str, dict[str, float]] = {}
    for paper, number, model in BARS[suite].references:
        table = next(t for t in paper_tables() if (t.paper, t.table) == (paper, number))
        values = next(values for name, values in table.rows if name == model)
        marked: dict[str, float] = {}
        for (_, column), value in zip(table.columns, values):
            for _, variant in table.variants:
                for name in (column or "").replace("*", variant).split("|"):
                    if value is not None:
                        marked[name] = value * table.scale
        found[f"{model} ({paper}, {number})"] = marked
    rows = list(rows)
    lines = [
        Reference(name, [values.get(f"{row.task}/{row.metric}") for row in rows])
        for name, values in found.items()
    ]
    return [line for line in lines if any(value is not None for value in line.values)]


def deviation(score: Mapping[str, Any] | None) -> float | None:
    """Standard deviation over seeds; None for a single one."""
    found = (score or {}).get("deviation")
    return found if is_number(found) else None
