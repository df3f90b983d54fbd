"""Every way to encode, against sentence-transformers: `python -m benchmarks.encode`.

The same weights, sentences and batch size in every way of both libraries, on CPU; each run is a
process of its own, the sides alternate, and a ratio is the median over the rounds. Ours are
`encode` by its backends, the serving model's `serving_default` in a session, as TensorFlow Serving
runs it, and LiteRT. Measured are one call with all sentences, requests of --batch_size sentences as
they come, one sentence alone, and memory. A side whose packages are not installed, or do not work
together, is named and left out. Ratios of float32 are of the faster one of TensorFlow and ONNX
Runtime, which `backend="auto"` takes. Run it with the python of `.venv-bench` (`make bench-env`).
With STS-B in --data_dir the table has each way's Spearman correlation on its test set.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks import shared
from benchmarks.encode_peers import FLOAT32, PEERS
from benchmarks.encode_side import EXPORTS, OURS, SIDES
from official_cmlm import cli
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.evaluation.data.sts import ScoredPairs

FLAGS = flags.FLAGS
# Side -> what each of its rounds printed.
Figures = dict[str, list[dict[str, float]]]
# Our sides of each kind of arithmetic.
_FLOAT32, _BFLOAT16, _INT8 = ("ours", "ours_onnx"), "ours_bfloat16", "ours_onnx_int8"
_SERVING = "ours_serving"
# Tokens of the LiteRT models, but for the longest of them, which takes as many as the encoder.
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


def main(argv: list[str]) -> None:
    """Measures every way in turn, and prints the table and the ratios."""
    del argv
    source = shared.packaged_weights()
    with tempfile.TemporaryDirectory() as folder:
        sentences = shared.real_sentences(shared.text_files(folder), FLAGS.sentences)
        # Graphs that ours are written as end with this folder.
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        (Path(folder) / "sentences.json").write_text(json.dumps(sentences), encoding="utf-8")
        encoder = f"{folder}/encoder"
        shared.run_module(
            "official_cmlm.checkpoints.import_checkpoint",
            *(f"--source={source}", f"--output_dir={encoder}"),
        )
        pairs = sts_benchmark()
        if pairs is not None:
            texts = json.dumps([*pairs.first, *pairs.second])
            (Path(folder) / "sts.json").write_text(texts, encoding="utf-8")
        sides = [side for side in FLAGS.sides if _prepared(side, source, encoder, folder)]
        figures = _measured(sides, source, folder, pairs is not None)
        print_table(figures, folder, pairs)
    print_ratios(figures)


def sts_benchmark() -> "ScoredPairs | None":
    """Returns STS-B's test pairs; None, with a word, where they are not at hand."""
    from official_cmlm.evaluation.data.sts import read_sts_benchmark

    data = shared.data_dir()
    if data and (data / _STS).exists():
        return read_sts_benchmark(data / _STS)
    print(f"no column for STS-B: there is no {_STS} in --data_dir", flush=True)
    return None


def _prepared(side: str, source: str, encoder: str, folder: str) -> bool:
    """Writes what a side runs; returns False, with a word, where that cannot be done."""
    try:
        if side in EXPORTS:
            _export(side, encoder, folder)
        elif side in PEERS:
            _run(side, source, folder, "--prepare")
    except UserError:
        print(f"{side}: left out, its graph cannot be written here; see above", flush=True)
        return False
    return True


def _export(side: str, encoder: str, folder: str) -> None:
    """Writes what an exported side runs, unless another side has done so."""
    binary, name = EXPORTS[side]
    if (Path(folder) / name).exists():
        return
    more = []
    if name == "litert":
        described = json.loads((Path(encoder) / "encoder_config.json").read_text(encoding="utf-8"))
        longest = described["max_seq_length"]
        lengths = [*(length for length in _LENGTHS if length < longest), longest]
        more = [f"--lengths={','.join(map(str, lengths))}"]
    shared.run_module(binary, f"--model_dir={encoder}", f"--export_dir={folder}/{name}", *more)


