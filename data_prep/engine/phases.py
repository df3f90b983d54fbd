"""The phases. Each is computed where a runner decides, and not again if its result is there."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from data_prep.documents import records
from data_prep.engine import keys
from data_prep.engine.atomic import naming_a_full_disk, synced, written
from data_prep.engine.context import Context, context_of
from data_prep.engine.documents_file import read_back, saving
from data_prep.engine.plan import result_path
from data_prep.engine.results import Result
from data_prep.readers import Document
from data_prep.sharding import ShardWriter
from data_prep.stages.duplicates import drop, file_keys


def run_phase(phase: str, folder: str, digest: str, number: int) -> None:
    """Computes one phase for one element or partition.

    Args:
      phase: a name of `PHASES`.
      folder: the unfinished output.
      digest: of the plan in it.
      number: of the element or partition.

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


def combine_documents(context: Context, partition: int) -> None:
    """Which documents are duplicates, by the keys of a partition."""
    _combine(context, "documents", partition)


def combine_paragraphs(context: Context, partition: int) -> None:
    """Which paragraphs of the other documents are duplicates."""
    _combine(context, "paragraphs", partition)


def write(context: Context, element: int) -> None:
    """From documents to shards of records."""
    options = context.plan.options
    result = Result.empty(options.sample_dropped)
    documents: Iterable[Document]
    if options.deduplicate == "off":
        chain = options.chain()
        documents = context.documents(element, chain, result.report, result.statistics)
    else:
        losses = keys.losses_of(context, element, "documents", "paragraphs")
        kept = read_back(_kept_path(context, element))
        documents = drop(kept, losses, result.statistics.counters)
    aside = context.work / f"shards-{element:05d}"
    # What a killed run has left; never that of another process, as one computes an element.
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
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
    aside.rmdir()
    result.shards = writer.shards
    result.save(result_path(context.folder, "write", element))


def _combine(context: Context, kind: str, partition: int) -> None:
    keys.save_losses(context, kind, partition)
    with written(result_path(context.folder, kind, partition)) as file:
        file.write(b"{}\n")


def _kept_path(context: Context, element: int) -> Path:
    return context.work / f"kept-{element:05d}.jsonl.zst"


PHASES: dict[str, Callable[[Context, int], None]] = {
    "read": read,
    "documents": combine_documents,
    "paragraphs": combine_paragraphs,
    "write": write,
}
