"""A whole run: start or resume, the phases in order, and the output under its final name.

A phase is a function of (context, number) from files to files, not repeated if its result exists.
Without removal of duplicates there is one, `write`: it reads the input of an element, passes the
documents through the stages, and writes their records.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import io
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import (
    atomic_write,
    atomic_write_text,
    remove_unfinished,
    replace_folder,
    report_write_errors,
    sync,
)
from official_cmlm.common.input_files import is_remote, join_directory
from official_cmlm.common.worker_processes import end_with_parent
from official_cmlm.records.documents import KIND
from official_cmlm.records.manifest import FILE_NAME as MANIFEST
from official_cmlm.records.manifest import Manifest, Shard, load_manifest
from official_cmlm.tokenization import Tokenizer, Vocabulary, build_tokenizer, load_vocabulary

from ..counts import Counts
from ..output.documents import document_records
from ..output.folder import (
    PLAN_FILE,
    ShardWriter,
    check_place,
    discard_partial,
    locked_output,
    output_folder,
    outside_of,
    shard_name,
)
from ..output.report import Summary, exit_status, write_report
from ..readers import Document, TextFile, read_file
from ..readers.tfds import PREFIX
from ..stages import run_stages
from ..stages.duplicates import drop, file_keys
from ..stages.exclusion import Exclusion
from .key_files import KeyFiles
from .plan import ELEMENTS_A_GROUP, WORK, Options, Plan, result_path

REMEDY = "make room and give the same command again, which resumes this run"


class PhaseProgress:
    """The progress bar of a phase; it moves within an element if the runner reports that."""

    def __init__(self, bar: Any, sizes: Sequence[int]) -> None:
        """Shows nothing yet; `sizes[number]` is the length of a number's part of the bar."""
        self._bar, self._sizes = bar, sizes
        self._shown = [0] * len(sizes)

    def advance(self, number: int, amount: int) -> None:
        """Shows the amount of a number that is done so far."""
        amount = min(amount, self._sizes[number])
        self._bar.update(amount - self._shown[number])
        self._shown[number] = amount

    def done(self, number: int) -> None:
        """Shows that a number is done."""
        self.advance(number, self._sizes[number])


class Work(NamedTuple):
    """A phase by its name in `PHASES`, the unfinished folder, and the digest of its plan."""

    phase: str
    folder: str
    digest: str


# A runner computes a phase for all these numbers of elements, partitions or groups, and reports
# each one that is done to the progress. It raises `UserError` as a phase does, or if a worker has
# died.
Runner = Callable[[Work, Sequence[int], PhaseProgress], None]


class LocalRunner(contextlib.AbstractContextManager):
    """A runner on this machine: a loop, or a pool of worker processes that the context closes."""

    def __init__(self, workers: int = 1) -> None:
        """Starts nothing yet; `workers` is the number of processes."""
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        if workers > 1:
            # Processes are spawned, as a fork would lack TensorFlow's threads.
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(
                workers, context, initializer=end_with_parent
            )

    def __exit__(self, *error: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, work: Work, numbers: Sequence[int], progress: PhaseProgress) -> None:
        """Computes a phase for all numbers; see `Runner`."""
        if self._pool is None:
            for number in numbers:
                run_phase(work, number, functools.partial(progress.advance, number))
                progress.done(number)
            return
        futures = {self._pool.submit(run_phase, work, number): number for number in numbers}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                progress.done(futures[future])
        except BrokenProcessPool:
            raise UserError(
                f"{work.folder}: a worker has died, perhaps out of memory; give the same command"
                " again to resume, with fewer --workers or a smaller --element_mb in a new folder"
            ) from None
        except Exception:
            # Running phases still write: wait for them before anything is removed or reported.
            for future in futures:
                future.cancel()
            concurrent.futures.wait(futures)
            raise


def write_documents(
    files: Sequence[TextFile],
    options: Options,
    vocabulary: Vocabulary,
    output: str,
    runner: Runner,
    overwrite: bool = False,
    exclude: Sequence[str] = (),
) -> int:
    """Makes documents records of text: the work of `create_documents` and `prepare`.

    The output depends on the arguments but not on the runner. An unfinished run, even one that was
    killed, is resumed. If the records exist already, and were made by the same plan, nothing is
    done. `exclude` are files of evaluation sentences, which are left out.

    Returns:
      The exit status, as `report.exit_status` gives it.

    Raises:
      UserError: a fault of the input, no usable text, a full disk, the output may not be written or
        was begun with another plan.
    """
    # Some packages are needed only at the end, but a missing one is reported before the work.
    check_extra("data", "sentencex", "zstandard")
    summary = Summary()
    folder, partial = check_place(output)
    kept = set(outside_of(folder, [file.path for file in files]))
    files = [file for file in files if file.path in kept]
    plan = Plan.of(files, _with_directory(options, files), vocabulary.hash, exclude)
    with locked_output(folder):
        # Checked under the lock, as another run may just have completed it.
        if not overwrite and (done := _finished(folder, plan)):
            print(
                f"{one_line(output)}: complete already, made from the same input by the same"
                f" options: {done.documents} documents; --overwrite makes it again"
            )
            return exit_status(done.counters)
        output_folder(folder, overwrite)
        resumed = (partial / PLAN_FILE).exists()
        manifest, counts = _run_plan(plan, vocabulary, folder, partial, runner)
    return summary.show(output, manifest, counts, len(files), resumed)


