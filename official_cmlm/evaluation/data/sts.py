"""Sentence pairs with human similarity scores: SemEval's STS years, STS-B, SICK."""

import dataclasses
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import split_csv
from official_cmlm.evaluation.data.folder import DataFolder, finite
from official_cmlm.evaluation.scores import MissingData

HINT = (
    "SentEval's get_transfer_data.bash writes it; its data/downstream folder belongs into "
    "DATA_DIR/senteval/downstream (STS/STS12-en-test … STS16-en-test, STS/STSBenchmark, SICK); "
    "STS-B's dev and train also as glue/stsb, prepared by TensorFlow Datasets, in DATA_DIR/tfds"
)
LANGUAGES_HINT = (
    "github.com/PhilipMay/stsb-multi-mt has it; its files stsb-<language>-test.csv belong into "
    "DATA_DIR/stsb_multi_mt"
)
TRACKS_HINT = (
    "SemEval-2017 task 1 as published belongs into DATA_DIR/STS17: the folders STS2017.eval.v1.1 "
    "(STS.input.track1.ar-ar.txt …) and STS2017.gs (STS.gs.track1.ar-ar.txt …), or their files"
)
RUSSIAN_HINT = (
    "data/download_data.sh of github.com/deepmipt/deepPavlovEval gets it; its folder "
    "STS2012_MSRvid_translated (STS.input.MSRvid.txt, STS.gs.MSRvid.txt) belongs into DATA_DIR"
)
# The known form of each kind of file, for the error message about another one.
_BENCHMARK_FORM = "STS-B's seven or more tab-separated columns, the score and the texts in 5 to 7"
_SICK_FORM = "SentEval's SICK, tab-separated: pair_ID, two texts, relatedness_score, judgment"
_CSV_FORM = "stsb_multi_mt's two texts and a score, separated by commas, without a header"
_INPUT_FORM = (
    "SemEval's STS.input files, two texts separated by a tab, each with a file STS.gs of as many "
    "lines, a number each"
)
_TRACK = re.compile(r"STS\.input\.track(\d+)([a-z]?)\.([a-z]+-[a-z]+)\.txt")
# The subsets that SentEval scores. Its STS13 lacks SMT, whose licence forbids distribution.
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with human scores.

    Attributes:
      first, second: n sentences each.
      gold: float64 `[n]`; larger means more similar.
      skipped: number of lines left out: malformed, or without a score.
    """

    first: list[str]
    second: list[str]
    gold: np.ndarray
    skipped: int = 0

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, float]], skipped: int = 0) -> "ScoredPairs":
        """Returns the pairs of rows (first sentence, second sentence, score)."""
        first, second, gold = zip(*rows)
        return cls(list(first), list(second), np.array(gold), skipped)

    @property
    def texts(self) -> list[str]:
        """All sentences."""
        return [*self.first, *self.second]

    def take(self, rows: np.ndarray) -> "ScoredPairs":
        """Returns the pairs with these indices, in this order."""
        first, second = ([side[i] for i in rows] for side in (self.first, self.second))
        return dataclasses.replace(self, first=first, second=second, gold=self.gold[rows])


def join_subsets(subsets: Mapping[str, ScoredPairs]) -> ScoredPairs:
    """Returns the pairs of all subsets as one list."""
    parts = subsets.values()
    rows = [row for pairs in parts for row in zip(pairs.first, pairs.second, pairs.gold)]
    return ScoredPairs.of(rows, sum(pairs.skipped for pairs in parts))


def read_sts_benchmark(path: Path) -> ScoredPairs:
    """Reads `sts-dev.csv` or `sts-test.csv`: tab-separated, score and sentences in columns 5-7."""
    if not path.parent.is_dir():
        raise MissingData(path, HINT)
    data = DataFolder(path.parent)
    return parse_sts_benchmark(path, data.lines(path, HINT))


def parse_sts_benchmark(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """Parses STS-B's pairs; `path` is named in errors."""
    rows = [line.split("\t") for line in lines]
    if rows and "sentence1" in rows[0]:
        # GLUE's copy has a number of another meaning where the publisher's files have the score.
        raise UserError(f"{path}: {_describe(lines)}; known: {_BENCHMARK_FORM}, no header; {HINT}")
    pairs = [(r[5], r[6], r[4]) if len(r) > 6 else () for r in rows]
    return make_pairs(path, pairs, lines, f"{_BENCHMARK_FORM}; {HINT}")


