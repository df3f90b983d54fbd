"""Training speed, ours and PyTorch's: `python -m benchmarks.train_step`.

Steps of CMLM, MLM and contrastive learning (dropout alone) on real sentences, at three sizes of
encoder, on two threads, against

- the strongest PyTorch reference: Hugging Face's BERT with `sdpa` attention on our own batches, its
  head at masked positions only, fused AdamW, and the fastest of eager execution and
  `torch.compile` with and without dynamic shapes, see `train_step_torch`;
- with --references=plain,padding also the same model as users write it (head at all positions,
  batches grouped by length), and our own step with everything padded to 256 tokens.

Our side is the faster of TensorFlow's kernels and of XLA, as `--ours` names them. Each side is a
process of its own that traces and compiles first. Then they are measured in turn, round by round; a
variant that was not its library's fastest in the first round is ended. A ratio is the median over
the rounds. Run it with the python of `.venv-bench` (`make bench-env`). Without --text it takes
text/en below CMLM_DATA_DIR, else the docstrings of the installed packages; without --vocab_file
vocab/bert_uncased.txt there, else a vocabulary of the text.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.processes import answering, run_module
from benchmarks.train_step_examples import (
    SEQ_LENGTH,
    SEQUENCES,
    bucketed,
    evenly,
    read_batches,
    write_batches,
)
from benchmarks.train_step_flops import Shape, step_flops
from official_cmlm import cli

FLAGS = flags.FLAGS
# Goals of a ratio.
_GOALS = {"pytorch": 2.5, "pytorch_plain": 1.5, "padding": 5.0}
_SWITCHES = "buckets,flat,last"
# Variant of our side -> switches.
_OURS = {"kernels": _SWITCHES, "xla": f"{_SWITCHES},xla"}
# Further reference -> its name in the ratios.
_REFERENCES = {"plain": "pytorch_plain", "padding": "padding"}
# What each optimisation gives: name -> switches of our side.
_ALONE = {
    "padding": "",
    "buckets": "buckets",
    "flat": "flat",
    "last": "last",
    "all_but_flat": "buckets,last",
    "all_but_last": "buckets,flat",
    "all": _SWITCHES,
    "with_xla": f"{_SWITCHES},xla",
}
# Tokens. Steps of 8 keep padding at a tenth.
BUCKETS = ["16", "24", "32", "40", "48", "64", "80", "96", "128", "192", "256"]


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Text to read, a folder or pattern. Default: see above.")
    flags.DEFINE_string("vocab_file", "", "Uncased WordPiece vocabulary. Default: see above.")
    flags.DEFINE_list("sizes", ["2x128", "4x256", "6x384"], "Layers x width of the encoders.")
    flags.DEFINE_list("objectives", list(SEQUENCES), "Objectives to train by.")
    flags.DEFINE_list("bucket_boundaries", BUCKETS, "Lengths that batches are padded to.")
    flags.DEFINE_multi_enum("ours", ["kernels", "xla"], ["kernels", "xla"], "Variants of ours.")
    flags.DEFINE_list("pytorch", ["eager", "dynamic", "static"], "Variants of the reference.")
    flags.DEFINE_list("references", [], "More to compare with: plain, padding.")
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("steps", 12, "Batches of a round; 0: of 2,048 examples.", lower_bound=0)
    flags.DEFINE_integer("batch_size", 8, "Examples of 256 tokens a step.", lower_bound=1)
    flags.DEFINE_integer("padding_steps", 3, "Steps of the side that pads.", lower_bound=1)
    flags.DEFINE_bool("alone", False, "Measure what each optimisation gives, once.")


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
    lengths = [int(length) for length in FLAGS.bucket_boundaries]
    buckets = [(length, FLAGS.batch_size * SEQ_LENGTH // length) for length in lengths]
    for objective in FLAGS.objectives:
        file = folder / f"{objective}.json"
        source = json.loads(file.read_text())
        batches = bucketed(source["examples"], buckets)
        write_batches(file, source, evenly(batches, FLAGS.steps))


def _compare(objective: str, size: str, file: Path) -> None:
    name = f"{objective}_{size}"
    common = [f"--examples_file={file}", f"--objective={objective}", f"--size={size}"]
    ours = {f"ours_{v}": _our_side(_OURS[v], common) for v in FLAGS.ours}
    pytorch = {f"pytorch_{v}": _their_side(v, common) for v in FLAGS.pytorch}
    more = {
        _REFERENCES[r]: _their_side(r, common) if r == "plain" else _our_side("", common)
        for r in FLAGS.references
    }
    figures = _measured(name, objective, [ours, pytorch, *({k: v} for k, v in more.items())])
    best, strongest = (_fastest(figures, side) for side in (ours, pytorch))
    print(f"{name}: ours is {best}, the reference {strongest}")
    bounds = _bounds(objective, size, file)
    for other, reference in {"pytorch": strongest, **{k: k for k in more}}.items():
        pairs = list(zip(figures[best], figures[reference]))
        for metric, suffix in (("per_second", ""), ("per_core_second", "_a_core_second")):
            ratio = statistics.median(a[metric] / b[metric] for a, b in pairs)
            if ratio < _GOALS[other] and not suffix:
                bound = bounds[other] / bounds["ours"]
                print(f"{name}: below {_GOALS[other]}; at equal FLOP/s it is {bound:.2f}")
            kind = "ratio" if not suffix else "figure"
            print(f"{kind} train_step_{name}_vs_{other}{suffix} {ratio:.2f}", flush=True)
    if FLAGS.alone:
        _alone(name, objective, common)


def _measured(
    name: str, objective: str, libraries: list[dict[str, list[str]]]
) -> dict[str, list[dict]]:
    """The rounds of each side: those of slower variants of a library are one.

    Args:
      name: of the case.
      objective: its objective.
      libraries: variant -> command, of each library.
    """
    figures: dict[str, list[dict]] = {}
    commands = {side: command for library in libraries for side, command in library.items()}
    with answering(*commands.values()) as started:
        sides = dict(zip(commands, started))
        for number in range(1, FLAGS.rounds + 1):
            for side, process in sides.items():
                figures.setdefault(side, []).append(json.loads(process.ask()))
                line = _line(figures[side][-1], objective)
                print(f"round {number}, {name}, {side}: {line}", flush=True)
            if number == 1:
                for library in libraries:
                    for side in library:
                        if side != _fastest(figures, library):
                            sides.pop(side).end()
    return figures


def _fastest(figures: dict[str, list[dict]], sides: dict[str, list[str]]) -> str:
    """The variant that was fastest in the first round."""
    return max(sides, key=lambda side: figures[side][0]["per_second"])


def _our_side(switches: str, common: list[str]) -> list[str]:
    own = [f"--switches={switches}", f"--batch_size={FLAGS.batch_size}"]
    if "buckets" not in switches:
        own.append(f"--steps={FLAGS.padding_steps}")
    return ["benchmarks.train_step_side", *common, *own]


def _their_side(reference: str, common: list[str]) -> list[str]:
    return ["benchmarks.train_step_torch", *common, f"--reference={reference}"]


def _bounds(objective: str, size: str, file: Path) -> dict[str, float]:
    """FLOPs of each side, see `step_flops`."""
    source, batches = read_batches(file)
    examples = sum(len(batch.examples) for batch in batches)
    shape = Shape.of(objective, size, source["vocab_size"])
    return step_flops(shape, batches, round(examples / len(batches)))


def _alone(name: str, objective: str, common: list[str]) -> None:
    """Prints what each optimisation gives, against padding, once."""
    padded = 0.0
    for side, switches in _ALONE.items():
        with answering(_our_side(switches, common)) as (process,):
            found = json.loads(process.ask())
        padded = padded or found["per_second"]
        gain = found["per_second"] / padded
        print(f"{name}, {side}: {gain:.2f} × padding; {_line(found, objective)}", flush=True)


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
