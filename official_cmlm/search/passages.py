"""Documents cut into passages: paragraphs with their heading, of a length that an encoder reads."""

import html.parser
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
# A long paragraph is cut after a sentence, if one ends after this share of a passage's words.
_LAST_PART = 0.6
_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_LIST_ITEM = re.compile(r"^\s*([-*+•]|\d+[.)])\s+")
_BLOCKS = frozenset(
    "address article aside blockquote body br dd div dl dt figcaption footer form header hr li "
    "main nav ol p pre section table td th title tr ul h1 h2 h3 h4 h5 h6".split()
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg"))


class Passage(NamedTuple):
    """A part of a document.

    Attributes:
      line: the document's line where it begins, from 1.
      text: its paragraphs, a line each, after their heading.
    """

    line: int
    text: str


class _Block(NamedTuple):
    line: int
    text: str
    is_heading: bool = False


def split_passages(text: str, form: str = "text", words: int = 200) -> list[Passage]:
    """Cuts a document into passages.

    Paragraphs are put together up to `words` words. Wrapped lines are joined; longer paragraphs are
    cut, if possible after a sentence. A heading begins a passage, and is repeated before the later
    passages of its section.

    Args:
      text: the document.
      form: `text`, `markdown` or `html`.
      words: largest number of words of a passage, without its heading.

    >>> split_passages("# Keys\\n\\nThe key is\\nin the box.", "markdown")
    [Passage(line=1, text='Keys\\nThe key is in the box.')]
    """
    if form == "html":
        parser = _Html()
        parser.feed(text)
        parser.close()
        parser.end_block()
        blocks: Iterable[_Block] = parser.blocks
    else:
        blocks = _split_paragraphs(text, form == "markdown")
    return list(_pack(blocks, words))


def _split_paragraphs(text: str, markdown: bool) -> Iterator[_Block]:
    first, lines, fenced = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        heading = _HEADING.match(line) if markdown and not fenced else None
        is_fence = markdown and bool(_FENCE.match(line))
        begins = heading or is_fence or not line.strip() or _LIST_ITEM.match(line)
        if begins and lines and not (fenced and not is_fence):
            yield _Block(first, " ".join(lines))
            lines = []
        fenced ^= is_fence
        if heading:
            yield _Block(number, heading[1], True)
        elif line.strip() and not is_fence:
            first = first if lines else number
            lines.append(line.strip())
    if lines:
        yield _Block(first, " ".join(lines))


class _Html(html.parser.HTMLParser):
    """The blocks of a page, without scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[_Block] = []
        self._line, self._text, self._unseen, self._heading = 0, "", 0, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._unseen += tag in _UNSEEN
        if tag in _BLOCKS:
            self.end_block()
            self._heading = tag in _HEADINGS

    def handle_endtag(self, tag: str) -> None:
        self._unseen = max(0, self._unseen - (tag in _UNSEEN))
        if tag in _BLOCKS:
            self.end_block()

    def handle_data(self, data: str) -> None:
        if self._unseen or not (data.strip() or self._text):
            return
        if not self._text:
            self._line = self.getpos()[0] + len(data[: -len(data.lstrip())].splitlines()[1:])
        self._text += data

    def end_block(self) -> None:
        """Ends the block that is being read."""
        if text := " ".join(self._text.split()):
            self.blocks.append(_Block(self._line, text, self._heading))
        self._text, self._heading = "", False


def _pack(blocks: Iterable[_Block], words: int) -> Iterator[Passage]:
    heading, heading_line, held, count = "", 0, [], 0

    def passage() -> Passage:
        texts = [heading, *(block.text for block in held)] if heading else [b.text for b in held]
        return Passage(heading_line or held[0].line, "\n".join(texts))

    for block in blocks:
        if block.is_heading:
            if held or heading_line:
                yield passage()
            heading, heading_line, held, count = block.text, block.line, [], 0
            continue
        for part in _split_paragraph(block.text, words):
            length = len(part.split())
            if held and count + length > words:
                yield passage()
                held, count, heading_line = [], 0, 0
            held.append(_Block(block.line, part))
            count += length
    if held or heading_line:
        yield passage()


def _split_paragraph(text: str, words: int) -> Iterator[str]:
    """Yields a paragraph in parts of at most `words` words."""
    all_words, begin = text.split(), 0
    while len(all_words) - begin > words:
        ends = range(begin + words, begin + max(1, int(words * _LAST_PART)), -1)
        end = next((n for n in ends if _SENTENCE_END.search(all_words[n - 1])), begin + words)
        yield " ".join(all_words[begin:end])
        begin = end
    yield " ".join(all_words[begin:])
