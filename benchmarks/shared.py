"""Functions that benchmarks share: text, weights, rounds, and processes of their own."""

import itertools
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from absl import flags

from official_cmlm.common.errors import UserError

FLAGS = flags.FLAGS
_Result = TypeVar("_Result")
# Side -> the figures of each round.
Rounds = dict[str, list[dict[str, float]]]


def define_text_flags() -> None:
    """Defines --data_dir and --text, which `text_files` and `vocabulary_file` read."""
    flags.DEFINE_string(
        "data_dir",
        "",
        "Folder with text/en/*.txt and vocab/bert_uncased.txt. Default: the environment's "
        "CMLM_DATA_DIR; without that, docstrings of the installed packages are read, and a "
        "vocabulary is learned from them.",
    )
    flags.DEFINE_string(
        "text", "", "Text to read, a file, folder or pattern. Default: see --data_dir."
    )


def define_model_flag() -> None:
    """Defines --model, an encoder by any name that `find_encoder` takes."""
    flags.DEFINE_string(
        "model",
        "all-MiniLM-L6-v2",
        "Encoder, by name or folder. The default is a package of .venv-bench (make bench-env).",
    )


def data_dir() -> Path | None:
    """Returns the folder that --data_dir or CMLM_DATA_DIR names, or None without either.

    Raises:
      UserError: if that is not a folder.
    """
    name = FLAGS.data_dir or os.environ.get("CMLM_DATA_DIR", "")
    if name and not Path(name).is_dir():
        raise UserError(f"--data_dir: {name} is not a folder")
    return Path(name) if name else None


def text_files(folder: str | Path) -> list[str]:
    """Returns files of running text; docstrings, the last resort, are written into `folder`.

    A blank line stands between two paragraphs of a file.
    """
    from data_prep.readers import expand_inputs

    if FLAGS.text:
        return expand_inputs([FLAGS.text])
    data = data_dir()
    if data and (data / "text" / "en").is_dir():
        return expand_inputs([str(data / "text" / "en")])
    texts = Path(folder) / "docstrings"
    if not texts.exists():
        run_module("data_prep.docstrings", f"--output={texts}.jsonl")
        texts.mkdir()
        with open(f"{texts}.jsonl", encoding="utf-8") as file:
            # A text file has no zero bytes.
            documents = [json.loads(line)["text"].replace("\0", " ") for line in file]
        # About a megabyte a file.
        for start in range(0, len(documents), 1000):
            joined = "\n\n".join(documents[start : start + 1000]) + "\n"
            (texts / f"{start:07}.txt").write_text(joined, encoding="utf-8")
    return expand_inputs([str(texts)])


def vocabulary_file(folder: str | Path, text: list[str]) -> str:
    """Returns an uncased WordPiece vocabulary; one learned from `text` is written into `folder`."""
    data = data_dir()
    if data and (data / "vocab" / "bert_uncased.txt").exists():
        return str(data / "vocab" / "bert_uncased.txt")
    path = Path(folder) / "vocab.txt"
    if not path.exists():
        run_module(
            *("data_prep.build_vocab", f"--input={','.join(text)}"),
            *("--vocab_size=30522", f"--output={path}"),
        )
    return str(path)


def sample_of(files: list[str]) -> list[str]:
    """Returns about 20 of the files, evenly spread."""
    return files[:: max(1, len(files) // 20)]


def documents_of(files: list[str]) -> list[list[str]]:
    """Returns the sentences of each file."""
    from data_prep.readers import Counts, ReadOptions, read_documents
    from data_prep.sentences import split_paragraphs

    documents = read_documents(files, ReadOptions(documents_by="file"), Counts())
    return [split_paragraphs(document.paragraphs, "en", Counter()) for document in documents]


def real_sentences(files: list[str], count: int) -> list[str]:
    """Returns a random sample of the sentences of about 20 of the files, of every length.

    Raises:
      UserError: if they hold fewer than `count` sentences.
    """
    sentences = list(itertools.chain.from_iterable(documents_of(sample_of(files))))
    if len(sentences) < count:
        raise UserError(f"the text has {len(sentences)} sentences, {count} are needed")
    return random.Random(0).sample(sentences, count)  # noqa: S311 - a sample, no secret


def run_module(module: str, *arguments: str) -> str:
    """Runs a binary, showing its progress and errors; returns its standard output.

    Raises:
      UserError: if it fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if result.returncode:
        raise UserError(f"{module} failed with exit status {result.returncode}; see above")
    return result.stdout.strip()


def new_process() -> ProcessPoolExecutor:
    """Makes a process that calls functions one by one; nothing else uses its time and memory."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def in_new_process(function: Callable[..., _Result], *arguments: object) -> _Result:
    """Returns `function(*arguments)`, called in a process of its own.

    Raises:
      UserError: if it fails; its error is printed.
    """
    with new_process() as process:
        try:
            return process.submit(function, *arguments).result()
        except UserError:
            raise
        except Exception as error:
            traceback.print_exception(error)
            name = f"{function.__module__}.{function.__name__}"
            raise UserError(f"{name} failed; see above") from None


def in_turns(
    rounds: Iterable[int], sides: Mapping[str, Callable[[], dict[str, float]]], name: str = ""
) -> Rounds:
    """Measures every side once a round, and prints and returns the figures of each round.

    A side that ends by a `UserError` is left out; a line says so.

    Args:
      rounds: numbers of the rounds.
      sides: side -> function that measures it once.
      name: beginning of the lines that are printed; may be empty.
    """
    results: Rounds = {side: [] for side in sides}
    for number in rounds:
        for side in list(results):
            try:
                figures = sides[side]()
            except UserError as error:
                del results[side]
                print(f"{name}{side}: left out, it does not run here: {error}", flush=True)
                continue
            results[side].append(figures)
            text = ", ".join(f"{key} {value:.1f}" for key, value in figures.items())
            print(f"round {number}, {name}{side}: {text}", flush=True)
    return results


def median(results: list[dict[str, float]], key: str) -> float:
    """Returns the median over the rounds."""
    return statistics.median(figures[key] for figures in results)


def print_ratio(
    name: str, key: str, side: list[dict[str, float]], other: list[dict[str, float]]
) -> None:
    """Prints the median of the rounds' ratios."""
    ratio = statistics.median(a[key] / b[key] for a, b in zip(side, other))
    print(f"ratio {name} {ratio:.2f}", flush=True)
