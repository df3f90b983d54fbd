"""Evaluation files of any form, and what in them may be a sentence."""

import codecs
import itertools
import json
import re
from collections.abc import Iterator

from official_cmlm.errors import UserError

from ..documents.sentences import SENTENCE_END_MARKS, UNAMBIGUOUS_MARKS, rejoined, segment
from ..readers.decoding import CHUNK_BYTES
from ..readers.document import ReadOptions
from ..readers.files import BrokenStreamError, ExpandedFile
from ..readers.jsonl import encodable
from ..readers.report import ReadReport
from .duplicates_text import analyse

# A class in front of the sentence: SST's fine labels, TREC's questions.
_CLASS = re.compile(r"(?:\d|[A-Z]+:\w+)\s+(?=\S)")
# Brackets as the Penn Treebank, and SST after it, write them.
_BRACKETS = re.compile(r"-[LR][RCS]B-", re.IGNORECASE)
# All of these take a time that is linear in the text, whatever is in it.
_END_MARK = re.compile(rf"[{re.escape(SENTENCE_END_MARKS)}]")
_WORD = re.compile(r"\w")
_UP_TO_LAST_WORD = re.compile(r".*\w", re.DOTALL)
# A sentence of a script whose marks are unambiguous, without any language's own rules.
_PLAIN_SENTENCE = re.compile(rf"[^{UNAMBIGUOUS_MARKS}]+[{UNAMBIGUOUS_MARKS}]*")
# No string of JSON holds a line's end, so strings can be found line by line, in any layout.
_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
# A cell between commas, in quotes or not; of any length, which the csv module refuses.
_CSV_CELL = re.compile(r'(?:^|,)(?:"([^"]*(?:""[^"]*)*)"?|([^,]*))')
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_REMEDY = "take it out of --exclude or make it UTF-8 text, or --on_error=skip goes on without it"


def normal_brackets(text: str) -> str:
    """The text without brackets as treebanks write them, which are letters otherwise."""
    return _BRACKETS.sub(" ", text)


def candidates(path: str, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    """Yields what may be a sentence in an evaluation file, some of it more than once.

    That is every line; every cell of a line between tabs, of `.csv` between commas; every string
    of JSON, in files that are named so and in lines that begin like it, at any depth; each also
    without a class in front, and each sentence of those with several. It has two words, or a
    script without spaces, or ends as sentences do.

    Args:
      path: plain, gzip or Zstandard; UTF-8, or UTF-16 with a byte order mark. A line that is
        neither is taken for Latin-1.
      options: the limits of lines and of what a file may expand to.
      report: counts what is read.

    Raises:
      UserError: no such file, a broken or exploding stream, no text, a line too long.
    """
    name = path.lower().removesuffix(".gz").removesuffix(".zst")
    is_csv, is_json = name.endswith(".csv"), name.endswith((".json", ".jsonl", ".ndjson"))
    for line in _lines(path, options, report):
        cells = {line, *line.split("\t")}
        if is_csv and "\t" not in line:
            cells.update(_comma_cells(line))
        if is_json or line.lstrip()[:1] in ("{", "["):
            for text in map(_json_text, _JSON_STRING.findall(line)):
                cells.update([text, *re.split(r"[\t\r\n]+", text)])
        cells.update([_CLASS.sub("", cell, count=1) for cell in cells if _CLASS.match(cell)])
        for cell in cells:
            cell = normal_brackets(encodable(cell))
            if _may_be_a_sentence(cell):
                yield cell
                yield from filter(_may_be_a_sentence, several_sentences(cell, "en"))


def several_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text with a sentence's mark before its last word, else none.

    By the rules of the language, and also at each mark that ends nothing but sentences, as the
    text's true language may have other rules.
    """
    mark = _END_MARK.search(text)
    if mark is None or not _WORD.search(text, mark.end()):
        return []
    pieces = segment(text, language)
    # As French text is split, whatever the file's language is taken to be.
    return [*pieces, *rejoined(pieces, "fr"), *_PLAIN_SENTENCE.findall(text)]


def _lines(path: str, options: ReadOptions, report: ReadReport) -> Iterator[str]:
    """Yields the lines of a file, each decoded by itself."""
    pending, number = b"", 0
    try:
        with ExpandedFile(path, report, options.max_expanded_bytes) as file:
            chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
            for chunk in _without_utf16(path, chunks):
                if b"\0" in chunk:
                    raise UserError(f"{path}: no text, a NUL byte behind line {number}; {_REMEDY}")
                pending += chunk
                end = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
                for line in pending[:end].splitlines():
                    number += 1
                    yield _decode(line)
                pending = pending[end:]
                if len(pending) > options.max_line_bytes:
                    raise UserError(
                        f"{path}:{number + 1}: the line is longer than {options.max_line_bytes}"
                        " bytes; break it into lines, or raise --max_line_mb"
                    )
    except BrokenStreamError as error:
        raise error.at(path, f"after line {number}") from None
    if pending:
        yield _decode(pending)


def _without_utf16(path: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes, as UTF-8 if they begin with the byte order mark of UTF-16."""
    head = next(chunks, b"")
    if len(head) == 1:
        head += next(chunks, b"")
    if not head.startswith(_UTF16_BOMS):
        yield from itertools.chain([head], chunks)
        return
    decoder = codecs.getincrementaldecoder("utf-16")()
    try:
        for chunk in itertools.chain([head], chunks):
            yield decoder.decode(chunk).encode("utf-8")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: no UTF-16 text ({error.reason}); {_REMEDY}") from None


def _decode(line: bytes) -> str:
    try:
        return line.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        # TREC's questions; any bytes are Latin-1.
        return line.decode("latin-1")


def _comma_cells(line: str) -> Iterator[str]:
    for quoted, plain in _CSV_CELL.findall(line):
        yield quoted.replace('""', '"') or plain


def _json_text(literal: str) -> str:
    try:
        return json.loads(literal)
    except ValueError:
        return literal[1:-1]


def _may_be_a_sentence(text: str) -> bool:
    if len(text.split()) > 1:
        return True
    words = _UP_TO_LAST_WORD.match(text)
    if words and _END_MARK.search(text, words.end()):
        return True
    # Without spaces between words, four characters are a text.
    return not text.isascii() and len(analyse([text]).words) > 3
