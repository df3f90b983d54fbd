"""The phases. Each is computed where a runner decides, and not again if its result is there."""

import functools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from data_prep.documents import records
from data_prep.engine import keys
from data_prep.engine.atomic import name_aside, naming_a_full_disk, synced, written
from data_prep.engine.context import Context, context_of
from data_prep.engine.documents_file import read_back, saving
from data_prep.engine.plan import result_path
from data_prep.engine.results import Result
from data_prep.readers import Document
from data_prep.sharding import ShardWriter
from data_prep.stages.duplicates import drop, file_keys


def run_phase(phase: str, folder: str, digest: str, number: int) -> None:
    """Computes one phase for one element, partition or group of elements.

    Args:
      phase: a name of `PHASES`.
      folder: the unfinished output.
      digest: of the plan in it.
      number: of what it is computed for.

    Raises:
      UserError: a fault of the input that stops the run, or a disk that is full.
    """
    with naming_a_full_disk(Path(folder)):
        context = context_of(folder, digest)
        if not result_path(context.folder, phase, number).exists():
            PHASES[phase](context, number)


def read(context: Context, element: int) -> None:
    """From input to documents that the stages keep, with the keys of their duplicates."""
    options = context.plan.options
    chain, result = options.chain(), Result.empty(options.sample_dropped)
    documents = context.documents(element, chain, result.report, result.statistics)
    with saving(_kept_path(context, element)) as passing:
        found = file_keys(passing(documents), options.duplicates())
    keys.save_keys(context, element, found)
    result.save(result_path(context.folder, "read", element))


def combine(kind: str, context: Context, partition: int) -> None:
    """Which documents, or paragraphs of the others, are duplicates, by the keys of a partition."""
    keys.save_losses(context, kind, partition)
    _note_done(context, kind, partition)


def spread(kind: str, context: Context, group: int) -> None:
    """From what the partitions have found to what each element of a group loses."""
    keys.save_lost(context, kind, group)
    _note_done(context, f"{kind}_lost", group)


def write(context: Context, element: int) -> None:
    """From documents to shards of records."""
    options = context.plan.options
    result = Result.empty(options.sample_dropped)
    documents: Iterable[Document]
    if not context.plan.compared:
        chain = options.chain()
        documents = context.documents(element, chain, result.report, result.statistics)
    else:
        kept = read_back(_kept_path(context, element))
        losses = keys.losses_of(context, element)
        documents = drop(kept, losses, result.statistics.counters)
    # Of its own, as a cluster may compute an element twice at once: a worker that was lost, or one
    # whose run was killed, may still write. What is left of it goes with the folder of work.
    aside = name_aside(context.work / f"shards-{element:05d}")
    aside.mkdir()
    try:
        writer = ShardWriter(aside, f"documents-{element:05d}", options.shard_bytes, True)
        try:
            for language, record in records(
                documents,
                context.vocabulary,
                options.records,
                result.statistics,
                context.exclusion,
                context.tokenizer,
            ):
                writer.write(language, record)
        finally:
            writer.close()
        for shard in writer.shards:
            synced(aside / shard.name)
            (aside / shard.name).replace(context.folder / shard.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    result.shards = writer.shards
    result.save(result_path(context.folder, "write", element))


def _note_done(context: Context, phase: str, number: int) -> None:
    with written(result_path(context.folder, phase, number)) as file:
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
