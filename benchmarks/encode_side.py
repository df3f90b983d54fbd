"""One side of an encoding benchmark, in a process of its own.

    python -m benchmarks.encode_side --side=ours --model=… --sentences_file=…

Prints one line of JSON: `sentences_per_second` of one pass after a warm-up; `per_core_second`,
sentences for each second of processor time, which other programs disturb less; `single_ms`, the
median time of one sentence alone; and `peak_mib` of the whole process.
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from absl import flags

from benchmarks.encode_peers import PEERS
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

FLAGS = flags.FLAGS
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
# An older name of the peer `torch`.
PEER = "sentence_transformers"
SIDES = (*OURS, *EXPORTS, PEER, *PEERS)
# Sentences of the warm-up: enough that every lazy part has run.
_WARM_UP = 256
# Sentences that are encoded one by one.
_SINGLE = 100


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_enum("side", "ours", SIDES, "Whose encoder to run.")
    flags.DEFINE_string(
        "model",
        None,
        "Encoder directory (ours), its export (ours_serving, ours_litert) or sentence-transformers "
        "folder. Required.",
    )
    flags.DEFINE_string("sentences_file", None, "JSON list of sentences. Required.")
    flags.DEFINE_string("graphs", "", "Folder of a peer's graphs; needed by onnx and openvino.")
    flags.DEFINE_bool("prepare", False, "Whether to write the peer's graph there, and no more.")
    flags.DEFINE_string("output", "", "Folder for embeddings.npy and ids.json. Default: none.")
    flags.DEFINE_string(
        "more_file",
        "",
        "JSON list of texts to encode when all is measured, into more.npy there. Default: none.",
    )
    flags.DEFINE_integer("batch_size", 64, "Sentences a batch.", lower_bound=1)
    cli.required("model", "sentences_file")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    sentences = json.loads(Path(FLAGS.sentences_file).read_text(encoding="utf-8"))
    peer = "torch" if FLAGS.side == PEER else FLAGS.side
    if FLAGS.prepare:
        from benchmarks import encode_peers

        encode_peers.prepare(peer, FLAGS.model, FLAGS.graphs, sentences)
        print("{}")
        return
    if FLAGS.side in EXPORTS:
        encode, ids_of = _exported(), None
    else:
        encode, ids_of = _ours() if FLAGS.side in OURS else _sentence_transformers(peer)
    encode(sentences[:_WARM_UP])
    started, used = time.perf_counter(), time.process_time()
    embeddings = encode(sentences)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    if FLAGS.output:
        import numpy as np

        folder = Path(FLAGS.output)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "embeddings.npy", embeddings)
        if ids_of is not None:
            (folder / "ids.json").write_text(json.dumps(ids_of(sentences)))
    singles = []
    for sentence in sentences[:_SINGLE]:
        started = time.perf_counter()
        encode([sentence])
        singles.append(time.perf_counter() - started)
    figures = {
        "sentences_per_second": len(sentences) / seconds,
        "per_core_second": len(sentences) / used,
        "single_ms": 1000 * statistics.median(singles),
        "peak_mib": peak_mib(),
    }
    if FLAGS.output and FLAGS.more_file:
        more = json.loads(Path(FLAGS.more_file).read_text(encoding="utf-8"))
        np.save(folder / "more.npy", encode(more))
    print(json.dumps(figures))


def _ours() -> tuple[Callable, Callable]:
    cli.quiet_tensorflow()
    from official_cmlm.sentence_encoder import SentenceEncoder

    backend, precision = OURS[FLAGS.side]
    encoder = SentenceEncoder.load(FLAGS.model, precision=precision, backend=backend)

    def ids_of(sentences: list[str]) -> list[list[int]]:
        from official_cmlm.tokenization import build_tokenizer

        special, most = encoder.vocabulary.special_ids, encoder.max_seq_length - 2
        rows = build_tokenizer(encoder.vocabulary).tokenize(sentences).to_list()
        return [[special["cls"], *row[:most], special["sep"]] for row in rows]

    return lambda s: encoder.encode(s, batch_size=FLAGS.batch_size, normalize=True), ids_of


def _exported() -> Callable:
    """The serving model by requests of a batch, as they come; or LiteRT, a sentence at a time."""
    import numpy as np

    if FLAGS.side == "ours_serving":
        from benchmarks.serving_side import serving_model

        request, _ = serving_model(f"{FLAGS.model}/serving/1")
        size = FLAGS.batch_size
    else:
        from examples.encode_litert import LiteRTEncoder

        weights = "int8" if FLAGS.side.endswith("int8") else "float32"
        threads = len(os.sched_getaffinity(0))
        request, size = LiteRTEncoder(FLAGS.model, weights, threads).encode, 1

    def encode(sentences: list[str]) -> np.ndarray:
        starts = range(0, len(sentences), size)
        vectors = np.concatenate([request(sentences[start : start + size]) for start in starts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return encode


def _sentence_transformers(peer: str) -> tuple[Callable, Callable]:
    from benchmarks import encode_peers

    model = encode_peers.open_peer(peer, FLAGS.model, FLAGS.graphs)

    def encode(sentences: list[str]):  # noqa: ANN202 - a NumPy array
        return model.encode(sentences, batch_size=FLAGS.batch_size, normalize_embeddings=True)

    def ids_of(sentences: list[str]) -> list[list[int]]:
        return model.tokenizer(sentences, truncation=True, max_length=model.max_seq_length)[
            "input_ids"
        ]

    return encode, ids_of


if __name__ == "__main__":
    define_flags()
    cli.run(main)
