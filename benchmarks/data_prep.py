"""Speed and memory of turning text into records: `python -m benchmarks.data_prep`.

Measures tokens of text per CPU-second on the English books below CMLM_DATA_DIR. The sides run in
turns, and the median over the rounds is reported; imports are not counted on any side:

- ours: the engine of `data_prep.prepare` in this process, from files to shards with checksums:
  read, split into sentences, tokenise, write; a book is a document;
- Model Garden's `create_pretraining_data`, the functions of its binary with its own defaults but
  one copy of each masked example instead of ten, on a part of the same sentences, split beforehand
  as it asks;
- the `tokenizers` library, only tokenising the same sentences, which are in memory.

Then the peak memory of one process for some books and for eight times as many, with no duplicates
removed, exact ones (the default) and near ones. Before, the speed of each stage by itself.
"""

import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from benchmarks.processes import run_module
from data_prep.pipeline.plan import DEDUPLICATE
from data_prep.readers import (
    Counts,
    Document,
    ReadOptions,
    TextFile,
    expand_inputs,
    read_documents,
)
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
_TIMES = 8


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Books to read. Default: text/en below CMLM_DATA_DIR.")
    flags.DEFINE_string(
        "vocabulary", "", "An uncased vocab.txt. Default: vocab/bert_uncased.txt below it."
    )
    flags.DEFINE_float("text_mb", 20.0, "Text to use, in megabytes (10^6 bytes); whole books.")
    flags.DEFINE_float("model_garden_mb", 5.0, "Of it for Model Garden, which is slow.")
    flags.DEFINE_float("memory_mb", 10.0, "Text of the smaller run of those that measure memory.")
    flags.DEFINE_integer("rounds", 3, "Rounds of the comparison.", lower_bound=1)
    flags.DEFINE_bool("memory", True, "Whether to measure memory, which takes six more runs.")
    flags.DEFINE_string("output", "", "Markdown file for the figures. Default: print only.")


def books(megabytes: float) -> list[str]:
    """Paths of the first books, up to so much."""
    folder = FLAGS.text or str(_data("text", "en"))
    chosen, held = [], 0
    for path in expand_inputs([folder]):
        chosen.append(path)
        held += os.path.getsize(path)
        if held >= megabytes * 1e6:
            break
    return chosen


def _data(*parts: str) -> Path:
    if not os.environ.get("CMLM_DATA_DIR"):
        raise UserError("no text: set CMLM_DATA_DIR, or give --text and --vocabulary")
    return Path(os.environ["CMLM_DATA_DIR"], *parts)


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU time of all threads of this process in a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def ours(paths: Sequence[str], vocabulary_file: str, folder: Path) -> Callable[[], None]:
    """The phase of the engine over all elements, into a new folder."""
    from data_prep.pipeline.plan import Options, Plan
    from data_prep.pipeline.run import LocalRunner, begin, compute
    from official_cmlm.tokenization import load_vocabulary

    vocabulary = load_vocabulary(vocabulary_file, lower_case=True)
    options = Options(reading=ReadOptions(documents_by="file"), normalise=False, deduplicate="off")
    plan = Plan.of([TextFile(path) for path in paths], options, vocabulary.hash)
    begin(plan, vocabulary, folder)

    def call() -> None:
        with LocalRunner() as runner:
            for phase, count in plan.phases():
                compute(plan, folder, runner, phase, count)

    return call


def model_garden(text: Path, vocabulary_file: str, output: Path) -> Callable[[], None]:
    """Its binary's work: a file with a sentence a line to masked examples."""
    from official.nlp.data import create_pretraining_data as peer
    from official.nlp.tools import tokenization

    def call() -> None:
        tokenizer = tokenization.FullTokenizer(vocabulary_file, do_lower_case=True)
        clean = peer.get_processor_text_fn(False, True)
        rng = random.Random(12345)  # noqa: S311 - as its binary does
        instances = peer.create_training_instances(
            [str(text)], tokenizer, clean, 128, 1, 0.1, 0.15, 20, rng
        )
        peer.write_instance_to_example_files(
            instances, tokenizer, 128, 20, [str(output)], False, False
        )

    return call


def tokenizers_library(sentences: list[str], vocabulary_file: str) -> Callable[[], None]:
    """Only ids, without offsets, which nothing uses."""
    from tokenizers import BertWordPieceTokenizer

    def call() -> None:
        tokenizer = BertWordPieceTokenizer(vocabulary_file, lowercase=True)._tokenizer
        for start in range(0, len(sentences), 8192):
            batch = sentences[start : start + 8192]
            tokenizer.encode_batch_fast(batch, add_special_tokens=False)

    return call


