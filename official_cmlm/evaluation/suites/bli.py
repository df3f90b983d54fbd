"""Bilingual lexicon induction: precision of word translation by retrieval (Mirror-BERT §3).

Dictionaries of Glavaš et al. (2019). An orthogonal map from the source to the target space is
learned from a training dictionary; then each source word of the test dictionary retrieves target
words: `p@1` with the spaces as they are, `p@1_centered` with each language's mean subtracted first,
as Artetxe et al. (2018) do. Mirror-BERT cites them for its setup without saying which of their
steps it takes. Without the map, `p@1_unmapped` shows how well one encoder's languages are aligned.

Each language can have an encoder of its own, as the papers' monolingual BERTs:
`--encoder=en:path,fr:path`. Then there is nothing to score without a map, and directions with
another language are left out.

The target words are those of the direction's training dictionaries (of all sizes) and test
dictionary, and of `bli/<lang>.vocab.txt` if it exists. Published results search vocabularies of
200,000 words, which is harder: compare figures only with such vocabulary files.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from scipy.linalg import orthogonal_procrustes

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.data.bli import HINT, Direction, discover, read_words
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import choose_languages, direction_name
from official_cmlm.evaluation.encoder import Encode, LanguageEncoders
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole, with_encoders
from official_cmlm.evaluation.suites import register

Pair = tuple[str, str]
"""Source word, target word."""

_AT = (1, 5)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the induction of a lexicon.

    Attributes:
      mapping: `procrustes` scores with and without the map, `none` without it only. Default
        `procrustes` (Mirror-BERT §3: "the standard mapping-based BLI setup").
      retrieval: `csls` or `cosine`. Default `csls` (Mirror-BERT §3).
      csls_k: number of neighbours in CSLS (Conneau et al. 2018, section 2.3). Default 10 (MUSE).
      pairs: directions, e.g. `en-fr`, which is not `fr-en`. Default: all found; where each language
        has an encoder, those between the encoders' languages.
    """

    mapping: Annotated[str, OneOf(("procrustes", "none"))] = "procrustes"
    retrieval: Annotated[str, OneOf(("csls", "cosine"))] = "csls"
    csls_k: Annotated[int, at_least(1)] = 10
    pairs: list[str] = dataclasses.field(default_factory=list)


_METRICS = tuple(Metric(f"p@{k}", f"precision at {k}", "%", main=k == 1) for k in _AT)
RESULTS = SuiteResults(
    (
        *_METRICS,
        *(metric.variant("_centered", "centred") for metric in _METRICS),
        *(metric.variant("_unmapped", "without a map") for metric in _METRICS),
    ),
    bars="Word translation, by languages and training dictionary",
    references=(("Mirror-BERT", "Table 19", "BERT-mp", "BERT + Mirror"),),
)


def center(vectors: np.ndarray) -> np.ndarray:
    """Subtracts the mean of unit rows and scales them to length 1 again (Artetxe et al. 2018)."""
    scaled = unit(vectors)
    return unit(scaled - scaled.mean(axis=0, dtype=np.float64))


def translations(
    queries: np.ndarray, candidates: np.ndarray, vocabulary: np.ndarray, options: Options
) -> np.ndarray:
    """Returns the best candidates of each query, best first.

    CSLS (Conneau et al. 2018) of x and y is 2 cos(x, y) − r(x) − r(y), where r is the mean cosine
    with the k nearest neighbours in the other language. r(x) does not change the order of x's
    candidates and is left out.

    Args:
      queries, candidates: float `[n, dim]` and `[m, dim]`, unit rows.
      vocabulary: float `[v, dim]`, unit rows: the words of the queries' language from which a
        candidate's r is computed.
      options: of the retrieval.

    Returns:
      int64 `[n, 5]`, or as many as there are candidates; ties are ordered by index.
    """
    penalties = None
    if options.retrieval == "csls":
        _, cosines = nearest(candidates, vocabulary, min(options.csls_k, len(vocabulary)))
        penalties = cosines.mean(axis=1) / 2
    return nearest(queries, candidates, min(max(_AT), len(candidates)), penalties)[0]


def precision_at(places: np.ndarray, gold: Sequence[set[int]], k: int) -> float:
    """Returns the percentage of queries with a candidate of `gold` among the first k (MUSE).

    `places` is int `[n, most]`, best first.
    """
    right = [
        not right_places.isdisjoint(row) for row, right_places in zip(places[:, :k].tolist(), gold)
    ]
    return 100.0 * float(np.mean(right))


