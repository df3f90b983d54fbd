"""Prints the scores of the multilingual encoders as the table of their page and their cards.

    python -m experiments.shipped.scores work/shipped/multi/scores/mini-multi …

`make -f experiments/shipped/Makefile multi_scores` makes these folders.
"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from official_cmlm import cli
from official_cmlm.evaluation.report.main_scores import scores
from official_cmlm.evaluation.report.results import read_results

_TEN = ("de", "ru", "hi", "ja", "vi", "sw", "tr", "ko", "ar", "fi")
_INFERRED = ("de", "es", "fr", "sw", "zh")
_TRANSLATED = "Tatoeba, the translation found among 250, to English, %: mean of"
# Title, suite, tasks and metric; a row is the mean over its tasks.
ROWS = (
    ("STS-B test, Spearman × 100: English", "sts", ("STS-B",), "spearman"),
    ("… German", "sts", ("STS-B.de",), "spearman"),
    ("… Spanish", "sts", ("STS-B.es",), "spearman"),
    (f"{_TRANSLATED} 18 languages", "tatoeba", ("macro",), "accuracy_to_english"),
    (f"… {' '.join(_TEN)}", "tatoeba", _TEN, "accuracy_to_english"),
    (
        f"XNLI dev, learned in English, mean of {' '.join(_INFERRED)}, %",
        "xnli",
        _INFERRED,
        "dev_accuracy",
    ),
    ("XQuAD-R, 11 languages in one pool, mAP × 100", "lareqa", ("all",), "map"),
    ("… within each language", "lareqa", ("all",), "map_own_language"),
    (
        "… share of the question's language among the ten nearest, %",
        "lareqa",
        ("all",),
        "share_own",
    ),
)


def read_scores(path: Path) -> tuple[str, Callable[[str, Sequence[str], str], str]]:
    """Returns an encoder's name, and a function from suite, tasks and metric to a mean."""
    results = read_results(path)

    def read(suite: str, tasks: Sequence[str], metric: str) -> str:
        by_task = scores(results, suite)
        values = [by_task.get(f"{task}/{metric}", {}).get("value") for task in tasks]
        return "not measured" if None in values else f"{statistics.fmean(values):.2f}"

    return results["encoder"]["name"], read


def main(*folders: str) -> None:
    """Prints a table in Markdown, with a column for each folder that `cmlm evaluate` wrote."""
    encoders = [read_scores(Path(folder) / "results.json") for folder in folders]
    print("| score |", *(f"{name} |" for name, _ in encoders))
    print("|---|" + "---|" * len(encoders))
    for title, *row in ROWS:
        print(f"| {title} |", *(f"{read(*row)} |" for _, read in encoders))


if __name__ == "__main__":
    cli.run(main)
