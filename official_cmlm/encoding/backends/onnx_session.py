"""Graphs in ONNX Runtime: threads, devices and messages."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import check_fits_memory, refuse_special
from official_cmlm.common.processor import usable_cores

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
          UserError: if ONNX Runtime cannot read the file, or has no such device; if the file is a
            pipe or a device.
        """
        import onnxruntime

        if isinstance(graph, Path):
            refuse_special(graph)
            check_fits_memory(graph)
        providers = _providers(device)
        with guard_reading(where, "export or download it again"):
            self._session = _session(graph, providers)
        self._options = onnxruntime.RunOptions()
        self._inputs = {
            value.name: np.int32 if value.type == "tensor(int32)" else np.int64
            for value in self._session.get_inputs()
        }
        # Other devices than CPUs compute a large batch in the time of a small one.
        self.call_tokens = 16 if (device or "cpu").lower().startswith("cpu") else 2048
        # While one batch is in a single-threaded step, another one uses the other cores.
        self.concurrent = 2 if usable_cores() > 1 else 1

    def _run(self, output: str, word_ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Returns an output of the graph."""
        values = {IDS: word_ids, MASK: mask, TYPES: np.zeros_like(word_ids)}
        feeds = {name: values[name].astype(dtype) for name, dtype in self._inputs.items()}
        return self._session.run([output], feeds, self._options)[0]


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
