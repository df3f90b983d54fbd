"""Encoders of a teacher's vocabulary alone: `cmlm distil --static`, and model2vec's `distill`.

    python -m benchmarks.distil --data_dir=DATA

Both have 256 columns. Figures are the seconds that each takes, and Spearman's correlation x 100 on
STS-B's test set, DATA/senteval/downstream/STS/STSBenchmark.
"""

import functools
import tempfile
import time
from collections.abc import Callable

from absl import flags

from benchmarks import shared
from official_cmlm import SentenceEncoder, cli
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.sts import read_sts_benchmark
from official_cmlm.evaluation.metrics.similarity import similarity_spearman


def define_flags() -> None:
    """Defines the teacher and the data."""
    shared.define_text_flags()
    shared.define_model_flag()


def main() -> None:
    """Runs both sides in turns, and prints the medians."""
    if not (data := shared.data_dir()):
        raise UserError("--data_dir is missing; name a folder with senteval/downstream")
    pairs = read_sts_benchmark(data / "senteval/downstream/STS/STSBenchmark/sts-test.csv")

    def measure(distil: Callable[[str], Callable]) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            encode = distil(f"{folder}/small")
            seconds = time.monotonic() - began
            return {"seconds": seconds, "stsb": similarity_spearman(encode, pairs)}

    sides = {"ours": _distil, "model2vec": _distil_by_model2vec}
    sides = {name: functools.partial(measure, side) for name, side in sides.items()}
    for side, rounds in shared.in_turns(range(3), sides).items():
        for key in rounds[0]:
            print(f"figure distil_{side}_{key} {shared.median(rounds, key):.2f}")


def _distil(output: str) -> Callable:
    teacher = f"--teacher={flags.FLAGS.model}"
    shared.run_module("experiments.distil", teacher, "--static", f"--output_dir={output}")
    return SentenceEncoder.load(output).encode


def _distil_by_model2vec(_: str) -> Callable:
    try:
        from model2vec.distill import distill
    except ImportError as error:
        raise UserError(str(error)) from None
    return distill(str(find_encoder(flags.FLAGS.model)), pca_dims=256).encode


if __name__ == "__main__":
    define_flags()
    cli.run(main)
