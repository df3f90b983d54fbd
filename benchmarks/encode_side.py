"""One side of `benchmarks.encode`, measured in a process of its own."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.encode_peers import PEERS, open_peer
from official_cmlm import cli
from official_cmlm.common.processor import peak_mib

if TYPE_CHECKING:
    import numpy as np

Encode = Callable[[list[str]], "np.ndarray"]
# Side -> backend and precision of `SentenceEncoder.load`.
OURS = {
    "ours": ("tensorflow", "float32"),
    "ours_bfloat16": ("tensorflow", "bfloat16"),
    "ours_onnx": ("onnx", "float32"),
    "ours_onnx_int8": ("onnx", "int8"),
}
# Side -> the binary that exports what it runs, and the name of the export's folder.
EXPORTS = {
    "ours_serving": ("export.export_tfhub", "tfhub"),
    "ours_litert": ("export.export_litert", "litert"),
    "ours_litert_int8": ("export.export_litert", "litert"),
}
SIDES = (*OURS, *EXPORTS, *PEERS)
# Sentences of the warm-up: enough that every lazy part has run.
_WARM_UP = 256
# Sentences that are encoded one by one.
_SINGLE = 100


def measure_side(
    side: str, model: str, graphs: str, sentences: list[str], texts: list[str], batch_size: int
) -> "tuple[dict[str, float], np.ndarray, np.ndarray | None]":
    """Measures a side in this process.

    Args:
      side: one of `SIDES`.
      model: encoder directory, its export or a sentence-transformers folder.
      graphs: folder of the peers' graphs.
      sentences: the sentences that are encoded for the figures.
      texts: further texts, encoded after everything is measured.
      batch_size: sentences a batch.

    Returns:
      The figures, the vectors of the sentences, and the vectors of the texts (None without texts).
      The figures are `all_per_second`, sentences a second of one call after a warm-up;
      `per_core_second`, the same for each second of processor time, which other programs disturb
      less; `requests_per_second`, sentences a second in requests of `batch_size` sentences as they
      come; `p50_ms` and `p95_ms` of one sentence alone; and `peak_mib` of the whole process.
    """
    encode = _open(side, model, graphs, batch_size)
    encode(sentences[:_WARM_UP])
    figures, embeddings = _figures(encode, sentences, batch_size)
    return figures, embeddings, encode(texts) if texts else None


def _open(side: str, model: str, graphs: str, batch_size: int) -> Encode:
    if side in OURS:
        return _ours(side, model, batch_size)
    if side == "ours_serving":
        return _in_batches(_serving(model), batch_size)
    if side in EXPORTS:
        from examples.encode_litert import LiteRTEncoder

        weights = "int8" if side.endswith("int8") else "float32"
        threads = len(os.sched_getaffinity(0))
        return _in_batches(LiteRTEncoder(model, weights, threads).encode, 1)
    peer = open_peer(side, model, graphs)
    return lambda texts: peer.encode(
        texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
    )


def _figures(
    encode: Encode, sentences: list[str], batch_size: int
) -> tuple[dict[str, float], "np.ndarray"]:
    """Returns the figures, and the vectors of all sentences."""
    import numpy as np

    started, used = time.perf_counter(), time.process_time()
    embeddings = encode(sentences)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    figures = {
        "all_per_second": len(sentences) / seconds,
        "per_core_second": len(sentences) / used,
    }
    started = time.perf_counter()
    for start in range(0, len(sentences), batch_size):
        encode(sentences[start : start + batch_size])
    figures["requests_per_second"] = len(sentences) / (time.perf_counter() - started)
    singles = []
    for sentence in sentences[:_SINGLE]:
        started = time.perf_counter()
        encode([sentence])
        singles.append(1000 * (time.perf_counter() - started))
    figures |= {f"p{share}_ms": float(np.percentile(singles, share)) for share in (50, 95)}
    return {**figures, "peak_mib": peak_mib()}, embeddings


def _ours(side: str, model: str, batch_size: int) -> Encode:
    cli.quiet_tensorflow()
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    backend, precision = OURS[side]
    encoder = SentenceEncoder.load(model, precision=precision, backend=backend)
    return lambda texts: encoder.encode(texts, batch_size=batch_size, normalize_embeddings=True)


def _serving(model: str) -> Encode:
    """Returns the serving model in a session, as TensorFlow Serving runs it, without a network."""
    cli.quiet_tensorflow()
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers the ops of the tokenizer

    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta = tf.compat.v1.saved_model.load(session, ["serve"], f"{model}/serving/1")
    signature = meta.signature_def["serving_default"]
    call = session.make_callable(signature.outputs["default"].name, [signature.inputs["text"].name])
    return lambda texts: call(np.array([text.encode() for text in texts], object))


def _in_batches(encode: Encode, size: int) -> Encode:
    """Returns `encode` in batches of `size` texts in their order, with normalised vectors."""
    import numpy as np

    def encode_all(texts: list[str]) -> np.ndarray:
        starts = range(0, len(texts), size)
        vectors = np.concatenate([encode(texts[start : start + size]) for start in starts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return encode_all
