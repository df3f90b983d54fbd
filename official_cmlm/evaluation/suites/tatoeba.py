"""Tatoeba: accuracy of retrieving a sentence's translation among all translations.

LASER's files (Artetxe and Schwenk 2019) and XTREME's protocol (Hu et al. 2020): the nearest
neighbour by cosine, accuracy per language, unweighted mean over 36 languages (CMLM §4.6, Table 5).
XTREME queries in English; CMLM does not name the direction, so both and their mean are reported.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import XTREME, choose_languages
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.nearest import finds_own_row
from official_cmlm.evaluation.metrics.principal_components import RemovalOptions
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Summary, Task, TextsByRole
from official_cmlm.evaluation.suites import register

HINT = (
    "Tatoeba is in LASER's repository: data/tatoeba/v1 (github.com/facebookresearch/LASER) as "
    "tatoeba.<xxx>-eng.<xxx> and tatoeba.<xxx>-eng.eng"
)

# A mean over at most this many chosen languages is named after them, a mean over more after their
# number.
_MOST_IN_NAME = 6
# Groups of languages of which papers give means: those of multilingual USE besides English (LaBSE,
# Feng et al. 2022), and XTREME's.
_GROUPS = {
    "macro14": "ar de es fr it ja ko nl pol pt ru th tr zh".split(),
    "macro36": list(XTREME.values()),
}
# All languages of LASER's files.
_ALL_LANGUAGES = 112
_FILE = re.compile(r"tatoeba\.([^.-]+)-eng\.(?:\1|eng)")


@dataclasses.dataclass(frozen=True)
class Options(RemovalOptions):
    """The options of `RemovalOptions`, and:

    Attributes:
      languages: codes of the files or XTREME's, e.g. `deu` or `de`. Default: all found.
    """

    languages: list[str] = dataclasses.field(default_factory=list)


Sides = Sequence[np.ndarray]
"""English sentences and their translations, float `[n, dim]` each."""


def accuracies(queries: Sides, candidates: Sides, suffix: str = "") -> dict[str, float]:
    """Returns accuracies of retrieving translations, times 100: both directions, and their mean.

    `suffix` ends the names.
    """
    there, back = (
        100.0 * float(finds_own_row(queries[side], candidates[1 - side]).mean()) for side in (0, 1)
    )
    return {
        f"accuracy_from_english{suffix}": there,
        f"accuracy_to_english{suffix}": back,
        f"accuracy_mean{suffix}": (there + back) / 2,
    }


def without_components(sides: Sides, options: Options) -> Sides:
    """Returns both sides after principal component removal.

    The components are computed from the compared sentences themselves (CMLM §5.2: "computed with
    texts in language l1 in Tatoeba"); English ones from the English side of this language's file.
    """
    both = dict(zip(("English", "foreign"), sides))
    removal = options.fit(both)
    return [removal(vectors, side) for side, vectors in both.items()]


_METRICS = (
    Metric("accuracy_mean", "accuracy", "%", "mean of both directions", main=True),
    Metric("accuracy_from_english", "accuracy", "%", "from English"),
    Metric("accuracy_to_english", "accuracy", "%", "to English"),
)
RESULTS = SuiteResults(
    (*_METRICS, *(m.variant("_pcr", f"{m.detail}, component removed") for m in _METRICS)),
    averages=r"macro(14|36|112)?",
    bars="Translations found as the nearest neighbour, by language",
    references=(("CMLM", "Table 5", "mBERT", "CMLM + BR"),),
)


@register("tatoeba", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every language found in the folder, and unweighted means over languages.

    Tasks: XTREME's two-letter code, or the file's code for other languages; `macro` over all that
    were scored, and means over `_GROUPS` if all of their languages are there. `count` is the number
    of sentence pairs, for means the number of languages.
    """
    folder = data.folder("tatoeba/v1", "tatoeba", ".", hint=HINT)
    matches = [_FILE.fullmatch(path.name) for path in sorted(folder.glob("tatoeba.*"))]
    codes = list(dict.fromkeys(match[1] for match in matches if match))
    if not codes:
        raise MissingData(folder / "tatoeba.<xxx>-eng.<xxx>", HINT)
    # If the folder has files under both codes of a language, each keeps its own.
    names = {c: c if XTREME.get(c, c) in codes else XTREME.get(c, c) for c in codes}
    chosen_codes = choose_languages("tatoeba.languages", options.languages, codes, report)
    languages = [_Language(names[code], data, folder, code, options) for code in chosen_codes]
    yield from languages
    is_part = bool(options.languages)
    yield Summary("", functools.partial(_summarize, languages, len(codes), is_part))


@dataclasses.dataclass(eq=False)
class _Language(Task):
    """Sentences of a language and their English translations."""

    data: DataFolder
    folder: Path
    code: str
    options: Options
    metrics: dict[str, float] = dataclasses.field(default_factory=dict, init=False)

    @functools.cached_property
    def _sides(self) -> tuple[list[str], list[str]]:
        stem = self.folder / f"tatoeba.{self.code}-eng"
        foreign, english = (
            self.data.lines(stem.with_name(f"{stem.name}.{side}"), HINT)
            for side in (self.code, "eng")
        )
        if len(foreign) != len(english) or not english:
            raise UserError(
                f"{stem}.{self.code} has {len(foreign)} rows, {stem}.eng has {len(english)}; row "
                "i of one must translate row i of the other; download both again"
            )
        return foreign, english

    def texts(self) -> TextsByRole:
        foreign, english = self._sides
        return {"": [*foreign, *english]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        sides, options = [encode(side) for side in reversed(self._sides)], self.options
        self._add(report, accuracies(sides, sides))
        if options.pcr:
            removed = without_components(sides, options)
            candidates = removed if options.sides == "both" else sides
            self._add(report, accuracies(removed, candidates, "_pcr"))

    def _add(self, report: SuiteReport, metrics: dict[str, float]) -> None:
        self.metrics |= metrics
        report.add_all(self.name, metrics, len(self._sides[0]))


def _summarize(languages: list[_Language], there: int, is_part: bool, report: SuiteReport) -> None:
    """Adds unweighted means over languages, and a note on languages that they lack."""
    results = {one.name: one.metrics for one in languages if one.metrics}
    mean_name = "macro"
    if is_part:
        many = len(results) > _MOST_IN_NAME
        named = f"{len(results)} languages" if many else "+".join(results)
        mean_name = f"macro of {named}"
    for name in dict.fromkeys(name for metrics in results.values() for name in metrics):
        values = {task: metrics[name] for task, metrics in results.items() if name in metrics}
        if len(results) > 1 or not is_part:
            report.add(mean_name, name, float(np.mean(list(values.values()))), len(values))
        groups = _GROUPS | ({"macro112": list(values)} if len(values) == _ALL_LANGUAGES else {})
        for group, members in groups.items():
            if values.keys() >= set(members):
                mean = float(np.mean([values[task] for task in members]))
                report.add(group, name, mean, len(members))
    missing = sorted(set(XTREME.values()) - results.keys())
    if is_part:
        report.notes.append(
            f"{mean_name}: a part that was chosen, {len(results)} of {there} languages: "
            f"{' '.join(results)}"
        )
    elif missing:
        report.notes.append(
            f"no macro36: {len(missing)} of XTREME's 36 languages are missing: {' '.join(missing)}"
        )