def _run(side: str, source: str, folder: str, *arguments: str) -> dict[str, float]:
    """Returns the figures of one run of one side."""
    model = f"{folder}/encoder" if side in OURS else source
    if side in EXPORTS:
        model = f"{folder}/{EXPORTS[side][1]}"
    return json.loads(
        shared.run_module(
            "benchmarks.encode_side",
            *(f"--side={side}", f"--model={model}", f"--graphs={folder}"),
            *(f"--sentences_file={folder}/sentences.json", f"--batch_size={FLAGS.batch_size}"),
            *arguments,
        )
    )


def _measured(sides: list[str], source: str, folder: str, with_sts: bool) -> Figures:
    """Runs the sides in turn; one that does not run is left out."""
    figures: Figures = {side: [] for side in sides}
    for number in range(1, FLAGS.rounds + 1):
        for side in list(figures):
            more = [f"--output={folder}/{side}"] if number == 1 else []
            if more and with_sts:
                more.append(f"--more_file={folder}/sts.json")
            try:
                found = _run(side, source, folder, *more)
            except UserError:
                del figures[side]
                print(f"{side}: left out, it does not run here; see above", flush=True)
                continue
            figures[side].append(found)
            told = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
            print(f"round {number}, {side}: {told}", flush=True)
    return figures


def print_table(figures: Figures, folder: str, pairs: "ScoredPairs | None") -> None:
    """Prints medians of each side, how its vectors agree with ours in float32, and STS-B's test.

    Args:
      figures: the figures of every round.
      folder: has a folder for each side with `embeddings.npy` and, with `pairs`, `more.npy`: the
        vectors of the first and then of the second texts.
      pairs: those of STS-B. None: the table has no column for them.
    """
    import numpy as np

    def vectors(side: str, name: str = "embeddings") -> np.ndarray:
        return np.load(f"{folder}/{side}/{name}.npy").astype(np.float32)

    exact = vectors(_FLOAT32[0]) if _FLOAT32[0] in figures else None
    columns = "| side | sentences/s | /core·s | in requests | one alone, p50 ms | p95 ms | MiB |"
    columns += " largest difference | mean cosine |" + (" STS-B test |" if pairs else "")
    print(columns)
    print("|---|" + "---:|" * (columns.count("|") - 2))
    for side, results in figures.items():
        names = ("all_per_second", "per_core_second", "requests_per_second", "p50_ms", "p95_ms")
        cells = [side, *(f"{_median(results, name):.1f}" for name in names)]
        cells.append(f"{_median(results, 'peak_mib'):.0f}")
        if exact is None:
            cells += ["–", "–"]
        else:
            ours = vectors(side)
            cells.append(f"{np.abs(ours - exact).max():.1e}")
            cells.append(f"{(ours * exact).sum(axis=1).mean():.4f}")
        if pairs is not None:
            cells.append(f"{_spearman(vectors(side, 'more'), pairs):.2f}")
        print(f"| {' | '.join(cells)} |")


def _spearman(vectors: "np.ndarray", pairs: "ScoredPairs") -> float:
    """Returns Spearman's correlation of the pairs' cosines with their scores, times 100."""
    from official_cmlm.evaluation.metrics.similarity import similarity_spearman

    halves = iter((vectors[: len(pairs.first)], vectors[len(pairs.first) :]))
    return similarity_spearman(lambda texts: next(halves), pairs)


def print_ratios(figures: Figures) -> None:
    """Prints our speed over that of each peer of the same arithmetic, and serving over `encode`.

    Ratios of `p50_ms` are of times: smaller is better.
    """
    exact = max(
        (side for side in _FLOAT32 if side in figures),
        key=lambda side: _median(figures[side], "all_per_second"),
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


def _print_ratio(figures: Figures, name: str, key: str, side: str, other: str) -> None:
    """Prints the median of the rounds' ratios, where both sides were measured."""
    if side in figures and other in figures:
        ratios = [a[key] / b[key] for a, b in zip(figures[side], figures[other])]
        print(f"ratio {name} {statistics.median(ratios):.2f}")


def _median(results: list[dict[str, float]], key: str) -> float:
    return statistics.median(result[key] for result in results)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
