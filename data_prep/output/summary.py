"""The last lines of a binary that writes records: what it kept, what it left out, what it took."""

import resource
import time
from collections.abc import Mapping

from official_cmlm import cli
from official_cmlm.errors import one_line
from official_cmlm.process_memory import peak_mib
from official_cmlm.records.manifest import Manifest

from ..readers import ReadReport
from .dropped import is_loss, unit

# Of this process and of those that it started and that have ended.
_OWN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
# Counters of what could not be read.
_UNREAD = ("exclude/unread_file", "read/unreadable_file", "read/unreadable_record")


def exit_status(counters: Mapping[str, int]) -> int:
    """The exit status of a binary that has finished; 3 if there was something it could not read.

    Args:
      counters: as `ReadReport.counters` names them.
    """
    return cli.EXIT_SKIPPED if any(counters.get(name) for name in _UNREAD) else 0


def left_out(counters: Mapping[str, int]) -> str:
    """One line: how much was left out and why, the largest counts first; then what was changed."""
    losses = {name: count for name, count in counters.items() if count and is_loss(name)}
    changes = {name: count for name, count in counters.items() if count and not is_loss(name)}
    line = f"left out: {_listed(losses) or 'nothing'}"
    return f"{line}; changed or noted: {_listed(changes)}" if changes else line


def _listed(counters: Mapping[str, int]) -> str:
    ordered = sorted(counters.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count} ({unit(name)})" for name, count in ordered)


class Summary:
    """The end of a binary that writes records; time is measured from when it is made."""

    def __init__(self) -> None:
        self._started, self._cpu = time.monotonic(), _cpu_seconds()

    def show(
        self,
        output: str,
        manifest: Manifest,
        report: ReadReport,
        files: int,
        resumed: bool = False,
    ) -> None:
        """Prints warnings, what was written and what was left out, of documents.

        Args:
          output: the folder that was written.
          manifest: of it.
          report: of what was read, from `files` files.
          files: how many there were.
          resumed: whether a part was done before this began, so that there is no speed to show.
        """
        seconds = self._seconds()
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        peak = max(peak_mib(), children / 1024)
        speed = (
            f" {manifest.documents / seconds:.0f} documents/s,"
            f" {manifest.tokens / seconds:.0f} tokens/s,"
        )
        skipped = report.skipped(files)
        if not skipped and exit_status(manifest.counters):
            # A stopped run had done all but the rename, and its report is gone.
            skipped = ", some of the input skipped: see the counters in dataset.json"
        _show(
            f"{output}: {manifest.documents} documents, {manifest.sentences} sentences, "
            f"{manifest.tokens} tokens in {len(manifest.shards)} shard(s); {seconds:.1f} s "
            f"({_cpu_seconds() - self._cpu:.1f} CPU-s),{'' if resumed else speed}"
            f" peak memory {peak:.0f} MiB{skipped}",
            manifest,
            report,
        )

    def show_pairs(self, output: str, manifest: Manifest, report: ReadReport, files: int) -> None:
        """As `show`, of pairs."""
        negatives = f" ({manifest.negatives} with a hard negative)" if manifest.negatives else ""
        _show(
            f"{output}: {manifest.documents} rows, {manifest.records} pairs{negatives}, "
            f"{manifest.tokens} tokens in {len(manifest.shards)} shard(s);"
            f" {self._seconds():.1f} s{report.skipped(files)}",
            manifest,
            report,
        )

    def _seconds(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)


def _show(kept: str, manifest: Manifest, report: ReadReport) -> None:
    for warning in report.warnings():
        cli.warn(warning)
    print(one_line(kept))
    print(one_line(left_out(manifest.counters)))


def _cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in _OWN)