def split(paths: Sequence[str]) -> list[tuple[Document, list[str]]]:
    """Books with their sentences."""
    from collections import Counter

    from data_prep.sentences import split_sentences

    documents = read_documents(list(paths), ReadOptions(documents_by="file"), Counts())
    counters: Counter[str] = Counter()
    return [
        (d, [s for text in d.paragraphs for s in split_sentences(text, "en", counters)])
        for d in documents
    ]


def compare(paths: Sequence[str], vocabulary_file: str, folder: Path) -> list[tuple[str, float]]:
    """(side, tokens per CPU-second), the medians."""
    from official_cmlm.tokenization import build_tokenizer, load_vocabulary

    tokenizer = build_tokenizer(load_vocabulary(vocabulary_file, lower_case=True))

    def tokens(sentences: Sequence[str]) -> int:
        return len(tokenizer.tokenize(sentences).values)

    documents = split(paths)
    part, lines, held = [], [], 0
    for _, sentences in documents:
        part += sentences
        lines += [*sentences, ""]
        held += sum(len(sentence) + 1 for sentence in sentences)
        if held >= FLAGS.model_garden_mb * 1e6:
            break
    text = folder / "sentences.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole = [sentence for _, sentences in documents for sentence in sentences]
    counts = {"ours": tokens(whole), "tokenizers": tokens(whole), "Model Garden": tokens(part)}
    speeds: dict[str, list[float]] = {side: [] for side in counts}
    for number in range(FLAGS.rounds):
        calls = {
            "ours": ours(paths, vocabulary_file, folder / f"ours-{number}"),
            "tokenizers": tokenizers_library(whole, vocabulary_file),
            "Model Garden": model_garden(text, vocabulary_file, folder / "masked.tfrecord"),
        }
        for side, call in calls.items():
            speeds[side].append(counts[side] / cpu_seconds(call))
            print(f"round {number + 1}, {side}: {speeds[side][-1]:,.0f} tokens per CPU-second")
    return [(side, statistics.median(found)) for side, found in speeds.items()]


def peak_memory(paths: Sequence[str], vocabulary_file: str, folder: Path, deduplicate: str) -> int:
    """MiB of one process of `data_prep.prepare` that reads these books."""
    folder = folder / f"{deduplicate}-{len(paths)}"
    text = folder / "text"
    text.mkdir(parents=True)
    for path in paths:
        (text / Path(path).name).symlink_to(path)
    summary = run_module(
        "data_prep.prepare",
        f"--input={text}",
        f"--vocab_file={vocabulary_file}",
        "--lower_case",
        f"--output_dir={folder / 'records'}",
        "--documents_by=file",
        "--normalise",
        f"--deduplicate={deduplicate}",
        "--element_mb=8",
    )
    found = re.search(r"peak memory (\d+) MiB", summary)
    if not found:
        raise UserError(f"no peak memory in {summary!r}")
    return int(found[1])


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    cli.quiet_tensorflow()
    from benchmarks.data_prep_stages import long_line, table

    vocabulary_file = FLAGS.vocabulary or str(_data("vocab", "bert_uncased.txt"))
    paths = books(FLAGS.text_mb)
    megabytes = sum(map(os.path.getsize, paths)) / 1e6
    lines = [f"{len(paths)} books, {megabytes:.1f} MB", ""]
    lines += [*table(paths, vocabulary_file), ""]
    of_a_line = dict(long_line())
    shown = ", ".join(f"{1000 * value:.1f} ms to {step}" for step, value in of_a_line.items())
    lines += [f"- a megabyte of a single line of 10 MB: {shown}", ""]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speeds = dict(compare(paths, vocabulary_file, folder))
        shown = [f"- {side}: {speed:,.0f} tokens per CPU-second" for side, speed in speeds.items()]
        if FLAGS.memory:
            few, many = books(FLAGS.memory_mb), books(_TIMES * FLAGS.memory_mb)
            times = sum(map(os.path.getsize, many)) / sum(map(os.path.getsize, few))
            for deduplicate in DEDUPLICATE:
                small, large = (
                    peak_memory(some, vocabulary_file, folder, deduplicate) for some in (few, many)
                )
                shown.append(
                    f"- peak memory of one process, --deduplicate={deduplicate}: {small} MiB, of"
                    f" {times:.1f} times the text {large} MiB, {100 * (large / small - 1):+.1f} %"
                )
                print(shown[-1])
    print("\n".join(shown))
    if FLAGS.output:
        Path(FLAGS.output).write_text("\n".join(lines + shown) + "\n", encoding="utf-8")
    for step, value in of_a_line.items():
        print(f"figure data_prep_long_line_{step}_s_per_mb {value:.5f}")
    print(f"ratio data_prep_vs_model_garden {speeds['ours'] / speeds['Model Garden']:.2f}")
    print(f"ratio data_prep_vs_tokenizers {speeds['ours'] / speeds['tokenizers']:.2f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
