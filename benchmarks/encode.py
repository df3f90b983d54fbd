"""Every way to encode, against sentence-transformers: `python -m benchmarks.encode`.

All ways of both libraries get the same weights, sentences and batch size, on CPU. Each run is a
process of its own, the sides alternate, and a ratio is the median over the rounds. Our sides are
`encode` by its backends, the serving model's `serving_default` in a session, as TensorFlow Serving
runs it, and LiteRT. The benchmark measures one call with all sentences, requests of --batch_size
sentences in the order of the text, one sentence alone, and memory. A side whose packages are not
installed, or do not work together, is named and left out. For float32, ratios compare the faster of
TensorFlow and ONNX Runtime, which `backend="auto"` chooses. Run it with the python of `.venv-bench`
(`make bench-env`). With STS-B in --data_dir the table has each way's Spearman correlation on its
test set.
"""

import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks import shared
from benchmarks.encode_peers import FLOAT32, PEERS, prepare
from benchmarks.encode_side import EXPORTS, OURS, SIDES, measure_side
from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.common.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.evaluation.data.sts import ScoredPairs

FLAGS = flags.FLAGS
# Side -> the vectors of the first round.
Vectors = dict[str, "list[np.ndarray]"]
# Our sides of each kind of arithmetic.
_FLOAT32, _BFLOAT16, _INT8 = ("ours", "ours_onnx"), "ours_bfloat16", "ours_onnx_int8"
_SERVING = "ours_serving"
# Lengths of the LiteRT models in tokens; one more model has the length of the encoder.
_LENGTHS = (32, 64, 128, 256)
_STS = "senteval/downstream/STS/STSBenchmark/sts-test.csv"


