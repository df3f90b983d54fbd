"""The speed of each stage of data preparation, one at a time; a part of `data_prep`."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_prep.counts import Counts, DropCounter
from data_prep.output.documents import RecordOptions, document_records
from data_prep.output.folder import ShardWriter
from data_prep.readers import ReadOptions, read_documents
from data_prep.sentences import split_paragraphs, split_sentences
from data_prep.stages.duplicates import DuplicateOptions, MinHash, file_keys
from data_prep.stages.exclusion import Exclusion
from data_prep.stages.language_id import LanguageId
from data_prep.stages.normalise import Normalise
from data_prep.stages.quality_rules import QualityRules
from official_cmlm.tokenization import build_tokenizer, load_vocabulary


def table(paths: Sequence[str], vocabulary_file: str) -> list[str]:
    """Markdown: stage, MB per CPU-second."""
    rows = ["| stage | MB per CPU-second |", "| --- | ---: |"]
    rows += [f"| {name} | {speed:.0f} |" for name, speed in _speeds(paths, vocabulary_file)]
    return rows


def long_line(megabytes: float = 10.0) -> Iterator[tuple[str, float]]:
    """(step, CPU-seconds for a megabyte) of one line without the end of a sentence."""
    line = " ".join(["the", "cat", "sat"] * int(megabytes * 1e6 / 12))
    size = len(line) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "line.txt"
        path.write_text(line)
        began = time.process_time()
        documents = list(read_documents([str(path)], ReadOptions(), Counts()))
        yield "read", (time.process_time() - began) / size
    began = time.process_time()
    for document in documents:
        split_paragraphs(document.paragraphs, "en", Counter())
    yield "split", (time.process_time() - began) / size


def _speeds(paths: Sequence[str], vocabulary_file: str) -> Iterator[tuple[str, float]]:
    """(stage, speed) of documents of about a page: paragraphs between blank lines are too short."""
    vocabulary = load_vocabulary(vocabulary_file, lower_case=True)
    tokenizer = build_tokenizer(vocabulary)
    tokenizer.tokenize(["once"])
    megabytes = sum(Path(path).stat().st_size for path in paths) / 1e6
    options = ReadOptions(documents_by="file", max_document_bytes=5000)
    counters = DropCounter()

    def timed(call: Callable[[], object]) -> tuple[object, float]:
        began = time.process_time()
        found = call()
        return found, megabytes / max(time.process_time() - began, 1e-9)

    def read() -> list:
        return list(read_documents(list(paths), options, Counts()))

    documents, speed = timed(read)
    yield "read", speed
    stages = {
        "normalise": Normalise(),
        "language id": LanguageId("check"),
        "quality rules": QualityRules(),
    }
    for name, stage in stages.items():
        yield name, timed(lambda s=stage: [s(document, counters) for document in documents])[1]
    exact = DuplicateOptions(None)
    yield "keys of exact duplicates", timed(lambda: file_keys(documents, exact))[1]
    near = DuplicateOptions(MinHash())
    yield "keys of near duplicates too", timed(lambda: file_keys(documents, near))[1]

    def split() -> list[list[str]]:
        return [
            [s for text in d.paragraphs for s in split_sentences(text, "en", counters)]
            for d in documents
        ]

    sentences, speed = timed(split)
    yield "split into sentences", speed
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "excluded.txt")
        file.write_text("\n".join(s for found in sentences[:10] for s in found) + "\n")
        exclusion = Exclusion.of([str(file)])
        yield "exclude sentences", timed(lambda: [exclusion.keep_each(s) for s in sentences])[1]
        whole = [s for found in sentences for s in found]
        batches = [whole[i : i + 8192] for i in range(0, len(whole), 8192)]
        yield "tokenise", timed(lambda: [tokenizer.tokenize(batch) for batch in batches])[1]

        def encode() -> list[tuple[str, bytes]]:
            made = document_records(
                documents, vocabulary, RecordOptions(), Counts(), tokenizer=tokenizer
            )
            return list(made)

        encoded, speed = timed(encode)
        yield "split, tokenise and encode", speed

        def write() -> None:
            writer = ShardWriter(Path(folder), "documents", 16_000_000)
            for language, record in encoded:
                writer.write(language, record)
            writer.close()

        yield "write, with checksums", timed(write)[1]
