"""What the input pipeline gives and costs: `python -m benchmarks.input`.

First CMLM at the paper's setting, runs of 256 tokens: pairs a second, and the CPU seconds of each
stage. Then every objective against the same batches made on one thread, example by example. Then
hosts that share the records: bytes read and examples built by one of two and one of four, against a
single host that takes as many steps. Each measurement is a process of its own and begins with the
second batch: what is built before, and the sample that a schedule is made from, which every host
reads, are printed apart. Blocks are of 8,192 sentences, so that little is built ahead. Sides
alternate, and figures are medians over the rounds. Needs CMLM_DATA_DIR, which has text for every
objective.
"""

import json
import os
import statistics
from pathlib import Path

from absl import flags

from benchmarks.input_side import STAGES
from benchmarks.processes import run_module
from official_cmlm import cli

FLAGS = flags.FLAGS
# Objective -> experiment, and records of `methods_data`.
_OBJECTIVES = {
    "cmlm": ("cmlm/tiny", "books"),
    "mlm": ("mlm/tiny", "books"),
    "nsp": ("nsp/tiny", "books"),
    "quick_thought": ("quick_thought/tiny", "books"),
    "contrastive": ("mirror_bert/tiny", "sentences"),
    "cmlm_cse": ("cmlm_cse/tiny", "sentences"),
    "diff_cse": ("diff_cse/tiny", "sentences"),
    "declutr": ("declutr/tiny", "books"),
    "bitext_retrieval": ("bitext/tiny", "pairs"),
    "nli": ("nli/cross_lingual", "inferences"),
}
# Their examples are whole documents.
_OF_DOCUMENTS = ("declutr",)
_HOSTS = (2, 4)
# Sentences of a block.
_BLOCK = 8192


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("work_dir", "work/methods", "Folder for texts and records.")
    flags.DEFINE_integer("rounds", 3, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("examples", 100_000, "Pairs of the paper's setting.", lower_bound=1)
    flags.DEFINE_integer(
        "few_examples",
        400_000,
        "Examples of each objective; of whole documents a tenth. tf.data finds the number of its"
        " threads within seconds, so fewer say little.",
        lower_bound=10,
    )
    flags.DEFINE_integer("host_examples", 400_000, "Examples of hosts.", lower_bound=1)
    flags.DEFINE_list("objectives", list(_OBJECTIVES), "Objectives to compare.")


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    from benchmarks.methods_data import prepare

    folders = prepare(Path(FLAGS.work_dir))
    lines = [*_stages(folders["books"]), *_compared(folders), *_host_shares()]
    print("\n".join(lines))


def _side(
    stage: str, examples: int, experiment: str, objective: str, data: dict, **hosts: int
) -> dict:
    """One measurement: its JSON.

    Args:
      stage, examples, hosts: flags of `input_side`.
      experiment, objective: whose inputs.
      data: settings of the records.
    """
    data = {**data, "shuffle_sentences": _BLOCK}
    nothing = {"input_path": ""}
    values = {"encoder": {"vocab_size": 0}, "init_checkpoint": "", "validation_data": nothing}
    if objective in ("bitext_retrieval", "nli"):
        values["objectives"] = {objective: {"train_data": data, "validation_data": nothing}}
        if objective == "bitext_retrieval":
            values["objectives"]["cmlm"] = None
    else:
        values["train_data"] = data
    return json.loads(
        run_module(
            "benchmarks.input_side",
            *(f"--experiment={experiment}", f"--objective={objective}", f"--stage={stage}"),
            *(f"--examples={examples}", f"--overrides={json.dumps({'task': values})}"),
            *(f"--{name}={value}" for name, value in hosts.items()),
        )
    )


def _median(found: list[dict], *names: str) -> float:
    """Median over the rounds of one value, or of the first divided by the second."""
    return statistics.median(
        each[names[0]] / (each[names[1]] if len(names) > 1 else 1) for each in found
    )


def _stages(folder: Path) -> list[str]:
    """CMLM at the paper's setting: the batch of one of 64 cores, in its buckets."""
    data = {"input_path": str(folder), "global_batch_size": 32, "max_bucket_batch_size": 32}
    found: dict[str, list[dict]] = {stage: [] for stage in STAGES}
    for number in range(1, FLAGS.rounds + 1):
        for stage, results in found.items():
            # Reading counts records, which are many sentences each.
            examples = FLAGS.examples // (100 if stage == "read" else 1)
            results.append(_side(stage, examples, "cmlm/english_base", "cmlm", data))
            print(f"round {number}, cmlm/english_base, {stage}: {results[-1]}", flush=True)
    lines = [
        f"{stage}: {1e6 * _median(results, 'cpu_seconds', 'examples'):.0f} CPU µs an example"
        for stage, results in found.items()
        if stage != "read"
    ]
    pairs = _median(found["whole"], "examples", "seconds")
    return [*lines, f"figure pairs_per_second_cmlm {pairs:.0f}"]


def _compared(folders: dict[str, Path]) -> list[str]:
    lines = []
    for objective in FLAGS.objectives:
        experiment, records = _OBJECTIVES[objective]
        data = {"input_path": str(folders[records])}
        ratios = []
        for number in range(1, FLAGS.rounds + 1):
            count = FLAGS.few_examples // (10 if objective in _OF_DOCUMENTS else 1)
            ours, serial = (
                _side(stage, count, experiment, objective, data) for stage in ("whole", "serial")
            )
            ratios.append(
                ours["examples"] / ours["seconds"] / (serial["examples"] / serial["seconds"])
            )
            print(f"round {number}, {experiment}: {ours}, serial {serial}", flush=True)
        lines.append(f"ratio input_vs_serial_{objective} {statistics.median(ratios):.2f}")
    return lines


def _host_shares() -> list[str]:
    """The largest share of any host: bytes read, of those of a single host."""
    folder = Path(FLAGS.work_dir) / "records" / "small_shards"
    if not (folder / "dataset.json").exists():
        texts = Path(os.environ["CMLM_DATA_DIR"], "text", "en")
        run_module(
            *("data_prep.create_documents", f"--input={texts}", "--documents_by=file"),
            *(f"--vocab_file={folder.parent / 'books' / 'vocab.txt'}", f"--output_dir={folder}"),
            "--shard_mb=0.25",
        )
    data = {"input_path": str(folder), "global_batch_size": 64, "streams": max(_HOSTS)}
    count = FLAGS.host_examples
    alone = _side("whole", count, "cmlm/tiny", "cmlm", data)
    print(f"one host: {alone}", flush=True)
    lines = []
    for hosts in _HOSTS:
        every = [
            _side("whole", count, "cmlm/tiny", "cmlm", data, hosts=hosts, host=host)
            for host in range(hosts)
        ]
        print(f"{hosts} hosts: {every}", flush=True)
        examples = max(each["examples"] / alone["examples"] for each in every)
        read = max(each["MB_read"] / alone["MB_read"] for each in every)
        lines += [
            f"figure host_examples_{hosts} {examples:.3f}",
            f"ratio host_share_{hosts} {read:.3f}",
        ]
    return lines


if __name__ == "__main__":
    define_flags()
    cli.run(main)
