"""The phases of the pipeline: functions from files to files, not repeated if the result exists.

Without removal of duplicates there is one, `write`: it reads the input of an element, passes the
documents through the stages, and writes their records.
"""

import contextlib
import dataclasses
import functools
import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from official_cmlm.extras import check_extra
from official_cmlm.files import (
    atomic_write,
    atomic_write_text,
    report_write_errors,
    sync,
    unfinished_path,
)
from official_cmlm.records.manifest import Shard
from official_cmlm.tokenization import Tokenizer, Vocabulary, build_tokenizer, load_vocabulary

from ..counts import Counts, DropCounter, Samples
from ..output.documents import document_records
from ..output.folder import ShardWriter
from ..readers import Document, read_file
from ..stages import Chain
from ..stages.duplicates import drop, file_keys
from ..stages.exclusion import Exclusion
from .key_files import KeyFiles
from .plan import ELEMENTS_A_GROUP, WORK, Plan, result_path

REMEDY = "make room and give the same command again, which resumes this run"


def _ignore_progress(read_bytes: int) -> None:
    """Does nothing; for progress within an element that is not shown."""


class Context:
    """A run as one process sees it, with the objects that it keeps between elements.

    Attributes:
      folder: the unfinished output.
      plan: the plan of the run.
      advance: called with the bytes of an element that were read so far.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.advance: Callable[[int], None] = _ignore_progress

    @property
    def work(self) -> Path:
        """The folder of intermediate files."""
        return self.folder / WORK

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, as it was saved when the run began."""
        return load_vocabulary(self.folder)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary's tokenizer, which takes seconds to build if it is large."""
        return build_tokenizer(self.vocabulary)

    @functools.cached_property
    def exclusion(self) -> Exclusion | None:
        """The sentences that may not be trained on, if any."""
        return Exclusion.load(self.work) if self.plan.exclude else None

    @functools.cached_property
    def key_files(self) -> KeyFiles:
        """The files in which duplicates are found."""
        plan = self.plan
        return KeyFiles(self.work, plan.options.duplicates, len(plan.elements), plan.partitions)

    def new_counts(self) -> Counts:
        """Returns counts at zero, with room for the examples that the options ask for."""
        return Counts(DropCounter(samples=Samples(self.plan.options.sample_dropped)))

    def documents(self, element: int, counts: Counts) -> Iterator[Document]:
        """Yields the documents of an element after the stages, in order.

        Raises:
          UserError: as the readers do.
        """
        options = self.plan.options
        stages = tuple(options.stages())
        for path, part in self.plan.elements[element]:
            language = self.plan.languages[path]
            documents = read_file(path, options.reading, counts, options.reader, part, language)
            if stages:
                documents = Chain(stages).run(documents, counts.counters)
            for document in documents:
                yield document
                self.advance(counts.bytes)


@functools.lru_cache(maxsize=1)
def _context_of(folder: str, digest: str) -> Context:
    """Returns the context of a run, kept for the next element.

    Args:
      folder: the unfinished output.
      digest: hash of its plan, which tells it from another run in the same folder.
    """
    del digest
    return Context(Path(folder), Plan.load(Path(folder)))


