"""Documents between two phases: compressed JSON lines."""

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from data_prep.engine.atomic import written
from data_prep.readers import Document

# Half surrogate pairs survive, as they do in memory.
_ENCODING = {"encoding": "utf-8", "errors": "surrogatepass"}


@contextlib.contextmanager
def saving(path: Path) -> Iterator[Callable[[Iterable[Document]], Iterator[Document]]]:
    """A function that writes documents while it passes them on; the file is there at the end."""
    import zstandard

    # Fast: the file is read once and deleted.
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    with written(path) as stored:
        stream = compressor.stream_writer(stored, closefd=False)

        def passing(documents: Iterable[Document]) -> Iterator[Document]:
            for document in documents:
                line = [document.id, document.language, document.continues, document.paragraphs]
                text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
                stream.write(text.encode(**_ENCODING) + b"\n")
                yield document

        yield passing
        stream.close()


def read_back(path: Path) -> Iterator[Document]:
    """Yields the documents of such a file."""
    import zstandard

    with path.open("rb") as stored:
        stream = zstandard.ZstdDecompressor().stream_reader(stored)
        for line in io.TextIOWrapper(io.BufferedReader(stream), newline="\n", **_ENCODING):
            name, language, continues, paragraphs = json.loads(line)
            yield Document(name, language, paragraphs, continues)
