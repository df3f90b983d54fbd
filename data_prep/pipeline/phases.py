"""The phases of the pipeline: functions from files to files, not repeated if the result exists."""

import contextlib
import functools
import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from official_cmlm.extras import check_extra
from official_cmlm.files import atomic_write, report_write_errors, sync, unfinished_path

from ..documents.records import records
from ..output.folder import ShardWriter
from ..readers import Document
from ..stages.duplicates import drop, file_keys
from . import key_files
from .context import Context, context_of, ignore_progress
from .plan import result_path
from .results import Result

REMEDY = "make room and give the same command again, which resumes this run"


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
      digest: of the plan in it.
      number: of what it is computed for.
      advance: called with the bytes of the input that were read so far.

    Raises:
      UserError: a fault of the input that stops the run, or a disk that is full.
    """
    with report_write_errors(Path(folder), REMEDY):
        context = context_of(folder, digest)
        context.advance = advance or ignore_progress
        if not result_path(context.folder, phase, number).exists():
            PHASES[phase](context, number)


def read(context: Context, element: int) -> None:
    """Reads the input of an element, runs the stages, and saves the documents and their keys."""
    options = context.plan.options
    chain, result = options.chain(), Result.empty(options.sample_dropped)
    documents = context.documents(element, chain, result.report, result.statistics)
    with saving(_kept_path(context, element)) as passing:
        found = file_keys(passing(documents), options.duplicates())
    key_files.save_keys(context, element, found)
    result.save(result_path(context.folder, "read", element))


def combine(kind: str, context: Context, partition: int) -> None:
    """Finds duplicates of a kind (documents or paragraphs) among the keys of a partition."""
    key_files.save_losses(context, kind, partition)
    _note_done(context, kind, partition)


def spread(kind: str, context: Context, group: int) -> None:
    """Collects from all partitions what is removed from each element of a group."""
    key_files.save_lost(context, kind, group)
    _note_done(context, f"{kind}_lost", group)


def write(context: Context, element: int) -> None:
    """Writes the records of an element."""
    options = context.plan.options
    result = Result.empty(options.sample_dropped)
    documents: Iterable[Document]
    if not context.plan.compared:
        chain = options.chain()
        documents = context.documents(element, chain, result.report, result.statistics)
    else:
        kept = read_back(_kept_path(context, element))
        losses = key_files.losses_of(context, element)
        documents = drop(kept, losses, result.statistics.counters)
    # A folder of its own: a cluster may compute an element twice at once, e.g. by a worker that was
    # given up but still writes. What is left of it is removed with the work folder.
    unfinished = unfinished_path(context.work / f"shards-{element:05d}")
    unfinished.mkdir()
    try:
        # They get their final numbers when all elements are written.
        writer = ShardWriter(unfinished, f"element-{element:05d}", options.shard_bytes)
        try:
            for language, record in records(
                documents,
                context.vocabulary,
                options.records,
                result.statistics,
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
    result.shards = writer.shards
    result.save(result_path(context.folder, "write", element))


def _note_done(context: Context, phase: str, number: int) -> None:
    with atomic_write(result_path(context.folder, phase, number)) as file:
        file.write(b"{}\n")


def _kept_path(context: Context, element: int) -> Path:
    return context.work / f"kept-{element:05d}.jsonl.zst"


PHASES: dict[str, Callable[[Context, int], None]] = {
    "read": read,
    "documents": functools.partial(combine, "documents"),
    "documents_lost": functools.partial(spread, "documents"),
    "paragraphs": functools.partial(combine, "paragraphs"),
    "paragraphs_lost": functools.partial(spread, "paragraphs"),
    "write": write,
}


# Half surrogate pairs survive, as they do in memory.
_ENCODING = {"encoding": "utf-8", "errors": "surrogatepass"}


@contextlib.contextmanager
def saving(path: Path) -> Iterator[Callable[[Iterable[Document]], Iterator[Document]]]:
    """A function that writes documents while it passes them on; the file is there at the end."""
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


def read_back(path: Path) -> Iterator[Document]:
    """Yields the documents of such a file."""
    check_extra("data", "zstandard")
    import zstandard

    with path.open("rb") as stored:
        stream = zstandard.ZstdDecompressor().stream_reader(stored)
        for line in io.TextIOWrapper(io.BufferedReader(stream), newline="\n", **_ENCODING):
            name, language, continues, paragraphs = json.loads(line)
            yield Document(name, language, paragraphs, continues)
