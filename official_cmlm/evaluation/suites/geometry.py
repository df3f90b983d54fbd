"""Geometry of the space: isotropy, mean vector, alignment, uniformity, mean cosines.

Isotropy score and mean-vector norm as in Mirror-BERT (Liu et al. 2021), Equations 2 and 3, on the
texts used to tune it (footnote 15); alignment and uniformity as in Wang and Isola (2020), on STS-B
as in SimCSE (Gao et al. 2021); cosines of duplicate and of other question pairs as in Mirror-BERT's
Figure 7.

Mirror-BERT's Table 14 has an isotropy score of 0.043 with a mean-vector norm of 13.79, where
Equation 2 gives about e^-13 or less. Eleven of its twelve scores fit `isotropy_rows` within 0.03 on
random unscaled vectors with the printed norms: there c runs over the rows of the matrix of
eigenvectors, as `for c in eigenvectors` does in NumPy, where they are the columns. This is
inferred; the authors' code of the score is not published.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import at_least
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs, parse_sts_benchmark
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics import geometry
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.metrics.similarity import cosines
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.qnli import parse_labelled
from official_cmlm.evaluation.suites.sts import PairTask

_TEXT_HINT = (
    "text files, one text a line, e.g. the inputs in Mirror-BERT's repository "
    "(github.com/cambridgeltl/mirror-bert), belong into DATA_DIR/mirror_bert"
)
_NO_TEXTS = ("license", "licence", "readme")
_PAIR_HINT = "STS-B's sts-dev.csv of SentEval's data/downstream/STS/STSBenchmark"
_QUESTIONS_HINT = (
    "QQP's train.csv (kaggle.com/c/quora-question-pairs), or its dev.tsv of GLUE "
    "(gluebenchmark.com), belongs into DATA_DIR/qqp: with the columns question1, question2 and "
    "is_duplicate named in a header"
)
_QUESTION_COLUMNS = ("question1", "question2", "is_duplicate")
# Seed of the pairs that are drawn.
_SEED = 0
_PAIR_FOLDERS = ("senteval/downstream/STS/STSBenchmark", "STS/STSBenchmark", "STSBenchmark", ".")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the measures.

    Attributes:
      max_texts: number of lines of a file to use, from the first. Default 10000 (Mirror-BERT,
        footnote 15: "10k items for each task type").
      min_score: STS-B pairs with a larger score are positive pairs. Default 4 (SimCSE, section 3).
      question_pairs: number of QQP's pairs, drawn at random. Default 1000 (Mirror-BERT, section
        4.4).
    """

    max_texts: Annotated[int, at_least(2)] = 10000
    min_score: float = 4.0
    question_pairs: Annotated[int, at_least(2)] = 1000


_UNIT_RANGE, _LOWER = "0 to 1", "lower is better"
_metric = functools.partial(Metric, decimals=4)
RESULTS = SuiteResults(
    (
        _metric("isotropy", "isotropy score", _UNIT_RANGE, main=True),
        _metric(
            "isotropy_rows",
            "isotropy score over rows of the matrix of eigenvectors",
            _UNIT_RANGE,
            "as Mirror-BERT's tables seem to be",
        ),
        _metric("isotropy_unit", "isotropy score of unit vectors", _UNIT_RANGE),
        _metric("mean_vector_norm", "norm of the mean vector", better=-1),
        _metric("uniformity", "uniformity", "", _LOWER, better=-1),
        _metric("alignment", "alignment of positive pairs", "0 to 4", _LOWER, better=-1),
        _metric("cosine_positive", "mean cosine of duplicates", better=0),
        _metric("cosine_negative", "mean cosine of pairs that are no duplicates", better=0),
    ),
    bars="Isotropy, by set of texts",
    references=(("Mirror-BERT", "Table 14", "BERT-mp", "BERT + Mirror"),),
)


