"""Each binary writes, from a fixed text, the bytes that it has always written.

The checksums in `unchanged_records.json` are those of the release in which `create_documents` and
`prepare` were two pipelines; when they became one, only the names and the order of the shards of
`prepare` changed. To write new ones, where records change on purpose:
`python -m tests.data_prep.test_unchanged_records`.
"""

import contextlib
import hashlib
import importlib
import json
import random
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import WORDS
from tests.data_prep.binaries import run_binary

GOLDEN = Path(__file__).with_name("unchanged_records.json")
# Written with the same flags by `create_documents` and `prepare`.
_RECORDS = ("--vocab_file=vocab.txt", "--lower_case", "--shard_mb=0.004", "--max_sentences=5")
BITEXT = "--input=text.en,text.de,text2.en,text2.fr"
# Name of a run -> binary, flags, what it writes.
RUNS = {
    "create_documents": ("create_documents", ["--input=text", *_RECORDS], "out"),
    "create_documents_options": (
        "create_documents",
        ["--input=text/a.txt,text/b.jsonl", *_RECORDS, "--keep_text", "--min_sentences=2"]
        + ["--documents_by=file", "--lines=sentences", "--language=de", "--exclude=sts.tsv"],
        "out",
    ),
    "prepare_plain": (
        "prepare",
        ["--input=text", *_RECORDS, "--normalise=false", "--deduplicate=off"],
        "out",
    ),
    "prepare_stages": (
        "prepare",
        ["--input=text", *_RECORDS, "--element_mb=0.003", "--normalise", "--deduplicate=near"]
        + ["--deduplicate_paragraphs=normalised", "--min_paragraph_letters=20", "--exclude=sts.tsv"]
        + ["--detect_language=off", "--keep_languages=en,de,fr"],
        "out",
    ),
    "create_pairs": (
        "create_pairs",
        [BITEXT, "--languages=en,de,en,fr", *_RECORDS[:-1], "--max_length_ratio=3"]
        + ["--repeated=either", "--exclude=sts.tsv", "--keep_text", "--drop_empty"],
        "out",
    ),
    "create_pairs_rows": (
        "create_pairs",
        ["--format=tsv", "--row_aligned", "--header", "--input=nli.en.tsv,nli.de.tsv"]
        + ["--languages=en,de", *_RECORDS[:-1]],
        "out",
    ),
    "hold_out": (
        "hold_out",
        ["--input=text", "--train_output=out/train.jsonl", "--held_out_output=out/held.jsonl"]
        + ["--share=0.3"],
        "out",
    ),
    "random_strings": (
        "random_strings",
        ["--output=out.txt", "--count=200", "--seed=3"],
        "out.txt",
    ),
    "docstrings": ("docstrings", ["--roots=packages", "--output=out.jsonl"], "out.jsonl"),
    "build_vocab": (
        "build_vocab",
        ["--input=text", "--output=out/v.txt", "--vocab_size=200", "--check=false"],
        "out",
    ),
    "build_vocab_languages": (
        "build_vocab",
        ["--input=fr:text/a.txt,text/b.jsonl", "--output=out/v.txt", "--vocab_size=150"]
        + ["--check=false", "--smoothing=0.3", "--nolower_case"],
        "out",
    ),
}


