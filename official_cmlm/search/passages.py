"""Documents cut into passages: paragraphs with their heading, of a length that an encoder reads."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_SENTENCE = re.compile(r"\S[^\n]*?(?:[.!?…][\"'”’)\]]*(?=\s)|[。！？]|(?=\n)|\Z)")
# A long paragraph is cut after a sentence, if one ends after this share of a passage's words.
_LAST_PART = 0.6
_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
# A longer heading is a paragraph, as the passages of its section would repeat it.
_LONGEST_HEADING = 1000
_LIST_ITEM = re.compile(r"^\s*([-*+•]|\d+[.)])\s+")
_BLOCKS = frozenset(
    "address article aside blockquote body br dd div dl dt figcaption footer form header hr li "
    "main nav ol p pre section table td th title tr ul h1 h2 h3 h4 h5 h6".split()
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg", "nav", "footer"))


class Passage(NamedTuple):
    """A part of a document.

    Attributes:
      line: the document's line where it begins, from 1.
      text: its paragraphs, a line each, after their heading.
      heading: the first line of `text`, if this is a heading.
    """

    line: int
    text: str
    heading: str = ""


class _Block(NamedTuple):
    line: int
    text: str
    is_heading: bool = False


class _Limits:
    """The largest size of a passage in words and in tokens."""

    def __init__(
        self, words: int, tokens: float, count: Callable[[list[str]], Iterable[int]]
    ) -> None:
        self.words, self.tokens = words, tokens
        self._count, self._tokens_of = count, dict[str, int]()

    def count(self, words: Sequence[str]) -> int:
        """Returns the number of tokens of words."""
        try:
            return sum(map(self._tokens_of.__getitem__, words))
        except KeyError:
            new = list(set(words) - self._tokens_of.keys())
            self._tokens_of.update(zip(new, map(int, self._count(new))))
            return self.count(words)

    def split(self, text: str, tokens: float) -> Iterator[str]:
        """Yields the words of a text; longer ones than so many tokens, as of Chinese, in parts."""
        words = text.split()
        self.count(words)
        for word in words:
            size = self.count([word])
            if size <= tokens or len(word) == 1:
                yield word
                continue
            # Few parts of this length have more tokens, and none has room for another one.
            length = max(1, int(len(word) * tokens / size * 0.8))
            parts = [word[start : start + length] for start in range(0, len(word), length)]
            yield from self.split(" ".join(parts), tokens)


def split_passages(
    text: str,
    form: str = "text",
    words: int = 200,
    tokens: float = math.inf,
    count: Callable[[list[str]], Iterable[int]] = lambda words: [0] * len(words),
) -> list[Passage]:
    """Cuts a document into passages.

    Paragraphs are put together up to `words` words. Wrapped lines are joined; longer paragraphs are
    cut, if possible after a sentence. A heading begins a passage, and is repeated before the later
    passages of its section. Navigation and footers of pages are left out.

    Args:
      text: the document.
      form: `text`, `markdown` or `html`.
      words: largest number of words of a passage, without its heading.
      tokens: largest number of tokens of a passage, with its heading.
      count: returns the number of tokens of each word.

    >>> split_passages("# Keys\\n\\nThe key is\\nin the box.", "markdown")
    [Passage(line=1, text='Keys\\nThe key is in the box.', heading='Keys')]
    """
    if form == "html":
        blocks: Iterable[_Block] = _read_html(text)
    else:
        blocks = _split_paragraphs(text, form == "markdown")
    if len(text.encode("utf-8", "replace")) <= tokens:
        # A token has a byte at least, so none need be counted.
        tokens = math.inf
    return list(_pack(blocks, _Limits(words, tokens, count)))


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a passage; its lines that end like none, if all lines do."""
    parts = _SENTENCE.findall(text)
    return [part for part in parts if _SENTENCE_END.search(part)] or parts


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
            yield _Block(number, line[heading.end() :].strip().rstrip("#").rstrip(), True)
        elif line.strip() and not is_fence:
            first = first if lines else number
            lines.append(line.strip())
    if lines:
        yield _Block(first, " ".join(lines))


def _read_html(text: str) -> list[_Block]:
    from lxml import etree

    page = _Page()
    parser = etree.HTMLParser(target=page, encoding="utf-8", huge_tree=True)
    # The parser does not tell lines, so it gets them one by one, each after its line break.
    for line in text.encode("utf-8", "replace").split(b"\n"):
        page.line += 1
        parser.feed(b"\n" + line)
    return parser.close()


class _Page:
    """The blocks of a page, without scripts and styles, as lxml's parser meets them."""

    def __init__(self) -> None:
        self.line, self._blocks = 0, list[_Block]()
        self._begin, self._texts, self._unseen, self._heading = 0, list[str](), 0, False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        del attributes
        self._unseen += tag in _UNSEEN
        if tag in _BLOCKS:
            self._end_block()
            self._heading = tag in _HEADINGS

    def end(self, tag: str) -> None:
        self._unseen -= tag in _UNSEEN
        if tag in _BLOCKS:
            self._end_block()

    def data(self, data: str) -> None:
        if self._unseen or not (data.strip() or self._texts):
            return
        if not self._texts:
            self._begin = self.line - data.lstrip().count("\n")
        self._texts.append(data)

    def close(self) -> list[_Block]:
        self._end_block()
        return self._blocks

    def _end_block(self) -> None:
        if text := " ".join("".join(self._texts).split()):
            self._blocks.append(_Block(self._begin, text, self._heading))
        self._texts, self._heading = [], False


def _pack(blocks: Iterable[_Block], limits: _Limits) -> Iterator[Passage]:
    heading, heading_line, held, count, left = "", 0, [], 0, limits.tokens
    room = left

    def passage() -> Passage:
        texts = [heading, *(block.text for block in held)] if heading else [b.text for b in held]
        return Passage(heading_line or held[0].line, "\n".join(texts), heading)

    for block in blocks:
        parts = _split_paragraph(block.text, limits, room)
        if block.is_heading and len(block.text) <= _LONGEST_HEADING:
            if held or heading_line:
                yield passage()
            # The later passages repeat the beginning of a long heading.
            parts = _split_paragraph(block.text, limits, limits.tokens / 2)
            heading, heading_line, held, count = next(parts, ""), block.line, [], 0
            # Between paragraphs there is a line break, which may be a token.
            left = room = limits.tokens - limits.count(heading.split()) - 1
        for part in parts:
            length, size = len(part.split()), limits.count(part.split()) + 1
            if held and (count + length > limits.words or size > left):
                yield passage()
                held, count, heading_line, left = [], 0, 0, room
            held.append(_Block(block.line, part))
            count, left = count + length, left - size
    if held or heading_line:
        yield passage()


def _split_paragraph(text: str, limits: _Limits, tokens: float) -> Iterator[str]:
    """Yields a paragraph in parts within the limit of words, and of so many tokens."""
    words, begin = list(limits.split(text, tokens - 1)), 0
    while begin < len(words):
        most, size = begin, 0
        while most < len(words) and most - begin < limits.words:
            size += limits.count([words[most]])
            if size >= tokens and most > begin:
                break
            most += 1
        end = most
        if most < len(words):
            ends = range(most, begin + max(1, int((most - begin) * _LAST_PART)), -1)
            end = next((n for n in ends if _SENTENCE_END.search(words[n - 1])), most)
        yield " ".join(words[begin:end])
        begin = end
