"""How much memory this process has taken."""

import re
import resource
import sys
from pathlib import Path


def peak_mib() -> float:
    """Returns the largest memory of this process so far, in MiB."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""
    # On Linux `ru_maxrss` is inherited from the parent process, so `VmHWM` is read instead.
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    if found:
        return int(found[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts KiB, macOS bytes.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
