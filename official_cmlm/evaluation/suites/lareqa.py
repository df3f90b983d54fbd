"""LAReQA: sentences that answer a question, in a pool of all languages (Roy et al. 2020).

Questions of XQuAD-R in each of its languages are asked of one pool: the sentences of the same
paragraphs in all languages, by cosine. Relevant are the sentences with the answer, one in each
language: mean average precision × 100, also among the sentences of the question's own language
alone, and the share of that language among the ten nearest. Questions and sentences get the
encoder's prompts for queries and documents. The paper's candidates are sentences with their
paragraph (`context`).
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import join_inside, read_json
from official_cmlm.common.text_files import read_with_language
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import choose_languages, two_letters
from official_cmlm.evaluation.encoder import Encode, for_role
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.metrics.principal_components import RemovalOptions
from official_cmlm.evaluation.metrics.ranking import average_precision
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.retrieval import Roles

_HINT = (
    "xquad-r/<lang>.json of github.com/google-research-datasets/lareqa belongs into DATA_DIR/lareqa"
)
_NEAREST = 10


@dataclasses.dataclass(frozen=True)
class Options(RemovalOptions):
    """The options of `RemovalOptions`, and:

    Attributes:
      languages: codes of the languages of questions and pool, at least two. Default: all found.
      context: candidates are sentences, each followed by its paragraph. Default false: alone.
      fit_on: the removal is fitted on these texts: a file below `--data_dir`, a table or JSON
        objects with `text` and `lang`. Texts that the paragraphs of the set contain are left out.
        Default: on the set itself, which gives a bound rather than a result.
    """

    languages: list[str] = dataclasses.field(default_factory=list)
    context: bool = False
    fit_on: str = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """The questions and candidates of one language.

    Attributes:
      questions: id -> text.
      answers: id -> row of the candidate with the answer.
      candidates: sentences, or sentences with their paragraphs.
      paragraphs: all paragraphs.
    """

    questions: dict[str, str] = dataclasses.field(default_factory=dict)
    answers: dict[str, int] = dataclasses.field(default_factory=dict)
    candidates: list[str] = dataclasses.field(default_factory=list)
    paragraphs: list[str] = dataclasses.field(default_factory=list)


def parse(document: Any, context: bool = False) -> Part:
    """Returns the questions and candidates of a file's JSON; a shape of another kind raises.

    An answer of several sentences counts as the one in which it begins.
    """
    part = Part()
    for paragraph in (p for article in document["data"] for p in article["paragraphs"]):
        text, sentences = paragraph["context"], paragraph["sentences"]
        breaks = zip(paragraph["sentence_breaks"], sentences, strict=True)
        starts = [start for (start, _), _ in breaks]
        for question in paragraph["qas"]:
            begin = question["answers"][0]["answer_start"]
            sentence = int(np.searchsorted(starts, begin, side="right")) - 1
            part.questions[question["id"]] = question["question"]
            part.answers[question["id"]] = len(part.candidates) + max(sentence, 0)
        part.candidates.extend(f"{one} {text}" if context else one for one in sentences)
        part.paragraphs.append(text)
    return part


Vectors = Mapping[str, np.ndarray]
"""Language -> float `[n, dim]`."""


def score(
    parts: Mapping[str, Part], questions: Vectors, candidates: Vectors
) -> dict[str, dict[str, float]]:
    """Computes `map`, `map_own_language` and `share_own` of each language's questions, times 100.

    The relevant candidates of a question are the answers to it in all languages. Ties are ordered
    by language, then by row.
    """
    languages = list(parts)
    sizes = [len(candidates[language]) for language in languages]
    pool = np.concatenate([unit(candidates[language]) for language in languages])
    home, starts = np.repeat(np.arange(len(sizes)), sizes), np.cumsum([0, *sizes])
    scores = {}
    for own, language in enumerate(languages):
        relevant = np.zeros([len(questions[language]), len(pool)], bool)
        for row, name in enumerate(parts[language].questions):
            for start, other in zip(starts, parts.values()):
                if name in other.answers:
                    relevant[row, start + other.answers[name]] = True
        places, _ = nearest(unit(questions[language]), pool, len(pool))
        hits = np.take_along_axis(relevant, places, axis=1)
        is_own = home[places] == own
        # Each ranking has all candidates of the language, so the rows keep their lengths.
        own_hits = hits[is_own].reshape(len(places), -1)
        precisions = {
            name: average_precision(gains, gains.sum(axis=1), gains.shape[1])
            for name, gains in (("map", hits), ("map_own_language", own_hits))
        }
        scores[language] = {name: 100.0 * float(row.mean()) for name, row in precisions.items()}
        scores[language]["share_own"] = 100.0 * float(is_own[:, :_NEAREST].mean())
    return scores


_METRICS = (
    Metric("map", "MAP in the pool of all languages", "× 100", main=True),
    Metric("map_own_language", "MAP among the question's own language", "× 100"),
    Metric("share_own", f"question's own language among {_NEAREST}", "%", better=-1),
)
RESULTS = SuiteResults(
    (*_METRICS, *(metric.variant("_pcr", "component removed") for metric in _METRICS)),
    averages=r"all( of .*)?",
    bars="Answers found in a pool of all languages, by language of the question",
)


@register("lareqa", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields one task: each language's questions, and their unweighted mean, `all`.

    If languages were chosen, the mean is called e.g. `all of de+en`, and the pool has these alone.
    `count` is the number of questions.
    """
    folder = data.folder("lareqa/xquad-r", "xquad-r", "lareqa", hint=_HINT)
    there = [path.stem for path in sorted(folder.glob("*.json"))]
    if not there:
        raise MissingData(folder / "<lang>.json", _HINT)
    languages = choose_languages("lareqa.languages", options.languages, there)
    if len(languages) < 2:
        raise UserError(f"{folder}: the pool has {languages[0]} only, it needs two; {_HINT}")
    report.configuration = "sentences with paragraphs" if options.context else "sentences alone"
    yield _Pool("", data, [folder / f"{language}.json" for language in languages], options)
    yield Roles("")