@register("bli", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every direction found in the folder, with each size of training dictionary.

    Tasks in results: `<src>-<trg>.<size>`, e.g. `en-de.5k`. A direction without a training
    dictionary is the task `<src>-<trg>`, with the unmapped metrics only, which are the same for
    every size. `count` is the number of source words.
    """
    folder = data.folder("bli", "bli_datasets", hint=HINT)
    directions = discover(folder)
    names = {one.name: direction_name(one.name) for one in directions}
    directions_named = [direction_name(pair) for pair in options.pairs]
    chosen_names = choose_languages(
        "bli.pairs", directions_named, sorted(set(names.values())), report
    )
    directions = [one for one in directions if names[one.name] in chosen_names]
    translations_of_all = (
        _Translation(one.name, data, one, options, text_languages=frozenset(one.languages))
        for one in directions
    )
    # A direction that was named and lacks an encoder is a failure of its own.
    yield from (
        translations_of_all
        if options.pairs
        else with_encoders(translations_of_all, report, across=True)
    )


@dataclasses.dataclass(eq=False)
class _Translation(Task):
    """The dictionaries of one direction."""

    data: DataFolder
    direction: Direction
    options: Options

    @functools.cached_property
    def _dictionaries(self) -> tuple[list[Pair], dict[str, list[Pair]], list[list[str]]]:
        """Test pairs, training pairs by size, and the words of both languages, each once."""
        data, direction = self.data, self.direction
        if not direction.tests:
            raise UserError(f"{direction.folder}: no test dictionary of {self.name}; {HINT}")
        tests = [pair for path in direction.tests for pair in self._pairs(path)]
        training: dict[str, list[Pair]] = {}
        for size, path in direction.training.items():
            try:
                training[size] = self._pairs(path)
            except UserError as error:
                self.unread[f"{self.name}.{size}"] = error
        pairs = [*(pair for size in training for pair in training[size]), *tests]
        sides = [
            list(dict.fromkeys([pair[side] for pair in pairs] + read_words(data, vocabulary)))
            for side, vocabulary in enumerate(direction.vocabularies)
        ]
        self.notes.append(
            f"{self.name}: {len(sides[1])} target words to search, {len(sides[0])} source words; "
            "published results search 200,000"
        )
        return tests, training, sides

    def _pairs(self, path: Path) -> list[Pair]:
        return self.data.pairs(path, HINT, "pair of words", self.notes)

    def texts(self) -> TextsByRole:
        return {"": [word for side in self._dictionaries[2] for word in side]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        options = self.options
        tests, training, words = self._dictionaries
        source, target = self._vectors(encode, words)
        index = [{word: i for i, word in enumerate(side)} for side in words]
        gold: dict[int, set[int]] = {}
        for word, translation in tests:
            gold.setdefault(index[0][word], set()).add(index[1][translation])

        def precisions(source: np.ndarray, target: np.ndarray, suffix: str) -> dict[str, float]:
            places = translations(source[list(gold)], target, source, options)
            return {f"p@{k}{suffix}": precision_at(places, list(gold.values()), k) for k in _AT}

        with_map = options.mapping == "procrustes" and training
        maps = {"": lambda vectors: vectors, "_centered": center} if with_map else {}
        # Spaces of two encoders have nothing in common before they are mapped.
        shared = not isinstance(encode, LanguageEncoders)
        if not maps and not shared:
            raise UserError(
                "two encoders cannot be compared without a map and a training dictionary"
            )
        unmapped = precisions(source, target, "_unmapped") if shared else {}
        for size in training or [""]:
            scores = dict(unmapped)
            for suffix, prepare_side in maps.items():
                first, second = prepare_side(source), prepare_side(target)
                rows, others = zip(*((index[0][a], index[1][b]) for a, b in training[size]))
                # The map is the orthogonal W with source @ W closest to target (Schönemann 1966;
                # MUSE).
                pairs = (side[list(chosen)] for side, chosen in ((first, rows), (second, others)))
                weights, _ = orthogonal_procrustes(*(side.astype(np.float64) for side in pairs))
                mapped = unit(first @ weights.astype(np.float32))
                scores |= precisions(mapped, second, suffix)
            report.add_all(f"{self.name}.{size}" if size else self.name, scores, len(gold))

    def _vectors(self, encode: Encode, words: list[list[str]]) -> list[np.ndarray]:
        """Returns unit vectors of the words of both languages, each by the language's encoder."""
        encoders = [encode, encode]
        if isinstance(encode, LanguageEncoders):
            encoders = [encode.of(language) for language in self.direction.languages]
        vectors = [one(side) for one, side in zip(encoders, words)]
        widths = [array.shape[1] for array in vectors]
        if widths[0] != widths[1]:
            raise UserError(
                f"the encoders of {self.name} are {widths[0]} and {widths[1]} wide; an orthogonal "
                "map needs equal widths"
            )
        return list(map(unit, vectors))