def _finished(folder: Path, plan: Plan) -> Manifest | None:
    """Returns the manifest of a finished folder if this plan surely made it, of these files.

    A file that was written after the plan was saved is not the one that was read, even if its size
    is the same. The time of remote files and data sets is unknown.
    """
    path = folder / PLAN_FILE
    if not path.exists() or not (folder / MANIFEST).exists():
        return None
    try:
        if Plan.load(folder) != plan:
            return None
        manifest = load_manifest(folder, KIND)
    except UserError:
        # The folder is of another release, or damaged.
        return None
    saved = path.stat().st_mtime_ns
    for given, *_ in plan.inputs:
        if given.startswith(PREFIX) or is_remote(given):
            return None
        if os.stat(join_directory(given, plan.options.reading.directory)).st_mtime_ns >= saved:
            return None
    return manifest


def _with_directory(options: Options, files: Sequence[TextFile]) -> Options:
    """Adds the current directory if paths are relative, as a worker may start elsewhere.

    Where all paths are absolute, the same command may be resumed from any directory.
    """
    paths = [file.path for file in files]
    local = [path for path in paths if not path.startswith(PREFIX) and not is_remote(path)]
    if all(map(os.path.isabs, local)):
        return options
    reading = dataclasses.replace(options.reading, directory=os.getcwd())
    return dataclasses.replace(options, reading=reading)


def _run_plan(
    plan: Plan, vocabulary: Vocabulary, output: Path, partial: Path, runner: Runner
) -> tuple[Manifest, Counts]:
    """Computes the rest of a plan in `partial`, and renames that folder to `output`.

    Returns the manifest, and the counts, which are zero if only the rename was missing.
    """
    with report_write_errors(partial, REMEDY):
        begin(plan, vocabulary, partial)
        try:
            if not (partial / MANIFEST).exists():
                for phase, count in plan.phases():
                    compute(plan, partial, runner, phase, count)
        except UserError:
            if not _has_results(partial):
                shutil.rmtree(partial, ignore_errors=True)
            raise
        # A run that was killed while it wrote the plan leaves an unfinished file.
        remove_unfinished(partial)
        counts = Counts()
        if not (partial / MANIFEST).exists():
            counts = _finish(plan, vocabulary, partial)
        shutil.rmtree(partial / WORK, ignore_errors=True)
        replace_folder(partial, output)
    return load_manifest(output), counts


def begin(plan: Plan, vocabulary: Vocabulary, partial: Path) -> None:
    """Makes the unfinished folder, or checks that the existing one can be resumed."""
    if (partial / PLAN_FILE).exists() and ((partial / MANIFEST).exists() or _has_results(partial)):
        before = Plan.load(partial)
        plan.check_can_resume(before, partial)
        if plan != before:
            plan.save(partial)
        return
    # The folder has no results, so nothing is lost if it is begun again.
    exclusion = Exclusion.of(plan.exclude, plan.options.reading) if plan.exclude else None
    discard_partial(partial)
    (partial / WORK).mkdir(parents=True)
    if exclusion:
        exclusion.save(partial / WORK)
    vocabulary.save(partial)
    plan.save(partial)


def _has_results(partial: Path) -> bool:
    return any((partial / WORK).glob("*.json"))


def compute(plan: Plan, partial: Path, runner: Runner, phase: str, count: int) -> None:
    """Computes the rest of a phase, with a progress bar."""
    left = [n for n in range(count) if not result_path(partial, phase, n).exists()]
    sizes = plan.sizes(phase)
    in_bytes = phase in ("read", "write")
    done = sum(sizes) - sum(sizes[number] for number in left)
    with progress.bar(
        sum(sizes), "B" if in_bytes else "part", phase, initial=done, unit_scale=in_bytes
    ) as bar:
        runner(Work(phase, str(partial), plan.digest), left, PhaseProgress(bar, sizes))


