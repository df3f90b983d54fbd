"""Graphs in ONNX Runtime: threads, devices and messages."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import onnxruntime

# The inputs of a graph, as Hugging Face names them.
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


class GraphBackend:
    """The common part of backends that embed by a graph of token ids; see `backends.Backend`."""

    name = "onnx"
    batch_tokens = 2048

    def __init__(
        self, graph: Path | bytes, where: str | os.PathLike, device: str | None = None
    ) -> None:
        """Opens a graph.

        Args:
          graph: the `.onnx` file, or its content.
          where: the file or the content's source, for messages.
          device: an execution provider without its ending, such as `cpu` or `cuda:1`. Default:
            `cpu`.

        Raises:
          UserError: if ONNX Runtime cannot read the file, or has no such device.
        """
        providers = _providers(device)
        try:
            self._session = _session(graph, providers)
        except Exception as error:  # ONNX Runtime's errors have no common class.
            raise UserError(
                f"{where}: ONNX Runtime cannot open it ({str(error)[:160]}); export or "
                "download it again"
            ) from None
        self._inputs = [value.name for value in self._session.get_inputs()]
        # Devices other than CPUs compute whole batches.
        self.call_tokens = 16 if (device or "cpu").lower().startswith("cpu") else 2048
        # While one batch is in a single-threaded step, another one uses the other cores.
        self.concurrent = 2 if usable_cores() > 1 else 1

    def _run(self, output: str, word_ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Returns an output of the graph."""
        feeds = {
            IDS: word_ids.astype(np.int64),
            MASK: mask.astype(np.int64),
            TYPES: np.zeros(word_ids.shape, np.int64),
        }
        return self._session.run([output], {name: feeds[name] for name in self._inputs})[0]


def mask_of(word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns which ids of a padded batch are real tokens, bool `[batch, seq]`."""
    return np.arange(word_ids.shape[1]) < lengths[:, np.newaxis]


def _providers(device: str | None) -> list[tuple[str, dict]]:
    import onnxruntime

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
    return chosen if kind == "cpu" else [*chosen, (there["cpu"], {})]


def _session(
    graph: Path | bytes, providers: list[tuple[str, dict]]
) -> "onnxruntime.InferenceSession":
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    # A thread that spins while it waits for work takes its core from the other batch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Errors are raised as exceptions, so they are not logged too.
    options.log_severity_level = 4
    content = graph if isinstance(graph, bytes) else os.fspath(graph)
    return onnxruntime.InferenceSession(content, options, providers=providers)


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