def _write_input() -> None:
    """Writes text of three languages, with duplicates and losses, and aligned files, into `.`."""
    rng = random.Random(0)

    def sentence(words: int = 0) -> str:
        count = words or rng.randint(2, 14)
        return " ".join(rng.choices(WORDS, k=count)).capitalize() + rng.choice(".!?")

    def paragraph() -> str:
        return " ".join(sentence() for _ in range(rng.randint(1, 6)))

    Path("text/more").mkdir(parents=True)
    shared = [paragraph() for _ in range(5)]
    lines = []
    for number in range(60):
        paragraphs = [paragraph() for _ in range(rng.randint(1, 4))]
        if number % 7 == 0:
            paragraphs.insert(1, rng.choice(shared))
        if number % 11 == 0:
            paragraphs.append(f"wa\u0301rm  and\u00ad soft{number} mend- ed.")
        lines.append({"text": paragraphs, "lang": ("en", "de", "fr")[number % 3]})
    lines += [lines[4], {"text": " "}, {"text": "No language. Two cats ran."}]
    near = " ".join(sentence(40) for _ in range(3))
    lines += [{"text": near}, {"text": near[:-1] + " other."}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    Path("text/b.jsonl").write_text(text)
    Path("text/a.txt").write_text("\n\n".join(paragraph() for _ in range(40)) + "\n")
    # French titles, one byte that is no UTF-8, and a long sentence.
    body = b"Il a vu M. Dupont hier. Il est parti.\n\nThe cat ran. " + b"A dog \xff sat.\n"
    Path("text/more/c.txt").write_bytes(body + "\n".join(["word " * 150] * 5).encode())
    excluded = json.loads(text.splitlines()[1])["text"][0].split(". ")[0]
    rows = [(sentence(), sentence(), sentence()) for _ in range(120)]
    rows += rows[:3] + [("Short.", sentence(30), ""), (rows[5][0], sentence(), sentence())]
    rows += [("A cat sat on the mat.", sentence(), sentence())]
    for name, side in (("text.en", 0), ("text.de", 1), ("text2.en", 0), ("text2.fr", 2)):
        Path(name).write_text("".join(row[side] + "\n" for row in rows))
    Path("sts.tsv").write_text(f"4.5\t{excluded}\ta cat sat on the mat\n")
    labels = ("entailment", "neutral", "contradiction")
    for language in ("en", "de"):
        table = [f"{sentence()}\t{sentence()}\t{labels[i % 3]}\n" for i in range(30)]
        Path(f"nli.{language}.tsv").write_text("premise\thypothesis\tlabel\n" + "".join(table))
    prose = ["This module explains how the large river was crossed by all of the animals."]
    prose += ["Nobody knew why the small bird sang, but everybody in the house listened to it."]
    for number, text in enumerate(prose * 2):
        path = Path(f"packages/p{number % 2}/m{number}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""{text}\n\nAnd here is another paragraph, the end of it."""\n')
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,!?", *letters]
    tokens += [f"##{letter}" for letter in letters] + [word for word in WORDS if len(word) > 1]
    Path("vocab.txt").write_text("\n".join(dict.fromkeys(tokens)) + "\n")


def _digest_files(path: Path) -> dict[str, str]:
    """Returns file name -> checksum of all files but plans."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name != "prepare.json"
    }


def checksums(name: str) -> dict[str, str]:
    """Runs one of `RUNS` in an empty working directory; returns the checksums of its files."""
    binary, arguments, output = RUNS[name]
    if binary in ("create_documents", "prepare", "create_pairs"):
        arguments = [*arguments, f"--output_dir={output}"]
    _write_input()
    run_binary(importlib.import_module(f"data_prep.{binary}"), *arguments)
    return _digest_files(Path(output))


@pytest.mark.parametrize("name", RUNS)
def test_unchanged(name, tmp_path, monkeypatch):
    """The bytes of every file, `dataset.json` included."""
    monkeypatch.chdir(tmp_path)
    assert checksums(name) == json.loads(GOLDEN.read_text())[name]


def test_one_pipeline():
    """Without stages `prepare` writes what `create_documents` does."""
    golden = json.loads(GOLDEN.read_text())
    assert golden["create_documents"] == golden["prepare_plain"]


def main() -> None:
    """Writes the checksums of today's code."""
    golden = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            golden[name] = checksums(name)
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    print(
        f"{GOLDEN}: {sum(map(len, golden.values()))} files of {len(golden)} runs", file=sys.stderr
    )


if __name__ == "__main__":
    main()
