"""TMX, the exchange format of translation memories, as a stream: no tree, no entities."""

from collections.abc import Iterator
from xml.parsers import expat

from official_cmlm.common.errors import UserError
from official_cmlm.common.languages import is_language_tag, no_language
from official_cmlm.common.text_files import BrokenStreamError

from ..counts import Counts
from .document import Pair, ReadOptions, one_space
from .lines import CountedFile

_CHUNK_BYTES = 1 << 16
_MAX_DEPTH = 512
# Elements of a segment that hold a word processor's codes, not text (TMX 1.4b, section 3).
_CODES = {"bpt", "ept", "it", "ph", "ut"}
_LANGUAGE_ATTRIBUTES = ("xml:lang", "lang")


def read(
    path: str, languages: tuple[str, str], options: ReadOptions, counts: Counts
) -> Iterator[Pair]:
    """Yields a pair for each translation unit that has a text in both languages.

    Other units are counted as `read/without_both_languages`. A variant is of language `en` if its
    tag is `en` or begins with `en-`, in any case; of several, the first is taken. A malformed tag
    is a fault of its unit.

    Args:
      path: plain, gzip or zstd, in any encoding that its XML declaration or byte order mark says.
      languages: languages of the first and of the second text.
      options: `max_line_bytes` bounds a unit and a tag, in bytes; `on_error`.
      counts: counts what is read.

    Raises:
      UserError: not well-formed XML, entities declared in the file, a unit too long.
    """
    parser = _Parser(path, languages, options, counts)
    with CountedFile(path, counts, options) as file:
        try:
            while chunk := file.read(min(_CHUNK_BYTES, options.max_line_bytes)):
                yield from parser.feed(chunk, file.tell())
        except BrokenStreamError as error:
            raise error.at(path, f"after line {parser.line}") from None
        if not file.tell():
            counts.empty_files.append(path)
            return
        yield from parser.feed(b"", file.tell(), is_last=True)


class _Parser:
    """A parser that collects the pairs of the chunks that it is fed."""

    def __init__(
        self, path: str, languages: tuple[str, str], options: ReadOptions, counts: Counts
    ) -> None:
        self._path, self._languages, self._counts = path, languages, counts
        self._max_bytes, self._on_error = options.max_line_bytes, options.on_error
        self._pairs: list[Pair] = []
        self._depth = self._bytes = self._codes = self._unit_line = 0
        self._in_segment = False
        self._language = self._fault = ""
        self._texts: dict[str, str] = {}
        self._parts: list[str] = []
        self._expat = expat.ParserCreate()
        self._expat.buffer_text = True
        self._expat.StartDoctypeDeclHandler = self._doctype
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._text

    @property
    def line(self) -> int:
        return self._expat.CurrentLineNumber

    def feed(self, chunk: bytes, position: int, is_last: bool = False) -> list[Pair]:
        """Returns the pairs that end in the chunk, which ends at byte `position` of the file."""
        try:
            self._expat.Parse(chunk, is_last)
        except UserError:
            raise
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise self._error(f"not well-formed XML ({error}); fetch or export it again") from None
        # The parser holds text that it cannot interpret yet, such as a tag without an end.
        if position - self._expat.CurrentByteIndex > self._max_bytes + _CHUNK_BYTES:
            raise self._error(f"markup of more than {self._max_bytes} bytes; raise --max_line_mb")
        pairs, self._pairs = self._pairs, []
        return pairs

    def _error(self, what: str) -> UserError:
        return UserError(f"{self._path}:{self.line}: {what}")

    def _doctype(self, name: str, system: str, public: str, has_declarations: int) -> None:
        # The name of a DTD is harmless, as nothing is fetched; entities can explode.
        if has_declarations:
            raise self._error("declares entities or elements of its own; take out the <!DOCTYPE>")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"elements are nested more than {_MAX_DEPTH} deep")
        if name == "tu":
            self._texts, self._bytes, self._unit_line = {}, 0, self.line
            self._fault = ""
        elif name == "tuv":
            tags = (attributes[key] for key in _LANGUAGE_ATTRIBUTES if key in attributes)
            tag = next(tags, "")
            if tag and not is_language_tag(tag):
                self._fault = self._fault or f"{self._path}:{self.line}: {no_language(tag)}"
            self._language = self._wanted(tag)
        elif name == "seg":
            self._in_segment, self._parts = True, []
        elif name in _CODES:
            self._codes += 1

    def _text(self, text: str) -> None:
        if self._in_segment and not self._codes:
            self._parts.append(text)
            self._bytes += len(text.encode())
            if self._bytes > self._max_bytes:
                raise self._error(
                    f"a unit of more than {self._max_bytes} bytes; raise --max_line_mb"
                )

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name in _CODES:
            self._codes -= 1
        elif name == "seg":
            self._in_segment = False
            if self._language:
                self._texts.setdefault(self._language, one_space("".join(self._parts)))
        elif name == "tu":
            first, second = (self._texts.get(language) for language in self._languages)
            where = f"{self._path}:{self._unit_line}"
            if self._fault:
                self._counts.record_fault(self._path, self._fault, self._on_error)
                return
            if first is None or second is None:
                reason, found = "read/without_both_languages", first or second or ""
                self._counts.counters.drop(reason, where, (), found)
                return
            self._pairs.append(Pair((first, second), self._languages, None, where))

    def _wanted(self, tag: str) -> str:
        tag = tag.lower().replace("_", "-")
        for language in self._languages:
            if tag == language.lower() or tag.startswith(f"{language.lower()}-"):
                return language
        return ""
