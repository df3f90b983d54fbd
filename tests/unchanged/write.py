"""Wrote `data/`: records, a trained and an imported encoder directory, and the expected values.

    .venv/bin/python -m tests.unchanged.write

Run once, on the code whose results are to be kept. Running it on later code defeats the test; a
change of results that is meant is written with it, and named in the commit.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.tokenization import load_vocabulary
from official_cmlm.training.run import run
from tests.conftest import WORDS
from tests.training.all_objectives import write_folders
from tests.unchanged.values import DATA, PUBLIC, all_values, training

# Files of a model directory that a training does not need to be resumed.
_NOT_KEPT = ("train", "validation", "history.jsonl", "train_summary.json")


def write_trained() -> None:
    """Trains three steps of CMLM and bitext retrieval, and keeps their checkpoint."""
    with tempfile.TemporaryDirectory() as temporary:
        # The records' folder is relative, so that params.yaml names no folder of this machine.
        os.chdir(temporary)
        shutil.copytree(DATA / "records", "records")
        run(training(3, Path("records")), "train", "trained")
        for name in _NOT_KEPT:
            path = Path("trained", name)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        shutil.copytree("trained", DATA / "trained")
        os.chdir("/")


def write_vocabulary(path: Path) -> None:
    """Writes whole words, some of them also in pieces, and letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [word for word in WORDS if len(word) > 1 and not word.endswith("ing")]
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,!?", *letters]
    tokens += [*(f"##{letter}" for letter in letters), *words, "##ing", "##ed"]
    path.write_text("\n".join(dict.fromkeys(tokens)) + "\n")


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        write_vocabulary(Path(temporary, "vocab.txt"))
        vocabulary = load_vocabulary(Path(temporary, "vocab.txt"), lower_case=True)
    write_folders(DATA / "records", vocabulary)
    write_trained()
    import_checkpoint(str(PUBLIC), str(DATA / "imported"), ImportOptions(), False)
    with tempfile.TemporaryDirectory() as temporary:
        values = all_values(Path(temporary))
    rounded = {
        title: {key: [float(f"{x:.6g}") for x in row] for key, row in numbers.items()}
        for title, numbers in values.items()
    }
    lines = [
        f"{json.dumps(title)}: {{\n"
        + ",\n".join(f" {json.dumps(key)}: {json.dumps(row)}" for key, row in numbers.items())
        + "\n}"
        for title, numbers in rounded.items()
    ]
    (DATA / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
