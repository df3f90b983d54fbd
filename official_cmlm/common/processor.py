"""This process and its processor: cores that it may use, memory that it took, bfloat16."""

import contextlib
import math
import os
import re
import sys
from pathlib import Path

# Flags of processors that multiply bfloat16, as Linux names them.
_BFLOAT16 = {"avx512_bf16", "amx_bf16"}
# Values of ONEDNN_MAX_CPU_ISA with which oneDNN uses no instructions for bfloat16.
_WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"}


def usable_cores() -> int:
    """Returns the cores that this process may use, or fewer if its environment says so.

    A container's share of the processor counts (its cgroup's quota). The variables are those that
    `worker_processes` sets to a process's share.
    """
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    cores = min(cores, cgroup_cores() or cores)
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return min(cores, int(value))
    return cores


def cgroup_cores(root: Path = Path("/")) -> int:
    """Returns the cores that the cgroup's quotas are worth, rounded up; 0 without a quota."""
    quotas = []
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            folder = root / "sys/fs/cgroup" / ("cpu" if "cpu" in kinds.split(",") else "")
            # The quotas of the groups above count too; a container sees its own at the top.
            for part in Path(path).parts:
                folder /= part.strip("/")
                for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
                    values = [(folder / n).read_text() for n in names if (folder / n).exists()]
                    quota, _, period = " ".join(values).partition(" ")
                    if quota.strip().isdecimal():
                        quotas.append(max(1, -(-int(quota) // int(period))))
    return min(quotas, default=0)


def multiplies_bfloat16(information: Path = Path("/proc/cpuinfo")) -> bool:
    """Returns whether the processor has instructions for bfloat16; always false without Linux."""
    try:
        text = information.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return not _BFLOAT16.isdisjoint(line.split())


def hides_bfloat16() -> str:
    """Returns the setting that keeps oneDNN from instructions for bfloat16, or an empty text."""
    value = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    return f"ONEDNN_MAX_CPU_ISA={value}" if value.upper() in _WITHOUT_BFLOAT16 else ""


def physical_memory() -> float:
    """Returns the bytes of this machine's memory; infinity where the system does not tell them."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_mib() -> float:
    """Returns the largest memory of this process so far, in MiB."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""
    # On Linux `ru_maxrss` is inherited from the parent process, so `VmHWM` is read instead.
    match = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    if match:
        return int(match[1]) / 2**10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts KiB, macOS bytes.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
