"""One side of an encoding benchmark, in a process of its own.

    python -m benchmarks.encode_side --side=ours --model=… --sentences_file=…

Prints one line of JSON: `sentences_per_second` of one pass after a warm-up, `peak_mib` of the whole
process.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

FLAGS = flags.FLAGS
SIDES = ("ours", "ours_bfloat16", "sentence_transformers")
# Sentences of the warm-up: enough that every lazy part has run.
_WARM_UP = 256


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_enum("side", "ours", SIDES, "Whose encoder to run.")
    flags.DEFINE_string(
        "model", None, "Encoder directory (ours) or sentence-transformers folder. Required."
    )
    flags.DEFINE_string("sentences_file", None, "JSON list of sentences. Required.")
    flags.DEFINE_string("output", "", "Folder for embeddings.npy and ids.json. Default: none.")
    flags.DEFINE_integer("batch_size", 64, "Sentences a batch.", lower_bound=1)
    cli.required("model", "sentences_file")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    sentences = json.loads(Path(FLAGS.sentences_file).read_text(encoding="utf-8"))
    encode, ids_of = _sentence_transformers() if FLAGS.side == SIDES[2] else _ours()
    encode(sentences[:_WARM_UP])
    started = time.perf_counter()
    embeddings = encode(sentences)
    seconds = time.perf_counter() - started
    if FLAGS.output:
        import numpy as np

        folder = Path(FLAGS.output)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "embeddings.npy", embeddings)
        (folder / "ids.json").write_text(json.dumps(ids_of(sentences)))
    print(json.dumps({"sentences_per_second": len(sentences) / seconds, "peak_mib": peak_mib()}))


def _ours() -> tuple[Callable, Callable]:
    cli.quiet_tensorflow()
    from official_cmlm.sentence_encoder import SentenceEncoder
    from official_cmlm.tokenization import build_tokenizer

    precision = "bfloat16" if FLAGS.side == "ours_bfloat16" else "float32"
    encoder = SentenceEncoder.load(FLAGS.model, precision=precision)
    tokenizer, special = build_tokenizer(encoder.vocabulary), encoder.vocabulary.special_ids

    def ids_of(sentences: list[str]) -> list[list[int]]:
        most = encoder.max_seq_length - 2
        rows = tokenizer.tokenize(sentences).to_list()
        return [[special["cls"], *row[:most], special["sep"]] for row in rows]

    return lambda s: encoder.encode(s, batch_size=FLAGS.batch_size, normalize=True), ids_of


def _sentence_transformers() -> tuple[Callable, Callable]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(FLAGS.model, device="cpu")

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
