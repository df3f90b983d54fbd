"""The last line of a binary that writes documents records: what there is, and what it took."""

import resource
import sys
import time

from data_prep.readers import ReadReport
from official_cmlm.process_memory import peak_mib
from official_cmlm.records.manifest import Manifest

# Of this process and of those that it started and that have ended.
_OWN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class Summary:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._started, self._cpu = time.monotonic(), _cpu_seconds()

    def show(self, output: str, manifest: Manifest, report: ReadReport, files: int) -> None:
        """Prints warnings and the summary.

        Args:
          output: the folder that was written.
          manifest: of it.
          report: of what was read, from `files` files.
          files: how many there were.
        """
        for warning in report.warnings():
            print(f"warning: {warning}", file=sys.stderr)
        seconds = max(time.monotonic() - self._started, 1e-9)
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        peak = max(peak_mib(), children / 1024)
        print(
            f"{output}: {manifest.documents} documents, {manifest.sentences} sentences, "
            f"{manifest.tokens} tokens in {len(manifest.shards)} shard(s); {seconds:.1f} s "
            f"({_cpu_seconds() - self._cpu:.1f} CPU-s), "
            f"{manifest.documents / seconds:.0f} documents/s, "
            f"{manifest.tokens / seconds:.0f} tokens/s, peak memory {peak:.0f} MiB"
            + report.skipped(files)
        )


def _cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in _OWN)
