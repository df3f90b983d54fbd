"""What a process keeps from one element to the next: plan, tokenizer, exclusion."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from official_cmlm.tokenization import Tokenizer, Vocabulary, build_tokenizer, load_vocabulary

from ..output.statistics import Statistics
from ..readers import Document, ReadReport, read_file
from ..stages import Chain
from ..stages.exclusion import Exclusion
from .plan import WORK, Plan


def ignore_progress(read_bytes: int) -> None:
    """Progress within an element that is not shown."""


class Context:
    """A run as one process sees it.

    Attributes:
      folder: the unfinished output.
      plan: what is to be done.
      advance: called with the bytes of an element that were read so far.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.advance: Callable[[int], None] = ignore_progress

    @property
    def work(self) -> Path:
        """The folder of intermediate files."""
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
        return Exclusion.load(self.work)

    def documents(
        self, element: int, chain: Chain, report: ReadReport, statistics: Statistics
    ) -> Iterator[Document]:
        """Yields the documents of an element after the stages, in order.

        Raises:
          UserError: as the readers do.
        """
        options = self.plan.options
        for path, part in self.plan.elements[element]:
            language = self.plan.languages[path]
            documents = read_file(path, options.reading, report, options.reader, part, language)
            for document in chain.run(documents, statistics.counters):
                yield document
                self.advance(report.bytes)


@functools.lru_cache(maxsize=1)
def context_of(folder: str, digest: str) -> Context:
    """The context of a run, kept for the next element.

    Args:
      folder: the unfinished output.
      digest: of its plan, so that a context of another run in the same folder is not taken for it.
    """
    del digest
    return Context(Path(folder), Plan.load(Path(folder)))
