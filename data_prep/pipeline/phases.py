"""The phases of a run: functions of (context, number) from files to files.

Without removal of duplicates there is one, `write`: it reads the input of an element, passes the
documents through the stages, and writes their records.
"""

import contextlib
import dataclasses
import functools
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import atomic_write, sync
from official_cmlm.common.worker_processes import Moves
from official_cmlm.records.manifest import Shard
from official_cmlm.tokenization import Tokenizer, Vocabulary, build_tokenizer, load_vocabulary

from ..counts import Counts
from ..output.documents import document_records
from ..output.folder import ShardWriter
from ..readers import Document, read_file
from ..stages import run_stages
from ..stages.duplicates import drop, file_keys
from ..stages.exclusion import Exclusion
from .key_files import KeyFiles
from .plan import ELEMENTS_A_GROUP, Plan

# Folder of intermediate files.
WORK = "work"


class Context:
    """A run as one process sees it, with the objects that it keeps between elements.

    Attributes:
      folder: the unfinished output.
      plan: the plan of the run.
      moves: moves the progress bar while an element is read.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.moves = Moves()

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

    def read_documents(self, element: int, counts: Counts) -> Iterator[Document]:
        """Yields the documents of an element after the stages, in order.

        Raises:
          UserError: as the readers do.
        """
        options = self.plan.options
        stages = tuple(options.stages())
        size = sum(item.size for item in self.plan.elements[element])
        for path, _, language in self.plan.elements[element]:
            documents = read_file(path, options.reading, counts, options.reader, language)
            for document in run_stages(stages, documents, counts.counters):
                yield document
                self.moves.show(min(counts.bytes, size))


def run_phase(context: Context, work: tuple[str, int]) -> dict[str, Any]:
    """Computes a phase for one element, partition or group of elements.

    Args:
      context: of this process.
      work: name of the phase in `PHASES`, and the number.

    Returns:
      `counts`, see `Counts.to_json`, and `shards`, the fields of each `Shard`.

    Raises:
      UserError: a fault of the input that stops the run.
    """
    phase, number = work
    with Moves() as context.moves:
        counts, shards = PHASES[phase](context, number)
    return {"counts": counts.to_json(), "shards": [dataclasses.asdict(shard) for shard in shards]}


def read(context: Context, element: int) -> tuple[Counts, list[Shard]]:
    """Reads the input of an element, runs the stages, and saves the documents and their keys."""
    check_extra("data", "zstandard")
    import zstandard

    counts = Counts()
    # A fast level suits a file that is read once and deleted.
    packed = zstandard.ZstdCompressor(level=1, write_checksum=True)
    with (
        atomic_write(_documents_path(context, element)) as stored,
        packed.stream_writer(stored, closefd=False) as stream,
    ):
        documents = _save_each(context.read_documents(element, counts), stream)
        keys = file_keys(documents, context.plan.options.duplicates)
    context.key_files.save_keys(element, keys)
    return counts, []


def compare(kind: str, context: Context, partition: int) -> tuple[Counts, list[Shard]]:
    """Finds duplicates of a kind (documents or paragraphs) among the keys of a partition."""
    context.key_files.find_duplicates(kind, partition)
    return Counts(), []


def collect(kind: str, context: Context, group: int) -> tuple[Counts, list[Shard]]:
    """Collects from all partitions the duplicates of each element of a group."""
    first = group * ELEMENTS_A_GROUP
    stop = min(first + ELEMENTS_A_GROUP, len(context.plan.elements))
    context.key_files.collect_duplicates(kind, range(first, stop))
    return Counts(), []


def write(context: Context, element: int) -> tuple[Counts, list[Shard]]:
    """Writes the records of an element."""
    options = context.plan.options
    counts = Counts()
    documents: Iterable[Document]
    if not options.duplicates.ways:
        documents = context.read_documents(element, counts)
    else:
        stored = _read_back(_documents_path(context, element))
        documents = drop(stored, context.key_files.read_duplicates(element), counts.counters)
    # Each call has a folder of its own, as a cluster may compute an element twice at once, e.g. by
    # a worker that was given up but still writes. Files that are left there are removed with the
    # work folder.
    with tempfile.TemporaryDirectory(dir=context.work, ignore_cleanup_errors=True) as unfinished:
        # The shards get their final numbers when all elements are written.
        writer = ShardWriter(
            Path(unfinished), f"element-{element:05d}", options.records.shard_bytes
        )
        with contextlib.closing(writer):
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
        for shard in writer.shards:
            path = Path(unfinished, shard.name)
            sync(path)
            path.replace(context.work / shard.name)
    return counts, writer.shards


PHASES: dict[str, Callable[[Context, int], tuple[Counts, list[Shard]]]] = {
    "read": read,
    "compare_documents": functools.partial(compare, "documents"),
    "collect_documents": functools.partial(collect, "documents"),
    "compare_paragraphs": functools.partial(compare, "paragraphs"),
    "collect_paragraphs": functools.partial(collect, "paragraphs"),
    "write": write,
}


def _documents_path(context: Context, element: int) -> Path:
    return context.work / f"documents-{element:05d}.jsonl.zst"


# Half surrogate pairs survive, as they do in memory.
_ENCODING = {"encoding": "utf-8", "errors": "surrogatepass"}


def _save_each(documents: Iterable[Document], stream: BinaryIO) -> Iterator[Document]:
    """Passes on the documents after writing each."""
    for document in documents:
        line = [document.id, document.language, document.continues, document.paragraphs]
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        stream.write(text.encode(**_ENCODING) + b"\n")
        yield document


def _read_back(path: Path) -> Iterator[Document]:
    """Yields the documents that `_save_each` wrote."""
    check_extra("data", "zstandard")
    import zstandard

    with path.open("rb") as stored:
        stream = zstandard.ZstdDecompressor().stream_reader(stored)
        for line in io.TextIOWrapper(io.BufferedReader(stream), newline="\n", **_ENCODING):
            name, language, continues, paragraphs = json.loads(line)
            yield Document(name, language, paragraphs, continues)
