"""Vocabularies of both generators of `data_prep.build_vocab`: `python -m benchmarks.vocabulary`.

    python -m benchmarks.vocabulary --input=text.jsonl -- --vocab_size=20000 --smoothing=0.3

Each generator learns from the same documents in a process of its own, with the flags of
`build_vocab` after `--`. TensorFlow Text's may yield fewer entries than asked for; `tokenizers`
is asked for as many. Tokens per word are those of a twentieth of the documents, held out. The time
is that of the process on all cores, with reading, without the import of TensorFlow.
"""

import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from absl import flags

from benchmarks import shared
from data_prep import build_vocab
from official_cmlm import cli
from official_cmlm.common.processor import peak_mib

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the text that is read."""
    flags.DEFINE_string("input", None, "Files or patterns, as in build_vocab.", required=True)
    flags.DEFINE_string("documents_by", "blank_line", "End of a document, as in build_vocab.")


def build(arguments: list[str]) -> tuple[float, float]:
    """Runs `build_vocab` in this process; returns its CPU-seconds and the process's peak MiB."""
    build_vocab.define_flags()
    FLAGS(["build_vocab", *arguments])
    cli.import_tensorflow()
    began = time.process_time()
    build_vocab.main()
    return time.process_time() - began, peak_mib()


def main(*arguments: str) -> None:
    """Learns both vocabularies and prints how they differ."""
    from data_prep.vocabulary.wordpiece import format_coverage
    from official_cmlm.tokenization import load_vocabulary

    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / name for name in ("learned.jsonl", "held_out.jsonl")]
        shared.run_module(
            *("data_prep.hold_out", f"--input={FLAGS.input}"),
            *(f"--documents_by={FLAGS.documents_by}", f"--train_output={parts[0]}"),
            f"--held_out_output={parts[1]}",
        )
        texts = defaultdict(list)
        for line in parts[1].read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            texts[document.get("lang", "en")].append(document["text"])
        entries, tables, size = {}, [], []
        for generator in ("tensorflow_text", "tokenizers"):
            output = f"{folder}/{generator}.txt"
            own = [f"--generator={generator}", f"--input={parts[0]}", f"--output={output}"]
            seconds, mib = shared.in_new_process(build, [*arguments, *size, *own, "--nocheck"])
            vocabulary = load_vocabulary(output)
            entries[generator] = set(vocabulary.tokens)
            size = [f"--vocab_size={len(vocabulary.tokens)}"]
            tables.append(format_coverage(vocabulary, dict(sorted(texts.items()))).splitlines())
            print(f"figure vocabulary_entries_{generator} {len(vocabulary.tokens)}")
            print(f"figure vocabulary_cpu_seconds_{generator} {seconds:.1f}")
            print(f"figure vocabulary_peak_MiB_{generator} {mib:.0f}", flush=True)
    print(f"figure vocabulary_entries_common {len(set.intersection(*entries.values()))}")
    print(f"held-out text, on the left by {' and on the right by '.join(entries)}:")
    for left, right in zip(*tables):
        print(left + right[right.index("|", 1) + 1 :])


if __name__ == "__main__":
    define_flags()
    cli.run(main)
