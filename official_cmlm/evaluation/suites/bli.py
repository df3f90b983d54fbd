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
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.bli import (
    HINT,
    Direction,
    Pair,
    discover,
    read_pairs,
    read_words,
)
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import chosen, direction_name
from official_cmlm.evaluation.encoding import Encode, LanguageEncoders
from official_cmlm.evaluation.metrics.lexicon import (
    RETRIEVALS,
    centred,
    precision_at,
    procrustes,
    translations,
)
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import (
    Bars,
    Metric,
    SuiteResults,
    Task,
    TextsByRole,
    paper_rows,
    with_encoders,
)
from official_cmlm.validation import OneOf, at_least

_AT = (1, 5)
MAPPINGS = ("procrustes", "none")


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

    mapping: Annotated[str, OneOf(tuple(MAPPINGS))] = "procrustes"
    retrieval: Annotated[str, OneOf(tuple(RETRIEVALS))] = "csls"
    csls_k: Annotated[int, at_least(1)] = 10
    pairs: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Space:
    """The words of a language and their vectors.

    Attributes:
      index: word -> row of `vectors`.
      vectors: float32 `[n, dim]`, unit rows.
    """

    index: dict[str, int]
    vectors: np.ndarray

    def rows(self, words: list[str]) -> np.ndarray:
        """Returns the rows of words: int64 `[len(words)]`."""
        return np.array([self.index[word] for word in words], np.int64)


@dataclasses.dataclass(frozen=True)
class Questions:
    """The source words of a test dictionary with their correct translations.

    Attributes:
      queries: int64 `[n]`, rows of distinct source words.
      gold: for each query, the rows of its translations.
    """

    queries: np.ndarray
    gold: list[set[int]]


def questions(pairs: list[Pair], source: Space, target: Space) -> Questions:
    """Groups the pairs of a dictionary by source word; each of its translations is correct."""
    gold: dict[int, set[int]] = {}
    for word, translation in pairs:
        gold.setdefault(source.index[word], set()).add(target.index[translation])
    return Questions(np.array(list(gold), np.int64), list(gold.values()))


def precisions(
    source: np.ndarray, target: np.ndarray, asked: Questions, options: Options
) -> dict[str, float]:
    """Computes `p@1` and `p@5`, times 100, of unit rows in a common space."""
    found = translations(
        source[asked.queries], target, source, max(_AT), options.retrieval, options.csls_k
    )
    return {f"p@{k}": precision_at(found, asked.gold, k) for k in _AT}


def mapped_precisions(
    source: Space,
    target: Space,
    train: list[Pair],
    asked: Questions,
    options: Options,
    center: bool,
) -> dict[str, float]:
    """Computes `precisions` after mapping the source space by the map learned from `train`.

    With `center`, each language's mean is subtracted before the map is learned.
    """
    first, second = source.vectors, target.vectors
    if center:
        first, second = centred(first), centred(second)
    weights = procrustes(
        first[source.rows([word for word, _ in train])],
        second[target.rows([word for _, word in train])],
    )
    return precisions(unit(first @ weights.astype(np.float32)), second, asked, options)


_METRICS = tuple(Metric(f"p@{k}", f"precision at {k}", "%", main=k == 1) for k in _AT)
RESULTS = SuiteResults(
    (
        *_METRICS,
        *(metric.variant("_centered", "centred") for metric in _METRICS),
        *(metric.variant("_unmapped", "without a map") for metric in _METRICS),
    ),
    bars=Bars(
        "Word translation, by languages and training dictionary",
        references=paper_rows("Mirror-BERT", "Table 19", "BERT-mp", "BERT + Mirror"),
    ),
)


def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every direction found in the folder, with each size of training dictionary.

    Tasks in results: `<src>-<trg>.<size>`, e.g. `en-de.5k`: `p@1` and `p@5` with the map, the same
    with `_centered` (see the module), and with `_unmapped` without the map (the same for every
    size). A direction without a training dictionary is the task `<src>-<trg>`, with the unmapped
    metrics only. `count` is the number of source words.
    """
    folder = data.folder("bli", "bli_datasets", hint=HINT)
    directions = discover(folder)
    names = {one.name: direction_name(one.name) for one in directions}
    wanted = [direction_name(pair) for pair in options.pairs]
    kept = chosen("bli.pairs", wanted, sorted(set(names.values())), report)
    directions = [one for one in directions if names[one.name] in kept]
    found = (
        _Translation(one.name, data, one, options, text_languages=frozenset(one.languages))
        for one in directions
    )
    # One that was named and lacks an encoder is a failure of its own.
    yield from found if options.pairs else with_encoders(found, report, across=True)


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
        tests = [pair for path in direction.tests for pair in read_pairs(data, path, self.notes)]
        training: dict[str, list[Pair]] = {}
        for size, path in direction.training.items():
            try:
                training[size] = read_pairs(data, path, self.notes)
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

    def texts(self) -> TextsByRole:
        return {"": [word for side in self._dictionaries[2] for word in side]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        options = self.options
        tests, training, words = self._dictionaries
        source, target = self._spaces(encode, words)
        asked = questions(tests, source, target)
        with_map = options.mapping == "procrustes" and training
        maps = {"": False, "_centered": True} if with_map else {}
        # Spaces of two encoders have nothing in common before they are mapped.
        shared = not isinstance(encode, LanguageEncoders)
        if not maps and not shared:
            raise UserError(
                "two encoders cannot be compared without a map and a training dictionary"
            )
        plain = precisions(source.vectors, target.vectors, asked, options) if shared else {}
        for size in training or [""]:
            task = f"{self.name}.{size}" if size else self.name
            scores = {f"{name}_unmapped": value for name, value in plain.items()}
            for suffix, center in maps.items():
                mapped = mapped_precisions(source, target, training[size], asked, options, center)
                scores |= {f"{name}{suffix}": value for name, value in mapped.items()}
            report.add_all(task, scores, len(asked.gold))

    def _spaces(self, encode: Encode, words: list[list[str]]) -> list[Space]:
        """Returns the spaces of both languages, each by the language's encoder."""
        if isinstance(encode, LanguageEncoders):
            vectors = [encode.of(n)(side) for n, side in zip(self.direction.languages, words)]
        else:
            vectors = [encode(side) for side in words]
        widths = [array.shape[1] for array in vectors]
        if widths[0] != widths[1]:
            raise UserError(
                f"the encoders of {self.name} are {widths[0]} and {widths[1]} wide; an orthogonal "
                "map needs equal widths"
            )
        return [
            Space({word: i for i, word in enumerate(side)}, unit(array))
            for side, array in zip(words, vectors)
        ]
