"""SentEval's downstream tasks: their files, classes and protocols."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder

HINT = (
    "SentEval's get_transfer_data.bash writes it; its data/downstream folder belongs into "
    "DATA_DIR/senteval/downstream, a translated one into DATA_DIR/xeval/<language>"
)
# Folders of tasks; a folder that holds one of them is the downstream folder.
FOLDERS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SICK", "STS", "SNLI", "COCO")
_TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_SICK = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
_SNLI = ("entailment", "neutral", "contradiction")
# The toolkit reads all files as Latin-1, but most of them are UTF-8.
_EITHER = ("utf-8", "latin-1")


@dataclasses.dataclass(frozen=True)
class Examples:
    """One part of a task in the toolkit's order: by number of words, then by label.

    Attributes:
      first: n sentences, words separated by single spaces.
      second: n second sentences, or empty for tasks on single sentences.
      labels: `[n]`, int classes or float scores.
    """

    first: list[str]
    second: list[str]
    labels: np.ndarray


Parts = dict[str, Examples]
Parse = Callable[[str], tuple[str, str, float]]
"""Line -> first sentence, second one or "", label; raises ValueError or IndexError if malformed."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One of SentEval's tasks.

    Attributes:
      name: as in the toolkit's results.
      protocol: `inner_kfold`, `kfold`, `split` or `relatedness`; see `metrics.cross_validation` and
        `metrics.senteval_relatedness`.
      num_classes: number of labels; 5 for relatedness scores.
      read: (data, downstream folder, notes) -> the task's parts: `train` and perhaps `dev`, `test`.
    """

    name: str
    protocol: str
    num_classes: int
    read: Callable[[DataFolder, Path, list[str]], Parts]


def order_by_length(rows: list[tuple[str, str, float]], by_second: bool = False) -> Examples:
    """Sorts rows (sentence, second sentence, label) into the toolkit's order.

    The order of the file decides between rows of equal lengths and labels.
    """
    split = [(first.split(), second.split(), label) for first, second, label in rows]
    lengths = (1, 0) if by_second else (0, 1)
    split.sort(key=lambda row: (len(row[lengths[0]]), len(row[lengths[1]]), row[2]))
    paired = any(second for _, second, _ in split)
    return Examples(
        [_join(first) for first, _, _ in split],
        [_join(second) for _, second, _ in split] if paired else [],
        np.array([label for _, _, label in split]),
    )


def _join(words: list[str]) -> str:
    """Joins words by spaces; an empty sentence becomes ".", as in the toolkit."""
    return " ".join(words) or "."


def parse_lines(
    path: Path, lines: list[str], parse: Parse, notes: list[str]
) -> list[tuple[str, str, float]]:
    """Parses lines; malformed ones are skipped and counted in a note."""
    rows = []
    for line in lines:
        try:
            rows.append(parse(line))
        except (ValueError, IndexError):
            continue
    if not rows:
        raise UserError(f"{path}: none of its {len(lines)} lines has the expected columns; {HINT}")
    if len(rows) < len(lines):
        notes.append(f"{path.name}: skipped {len(lines) - len(rows)} malformed lines")
    return rows


def _two_files(folder: str, positive: str, negative: str) -> Callable[..., Parts]:
    def read(data: DataFolder, root: Path, notes: list[str]) -> Parts:
        rows = [
            (line, "", label)
            for name, label in ((positive, 1), (negative, 0))
            for line in data.lines(root / folder / name, HINT, _EITHER)
        ]
        return {"train": order_by_length(rows)}

    return read


def _files(names: dict[str, str], parse: Parse, header: str = "") -> Callable[..., Parts]:
    """Returns a reader of one file a part."""

    def read(data: DataFolder, root: Path, notes: list[str]) -> Parts:
        parts = {}
        for part, name in names.items():
            lines = data.lines(root / name, HINT, _EITHER, header=header)
            parts[part] = order_by_length(parse_lines(root / name, lines, parse, notes))
        return parts

    return read


def _sst_binary(line: str) -> tuple[str, str, float]:
    sentence, label = line.strip().split("\t")
    return sentence, "", ("0", "1").index(label)


def _sst_fine(line: str) -> tuple[str, str, float]:
    label, sentence = line.strip().split(" ", 1)
    return sentence, "", ("0", "1", "2", "3", "4").index(label)


def _trec(line: str) -> tuple[str, str, float]:
    label, rest = line.strip().split(":", 1)
    return rest.split(" ", 1)[1], "", _TREC.index(label)


def _pairs(first: int, second: int, label: int, read: Callable[[str], float]) -> Parse:
    """Returns a parser of pairs in these columns, separated by tabs."""

    def parse(line: str) -> tuple[str, str, float]:
        columns = line.strip().split("\t")
        return columns[first], columns[second], read(columns[label])

    return parse


def _score(text: str) -> float:
    """Parses a score between 0 and 5; raises ValueError for anything else."""
    score = float(text)
    if not 0 <= score <= 5:
        raise ValueError(text)
    return score


def _snli(data: DataFolder, root: Path, notes: list[str]) -> Parts:
    parts = {}
    for part in ("train", "dev", "test"):
        first, second, labels = (
            data.lines(root / "SNLI" / f"{name}.{part}", HINT, _EITHER)
            for name in ("s1", "s2", "labels")
        )
        if not len(first) == len(second) == len(labels):
            raise UserError(
                f"{root / 'SNLI'}: s1, s2 and labels.{part} have {len(first)}, {len(second)} and "
                f"{len(labels)} lines; download them again"
            )
        labelled = [row for row in zip(first, second, labels) if row[2] in _SNLI]
        if len(labelled) < len(labels):
            notes.append(f"SNLI {part}: skipped {len(labels) - len(labelled)} rows without a label")
        # The toolkit sorts SNLI by the second sentence, and by the label's name.
        examples = order_by_length(
            [(a, b, sorted(_SNLI).index(c)) for a, b, c in labelled], by_second=True
        )
        classes = np.array([_SNLI.index(name) for name in sorted(_SNLI)])
        parts[part] = dataclasses.replace(examples, labels=classes[examples.labels])
    return parts


def _sst_files(folder: str) -> dict[str, str]:
    return {part: f"SST/{folder}/sentiment-{part}" for part in ("train", "dev", "test")}


_SICK_FILES = {
    "train": "SICK/SICK_train.txt",
    "dev": "SICK/SICK_trial.txt",
    "test": "SICK/SICK_test_annotated.txt",
}
_sick_entailment, _sick_relatedness = _pairs(1, 2, 4, _SICK.index), _pairs(1, 2, 3, _score)
_sts_benchmark, _mrpc = _pairs(5, 6, 4, _score), _pairs(3, 4, 0, ("0", "1").index)
_STS_FILES = {part: f"STS/STSBenchmark/sts-{part}.csv" for part in ("train", "dev", "test")}
_MRPC_FILES = {part: f"MRPC/msr_paraphrase_{part}.txt" for part in ("train", "test")}
_TREC_FILES = {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"}

TASKS = {
    task.name: task
    for task in (
        Task("MR", "inner_kfold", 2, _two_files("MR", "rt-polarity.pos", "rt-polarity.neg")),
        Task("CR", "inner_kfold", 2, _two_files("CR", "custrev.pos", "custrev.neg")),
        Task("SUBJ", "inner_kfold", 2, _two_files("SUBJ", "subj.objective", "subj.subjective")),
        Task("MPQA", "inner_kfold", 2, _two_files("MPQA", "mpqa.pos", "mpqa.neg")),
        Task("SST2", "split", 2, _files(_sst_files("binary"), _sst_binary)),
        Task("SST5", "split", 5, _files(_sst_files("fine"), _sst_fine)),
        Task("TREC", "kfold", 6, _files(_TREC_FILES, _trec)),
        Task("MRPC", "kfold", 2, _files(_MRPC_FILES, _mrpc, header="Quality")),
        Task("SICK-E", "split", 3, _files(_SICK_FILES, _sick_entailment, header="pair_ID")),
        Task("SICK-R", "relatedness", 5, _files(_SICK_FILES, _sick_relatedness, header="pair_ID")),
        Task("STS-B", "relatedness", 5, _files(_STS_FILES, _sts_benchmark)),
        Task("SNLI", "split", 3, _snli),
    )
}
