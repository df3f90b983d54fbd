"""Tatoeba: accuracy of retrieving a sentence's translation among all translations.

LASER's files (Artetxe and Schwenk 2019) and XTREME's protocol (Hu et al. 2020): the nearest
neighbour by cosine, accuracy per language, unweighted mean over 36 languages (CMLM §4.6, Table 5).
XTREME queries in English; CMLM does not name the direction, so both and their mean are reported.

The data of CMLM's Figure 3 are here too: sentences of a language and their English translations on
the first two principal axes of both.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import XTREME, chosen
from official_cmlm.evaluation.encoding import Encode, prepare
from official_cmlm.evaluation.metrics.nearest import finds_own_row
from official_cmlm.evaluation.metrics.plane import plane
from official_cmlm.evaluation.metrics.principal_components import RemovalOptions, fit_removal
from official_cmlm.evaluation.scores import MissingData, SuiteReport

HINT = (
    "Tatoeba is in LASER's repository: data/tatoeba/v1 (github.com/facebookresearch/LASER) as "
    "tatoeba.<xxx>-eng.<xxx> and tatoeba.<xxx>-eng.eng"
)

# Languages that a mean over chosen ones is named after; of more, their number.
_MOST_IN_NAME = 6
# Languages of CMLM's Figure 3, in its order.
_DRAWN = ("fr", "de", "ru", "es")
_FILE = re.compile(r"tatoeba\.([^.-]+)-eng\.(?:\1|eng)")


@dataclasses.dataclass(frozen=True)
class Options(RemovalOptions):
    """The options of `RemovalOptions`, and:

    Attributes:
      languages: codes of the files or XTREME's, e.g. `deu` or `de`. Default: all found.
    """

    languages: list[str] = dataclasses.field(default_factory=list)


def accuracies(english: np.ndarray, foreign: np.ndarray) -> dict[str, float]:
    """Retrieval accuracy, times 100, in both directions and their mean.

    Args:
      english, foreign: float `[n, dim]`, row i of one translates row i of the other.

    Returns:
      `accuracy_from_english` (English queries, as in XTREME), `accuracy_to_english` and
      `accuracy_mean`.
    """
    return _both_directions(finds_own_row(english, foreign), finds_own_row(foreign, english))


def accuracies_removed(
    english: np.ndarray, foreign: np.ndarray, options: Options
) -> dict[str, float]:
    """`accuracies` after principal component removal; the names end in `_pcr`.

    The components are computed from the compared sentences themselves (CMLM §5.2: "computed with
    texts in language l1 in Tatoeba"); English ones from the English side of this language's file.

    Raises:
      UserError: if there are more components to remove than rows or dimensions.
    """
    vectors = {"English": english, "foreign": foreign}
    removed = _removed(vectors, options)
    candidates = removed if options.sides == "both" else vectors
    both = _both_directions(
        finds_own_row(removed["English"], candidates["foreign"]),
        finds_own_row(removed["foreign"], candidates["English"]),
    )
    return {f"{name}_pcr": value for name, value in both.items()}


def _removed(vectors: Mapping[str, np.ndarray], options: Options) -> dict[str, np.ndarray]:
    removal = fit_removal(vectors, options.num_components, options.center)
    return {language: removal(rows, language) for language, rows in vectors.items()}


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every language found in the folder, and unweighted means over languages.

    Tasks: XTREME's two-letter code, or the file's code for other languages; `macro`, the mean over
    all scored languages; `macro36`, over XTREME's 36 if all are there. `count` is the number of
    sentence pairs, for means the number of languages.

    Figures: `tatoeba_accuracy`; `embedding_map`, of the paper's four languages, or of the first
    four scored if the data has none of these: task -> `before` and, after removal, `after` -> `en`
    and the task -> [x, y] of up to 100 sentences, row i of both translating each other.

    Raises:
      UserError: if there are no files, or none of a language that was chosen.
    """
    folder = data.folder("tatoeba/v1", "tatoeba", ".", hint=HINT)
    matches = [_FILE.fullmatch(path.name) for path in sorted(folder.glob("tatoeba.*"))]
    codes = list(dict.fromkeys(match[1] for match in matches if match))
    if not codes:
        raise MissingData(folder / "tatoeba.<xxx>-eng.<xxx>", HINT)
    # If the folder has files under both codes of a language, each keeps its own.
    tasks = {c: c if XTREME.get(c, c) in codes else XTREME.get(c, c) for c in codes}
    kept = chosen("tatoeba.languages", options.languages, codes, report)
    drawn = {tasks[code] for code in kept} & set(_DRAWN)
    drawn = drawn or {tasks[code] for code in kept[: len(_DRAWN)]}
    results: dict[str, dict[str, float]] = {}
    maps: dict[str, dict] = {}
    for code in kept:
        task = tasks[code]
        with report.task(task):
            stem = folder / f"tatoeba.{code}-eng"
            foreign, english = (
                data.lines(stem.with_name(f"{stem.name}.{side}"), HINT) for side in (code, "eng")
            )
            if len(foreign) != len(english) or not english:
                raise UserError(
                    f"{stem}.{code} has {len(foreign)} rows, {stem}.eng has {len(english)}; row i "
                    f"of one must translate row i of the other; download both again"
                )
            prepare(encode, foreign, english)
            foreign_vectors, english_vectors = encode(foreign), encode(english)
            results[task] = accuracies(english_vectors, foreign_vectors)
            _add(report, task, results[task], len(english))
            both = {"en": english_vectors, task: foreign_vectors}
            if task in drawn:
                maps[task] = {"before": plane(both)}
            if options.pcr:
                removed = accuracies_removed(english_vectors, foreign_vectors, options)
                results[task] |= removed
                _add(report, task, removed, len(english))
                if task in drawn:
                    maps[task]["after"] = plane(_removed(both, options))
    _add_means(results, report, len(codes), bool(options.languages))
    report.figures["tatoeba_accuracy"] = results
    if maps:
        order = [task for task in _DRAWN if task in maps]
        report.figures["embedding_map"] = {task: maps[task] for task in order or maps}


def _both_directions(from_english: np.ndarray, to_english: np.ndarray) -> dict[str, float]:
    there, back = 100.0 * float(from_english.mean()), 100.0 * float(to_english.mean())
    return {
        "accuracy_from_english": there,
        "accuracy_to_english": back,
        "accuracy_mean": (there + back) / 2,
    }


def _add(report: SuiteReport, task: str, metrics: dict[str, float], count: int) -> None:
    for name, value in metrics.items():
        report.add(task, name, value, count)


def _add_means(
    results: dict[str, dict[str, float]], report: SuiteReport, there: int, part: bool
) -> None:
    """Adds unweighted means over languages, and a note on what they are not over.

    Args:
      results: task -> metric -> value.
      report: where they go.
      there: number of languages in the folder.
      part: whether some of these were chosen.
    """
    mean_name = "macro"
    if part:
        many = len(results) > _MOST_IN_NAME
        named = f"{len(results)} languages" if many else "+".join(results)
        mean_name = f"macro of {named}"
    for name in dict.fromkeys(name for metrics in results.values() for name in metrics):
        values = {task: metrics[name] for task, metrics in results.items() if name in metrics}
        if len(results) > 1 or not part:
            report.add(mean_name, name, float(np.mean(list(values.values()))), len(values))
        if values.keys() >= set(XTREME.values()):
            mean = float(np.mean([values[task] for task in XTREME.values()]))
            report.add("macro36", name, mean, len(XTREME))
    missing = sorted(set(XTREME.values()) - results.keys())
    if part:
        report.notes.append(
            f"{mean_name}: a part that was chosen, {len(results)} of {there} languages: "
            f"{' '.join(results)}"
        )
    elif missing:
        report.notes.append(
            f"no macro36: {len(missing)} of XTREME's 36 languages are missing: {' '.join(missing)}"
        )