def _finish(plan: Plan, vocabulary: Vocabulary, partial: Path) -> Counts:
    """Adds up the results, and writes the reports and the manifest."""
    total, shards = Counts(), []
    for phase, count in plan.phases():
        if phase in ("read", "write"):
            for number in range(count):
                counts, written = load_result(result_path(partial, phase, number))
                total.merge(counts)
                shards += written
    try:
        total.raise_if_all_failed(len(plan.inputs))
        if not total.sentences:
            raise UserError(
                f"{','.join(path for path, *_ in plan.inputs[:3])}: no usable sentence in"
                f" {len(plan.inputs)} file(s); check that they hold running text, --reader, --lines"
                ", --min_sentences and --min_tokens, and what the stages drop"
            )
    except UserError:
        shutil.rmtree(partial)
        raise
    if plan.exclude:
        total.add_exclusion_faults(Exclusion.load(partial / WORK).faults)
    shards = _number_shards(shards, partial)
    manifest = total.manifest(vocabulary, shards, plan.options.records.keep_text)
    write_report(manifest, partial)
    # It is written last: with it the folder is complete.
    manifest.save(partial)
    return total


def _number_shards(shards: Sequence[Shard], partial: Path) -> list[Shard]:
    """Moves the shards of all elements out of the work folder, numbered in order.

    A run that was killed here finds some of them moved already.
    """
    numbered = []
    for number, shard in enumerate(shards):
        name = shard_name(KIND, number)
        if (partial / WORK / shard.name).exists():
            (partial / WORK / shard.name).replace(partial / name)
        numbered.append(dataclasses.replace(shard, name=name))
    return numbered


class Context:
    """A run as one process sees it, with the objects that it keeps between elements.

    Attributes:
      folder: the unfinished output.
      plan: the plan of the run.
      advance: called with the bytes of an element that were read so far.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.advance: Callable[[int], None] | None = None

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

    def documents(self, element: int, counts: Counts) -> Iterator[Document]:
        """Yields the documents of an element after the stages, in order.

        Raises:
          UserError: as the readers do.
        """
        options = self.plan.options
        stages = tuple(options.stages())
        for path, _, language in self.plan.elements[element]:
            documents = read_file(path, options.reading, counts, options.reader, language)
            for document in run_stages(stages, documents, counts.counters):
                yield document
                if self.advance:
                    self.advance(counts.bytes)


@functools.lru_cache(maxsize=1)
def _context_of(folder: str, digest: str) -> Context:
    """Returns the context of the run with that plan in a folder, kept for the next element."""
    del digest
    return Context(Path(folder), Plan.load(Path(folder)))


def run_phase(work: Work, number: int, advance: Callable[[int], None] | None = None) -> None:
    """Computes a phase for one element, partition or group of elements.

    `advance` is called with the bytes of the input that were read so far.

    Raises:
      UserError: a fault of the input that stops the run, or a disk that is full.
    """
    with report_write_errors(Path(work.folder), REMEDY):
        context = _context_of(work.folder, work.digest)
        context.advance = advance
        if not result_path(context.folder, work.phase, number).exists():
            PHASES[work.phase](context, number)


def _read(context: Context, element: int) -> None:
    """Reads the input of an element, runs the stages, and saves the documents and their keys."""
    check_extra("data", "zstandard")
    import zstandard

    counts = Counts()
    # A fast level suits a file that is read once and deleted.
    packed = zstandard.ZstdCompressor(level=1, write_checksum=True)
    with (
        atomic_write(_kept_path(context, element)) as stored,
        packed.stream_writer(stored, closefd=False) as stream,
    ):
        documents = _saved(context.documents(element, counts), stream)
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
    counts = Counts()
    documents: Iterable[Document]
    if not options.duplicates.compared:
        documents = context.documents(element, counts)
    else:
        kept = _read_back(_kept_path(context, element))
        documents = drop(kept, context.key_files.losses(element), counts.counters)
    # Each call has a folder of its own, as a cluster may compute an element twice at once, e.g. by
    # a worker that was given up but still writes. Files that are left there are removed with the
    # work folder.
    with tempfile.TemporaryDirectory(dir=context.work, ignore_cleanup_errors=True) as unfinished:
        # The shards get their final numbers when all elements are written.
        writer = ShardWriter(Path(unfinished), f"element-{element:05d}", options.shard_bytes)
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
            written = Path(unfinished, shard.name)
            sync(written)
            written.replace(context.work / shard.name)
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


def _saved(documents: Iterable[Document], stream: BinaryIO) -> Iterator[Document]:
    """Passes on the documents after writing each."""
    for document in documents:
        line = [document.id, document.language, document.continues, document.paragraphs]
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        stream.write(text.encode(**_ENCODING) + b"\n")
        yield document


def _read_back(path: Path) -> Iterator[Document]:
    """Yields the documents that `_saved` wrote."""
    check_extra("data", "zstandard")
    import zstandard

    with path.open("rb") as stored:
        stream = zstandard.ZstdDecompressor().stream_reader(stored)
        for line in io.TextIOWrapper(io.BufferedReader(stream), newline="\n", **_ENCODING):
            name, language, continues, paragraphs = json.loads(line)
            yield Document(name, language, paragraphs, continues)
