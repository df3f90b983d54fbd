"""Training speed, ours and PyTorch's: `python -m benchmarks.train_step`.

Steps of CMLM, MLM and contrastive learning (dropout alone) on real sentences, at three sizes of
encoder, on two threads. Against (a) everything padded to 256 tokens with as many prediction slots
as the paper's batches have, and (b) Hugging Face's BERT in PyTorch on the same examples, in batches
of the same mean size, grouped by length. Each run is a process of its own, the sides alternate, a
ratio is the median over the rounds. Run it with the python of `.venv-bench` (`make bench-env`).
Without --text it takes text/en below CMLM_DATA_DIR, else the docstrings of the installed packages;
without --vocab_file vocab/bert_uncased.txt there, else a vocabulary of the text.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from benchmarks.train_step_examples import SEQ_LENGTH, SEQUENCES, Batch, bucketed
from benchmarks.train_step_flops import Shape, step_flops
from benchmarks.train_step_side import BUCKETS
from official_cmlm import cli

FLAGS = flags.FLAGS
# Goals of a ratio: every row of a batch padded to its bucket, and PyTorch's trainer.
_GOALS = {"padding": 5.0, "pytorch": 1.5}
# Side -> what our side saves; None is PyTorch's.
_SIDES = {
    "ours": "buckets,flat,last",
    "padding": "",
    "pytorch": None,
    "pytorch_masked_head": None,
}
_ALONE = {
    "buckets": "buckets",
    "flat": "flat",
    "last": "last",
    "all_but_flat": "buckets,last",
    "all_but_last": "buckets,flat",
    "with_xla": "buckets,flat,last,xla",
}


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Text to read, a folder or pattern. Default: see above.")
    flags.DEFINE_string("vocab_file", "", "Uncased WordPiece vocabulary. Default: see above.")
    flags.DEFINE_list("sizes", ["2x128", "4x256", "6x384"], "Layers x width of the encoders.")
    flags.DEFINE_list("objectives", list(SEQUENCES), "Objectives to train by.")
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("steps", 0, "Steps at most; 0: of 2,048 examples.", lower_bound=0)
    flags.DEFINE_integer("batch_size", 8, "Examples of 256 tokens a step.", lower_bound=1)
    flags.DEFINE_integer("padding_steps", 8, "Steps of side (a), all alike.", lower_bound=1)
    flags.DEFINE_bool("alone", True, "Measure what each optimisation gives, once.")


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    with tempfile.TemporaryDirectory() as folder:
        _write_examples(Path(folder))
        for size in FLAGS.sizes:
            for objective in FLAGS.objectives:
                _compare(objective, size, Path(folder, f"{objective}.json"))


def _write_examples(folder: Path) -> None:
    """One file an objective, of whole batches: both libraries then train on all of it."""
    from benchmarks.real_sentences import text_files

    files = text_files(FLAGS.text)
    text = ",".join(files[:: max(1, len(files) // 20)])
    vocabulary = FLAGS.vocab_file or str(
        Path(os.environ.get("CMLM_DATA_DIR", ""), "vocab", "bert_uncased.txt")
    )
    if not Path(vocabulary).exists():
        vocabulary = str(folder / "vocab.txt")
        run_module(
            *("data_prep.build_vocab", f"--input={text}", "--vocab_size=30522"),
            f"--output={vocabulary}",
        )
    run_module(
        *("benchmarks.train_step_examples", f"--text={text}", f"--output={folder}"),
        *(f"--vocab_file={vocabulary}", f"--objectives={','.join(FLAGS.objectives)}"),
        "--examples=2048",
    )
    for objective in FLAGS.objectives:
        file = folder / f"{objective}.json"
        source = json.loads(file.read_text())
        batches = _our_batches(source["examples"])
        kept = [example for batch in batches for example in batch.examples]
        file.write_text(json.dumps({**source, "examples": kept}))


def _our_batches(examples: list[dict]) -> list[Batch]:
    from official_cmlm.configs.data import DataConfig

    data = DataConfig(
        global_batch_size=FLAGS.batch_size, seq_length=SEQ_LENGTH, bucket_boundaries=BUCKETS
    )
    batches = bucketed(examples, data.buckets())
    return batches[: FLAGS.steps or len(batches)]


def _compare(objective: str, size: str, file: Path) -> None:
    name = f"{objective}_{size}"
    source = json.loads(file.read_text())
    batches = _our_batches(source["examples"])
    mean = round(len(source["examples"]) / len(batches))
    sides = dict(_SIDES)
    if objective == "contrastive":
        del sides["pytorch_masked_head"]
    figures: dict[str, list[dict]] = {side: [] for side in sides}
    for number in range(1, FLAGS.rounds + 1):
        for side, results in figures.items():
            results.append(_run(side, sides[side], objective, size, file, mean))
            print(f"round {number}, {name}, {side}: {_line(results[-1], objective)}", flush=True)
    if FLAGS.alone:
        padded = statistics.median(r["per_second"] for r in figures["padding"])
        for side, switches in _ALONE.items():
            found = _run(side, switches, objective, size, file, mean)
            gain = found["per_second"] / padded
            print(f"{name}, {side}: {gain:.2f} × padding; {_line(found, objective)}", flush=True)
    shape = Shape.of(objective, size, source["vocab_size"])
    bounds = step_flops(shape, batches, mean)
    for side, goal in _GOALS.items():
        ratios = [a["per_second"] / b["per_second"] for a, b in zip(figures["ours"], figures[side])]
        ratio, bound = statistics.median(ratios), bounds[side] / bounds["ours"]
        if ratio < goal:
            print(f"{name}: below {goal}; at equal FLOP/s it would be {bound:.2f} times {side}")
        print(f"ratio train_step_{name}_vs_{side} {ratio:.2f}", flush=True)
    if "pytorch_masked_head" in figures:
        ratios = [
            a["per_second"] / b["per_second"]
            for a, b in zip(figures["ours"], figures["pytorch_masked_head"])
        ]
        print(f"ratio train_step_{name}_vs_pytorch_masked_head {statistics.median(ratios):.2f}")


def _run(
    side: str, switches: str | None, objective: str, size: str, file: Path, batch_size: int
) -> dict:
    """One measured run of one side."""
    common = [f"--examples_file={file}", f"--objective={objective}", f"--size={size}"]
    if switches is None:
        head = "masked" if side == "pytorch_masked_head" else "all"
        module, own = "train_step_torch", [f"--head={head}", f"--batch_size={batch_size}"]
    else:
        module = "train_step_side"
        own = [f"--switches={switches}", f"--batch_size={FLAGS.batch_size}"]
        if "buckets" not in switches:
            own.append(f"--steps={FLAGS.padding_steps}")
    return json.loads(run_module(f"benchmarks.{module}", *common, *own))


def _line(found: dict, objective: str) -> str:
    unit = "segments" if objective == "mlm" else "pairs"
    return (
        f"{found['per_second']:.1f} {unit}/s, {found['tokens_per_second']:.0f} tokens/s, "
        f"{found['per_core_second']:.1f} {unit} a core second, {found['peak_mib']:.0f} MiB, "
        f"{found['step_mib']:.0f} MiB of it by steps"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