@dataclasses.dataclass(eq=False)
class _Pool(Task):
    """Questions and candidates in all languages."""

    data: DataFolder
    paths: Sequence[Path]
    options: Options

    @functools.cached_property
    def _parts(self) -> dict[str, Part]:
        parts = {}
        for path in self.paths:
            document = read_json(self.data.file(path, _HINT), _HINT)
            with guard_reading(path, _HINT):
                parts[path.stem] = parse(document, self.options.context)
            if not parts[path.stem].questions:
                raise UserError(f"{path}: no question in it; {_HINT}")
        return parts

    @functools.cached_property
    def _fitting(self) -> dict[str, list[str]]:
        """The texts of `fit_on` by language; empty without it."""
        texts: dict[str, list[str]] = {}
        if not (self.options.pcr and self.options.fit_on):
            return texts
        name = self.options.fit_on
        path = self.data.file(
            join_inside(self.data.root, name, "lareqa.fit_on"), "lareqa.fit_on is below DATA_DIR"
        )
        paragraphs = [_squeeze(text) for part in self._parts.values() for text in part.paragraphs]
        tested, left_out = "\n".join(paragraphs), 0
        for text, language in read_with_language([str(path)]):
            if _squeeze(text) in tested:
                left_out += 1
            else:
                texts.setdefault(two_letters(language), []).append(text)
        lacking = [code for code in self._parts if code not in texts]
        if lacking and not self.options.language_components:
            raise UserError(
                f"{path}: no text in {', '.join(lacking)}; leave these out of lareqa.languages, or "
                "set lareqa.language_components"
            )
        self.notes.append(
            f"removal fitted on {sum(map(len, texts.values()))} texts in {len(texts)} languages of "
            f"{name}; {left_out} more are in the evaluated paragraphs"
        )
        return texts

    def texts(self) -> TextsByRole:
        parts, fitting = self._parts.values(), self._fitting.values()
        candidates = [text for part in parts for text in part.candidates]
        return {
            "query": [text for part in parts for text in part.questions.values()],
            "document": candidates + [text for texts in fitting for text in texts],
        }

    def score(self, encode: Encode, report: SuiteReport) -> None:
        options, ask, find = self.options, for_role(encode, "query"), for_role(encode, "document")
        questions = {code: ask(list(part.questions.values())) for code, part in self._parts.items()}
        candidates = {code: find(part.candidates) for code, part in self._parts.items()}
        self._add(report, questions, candidates, "")
        if not options.pcr:
            return
        with report.task("pcr"):
            embeddings = {code: find(texts) for code, texts in self._fitting.items()} or {
                code: np.concatenate([questions[code], candidates[code]]) for code in questions
            }
            removal = options.fit(embeddings)
            questions = {code: removal(rows, code) for code, rows in questions.items()}
            if options.sides == "both":
                candidates = {code: removal(rows, code) for code, rows in candidates.items()}
            self._add(report, questions, candidates, "_pcr")

    def _add(
        self, report: SuiteReport, questions: Vectors, candidates: Vectors, suffix: str
    ) -> None:
        scores = score(self._parts, questions, candidates)
        for code, metrics in scores.items():
            for name, value in metrics.items():
                report.add(code, name + suffix, value, len(questions[code]))
        count = sum(map(len, questions.values()))
        whole = f"all of {'+'.join(scores)}" if self.options.languages else "all"
        for name in scores[code]:
            mean = float(np.mean([metrics[name] for metrics in scores.values()]))
            report.add(whole, name + suffix, mean, count)


def _squeeze(text: str) -> str:
    return " ".join(text.split())
