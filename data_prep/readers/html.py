"""The main text of a page of HTML, by resiliparse's rules."""

from dataclasses import dataclass

# Blink, for one, builds no deeper trees. The time that the extraction takes grows with the square
# of the depth: 2 s at 10,000.
MAX_DEPTH = 512
_TOO_DEEP = ">".join("*" * (MAX_DEPTH + 1))
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class UnreadablePageError(Exception):
    """A page that is not worth the time or the memory; the message says why."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is kept of a page.

    Attributes:
      text: its main text, a line a block, without navigation and the like.
      language: as the page declares it, or None.
    """

    text: str
    language: str | None


def main_text(content: bytes, charset: str | None = None) -> Page:
    """The main text of a page.

    Args:
      content: HTML, in any encoding.
      charset: what the server said of the encoding, if anything; a byte order mark counts more, a
        `<meta charset>` and what the bytes look like count less.

    Raises:
      UnreadablePageError: tags nested deeper than `MAX_DEPTH`, or no HTML at all.
    """
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
    from resiliparse.parse.html import HTMLParserException, HTMLTree

    encoding = next((name for mark, name in _BOMS.items() if content.startswith(mark)), None)
    # Mapped, as else a page could ask for any of Python's codecs.
    encoding = encoding or (charset and map_encoding_to_html5(charset, fallback_utf8=False))
    encoding = encoding or detect_encoding(content, from_html_meta=True)
    try:
        tree = HTMLTree.parse(bytes_to_str(content, encoding))
    except HTMLParserException as error:
        raise UnreadablePageError(f"not HTML: {error}") from None
    if tree.document.query_selector(_TOO_DEEP) is not None:
        raise UnreadablePageError(f"tags are nested more than {MAX_DEPTH} deep")
    root = tree.document.query_selector("html")
    language = root and (root.getattr("lang") or root.getattr("xml:lang"))
    text = extract_plain_text(tree, main_content=True, list_bullets=False, alt_texts=False)
    return Page(text, language or None)
