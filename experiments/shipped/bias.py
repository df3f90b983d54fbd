"""Prints how much of language bias a removal takes away, as a table in Markdown.

    python -m experiments.shipped.bias work/shipped/multi/bias/mini-multi …

`make -f experiments/shipped/Makefile multi_bias` makes these folders, with a file of results for
each removal.
"""

from pathlib import Path

from official_cmlm import cli

from .scores import read_scores

_EIGHT = "all of ar+de+en+es+hi+ru+vi+zh"
# Title, suite and task, and metric; `_pcr` follows the metric after the removal.
COLUMNS = (
    ("PAWS-X, neighbours of the own language, %", "language_bias", "all", "share_own"),
    ("PAWS-X, translation is the neighbour, %", "language_bias", "all", "accuracy"),
    ("Tatoeba, to English, %", "tatoeba", "macro", "accuracy_to_english"),
    ("Tatoeba, from English, %", "tatoeba", "macro", "accuracy_from_english"),
    ("XQuAD-R, eight languages, mAP × 100", "lareqa", _EIGHT, "map"),
    ("XQuAD-R, share of the own language among ten, %", "lareqa", _EIGHT, "share_own"),
)
REMOVALS = (
    *((f"unit{number}", f"{number} a language") for number in (1, 2, 3, 4)),
    ("printed1", "1 a language, the printed formula"),
    ("common", "one projection"),
)


def main(*folders: str) -> None:
    """Prints a row for each encoder as it is, and one for each removal."""
    print("| encoder | removed |", *(f"{title} |" for title, *_ in COLUMNS))
    print("|---|---|" + "---|" * len(COLUMNS))
    for folder in folders:
        first = f"{folder}/{REMOVALS[0][0]}.json"
        rows = [("nothing", first, "")]
        rows += [(title, f"{folder}/{file}.json", "_pcr") for file, title in REMOVALS]
        for title, path, suffix in rows:
            name, read = read_scores(Path(path))
            values = (read(suite, (task,), metric + suffix) for _, suite, task, metric in COLUMNS)
            print(f"| {name} | {title} |", *(f"{value} |" for value in values))


if __name__ == "__main__":
    cli.run(main)
