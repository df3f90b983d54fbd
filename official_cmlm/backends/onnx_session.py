"""Sessions of ONNX Runtime: threads, devices and messages."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import onnxruntime


def session(graph: Path | bytes, device: str | None = None) -> "onnxruntime.InferenceSession":
    """Opens a graph in ONNX Runtime, which raises many kinds of errors.

    Args:
      graph: the `.onnx` file, or its content.
      device: an execution provider without its ending, such as `cpu` or `cuda:1`. Default: `cpu`.

    Raises:
      UserError: if ONNX Runtime has no such device.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    # A thread that spins while it waits for work takes its core from the other batch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Errors are raised as exceptions, so they are not logged too.
    options.log_severity_level = 4
    kind, _, number = (device or "cpu").lower().partition(":")
    there = {
        name.removesuffix("ExecutionProvider").lower(): name
        for name in onnxruntime.get_available_providers()
    }
    if kind not in there or not (number.isdecimal() or not number):
        raise UserError(
            f"device {device}: ONNX Runtime has {', '.join(sorted(there))} here; take one of them, "
            "or install the ONNX Runtime of that device"
        )
    chosen = [(there[kind], {"device_id": number} if number else {})]
    if kind != "cpu":
        chosen.append((there["cpu"], {}))
    content = graph if isinstance(graph, bytes) else os.fspath(graph)
    return onnxruntime.InferenceSession(content, options, providers=chosen)


def call_tokens(device: str | None) -> int:
    """Returns `Backend.call_tokens` of a device: other ones than CPUs compute whole batches."""
    return 16 if (device or "cpu").lower().startswith("cpu") else 2048


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
    found = []
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
                        found.append(max(1, -(-int(quota) // int(period))))
    return min(found, default=0)
