"""One side of the encoding benchmark, in a process of its own.

    python -m benchmarks.encode_side --side=ours --model=… --sentences_file=…

Prints one line of JSON: `all_per_second`, sentences a second of one call after a warm-up;
`per_core_second`, the same for each second of processor time, which other programs disturb less;
`requests_per_second`, sentences a second in requests of --batch_size sentences as they come;
`p50_ms` and `p95_ms` of one sentence alone; and `peak_mib` of the whole process.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.encode_peers import PEERS
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

if TYPE_CHECKING:
    import numpy as np

FLAGS = flags.FLAGS
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


def define_flags() -> None:
    """Defines the side, its input and its output."""
    flags.DEFINE_enum("side", "ours", SIDES, "The encoder to run.")
    flags.DEFINE_string(
        "model",
        None,
        "Encoder directory (ours), its export (ours_serving, ours_litert) or sentence-transformers "
        "folder. Required.",
    )
    flags.DEFINE_string("sentences_file", None, "JSON list of sentences. Required.")
    flags.DEFINE_string("graphs", "", "Folder of a peer's graphs; needed by onnx and openvino.")
    flags.DEFINE_bool("prepare", False, "Whether to write the peer's graph there, and no more.")
    flags.DEFINE_string("output", "", "Folder for embeddings.npy. Default: none.")
    flags.DEFINE_string(
        "more_file",
        "",
        "JSON list of texts to encode when all is measured, into more.npy there. Default: none.",
    )
    flags.DEFINE_integer("batch_size", 64, "Sentences a batch.", lower_bound=1)
    cli.required("model", "sentences_file")


def main(argv: list[str]) -> None:
    """Measures the side."""
    del argv
    sentences = json.loads(Path(FLAGS.sentences_file).read_text(encoding="utf-8"))
    if FLAGS.prepare:
        from benchmarks import encode_peers

        encode_peers.prepare(FLAGS.side, FLAGS.model, FLAGS.graphs, sentences)
        print("{}")
        return
    if FLAGS.side in EXPORTS:
        encode = _serving() if FLAGS.side == "ours_serving" else _litert()
    else:
        encode = _ours() if FLAGS.side in OURS else _peer()
    encode(sentences[:_WARM_UP])
    figures, embeddings = _measured(encode, sentences)
    if FLAGS.output:
        import numpy as np

        folder = Path(FLAGS.output)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "embeddings.npy", embeddings)
        if FLAGS.more_file:
            more = json.loads(Path(FLAGS.more_file).read_text(encoding="utf-8"))
            np.save(folder / "more.npy", encode(more))
    print(json.dumps(figures))


def _measured(encode: Encode, sentences: list[str]) -> tuple[dict[str, float], "np.ndarray"]:
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
    for start in range(0, len(sentences), FLAGS.batch_size):
        encode(sentences[start : start + FLAGS.batch_size])
    figures["requests_per_second"] = len(sentences) / (time.perf_counter() - started)
    singles = []
    for sentence in sentences[:_SINGLE]:
        started = time.perf_counter()
        encode([sentence])
        singles.append(1000 * (time.perf_counter() - started))
    figures |= {f"p{share}_ms": float(np.percentile(singles, share)) for share in (50, 95)}
    return {**figures, "peak_mib": peak_mib()}, embeddings


def _ours() -> Encode:
    cli.quiet_tensorflow()
    from official_cmlm.sentence_encoder import SentenceEncoder

    backend, precision = OURS[FLAGS.side]
    encoder = SentenceEncoder.load(FLAGS.model, precision=precision, backend=backend)
    return lambda texts: encoder.encode(
        texts, batch_size=FLAGS.batch_size, normalize_embeddings=True
    )


def _serving() -> Encode:
    """Returns the serving model in a session, as TensorFlow Serving runs it, without a network."""
    cli.quiet_tensorflow()
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers the ops of the tokenizer

    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta = tf.compat.v1.saved_model.load(session, ["serve"], f"{FLAGS.model}/serving/1")
    signature = meta.signature_def["serving_default"]
    call = session.make_callable(signature.outputs["default"].name, [signature.inputs["text"].name])
    return _in_batches(
        lambda texts: call(np.array([text.encode() for text in texts], object)), FLAGS.batch_size
    )


def _litert() -> Encode:
    from examples.encode_litert import LiteRTEncoder

    weights = "int8" if FLAGS.side.endswith("int8") else "float32"
    threads = len(os.sched_getaffinity(0))
    return _in_batches(LiteRTEncoder(FLAGS.model, weights, threads).encode, 1)


def _in_batches(encode: Encode, size: int) -> Encode:
    """Returns `encode` in batches of `size` texts in their order, with normalised vectors."""
    import numpy as np

    def encode_all(texts: list[str]) -> np.ndarray:
        starts = range(0, len(texts), size)
        vectors = np.concatenate([encode(texts[start : start + size]) for start in starts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return encode_all


def _peer() -> Encode:
    from benchmarks import encode_peers

    model = encode_peers.open_peer(FLAGS.side, FLAGS.model, FLAGS.graphs)
    return lambda texts: model.encode(
        texts, batch_size=FLAGS.batch_size, normalize_embeddings=True, show_progress_bar=False
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
