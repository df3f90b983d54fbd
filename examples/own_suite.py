"""Answers found by their questions, from a file of your own: a suite outside of the package.

Each question searches all answers of `DATA_DIR/faq/pairs.tsv`, which has a question, a tab and its
answer in each line. Score an encoder with it:

    cmlm evaluate mini-en --import_module=examples.own_suite --suites=faq --data_dir=work/data \
        --to=work/scores
"""

import dataclasses
import functools
from typing import Annotated

import numpy as np

from official_cmlm.common.validation import at_least
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import for_role
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task
from official_cmlm.evaluation.suites import register

HINT = "pairs.tsv with a question, a tab and its answer in each line belongs into DATA_DIR/faq"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the search.

    Attributes:
      k: an answer counts as found if it is among so many of the nearest. Default 1.
    """

    k: Annotated[int, at_least(1)] = 1


RESULTS = SuiteResults(
    (Metric("found", "answers found", "%", main=True),), bars="Answers found by their questions"
)


@register("faq", Options, RESULTS, "answers found by their questions")
def tasks(data, options, report):
    """Yields one task; a suite may yield many, and a `Summary` of their averages."""
    yield Questions("pairs", data, options)


@dataclasses.dataclass(eq=False)
class Questions(Task):
    """The pairs of the file."""

    data: DataFolder
    options: Options

    @functools.cached_property
    def pairs(self):
        path = self.data.folder("faq", hint=HINT) / "pairs.tsv"
        return self.data.pairs(path, HINT, "pair", self.notes)

    def texts(self):
        questions, answers = zip(*self.pairs)
        return {"query": questions, "document": answers}

    def score(self, encode, report):
        # The encoder's prompts for questions and answers, if it has any, are in these functions.
        questions, answers = (
            unit(for_role(encode, role)(list(texts))) for role, texts in self.texts().items()
        )
        places, _ = nearest(questions, answers, min(self.options.k, len(answers)))
        is_found = (places == np.arange(len(answers))[:, np.newaxis]).any(axis=1)
        report.add(self.name, "found", 100.0 * float(is_found.mean()), len(answers))
