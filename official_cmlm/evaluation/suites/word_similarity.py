"""Word similarity: correlation between the cosine of two words and human scores.

Mirror-BERT (Liu et al. 2021), section 3: Spearman's correlation on Multi-SimLex (Vulić et al.
2020), with SimLex-999 (Hill et al. 2015) as its development set. The cross-lingual pairs of its
Table 5 are read if their files are present, otherwise built from the row-aligned languages as
Multi-SimLex builds them; see `data.word_similarity.crossed`.
"""

import dataclasses

import numpy as np

from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import chosen, two_letters
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.data.word_similarity import (
    CROSS_LINGUAL,
    DATA_SETS,
    HINT,
    MULTILINGUAL,
    Rows,
    Source,
    all_crossed,
    discover,
    read,
)
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.metrics.similarity import cosines, spearman
from official_cmlm.evaluation.scores import Missing, SuiteReport


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the suite; pairs, cosine and Spearman's correlation are fixed by the protocol.

    Attributes:
      tasks: data sets: `multi_simlex`, `simlex`, `cross_lingual_simlex`. Default: all found.
      languages: codes of languages, e.g. `en` or `ENG`; of a pair both must be named. Default: all
        found.
    """

    tasks: list[str] = dataclasses.field(default_factory=list)
    languages: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.tasks if name not in DATA_SETS]:
            raise ValueError(f"tasks: no {unknown[0]!r}; there are {', '.join(DATA_SETS)}")


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every language of `multi_simlex` and `simlex` and every `cross_lingual_simlex` pair.

    Tasks: `<data set>.<language>`, `cross_lingual_simlex.<language>-<language>` with the codes in
    alphabetical order, and `<data set>.average`, the unweighted mean over what was scored of the
    data set. Metric: `spearman`.

    Raises:
      UserError: if there are no data, or none of a language that was chosen.
    """
    found = discover(data, report)
    names = options.tasks or DATA_SETS
    there = {name: _languages(name, found) for name in names}
    for name in options.tasks:
        if not there[name]:
            report.missing.append(Missing(name, str(data.root / name), HINT))
    every = sorted({language for languages in there.values() for language in languages})
    chosen("word_similarity.languages", options.languages, every, report)
    codes = {two_letters(code) for code in options.languages or every}
    # SimLex-999 has the language's name where Multi-SimLex has its code.
    kept = {language for language in every if two_letters(language) in codes}
    rows: dict[str, Rows] = {}
    for name in DATA_SETS:
        scored: dict[str, tuple[float, int]] = {}
        for key, source in found[name].items():
            # Cross-lingual pairs are built from languages that need no score of their own.
            built_from = name == MULTILINGUAL and CROSS_LINGUAL in names
            parts = key.split("-") if name == CROSS_LINGUAL else [key]
            if not set(parts) <= kept or not (name in names or built_from):
                continue
            with report.task(f"{name}.{key}" if name in names else f"{CROSS_LINGUAL} of {key}"):
                pairs = read(data, source)
                if name == MULTILINGUAL:
                    rows[key] = pairs.numbered
                if name in names:
                    if pairs.skipped:
                        report.notes.append(
                            f"{name}.{key}: {pairs.skipped} malformed lines skipped"
                        )
                    scored[key] = _add(encode, f"{name}.{key}", pairs.scored, report)
        if name == CROSS_LINGUAL and name in names:
            for key, crossing in all_crossed(rows).items():
                if key not in found[name]:
                    with report.task(f"{name}.{key}"):
                        scored[key] = _add(encode, f"{name}.{key}", crossing, report)
        if scored:
            mean = float(np.mean([value for value, _ in scored.values()]))
            count = sum(count for _, count in scored.values())
            if len(scored) > 1 or not options.languages:
                part = f" of {len(scored)}" if options.languages else ""
                report.add(f"{name}.average{part}", "spearman", mean, count)
                chosen_part = ", a part that was chosen" if options.languages else ""
                report.notes.append(
                    f"{name}.average{part}: mean over {' '.join(scored)}{chosen_part}"
                )


def _languages(data_set: str, found: dict[str, dict[str, Source]]) -> list[str]:
    """The languages that a data set has files of; pairs are also built of Multi-SimLex's."""
    if data_set != CROSS_LINGUAL:
        return list(found[data_set])
    return [part for key in found[data_set] for part in key.split("-")] + list(found[MULTILINGUAL])


def _add(encode: Encode, task: str, pairs: ScoredPairs, report: SuiteReport) -> tuple[float, int]:
    value = spearman(cosines(encode, pairs), pairs.gold)
    report.add(task, "spearman", value, len(pairs.gold))
    return value, len(pairs.gold)