def parse_sick(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """Parses SICK's pairs; columns: number, two sentences, score, …; without the header."""
    rows = [line.split("\t") for line in lines]
    return make_pairs(path, [row[1:4] for row in rows], lines, f"{_SICK_FORM}; {HINT}")


def parse_csv(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """Parses the pairs of `stsb_multi_mt`'s files: two sentences and a score, by commas."""
    rows = list(map(split_csv, lines))
    return make_pairs(path, rows, lines, f"{_CSV_FORM}; {LANGUAGES_HINT}")


def find_translations(root: Path, split: str) -> dict[str, Path]:
    """Returns language -> file of a part of STS-B's translations, below the data folder `root`."""
    paths: dict[str, Path] = {}
    for folder in ("stsb_multi_mt", "stsb_multi_mt/data", "stsb-multi-mt/data"):
        for path in sorted(root.glob(f"{folder}/stsb-*-{split}.csv")):
            language = path.name.removeprefix("stsb-").removesuffix(f"-{split}.csv")
            paths.setdefault(language, path)
    return paths


def find_tracks(root: Path) -> dict[str, tuple[Path, Path]]:
    """Returns name -> (texts, scores) of SemEval-2017's tracks below the data folder `root`.

    A name is e.g. `es-es`, or `es-en-4a`, as two tracks have that pair of languages. The file of
    scores may be missing.
    """
    for base in ("STS17", "sts17", "STS2017", "senteval/downstream/STS/STS17", "STS/STS17", "."):
        folders = [root / base, *sorted((root / base).glob("STS2017.*"))]
        texts = {path.name: path for f in reversed(folders) for path in f.glob("STS.input.track*")}
        tracks = {}
        for name, path in sorted(texts.items()):
            if track := _TRACK.fullmatch(name):
                gold = name.replace("input", "gs", 1)
                places = [path.parent, *folders]
                scores = next((f / gold for f in places if (f / gold).exists()), path.parent / gold)
                number, letter, pair = track.groups()
                tracks[f"{pair}-{number}{letter}" if letter else pair] = (path, scores)
        if tracks:
            return tracks
    return {}


def find_russian(root: Path) -> tuple[Path, Path] | None:
    """Finds (texts, scores) of deepPavlovEval's Russian pairs; None if they are not there."""
    # The second pair has the default names of deepPavlovEval's reader.
    names = (("STS.input.MSRvid.txt", "STS.gs.MSRvid.txt"), ("input.txt", "labels.txt"))
    for base in ("", "STS", "deepPavlovEval/data", "senteval/downstream/STS"):
        folder = root / base / "STS2012_MSRvid_translated"
        for texts, scores in names:
            if (folder / texts).is_file():
                return folder / texts, folder / scores
    return None


def read_subsets(data: DataFolder, folder: Path) -> dict[str, ScoredPairs]:
    """Reads the subsets of a year, e.g. of the folder `STS14-en-test`: subset name -> pairs.

    Pairs without a score are left out. For the years in `SUBSETS` exactly those subsets are read,
    for other folders every subset found.
    """
    names = SUBSETS.get(folder.name.partition("-")[0])
    if names is None:
        paths = sorted(folder.glob("STS.input.*.txt"))
        names = [path.name.removeprefix("STS.input.").removesuffix(".txt") for path in paths]
    if not names or not folder.is_dir():
        raise MissingData(folder / "STS.input.*.txt", HINT)
    return {
        name: read_pairs(
            data, *(folder / f"STS.{part}.{name}.txt" for part in ("input", "gs")), HINT
        )
        for name in sorted(names)
    }


def read_pairs(data: DataFolder, texts_path: Path, scores_path: Path, hint: str) -> ScoredPairs:
    """Reads SemEval's files: texts, two or more tab-separated columns, and scores apart."""
    texts, scores = data.lines(texts_path, hint), data.lines(scores_path, hint)
    # The last score may be empty and without a line end.
    scores += [""] * (len(texts) - len(scores) == 1)
    if len(texts) != len(scores):
        raise UserError(
            f"{texts_path}: {len(texts)} pairs but {len(scores)} scores; download both again"
        )
    rows = [(*text.split("\t")[:2], s) for text, s in zip(texts, scores)]
    return make_pairs(texts_path, rows, texts, f"{_INPUT_FORM}; {hint}")


def make_pairs(
    path: Path, rows: Sequence[Sequence[str]], lines: Sequence[str], known: str
) -> ScoredPairs:
    """Makes pairs of rows (first, second, score); malformed rows are left out and counted.

    Errors name the path, its first line and the known form.
    """
    scored = [(row[0], row[1], finite(row[2])) for row in rows if len(row) == 3]
    scored = [row for row in scored if row[2] is not None]
    if len(scored) < 2:
        raise UserError(
            f"{path}: {len(scored)} of {len(rows)} lines are two texts and a score; need 2; "
            f"{_describe(lines)}; known: {known}"
        )
    return ScoredPairs.of(scored, len(rows) - len(scored))


def _describe(lines: Sequence[str]) -> str:
    """Describes a file's first line."""
    if not lines:
        return "the file is empty"
    tabs, commas = lines[0].count("\t"), lines[0].count(",")
    return f"line 1 has {tabs + 1} columns by tab, {commas + 1} by comma: {reprlib.repr(lines[0])}"
