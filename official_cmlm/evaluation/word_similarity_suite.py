"""Word similarity: does the cosine of two words follow people's scores?

Mirror-BERT (Liu et al. 2021), section 3: Spearman's correlation on Multi-SimLex (Vulić et al.
2020); SimLex-999 (Hill et al. 2015) is the development set there. The cross-lingual pairs of its
Table 5 are read where they are given, and otherwise made of row-aligned languages; see
`cross_lingual_pairs`.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.cross_lingual_pairs import Rows, all_crossed
from official_cmlm.evaluation.data import DataFolder
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.report import SuiteReport
from official_cmlm.evaluation.sts import ScoredPairs, cosines, spearman

_HINT = (
    "tab-separated with a header: word 1, word 2, score (simlex) or id, word1, word2, pos, score "
    "(multi_simlex)"
)

# How the line of headings begins.
_HEADERS = {"multi_simlex": "id\t", "simlex": "word 1", "cross_lingual_simlex": "id\t"}

# Number of columns -> those of both words and the score.
_COLUMNS = {3: (0, 1, 2), 5: (1, 2, 4)}

# Data set -> its files below the data folder, and what precedes the language in their names.
_DATA_SETS = {
    "multi_simlex": ("*.tsv", ""),
    "simlex": ("simlex-*.txt", "simlex-"),
    "cross_lingual_simlex": ("*-*.tsv", ""),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """There is nothing to choose: the pairs, cosine and Spearman's correlation are the protocol."""


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every file of `multi_simlex`, `simlex` and `cross_lingual_simlex`.

    Scores: `<data set>.<language>` and `<data set>.average`, the unweighted mean over the files
    that could be scored; metric `spearman`.

    Raises:
      UserError: if none of the data sets is there.
    """
    found = {name: _files(data.root / name, pattern) for name, (pattern, _) in _DATA_SETS.items()}
    if not any(found.values()):
        raise UserError(f"{data.root / 'multi_simlex'}: no *.tsv; {_HINT}; one file a language")
    rows: dict[str, Rows] = {}
    for name, paths in found.items():
        scored: list[tuple[float, int]] = []
        for path in paths:
            language = path.stem.removeprefix(_DATA_SETS[name][1])
            with report.task(f"{name}.{language}"):
                lines = data.lines(path, _HINT, header=_HEADERS[name])
                pairs, skipped = parse_pairs(lines, str(path))
                if name == "multi_simlex":
                    rows[language] = numbered(lines)
                if skipped:
                    report.notes.append(f"{name}.{language}: {skipped} malformed lines skipped")
                scored.append(_add(encode, f"{name}.{language}", pairs, report))
        if name == "cross_lingual_simlex":
            given = {path.stem for path in paths}
            for languages, pairs in all_crossed(rows, sorted(rows)).items():
                if languages not in given:
                    scored.append(_add(encode, f"{name}.{languages}", pairs, report))
        if scored:
            mean = float(np.mean([value for value, _ in scored]))
            report.add(f"{name}.average", "spearman", mean, sum(count for _, count in scored))


def _add(encode: Encode, task: str, pairs: ScoredPairs, report: SuiteReport) -> tuple[float, int]:
    value = spearman(cosines(encode, pairs), pairs.gold)
    report.add(task, "spearman", value, len(pairs.gold))
    return value, len(pairs.gold)


def numbered(lines: Sequence[str]) -> Rows:
    """Number of a row -> its pair, of well-formed lines of Multi-SimLex."""
    rows = ((line.split("\t")[0].strip(), _pair(line.split("\t"))) for line in lines)
    return {number: pair for number, pair in rows if pair is not None}


def parse_pairs(lines: Sequence[str], source: str) -> tuple[ScoredPairs, int]:
    """Word pairs from lines without their header.

    Args:
      lines: tab-separated: first word, second word, score; or number, first word, second word, part
        of speech, score.
      source: what to call the lines in an error.

    Returns:
      (the pairs, how many lines were malformed: another number of columns, no word, a score that
      is no number).

    Raises:
      UserError: if fewer than two pairs are left.
    """
    rows = [_pair(line.split("\t")) for line in lines if line.strip()]
    good = [row for row in rows if row is not None]
    if len(good) < 2:
        raise UserError(f"{source}: {len(good)} word pairs with a score; need 2; {_HINT}")
    pairs = ScoredPairs([r[0] for r in good], [r[1] for r in good], np.array([r[2] for r in good]))
    return pairs, len(rows) - len(good)


def _pair(cells: list[str]) -> tuple[str, str, float] | None:
    if len(cells) not in _COLUMNS:
        return None
    first, second, score = (cells[column].strip() for column in _COLUMNS[len(cells)])
    try:
        number = float(score)
    except ValueError:
        return None
    return (first, second, number) if first and second and math.isfinite(number) else None


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern)) if folder.is_dir() else []
