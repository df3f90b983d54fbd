"""Sessions of ONNX Runtime: threads, devices and messages."""

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


def usable_cores() -> int:
    """Returns the cores that this process may use, or fewer if its environment says so.

    The variables are those that `worker_processes` sets to a process's share.
    """
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return min(cores, int(value))
    return cores
