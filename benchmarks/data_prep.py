"""Speed and memory of turning text into records: `python -m benchmarks.data_prep`.

Measures first the tokens of text per CPU-second. The sides run in turns, and the median over the
rounds is reported; imports are not counted on any side:

- ours: the engine of `data_prep.prepare` in this process, from files to shards with checksums:
  read, split into sentences, tokenise, write; a file, such as a book, is a document;
- Model Garden's `create_pretraining_data`, the functions of its binary with its own defaults but
  one copy of each masked example instead of ten, on a part of the same sentences, split beforehand
  as it asks;
- the `tokenizers` library, only tokenising the same sentences, which are in memory.

It then measures the peak memory of one process for some files and for about eight times as much
text: without removing duplicates, removing duplicates of the same letters, and removing near
duplicates too.
"""

import functools
import os
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from absl import flags

from benchmarks import shared
from data_prep.readers import ReadOptions, TextFile
from official_cmlm import cli
from official_cmlm.common.errors import UserError

FLAGS = flags.FLAGS
_TIMES = 8


def define_flags() -> None:
    """Defines how much text is read, and how often."""
    shared.define_text_flags()
    flags.DEFINE_float("text_mb", 20.0, "Text to use, in megabytes (10^6 bytes); whole files.")
    flags.DEFINE_float("model_garden_mb", 5.0, "Megabytes of it for Model Garden, which is slow.")
    flags.DEFINE_float("memory_mb", 10.0, "Megabytes of the smaller run that measures memory.")
    flags.DEFINE_integer("rounds", 3, "Rounds of the comparison.", lower_bound=1)


def first_files(files: list[str], megabytes: float) -> list[str]:
    """Returns the first files, as many as are needed for `megabytes` of text."""
    chosen, size = [], 0
    for path in files:
        chosen.append(path)
        size += os.path.getsize(path)
        if size >= megabytes * 1e6:
            break
    return chosen


def ours(paths: list[str], vocabulary_file: str, folder: Path) -> Callable[[], None]:
    """Returns a call of the engine over all elements, which writes into a new folder."""
    from data_prep.pipeline.plan import Options, Plan
    from data_prep.pipeline.run import begin, compute, make_job
    from official_cmlm.tokenization import load_vocabulary

    vocabulary = load_vocabulary(vocabulary_file, lower_case=True)
    options = Options(reading=ReadOptions(documents_by="file"))
    plan = Plan.of([TextFile(path) for path in paths], options, vocabulary.hash)
    job = make_job(plan, folder)

    def call() -> None:
        with job:
            begin(job, plan, vocabulary)
            compute(job, plan)

    return call


def model_garden(text: Path, vocabulary_file: str, output: Path) -> Callable[[], None]:
    """Returns a call that makes masked examples of a file with a sentence a line."""
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
    """Returns a call that makes ids only, without offsets, which nothing uses."""
    from tokenizers import BertWordPieceTokenizer

    def call() -> None:
        tokenizer = BertWordPieceTokenizer(vocabulary_file, lowercase=True)._tokenizer
        for start in range(0, len(sentences), 8192):
            batch = sentences[start : start + 8192]
            tokenizer.encode_batch_fast(batch, add_special_tokens=False)

    return call


def compare(paths: list[str], vocabulary_file: str, folder: Path) -> shared.Rounds:
    """Returns the tokens per CPU-second of each side, round by round."""
    from official_cmlm.tokenization import build_tokenizer, load_vocabulary

    tokenizer = build_tokenizer(load_vocabulary(vocabulary_file, lower_case=True))

    def tokens(sentences: list[str]) -> int:
        return len(tokenizer.tokenize(sentences).values)

    documents = shared.documents_of(paths)
    lines, size = [], 0
    for sentences in documents:
        lines += [*sentences, ""]
        size += sum(len(sentence) + 1 for sentence in sentences)
        if size >= FLAGS.model_garden_mb * 1e6:
            break
    text = folder / "sentences.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole = [sentence for sentences in documents for sentence in sentences]
    counts = {"ours": tokens(whole), "tokenizers": tokens(whole), "model_garden": tokens(lines)}
    makers = {
        "ours": lambda: ours(paths, vocabulary_file, Path(tempfile.mkdtemp(dir=folder), "r")),
        "tokenizers": lambda: tokenizers_library(whole, vocabulary_file),
        "model_garden": lambda: model_garden(text, vocabulary_file, folder / "masked.tfrecord"),
    }

    def speed(side: str) -> dict[str, float]:
        call, began = makers[side](), time.process_time()
        call()
        return {"tokens_per_cpu_second": counts[side] / (time.process_time() - began)}

    sides = {side: functools.partial(speed, side) for side in makers}
    return shared.in_turns(range(1, FLAGS.rounds + 1), sides)


def peak_memory(paths: list[str], vocabulary_file: str, folder: Path, deduplicate: str) -> int:
    """Returns the MiB of one process of `data_prep.prepare` that reads these files."""
    summary = shared.run_module(
        "data_prep.prepare",
        f"--input={','.join(paths)}",
        f"--vocab_file={vocabulary_file}",
        "--lower_case",
        f"--output_dir={tempfile.mkdtemp(dir=folder)}/records",
        "--documents_by=file",
        "--normalise",
        f"--deduplicate={deduplicate}",
        "--element_mb=8",
    )
    match = re.search(r"peak memory (\d+) MiB", summary)
    if not match:
        raise UserError(f"no peak memory in {summary!r}")
    return int(match[1])


def main() -> None:
    """Measures speed and memory."""
    cli.quiet_tensorflow()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = shared.text_files(folder)
        paths = first_files(files, FLAGS.text_mb)
        vocabulary = shared.vocabulary_file(folder, paths)
        print(f"{len(paths)} files, {sum(map(os.path.getsize, paths)) / 1e6:.1f} MB", flush=True)
        speeds = compare(paths, vocabulary, folder)
        key = "tokens_per_cpu_second"
        for side, rounds in speeds.items():
            print(f"figure data_prep_{key}_{side} {shared.median(rounds, key):.0f}")
            if side != "ours":
                shared.print_ratio(f"data_prep_vs_{side}", key, speeds["ours"], rounds)
        _memory(files, vocabulary, folder)


def _memory(files: list[str], vocabulary: str, folder: Path) -> None:
    """Prints the peak memory for some text and for about eight times as much."""
    few, many = (first_files(files, n * FLAGS.memory_mb) for n in (1, _TIMES))
    times = sum(map(os.path.getsize, many)) / sum(map(os.path.getsize, few))
    print(f"figure data_prep_text_times {times:.2f}")
    for deduplicate in ("off", "normalised", "near"):
        small, large = (peak_memory(p, vocabulary, folder, deduplicate) for p in (few, many))
        print(f"figure data_prep_memory_MiB_{deduplicate} {small}")
        print(f"ratio data_prep_memory_{deduplicate} {large / small:.3f}", flush=True)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
