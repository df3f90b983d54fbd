"""Makes pairs of a title and its body from running text: `cmlm title-pairs`.

    cmlm title-pairs --input='my/*.txt' --to=work/pairs.jsonl
    cmlm create-pairs --format=table --columns=title,body --input=work/pairs.jsonl …

A query describes a text in few words, as its title does. Running text holds such pairs without
labels: a heading and the paragraph below it, or the first sentence of a paragraph and its rest.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, check_output

from . import common_flags
from .counts import Counts
from .output.report import finish
from .sentences import split_paragraphs

# Shorter texts say too little: "See also:", "Returns a list."
_LEAST_TITLE_WORDS, _LEAST_BODY_WORDS = 3, 6


def title_pairs(
    paragraphs: Sequence[str], language: str, counters: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of title and body of a document.

    Args:
      paragraphs: the paragraphs of one document, in order.
      language: language code, for the sentences.
      counters: see `split_paragraphs`.
    """
    title = ""
    for paragraph in paragraphs:
        first, *rest = split_paragraphs([paragraph], language, counters) or [""]
        if title and len(paragraph.split()) >= _LEAST_BODY_WORDS:
            yield title, paragraph
            title = ""
            continue
        title = "" if rest or len(first.split()) < _LEAST_TITLE_WORDS else first
        body = " ".join(rest)
        if len(first.split()) >= _LEAST_TITLE_WORDS and len(body.split()) >= _LEAST_BODY_WORDS:
            yield first, body


@dataclasses.dataclass(frozen=True)
class TitlesOutput(common_flags.OutputFile):
    """The file of pairs.

    Attributes:
      output: file of JSON lines to write, each with a title, its body and the document's id.
    """


def define_flags() -> None:
    """Defines the flags of reading and of the output."""
    common_flags.define_reading()
    cli.define(TitlesOutput)


def main() -> int:
    """Runs the binary."""
    options, counts, written = cli.read(TitlesOutput), Counts(), 0
    files = common_flags.text_files()
    check_output(options.output, options.overwrite, (file.path for file in files))
    documents = common_flags.read_text(files, counts)
    cli.announce(f"reading {len(files)} file(s) …")
    Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(Path(options.output)) as output:
        for document in documents:
            for title, body in title_pairs(document.paragraphs, document.language, counts.counters):
                line = {"title": title, "body": body, "id": document.id}
                output.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())
                written += 1
        if not written:
            raise UserError(
                f"{options.output}: the text has no paragraph of two sentences and no heading; "
                "check that blank lines separate its paragraphs, and --documents_by"
            )
    return finish(f"{options.output}: {written} pairs", counts, len(files))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