@register("geometry", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every `mirror_bert/*.txt`, STS-B's development set, and question pairs of QQP.

    Tasks: `<file stem>`, `sts-dev` and `qqp`. `isotropy`, `isotropy_rows` and `mean_vector_norm`
    are computed from the unscaled vectors; `isotropy_unit` (e^-2 to 1), `uniformity` (-8 to 0),
    `alignment` and cosines from vectors scaled to length 1. None is times 100.
    """
    report.seeds = [_SEED]
    with report.task("texts"):
        folder = data.folder("mirror_bert", hint=_TEXT_HINT)
        paths = sorted(path for path in folder.glob("*.txt") if path.stem.lower() not in _NO_TEXTS)
        if not paths:
            raise UserError(f"{folder}: no *.txt; {_TEXT_HINT}")
        yield from (_Texts(path.stem, data, path, options) for path in paths)
    yield _PositivePairs("sts-dev", data, options)
    read = functools.partial(_read_questions, data, options)
    yield _Questions("qqp", read, left_out="{skipped} malformed lines skipped")


@dataclasses.dataclass(eq=False)
class _Texts(Task):
    """The space of the texts of a file."""

    data: DataFolder
    path: Path
    options: Options

    @functools.cached_property
    def _texts(self) -> list[str]:
        lines = [line for line in self.data.lines(self.path, _TEXT_HINT) if line.strip()]
        if len(lines) < 2:
            raise UserError(f"{self.name}: {len(lines)} texts; need at least 2; {_TEXT_HINT}")
        return lines[: self.options.max_texts]

    def texts(self) -> TextsByRole:
        return {"": self._texts}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        _measure(self.name, encode(self._texts), report)


@dataclasses.dataclass(eq=False)
class _PositivePairs(Task):
    """The space of STS-B's sentences, and the distances of its similar pairs."""

    data: DataFolder
    options: Options

    @functools.cached_property
    def _read(self) -> tuple[list[str], ScoredPairs]:
        path = self.data.folder(*_PAIR_FOLDERS, hint=_PAIR_HINT) / "sts-dev.csv"
        pairs = parse_sts_benchmark(path, self.data.lines(path, _PAIR_HINT))
        least = self.options.min_score
        positive = pairs.take(np.flatnonzero(pairs.gold > least))
        if not positive.first:
            raise UserError(f"no pair has a score above {least}; lower geometry.min_score")
        return list(dict.fromkeys(pairs.texts))[: self.options.max_texts], positive

    def texts(self) -> TextsByRole:
        texts, positive = self._read
        return {"": [*texts, *positive.texts]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        texts, positive = self._read
        _measure(self.name, encode(texts), report)
        alignment = geometry.alignment(encode(positive.first), encode(positive.second))
        report.add(self.name, "alignment", alignment, len(positive.first))


class _Questions(PairTask):
    """Cosines of QQP's duplicates and of its other pairs."""

    def score(self, encode: Encode, report: SuiteReport) -> None:
        values, gold = cosines(encode, self.pairs), self.pairs.gold
        for kind, label in (("positive", 1), ("negative", 0)):
            of_kind = values[gold == label]
            report.add(self.name, f"cosine_{kind}", float(of_kind.mean()), len(of_kind))


def _read_questions(data: DataFolder, options: Options) -> ScoredPairs:
    """Draws pairs of QQP."""
    folder = data.folder("qqp", "QQP", "glue/QQP", hint=_QUESTIONS_HINT)
    # Mirror-BERT, appendix F, takes Kaggle's file.
    path = folder / ("train.csv" if (folder / "train.csv").is_file() else "dev.tsv")
    lines, labels = data.lines(path, _QUESTIONS_HINT), {"0": 0, "1": 1}
    pairs = parse_labelled(lines, str(path), _QUESTION_COLUMNS, labels, _QUESTIONS_HINT)
    rows = np.random.default_rng(_SEED).permutation(len(pairs.gold))
    drawn = pairs.take(rows[: options.question_pairs])
    if len(set(drawn.gold.tolist())) < 2:
        raise UserError("no duplicate among the pairs drawn; raise geometry.question_pairs")
    return drawn


def _measure(task: str, vectors: np.ndarray, report: SuiteReport) -> None:
    metrics = {
        "isotropy": geometry.isotropy_score(vectors),
        "isotropy_rows": geometry.isotropy_score(vectors, by_rows=True),
        "isotropy_unit": geometry.isotropy_score(unit(vectors, np.float64)),
        "mean_vector_norm": geometry.mean_vector_norm(vectors),
        "uniformity": geometry.uniformity(vectors),
    }
    report.add_all(task, metrics, len(vectors))
