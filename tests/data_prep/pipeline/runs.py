"""Runs of `data_prep.prepare` in this process, and the text that they read."""

import json
import random
from pathlib import Path

from data_prep import prepare
from tests.conftest import WORDS
from tests.data_prep.binaries import run_binary

ROOT = Path(__file__).parents[3]


def write_text(folder: Path, files: int = 6, seed: int = 0) -> Path:
    """Writes files of a few documents by language; some documents and paragraphs repeat."""
    rng = random.Random(seed)

    def paragraph() -> str:
        sentences = [
            " ".join(rng.choices(WORDS, k=rng.randint(4, 20))).capitalize() + "."
            for _ in range(rng.randint(2, 6))
        ]
        return " ".join(sentences)

    documents = [[paragraph() for _ in range(rng.randint(1, 4))] for _ in range(12)]
    shared = [paragraph() * 2 for _ in range(3)]
    folder.mkdir()
    for number in range(files):
        chosen = [list(document) for document in rng.sample(documents, 5)]
        chosen[1].insert(1, rng.choice(shared))
        # A near duplicate: long, with one word changed.
        words = " ".join(rng.choices(WORDS, k=5) + " ".join(shared).split()).split()
        words[rng.randrange(len(words))] = "other"
        chosen.append([" ".join(words)])
        language = ("en", "de", "fr")[number % 3]
        lines = [json.dumps({"lang": language, "text": document}) for document in chosen]
        (folder / f"part-{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(*others: str, **values: object) -> int:
    """Runs the binary with flags and, after --, arguments for Beam; returns its exit status."""
    return run_binary(prepare, *(["--", *others] if others else []), **values)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns file name -> bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
