"""The choice of the fastest installed backend, by a measurement of about a second."""

import contextlib
import importlib.metadata
import json
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.checkpoints.find_encoder import encoder_directory_of
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.common.files import cache_folder, digest, read_object, write_json
from official_cmlm.common.processor import usable_cores
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.encoding.backends import Backend, Computation, OpenedFolder
from official_cmlm.encoding.backends import onnx as onnx_backend
from official_cmlm.encoding.backends import open_folder as open_by_name

# Seconds that each backend is measured for, after a first batch that does not count.
_SECONDS = 0.5
# Tokens of a text in the measurement: a sentence.
_TOKENS = 32
_PRECISIONS = {"onnx": ("float32", "int8"), "tensorflow": ("float32", "bfloat16")}
_PACKAGES = {"onnx": "onnxruntime", "tensorflow": "tensorflow"}


def open_folder(folder: Path, computation: Computation) -> OpenedFolder:
    """Opens a folder by the fastest backend that has the precision; see `backends.open_folder`.

    The measured choice is kept in the cache folder by processor, cores, versions and the encoder's
    size; if it cannot be kept, each load measures. A folder of graphs is opened by ONNX Runtime, an
    encoder that is too large for ONNX Runtime by TensorFlow.

    Raises:
      UserError: if no installed backend can open the folder with this precision.
      ValueError: if no backend has this precision.
    """
    names = [
        name for name, precisions in _PRECISIONS.items() if computation.precision in precisions
    ]
    if not names:
        raise ValueError(
            f"precision must be float32, bfloat16 or int8; got {computation.precision!r}"
        )
    if onnx_backend.has_graphs(folder):
        return onnx_backend.open_folder(folder, computation)
    if len(names) == 1 or not is_installed("tensorflow"):
        return open_by_name(names[0], folder, computation)
    path = cache_folder() / "fastest.json"
    measured: dict[str, Any] = {}
    # An unreadable file counts as an empty one, so that it is written again.
    with contextlib.suppress(OSError, UserError):
        measured = read_object(path)
    key = _key(encoder_directory_of(folder).config, computation.precision, names)
    if measured.get(key) in names:
        return open_by_name(measured[key], folder, computation)
    opened = _open_all(names, folder, computation)
    rates = {name: tokens_per_second(candidate.backend) for name, candidate in opened.items()}
    fastest = max(rates, key=rates.get)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, measured | {key: fastest})
    return opened[fastest]


def tokens_per_second(backend: Backend, seconds: float = _SECONDS) -> float:
    """Measures tokens per second of full batches of sentences, `backend.concurrent` at once."""
    length = min(_TOKENS, backend.max_positions)
    rows = max(1, backend.batch_tokens // length)
    ids, lengths = np.zeros([rows, length], np.int32), np.full([rows], length, np.int32)
    backend.embed(ids, lengths)
    until = time.perf_counter() + seconds

    def stream() -> int:
        done = 0
        while not done or time.perf_counter() < until:
            backend.embed(ids, lengths)
            done += 1
        return done

    started = time.perf_counter()
    with ThreadPoolExecutor(backend.concurrent) as pool:
        streams = [pool.submit(stream) for _ in range(backend.concurrent)]
        batches = sum(stream.result() for stream in streams)
    return batches * rows * length / (time.perf_counter() - started)


def _open_all(names: list[str], folder: Path, computation: Computation) -> dict[str, OpenedFolder]:
    """Opens a folder by all backends that can open it.

    ONNX Runtime cannot open an encoder whose graph exceeds 2 GiB.
    """
    opened, refused = {}, None
    for name in names:
        try:
            opened[name] = open_by_name(name, folder, computation)
        except UserError as error:
            refused = error
    if not opened:
        raise refused
    return opened


def _key(config: EncoderConfig, precision: str, installed: list[str]) -> str:
    # The size of the vocabulary matters because the encoder may be too large for an ONNX file.
    names = "hidden_size num_layers num_attention_heads intermediate_size vocab_size".split()
    sizes = {name: getattr(config, name) for name in names}
    versions = {name: importlib.metadata.version(_PACKAGES[name]) for name in installed}
    cores = usable_cores()
    values = [_processor(), cores, sorted(versions.items()), sizes, precision]
    return digest([], json.dumps(values, sort_keys=True))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in lines[:30] if line.startswith(("model name", "flags")))
