"""How long a training takes to its first batch, by its number of shards, and what it asks for.

    python -m benchmarks.input_startup --work_dir=work/startup

For each number of shards there is a folder of records with so many files, all hard links to one. A
process of its own checks the task and builds its input as `experiments.train` does, up to the first
batch. Seconds count from when TensorFlow has been imported. Calls are those of the whole process to
files of the folder: `strace` lists them, in another process, as it slows down what it watches.
"""

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
_MODULE = "benchmarks.input_startup"
# What asks a file system for something, with or without a name.
_TRACED = "%file,read,pread64,fstat,lseek,getdents64,mmap,close"
_WORDS = (
    "the cat sat on a mat and then it flew over new red houses slowly by old stone walls".split()
)
# Hard links of one file; ext4 allows 65,000.
_MOST_LINKS = 50_000
_RECORDS = 400


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("work_dir", "work/startup", "Folder for records.")
    flags.DEFINE_list("shards", ["100", "10000", "100000"], "Numbers of shards.")
    flags.DEFINE_integer("rounds", 3, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_string("side", "", "Folder of records to measure. Default: all of --shards.")


def main(argv: list[str]) -> None:
    """Runs the comparison, or one side of it where --side is given."""
    del argv
    if FLAGS.side:
        print(json.dumps(_measure(FLAGS.side)))
        return
    tracer = shutil.which("strace")
    if tracer is None:
        raise UserError("strace, which counts the calls, is not installed; install it")
    folders = {count: _make(Path(FLAGS.work_dir), int(count)) for count in FLAGS.shards}
    seconds: dict[str, list[dict]] = {count: [] for count in folders}
    for _ in range(FLAGS.rounds):
        for count, folder in folders.items():
            seconds[count].append(json.loads(run_module(_MODULE, f"--side={folder}")))
            print(f"{count} shards: {seconds[count][-1]}", flush=True)
    calls = {count: _calls(tracer, folder) for count, folder in folders.items()}
    for count, found in seconds.items():
        for name in found[0]:
            print(f"figure {name}_{count} {statistics.median(each[name] for each in found):.2f}")
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(calls[count].items()))
        print(f"{count} shards: {kinds}")
        print(f"figure startup_calls_{count} {calls[count].total()}")
    fewest, most = FLAGS.shards[0], FLAGS.shards[-1]
    for name, what in (("startup_seconds", "startup"), ("startup_cpu_seconds", "startup_cpu")):
        ratios = [a[name] / b[name] for a, b in zip(seconds[most], seconds[fewest])]
        print(f"ratio {what}_{most}_vs_{fewest} {statistics.median(ratios):.2f}")


def _make(root: Path, count: int) -> Path:
    """A folder of so many shards of equal documents."""
    from data_prep.documents.records import RecordOptions, Statistics, records
    from data_prep.output.folder import ShardWriter
    from data_prep.readers import Document
    from official_cmlm.records.manifest import FILE_NAME, Shard
    from official_cmlm.tokenization import load_vocabulary

    folder = root / f"records_{count}"
    if (folder / FILE_NAME).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, ".", *_WORDS]) + "\n")
    vocabulary = load_vocabulary(folder / "vocab.txt", lower_case=True)
    vocabulary.save(folder)
    text = " ".join(f"{' '.join(_WORDS[i:])}." for i in range(6))
    documents = [Document(f"{i}", "en", [text]) for i in range(_RECORDS)]
    statistics_of = Statistics()
    writer = ShardWriter(folder, "documents", 1 << 30)
    for language, record in records(documents, vocabulary, RecordOptions(), statistics_of):
        writer.write(language, record)
    writer.close()
    (first,) = writer.shards
    manifest = statistics_of.manifest(vocabulary, writer.shards, keep_text=False)
    shards = []
    for number in range(count):
        name = f"documents-{number:06d}.tfrecord"
        if number % _MOST_LINKS == 0:
            source = folder / name
            shutil.copy(folder / first.name, source)
        else:
            os.link(source, folder / name)
        shards.append(Shard(name, first.records, first.bytes, first.sha256, first.language))
    (folder / first.name).unlink()
    names = ("documents", "records", "sentences", "tokens")
    totals = {name: getattr(manifest, name) * count for name in names}
    totals["languages"] = {"en": totals["sentences"]}
    manifest = dataclasses.replace(manifest, **totals, shards=shards)
    manifest.save(folder)
    return folder


def _measure(folder: str) -> dict[str, float]:
    """Seconds up to the first batch, of the clock and of CPUs, and up to the first pipeline."""
    cli.quiet_tensorflow()
    from official_cmlm.configs.data import DataConfig
    from official_cmlm.configs.encoder import EncoderConfig
    from official_cmlm.objectives.cmlm import CmlmConfig
    from official_cmlm.training.config import ObjectivesConfig, SentenceEncoderTaskConfig
    from official_cmlm.training.task import SentenceEncoderTask

    start, cpu = time.monotonic(), time.process_time()
    data = DataConfig(input_path=folder, seq_length=64, global_batch_size=32)
    config = SentenceEncoderTaskConfig(
        encoder=EncoderConfig(num_layers=1, hidden_size=16, num_attention_heads=1),
        objectives=ObjectivesConfig(cmlm=CmlmConfig()),
        train_data=data,
        validation_data=data.replace(is_training=False),
    )
    task = SentenceEncoderTask(config)
    opened = time.monotonic() - start
    for is_training in (True, False):
        task.check_inputs(is_training)
    task.notes()
    next(iter(task.build_inputs(task.task_config.train_data)))
    return {
        "startup_seconds": time.monotonic() - start,
        "startup_cpu_seconds": time.process_time() - cpu,
        "manifest_seconds": opened,
    }


def _calls(tracer: str, folder: Path) -> Counter:
    """Name of a system call -> how often it concerned the folder or a file in it."""
    listed = folder.with_name(f"{folder.name}.calls")
    traced = [tracer, "-f", "-y", "-qq", "-e", f"trace={_TRACED}", "-o", str(listed)]
    command = [*traced, sys.executable, "-m", _MODULE, f"--side={folder}"]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603
    found: Counter = Counter()
    with listed.open(errors="replace") as lines:
        for line in lines:
            _, _, call = line.partition(" ")
            # A call that another thread interrupts is listed on two lines.
            if f"{folder}" in call and "resumed>" not in call:
                found[call.strip().partition("(")[0]] += 1
    # Not of the folder, but that it was named on the command line.
    del found["execve"]
    listed.unlink()
    return found


if __name__ == "__main__":
    define_flags()
    cli.run(main)