def run_phase(
    phase: str,
    folder: str,
    digest: str,
    number: int,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Computes one phase for one element, partition or group of elements.

    Args:
      phase: a name of `PHASES`.
      folder: the unfinished output.
      digest: hash of the plan in it.
      number: number of the element, partition or group.
      advance: called with the bytes of the input that were read so far.

    Raises:
      UserError: a fault of the input that stops the run, or a disk that is full.
    """
    with report_write_errors(Path(folder), REMEDY):
        context = _context_of(folder, digest)
        context.advance = advance or _ignore_progress
        if not result_path(context.folder, phase, number).exists():
            PHASES[phase](context, number)


def _read(context: Context, element: int) -> None:
    """Reads the input of an element, runs the stages, and saves the documents and their keys."""
    counts = context.new_counts()
    with _saving(_kept_path(context, element)) as passing:
        documents = passing(context.documents(element, counts))
        found = file_keys(documents, context.plan.options.duplicates)
    context.key_files.save_keys(element, found)
    _save_result(result_path(context.folder, "read", element), counts)


def _find_losses(kind: str, context: Context, partition: int) -> None:
    """Finds duplicates of a kind (documents or paragraphs) among the keys of a partition."""
    context.key_files.save_losses(kind, partition)
    _save_result(result_path(context.folder, kind, partition), Counts())


def _collect_losses(kind: str, context: Context, group: int) -> None:
    """Collects from all partitions the losses of each element of a group."""
    first = group * ELEMENTS_A_GROUP
    stop = min(first + ELEMENTS_A_GROUP, len(context.plan.elements))
    context.key_files.save_lost(kind, range(first, stop))
    _save_result(result_path(context.folder, f"{kind}_lost", group), Counts())


def write(context: Context, element: int) -> None:
    """Writes the records of an element."""
    options = context.plan.options
    counts = context.new_counts()
    documents: Iterable[Document]
    if not options.duplicates.compared:
        documents = context.documents(element, counts)
    else:
        kept = _read_back(_kept_path(context, element))
        documents = drop(kept, context.key_files.losses(element), counts.counters)
    # A folder of its own: a cluster may compute an element twice at once, e.g. by a worker that was
    # given up but still writes. Files left in it are removed with the work folder.
    unfinished = unfinished_path(context.work / f"shards-{element:05d}")
    unfinished.mkdir()
    try:
        # The shards get their final numbers when all elements are written.
        writer = ShardWriter(unfinished, f"element-{element:05d}", options.shard_bytes)
        try:
            for language, record in document_records(
                documents,
                context.vocabulary,
                options.records,
                counts,
                context.exclusion,
                context.tokenizer,
                options.sentence_classifier(),
            ):
                writer.write(language, record)
        finally:
            writer.close()
        for shard in writer.shards:
            sync(unfinished / shard.name)
            (unfinished / shard.name).replace(context.work / shard.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _save_result(result_path(context.folder, "write", element), counts, writer.shards)


PHASES: dict[str, Callable[[Context, int], None]] = {
    "read": _read,
    "documents": functools.partial(_find_losses, "documents"),
    "documents_lost": functools.partial(_collect_losses, "documents"),
    "paragraphs": functools.partial(_find_losses, "paragraphs"),
    "paragraphs_lost": functools.partial(_collect_losses, "paragraphs"),
    "write": write,
}


def _save_result(path: Path, counts: Counts, shards: Iterable[Shard] = ()) -> None:
    """Writes the result of a phase for a number, after the files that it names."""
    values = {"counts": counts.to_json(), "shards": [dataclasses.asdict(one) for one in shards]}
    atomic_write_text(path, json.dumps(values))


def load_result(path: Path) -> tuple[Counts, list[Shard]]:
    """Reads the counts and the shards of a result."""
    values = json.loads(path.read_bytes())
    return Counts.from_json(values["counts"]), [Shard(**shard) for shard in values["shards"]]


def _kept_path(context: Context, element: int) -> Path:
    return context.work / f"kept-{element:05d}.jsonl.zst"


# Half surrogate pairs survive, as they do in memory.
_ENCODING = {"encoding": "utf-8", "errors": "surrogatepass"}


@contextlib.contextmanager
def _saving(path: Path) -> Iterator[Callable[[Iterable[Document]], Iterator[Document]]]:
    """Gives a function that writes documents as it passes them on; the file appears at the end."""
    check_extra("data", "zstandard")
    import zstandard

    # Fast: the file is read once and deleted.
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    with atomic_write(path) as stored:
        stream = compressor.stream_writer(stored, closefd=False)

        def passing(documents: Iterable[Document]) -> Iterator[Document]:
            for document in documents:
                line = [document.id, document.language, document.continues, document.paragraphs]
                text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
                stream.write(text.encode(**_ENCODING) + b"\n")
                yield document

        yield passing
        stream.close()


def _read_back(path: Path) -> Iterator[Document]:
    """Yields the documents that `_saving` wrote."""
    check_extra("data", "zstandard")
    import zstandard

    with path.open("rb") as stored:
        stream = zstandard.ZstdDecompressor().stream_reader(stored)
        for line in io.TextIOWrapper(io.BufferedReader(stream), newline="\n", **_ENCODING):
            name, language, continues, paragraphs = json.loads(line)
            yield Document(name, language, paragraphs, continues)
