"""What a worker keeps from one element to the next."""

import functools
from collections.abc import Iterator
from pathlib import Path

from data_prep.engine import excluding
from data_prep.engine.plan import WORK, Plan
from data_prep.readers import Document, ReadReport, read_file
from data_prep.stages import Chain
from data_prep.stages.exclusion import Exclusion
from data_prep.statistics import Statistics
from official_cmlm.tokenization import Tokenizer, Vocabulary, build_tokenizer, load_vocabulary


class Context:
    """A run as one process sees it.

    Attributes:
      folder: the unfinished output.
      plan: what is to be done.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan

    @property
    def work(self) -> Path:
        """The folder of what phases hand on."""
        return self.folder / WORK

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """As it was saved when the run began."""
        return load_vocabulary(self.folder)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Takes seconds to build for a large vocabulary."""
        return build_tokenizer(self.vocabulary)

    @functools.cached_property
    def exclusion(self) -> Exclusion | None:
        """The sentences that may not be trained on, if any."""
        if not self.plan.exclude:
            return None
        return excluding.load(self.work)

    def documents(
        self, element: int, chain: Chain, report: ReadReport, statistics: Statistics
    ) -> Iterator[Document]:
        """Yields what the stages leave of an element's documents, in order.

        Raises:
          UserError: as the readers do.
        """
        options = self.plan.options
        for path, part in self.plan.elements[element]:
            documents = read_file(path, options.reading, report, options.reader, part)
            yield from chain.run(documents, statistics.counters)


@functools.lru_cache(maxsize=1)
def context_of(folder: str, digest: str) -> Context:
    """The context of a run, kept for the next element.

    Args:
      folder: the unfinished output.
      digest: of its plan, so that a context of another run in the same folder is not taken for it.
    """
    del digest
    return Context(Path(folder), Plan.load(Path(folder)))
