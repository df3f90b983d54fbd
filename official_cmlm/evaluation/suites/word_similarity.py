"""Word similarity: correlation between the cosine of two words and human scores.

Mirror-BERT (Liu et al. 2021), section 3: Spearman's correlation on Multi-SimLex (Vulić et al.
2020), with SimLex-999 (Hill et al. 2015) as its development set. The cross-lingual pairs of its
Table 5 are read if their files are present, otherwise built from the row-aligned languages as
Multi-SimLex builds them; see `crossed`.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.metrics.similarity import cosines, spearman
from official_cmlm.evaluation.scores import SuiteReport

_HINT = (
    "tab-separated with a header: word 1, word 2, score (simlex) or id, word1, word2, pos, score "
    "(multi_simlex)"
)

# Start of the header line.
_HEADERS = {"multi_simlex": "id\t", "simlex": "word 1", "cross_lingual_simlex": "id\t"}

# Number of columns -> those of both words and the score.
_COLUMNS = {3: (0, 1, 2), 5: (1, 2, 4)}

# Data set -> its files below the data folder, and what precedes the language in their names.
_DATA_SETS = {
    "multi_simlex": ("*.tsv", ""),
    "simlex": ("simlex-*.txt", "simlex-"),
    "cross_lingual_simlex": ("*-*.tsv", ""),
}


# Scores of two languages that differ by more make no cross-lingual pair: a fifth of the scale 0-6.
MAX_DIFFERENCE = 1.2

Rows = Mapping[str, tuple[str, str, float]]
"""Number of a row -> first word, second word, score."""


@dataclasses.dataclass(frozen=True)
class Options:
    """No options: pairs, cosine and Spearman's correlation are fixed by the protocol."""


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every file of `multi_simlex`, `simlex` and `cross_lingual_simlex`.

    Tasks: `<data set>.<language>` and `<data set>.average`, the unweighted mean over the files that
    were scored. Metric: `spearman`.

    Raises:
      UserError: if no data set is found.
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
    """Row number -> pair, for the well-formed lines of a Multi-SimLex file."""
    rows = ((line.split("\t")[0].strip(), _pair(line.split("\t"))) for line in lines)
    return {number: pair for number, pair in rows if pair is not None}


def parse_pairs(lines: Sequence[str], source: str) -> tuple[ScoredPairs, int]:
    """Word pairs from lines without their header.

    Args:
      lines: tab-separated: first word, second word, score; or number, first word, second word, part
        of speech, score.
      source: name of the file, for errors.

    Returns:
      (the pairs, number of malformed lines: wrong number of columns, a word missing, a score that
      is not a finite number).

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


def crossed(first: Rows, second: Rows) -> ScoredPairs:
    """Cross-lingual pairs of two row-aligned languages, built as Multi-SimLex builds its own.

    Vulić et al. (2020), after Camacho-Collados et al. (2015): two translations (a, b) and (c, d) of
    a pair give (a, d) and (b, c) with the mean of both scores, unless the scores differ by more
    than `MAX_DIFFERENCE`.

    Args:
      first, second: rows of two languages; rows with the same number translate each other.

    Returns:
      Each pair once, in the order of the first language's rows.
    """
    pairs: dict[tuple[str, str], float] = {}
    for number in first:
        if number not in second:
            continue
        (a, b, score), (c, d, other) = first[number], second[number]
        if abs(score - other) <= MAX_DIFFERENCE + 1e-9:
            for pair in ((a, d), (b, c)):
                pairs.setdefault(pair, (score + other) / 2)
    return ScoredPairs([a for a, _ in pairs], [b for _, b in pairs], np.array([*pairs.values()]))


def all_crossed(rows: Mapping[str, Rows], languages: Sequence[str]) -> dict[str, ScoredPairs]:
    """`<language>-<language>` -> pairs, for all two languages that give at least two pairs."""
    found = {f"{a}-{b}": crossed(rows[a], rows[b]) for a, b in itertools.combinations(languages, 2)}
    return {name: pairs for name, pairs in found.items() if len(pairs.gold) >= 2}


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern)) if folder.is_dir() else []
