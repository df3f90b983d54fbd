"""The English prose in the docstrings of Python's source files."""

import ast
import io
import itertools
import re
import warnings
from collections import deque
from collections.abc import Iterator

from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import BrokenStreamError

from ..counts import Counts
from .document import Document, ReadOptions
from .plain_text import CountedFile

MIN_CHARACTERS, _MIN_WORDS = 80, 4
_MIN_LETTERS = 0.85  # least share of letters among the characters that are not white space
_SECTIONS = (
    r"(other |keyword )?(arg(ument)?s?|param(eter)?s?)|kwargs|returns?|yields?|raises?|warns"
    r"|receives|attributes?|methods?|see also|references?|examples?|usage( example)?|example usage"
    r"|inputs?|outputs?|options|shapes?|input shape|output shape|call arg(ument)?s"
)
_UNDERLINE = re.compile(r"([-=~^#*\"+])\1{2,}")
_NUMPY_SECTION = re.compile(rf"({_SECTIONS})", re.IGNORECASE)
_GOOGLE_SECTION = re.compile(rf"\W*({_SECTIONS})[^\w:]*:\W*", re.IGNORECASE)
_LIST = re.compile(r":\w[^:`]*:( |$)|@\w+|\.\. |([-*+•]|[(\[]?\d+[.)\]]) ")
_ROLE = re.compile(r"(?<![\w:+-]):[\w:+-]+:`[~!]?([^`<]*?)( <[^`>]*>)?`|`([^`<]+?) <[^`>]*>`__?")
_MARKUP = re.compile(r"`+|(?<!\w)\*{1,2}(?=\w)|(?<=[\w.])\*{1,2}(?!\w)")
_SIGNATURE = re.compile(r"[\w.]+\([^)]*\)( *->|:|$)|[\w.]+ ?= ")
_CODE = re.compile(r">>>|```|\|.*\||\+--|--\+| {4,}|\t|[{}\\]|\S==?\S|::$")
_SENTENCE_END = re.compile(r"[.!?:](?=\s|$)")


def read(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields a document for each docstring of a source file with enough prose, in English.

    Its id is `path:NAME`. Nothing is executed. Docstrings that repeat each other are all yielded,
    as each file is read alone.

    Raises:
      UserError: the file cannot be read, is larger than `options.max_line_bytes`, or is not Python.
    """
    with CountedFile(path, counts, options) as file:
        try:
            source = io.BufferedReader(file).read(options.max_line_bytes + 1)
        except BrokenStreamError as error:
            raise error.at(path, f"after byte {file.tell()}") from None
    if len(source) > options.max_line_bytes:
        raise UserError(
            f"{path}: is larger than {options.max_line_bytes} bytes; raise --max_line_mb if it is"
            " source code"
        )
    if not source:
        counts.empty_files.append(path)
    try:
        docstrings = docstrings_of(source)
    except UNPARSABLE as error:
        raise UserError(
            f"{path}: is not Python source ({error}); choose another --reader"
        ) from None
    for name, paragraphs in docstrings:
        yield Document(f"{path}:{name}".rstrip(":"), "en", paragraphs)


# Errors that `docstrings_of` raises for source that Python cannot parse.
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def docstrings_of(source: bytes) -> list[tuple[str, list[str]]]:
    """Returns (qualified name, paragraphs) of each docstring with enough prose, the module's first.

    Raises:
      UNPARSABLE: the source is not Python.
    """
    # Many files have no triple quotes. They are not parsed, as their docstrings are short or none.
    if b'"""' not in source and b"'''" not in source:
        return []
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(source)
    docstrings = []
    # Only statements that may hold definitions are visited; walking every node would double the
    # time.
    queue = deque([(tree, "")])
    while queue:
        node, qualname = queue.popleft()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraphs = prose(ast.get_docstring(node) or "")
            if sum(map(len, paragraphs)) >= MIN_CHARACTERS and count_sentences(paragraphs) > 1:
                docstrings.append((qualname, paragraphs))
        for child in node.body:
            if hasattr(child, "body"):
                own = getattr(child, "name", "")
                queue.append((child, f"{qualname}.{own}".strip(".")))
    return docstrings


def prose(docstring: str) -> list[str]:
    """Returns the paragraphs of a docstring that read as English prose, without markup."""
    kept: list[str] = []
    block: list[str] = []
    skip_section, skip_fence, skip_indent = False, False, -1
    for line, below in itertools.pairwise([*docstring.split("\n"), ""]):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith(("```", "~~~~")):
            skip_fence, text = not skip_fence, ""
        elif text and _UNDERLINE.fullmatch(below.strip()):
            skip_section = bool(_NUMPY_SECTION.fullmatch(text.strip(":")))
            text = ""
        elif _GOOGLE_SECTION.fullmatch(text):
            skip_indent, text = indent, ""
        elif text and indent <= skip_indent:
            skip_indent = -1
        if not text or skip_fence or skip_section or skip_indent >= 0 or indent:
            kept += _paragraph(block)
            # Text that hangs below a dropped or an indented line belongs to it.
            block = [] if not text else ["\t"]
        else:
            block.append(text)
    return kept + _paragraph(block)


def _paragraph(lines: list[str]) -> list[str]:
    """Returns the lines as one paragraph in a list, or nothing if they are not prose."""
    lines = list(itertools.takewhile(lambda line: not _LIST.match(line), lines))
    if not lines or any(_CODE.search(line) for line in lines):
        return []
    words = _MARKUP.sub("", _ROLE.sub(lambda m: m[1] or m[3] or "", " ".join(lines))).split()
    text = " ".join(words)
    if len(words) < _MIN_WORDS or not re.match("[A-Za-z]", text) or text[-1] not in ".!?:":
        return []
    letters = len(re.findall(r"[A-Za-z,.;:'!?-]", text))
    is_prose = letters >= _MIN_LETTERS * len("".join(words)) and not _SIGNATURE.match(text)
    return [text] if is_prose else []


def count_sentences(paragraphs: list[str]) -> int:
    """Returns about how many sentences the paragraphs hold."""
    return sum(len(_SENTENCE_END.findall(paragraph)) for paragraph in paragraphs)
