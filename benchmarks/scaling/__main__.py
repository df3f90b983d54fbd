"""What training costs here, and on paper beyond: `python -m benchmarks.scaling`.

Measures the constants of this machine, predicts trainings of two sizes on one core and on two,
trains them, and writes `benchmarks/results/scaling.md` with the errors and with what the same
model says about the CMLM paper's run on larger machines. Without --text it reads text/en below
CMLM_DATA_DIR, else the docstrings of the installed packages.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from official_cmlm import cli

FLAGS = flags.FLAGS
CORES = (1, 2)


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Text to read, a folder or pattern. Default: see above.")
    flags.DEFINE_string("output", "benchmarks/results/scaling.md", "File to write.")
    flags.DEFINE_string("figures", "build/scaling.json", "File for what was measured.")
    flags.DEFINE_bool("render", False, "Write --output again from --figures; measure nothing.")
    flags.DEFINE_integer("rounds", 4, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("steps", 6, "Steps of a run in each round.", lower_bound=1)
    flags.DEFINE_string("records", "", "Records to measure one side on. Default: all sides.")
    flags.DEFINE_integer("cores", 1, "Cores of that side.", lower_bound=1)
    flags.DEFINE_bool("worker", False, "Be one of two workers that sum gradients.")


def main(argv: list[str]) -> None:
    """Runs everything, or one side of it where --records or --worker is given."""
    del argv
    if FLAGS.worker:
        from benchmarks.scaling.all_reduce import work

        cli.quiet_tensorflow()
        print(json.dumps(work()))
        return
    if FLAGS.records:
        cli.quiet_tensorflow()
        from benchmarks.scaling.runs import measure

        side = measure(FLAGS.records, FLAGS.cores, FLAGS.rounds, FLAGS.steps)
        print(json.dumps(dataclasses.asdict(side)))
        return
    from benchmarks.scaling.report import Figures, render, summary

    path = Path(FLAGS.figures)
    if not FLAGS.render:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_measured(), indent=1), encoding="utf-8")
    figures = Figures.read(path)
    Path(FLAGS.output).write_text(render(figures), encoding="utf-8")
    print(summary(figures))


def _measured() -> dict:
    """Everything that is measured here, as `report.Figures` reads it."""
    from benchmarks.real_sentences import text_files
    from benchmarks.scaling.all_reduce import loopback_all_reduce
    from official_cmlm.records.manifest import load_manifest

    print("summing gradients over loopback …", flush=True)
    reduced = loopback_all_reduce()
    with tempfile.TemporaryDirectory() as folder:
        root, text = Path(folder), ",".join(text_files(FLAGS.text)[:24])
        run_module(
            *("data_prep.build_vocab", f"--input={text}", "--vocab_size=8000"),
            f"--output={root / 'vocab.txt'}",
        )
        run_module(
            *("data_prep.create_documents", f"--input={text}", "--documents_by=file"),
            *(f"--vocab_file={root / 'vocab.txt'}", f"--output_dir={root / 'records'}"),
        )
        manifest = load_manifest(str(root / "records"))
        sides = []
        for cores in CORES:
            print(f"measuring on {cores} core(s) …", flush=True)
            line = run_module(
                *("benchmarks.scaling", f"--records={root / 'records'}", f"--cores={cores}"),
                *(f"--rounds={FLAGS.rounds}", f"--steps={FLAGS.steps}"),
            )
            sides.append(json.loads(line))
    return {
        "sides": sides,
        "bytes_a_token": sum(shard.bytes for shard in manifest.shards) / manifest.tokens,
        "all_reduce": reduced,
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