def define_flags() -> None:
    """Defines the ways to encode, and how often each runs."""
    shared.define_text_flags()
    shared.define_model_flag()
    flags.DEFINE_integer("sentences", 5000, "Sentences to encode.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 64, "Sentences a batch.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_multi_enum("sides", SIDES, SIDES, "Ways to measure. Default: all.")


def main() -> None:
    """Measures every way in turn, and prints the table and the ratios."""
    source = str(find_encoder(FLAGS.model))
    with tempfile.TemporaryDirectory() as folder:
        # The import and the ONNX graphs of our encoder are cached here, and deleted with it.
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        encoder = encoder_directory_of(Path(source)).path
        sentences = shared.real_sentences(shared.text_files(folder), FLAGS.sentences)
        pairs = sts_benchmark()
        texts = [*pairs.first, *pairs.second] if pairs else []
        models = {side: source for side in FLAGS.sides}
        models |= dict.fromkeys(OURS, encoder)
        models |= {side: f"{folder}/{name}" for side, (_, name) in EXPORTS.items()}
        vectors: Vectors = {}

        def measure(side: str) -> dict[str, float]:
            more = [] if side in vectors else texts
            arguments = side, models[side], folder, sentences, more, FLAGS.batch_size
            figures_of_side, *vectors_of_side = shared.in_new_process(measure_side, *arguments)
            vectors.setdefault(side, vectors_of_side)
            return figures_of_side

        calls = {
            side: functools.partial(measure, side)
            for side in FLAGS.sides
            if _prepare(side, source, encoder, folder, sentences)
        }
        figures = shared.in_turns(range(1, FLAGS.rounds + 1), calls)
    print_table(figures, vectors, pairs)
    print_ratios(figures)


def sts_benchmark() -> "ScoredPairs | None":
    """Returns STS-B's test pairs; prints a line and returns None if the file is missing."""
    from official_cmlm.evaluation.data.sts import read_sts_benchmark

    data = shared.data_dir()
    if data and (data / _STS).exists():
        return read_sts_benchmark(data / _STS)
    print(f"no column for STS-B: there is no {_STS} in --data_dir", flush=True)
    return None


def _prepare(side: str, source: str, encoder: Path, folder: str, sentences: list[str]) -> bool:
    """Writes the graph that a side runs; prints a line and returns False if that fails."""
    try:
        if side in EXPORTS:
            _export(side, encoder, folder)
        elif side in PEERS:
            shared.in_new_process(prepare, side, source, folder, sentences)
    except UserError as error:
        print(f"{side}: left out, its graph cannot be written here: {error}", flush=True)
        return False
    return True


def _export(side: str, encoder: Path, folder: str) -> None:
    """Writes the export that a side runs, unless another side has written it."""
    binary, name = EXPORTS[side]
    if (Path(folder) / name).exists():
        return
    more = []
    if name == "litert":
        longest = EncoderDirectory.open(encoder).max_seq_length
        lengths = [*(length for length in _LENGTHS if length < longest), longest]
        more = [f"--lengths={','.join(map(str, lengths))}"]
    shared.run_module(binary, f"--model_dir={encoder}", f"--export_dir={folder}/{name}", *more)


def print_table(figures: shared.Rounds, vectors: Vectors, pairs: "ScoredPairs | None") -> None:
    """Prints medians of each side, how its vectors agree with ours in float32, and STS-B's test.

    Args:
      figures: the figures of every round.
      vectors: vectors of the sentences, and of the first and then the second texts of `pairs`.
      pairs: the test pairs of STS-B. None: the table has no column for them.
    """
    import numpy as np

    exact = vectors[_FLOAT32[0]][0] if _FLOAT32[0] in figures else None
    columns = "| side | sentences/s | /core·s | in requests | one alone, p50 ms | p95 ms | MiB |"
    columns += " largest difference | mean cosine |" + (" STS-B test |" if pairs else "")
    print(columns)
    print("|---|" + "---:|" * (columns.count("|") - 2))
    for side, results in figures.items():
        names = ("all_per_second", "per_core_second", "requests_per_second", "p50_ms", "p95_ms")
        cells = [side, *(f"{shared.median(results, name):.1f}" for name in names)]
        cells.append(f"{shared.median(results, 'peak_mib'):.0f}")
        if exact is None:
            cells += ["–", "–"]
        else:
            ours = vectors[side][0]
            cells.append(f"{np.abs(ours - exact).max():.1e}")
            cells.append(f"{(ours * exact).sum(axis=1).mean():.4f}")
        if pairs is not None:
            cells.append(f"{_spearman(vectors[side][1], pairs):.2f}")
        print(f"| {' | '.join(cells)} |")


def _spearman(vectors: "np.ndarray", pairs: "ScoredPairs") -> float:
    """Returns Spearman's correlation of the pairs' cosines with their scores, times 100."""
    from official_cmlm.evaluation.metrics.similarity import similarity_spearman

    halves = iter((vectors[: len(pairs.first)], vectors[len(pairs.first) :]))
    return similarity_spearman(lambda texts: next(halves), pairs)


def print_ratios(figures: shared.Rounds) -> None:
    """Prints our speed over that of each peer of the same arithmetic, and serving over `encode`.

    Ratios of `p50_ms` are of times: smaller is better.
    """
    exact = max(
        (side for side in _FLOAT32 if side in figures),
        key=lambda side: shared.median(figures[side], "all_per_second"),
        default="",
    )
    for peer, is_int8 in PEERS.items():
        name, side = "float32", exact
        if is_int8:
            name, side = "int8", _INT8
        elif peer not in FLOAT32:
            name, side = "bfloat16", _BFLOAT16
        _print_ratio(figures, f"encode_{name}_vs_{peer}", "all_per_second", side, peer)
        if peer == "torch":
            _print_ratio(figures, "encode_memory_float32", "peak_mib", side, peer)
    for name, other in (("encode", "ours"), ("sentence_transformers", "torch")):
        _print_ratio(figures, f"serving_single_vs_{name}", "p50_ms", _SERVING, other)
        _print_ratio(figures, f"serving_batch_vs_{name}", "requests_per_second", _SERVING, other)


def _print_ratio(figures: shared.Rounds, name: str, key: str, side: str, other: str) -> None:
    """Prints the median of the rounds' ratios, where both sides were measured."""
    if side in figures and other in figures:
        shared.print_ratio(name, key, figures[side], figures[other])


if __name__ == "__main__":
    define_flags()
    cli.run(main)
