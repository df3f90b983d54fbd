"""Makes a corpus of English prose from the docstrings of installed Python packages.

`cmlm docstrings --to=FILE.jsonl` writes it for the jsonl reader.
"""

import dataclasses
import itertools
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.files import atomic_write, check_output
from official_cmlm.common.hashing import ngram_hashes
from official_cmlm.common.validation import at_least

from .common_flags import LEAST_MB, OutputFile
from .readers.docstrings import UNPARSABLE, count_sentences, docstrings_of
from .readers.document import Document
from .readers.jsonl import to_line

MAX_FILE_BYTES = 2_000_000
_SHINGLE_WORDS, _MAX_SEEN, _SEEN_SLOTS = 8, 0.7, 1 << 26
_TEST_DIRECTORIES = {"test", "tests", "testing", "_test", "_tests"}
_TEST_FILES = re.compile(r"(test_.*|.*_test|.*_tests|.*_pb2|.*_pb2_grpc|conftest)\.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus(OutputFile):
    """The corpus of docstrings, and its file.

    Attributes:
      output: file of JSON lines to write.
      roots: directories of packages. Default: the installed packages.
      max_parse_mb: source to parse at most, in megabytes (10^6 bytes); packages take turns.
    """

    roots: tuple[str, ...] = ()
    max_parse_mb: Annotated[float, at_least(LEAST_MB)] = 250.0


def extract(
    roots: list[Path], counters: Counter[str], max_parse_mb: float = 250.0
) -> Iterator[Document]:
    """Yields a document for each docstring with enough prose that resembles no earlier one.

    Nothing is imported or executed. Packages take turns, each with its files in sorted order, so
    that the order depends on the files alone and a cap leaves out no package.

    Args:
      roots: directories of packages; none: the packages of the running interpreter.
      counters: counts "bytes_total" (set before the first document), "bytes", "files",
        "unparsable", "near_identical", "documents", "sentences" and "characters".
      max_parse_mb: source to parse at most, in megabytes (10^6 bytes).

    Raises:
      UserError: a root is not a directory.
    """
    seen = np.zeros(_SEEN_SLOTS, bool)
    jobs = _select(roots or [Path(sysconfig.get_paths()["purelib"])], max_parse_mb * 1e6)
    counters["bytes_total"] = sum(size for _, _, size in jobs)
    for path, module, size in jobs:
        counters["bytes"] += size
        counters["files"] += 1
        try:
            docstrings = docstrings_of(Path(path).read_bytes())
        except (OSError, *UNPARSABLE):
            counters["unparsable"] += 1
            continue
        for name, paragraphs in docstrings:
            shingles = _shingles(paragraphs)
            if seen[shingles].mean() > _MAX_SEEN:
                counters["near_identical"] += 1
                continue
            seen[shingles] = True
            counters["documents"] += 1
            counters["sentences"] += count_sentences(paragraphs)
            counters["characters"] += sum(map(len, paragraphs))
            yield Document(f"{module}:{name}".rstrip(":"), "en", paragraphs)


def _shingles(paragraphs: list[str]) -> np.ndarray:
    """Returns the slot in the table of seen shingles for every run of words, letters only."""
    words = re.findall("[a-z]+", " ".join(paragraphs).lower())
    # `hash` would differ from run to run.
    codes = np.array([zlib.crc32(word.encode()) for word in words], np.uint64)
    length = min(_SHINGLE_WORDS, len(codes))
    return (ngram_hashes(codes, length) >> np.uint64(64 - _SEEN_SLOTS.bit_length() + 1)).astype(
        np.uint32
    )


def _select(roots: list[Path], max_bytes: float) -> list[tuple[str, str, int]]:
    """Returns the files to parse: (path, module's name, bytes), one from each package in turn."""
    packages: dict[str, list[tuple[str, str, int]]] = {}
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root}: not a directory of Python packages; check --roots")
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if _TEST_DIRECTORIES.intersection(parts) or _TEST_FILES.fullmatch(path.name):
                continue
            if path.is_file() and (size := path.stat().st_size) <= MAX_FILE_BYTES:
                module = ".".join(parts).removesuffix(".__init__")
                packages.setdefault(parts[0], []).append((str(path), module, size))
    turns = itertools.zip_longest(*(packages[name] for name in sorted(packages)))
    jobs = [job for turn in turns for job in turn if job]
    totals = itertools.accumulate(size for _, _, size in jobs)
    return [job for job, total in zip(jobs, totals, strict=True) if total <= max_bytes]


def define_flags() -> None:
    """Defines the flags of the corpus and of its sources."""
    cli.define(Corpus)


def main() -> None:
    """Runs the binary."""
    options = cli.read(Corpus)
    check_output(options.output, options.overwrite)
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    counters: Counter[str] = Counter()
    documents = extract([Path(root) for root in options.roots], counters, options.max_parse_mb)
    with (
        atomic_write(output) as stream,
        progress.bar(None, "B", "docstrings", unit_scale=True) as bar,
    ):
        for document in documents:
            stream.write(to_line(document))
            bar.total = counters["bytes_total"]
            bar.update(counters["bytes"] - bar.n)
        if not counters["documents"]:
            raise UserError("no docstring holds enough prose; name more packages with --roots")
    print(
        f"{one_line(output)}: {counters['documents']} documents,"
        f" about {counters['sentences']} sentences,"
        f" {counters['characters'] / 1e6:.1f} MB; left out: {counters['near_identical']}"
        f" near-identical docstrings, {counters['unparsable']} files that do not parse"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
