"""JSON lines: one object a line, one document an object."""

import json
from collections.abc import Iterator

from official_cmlm.common.errors import UserError
from official_cmlm.common.languages import is_language_tag, no_language
from official_cmlm.common.text_files import parse_object, replace_surrogates

from ..counts import Counts
from .document import Document, ReadOptions
from .plain_text import iter_lines, normalise_space, split_paragraphs


def read(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields a document for each object {"text": …, "lang": …, "id": …} of a file.

    `text` is a string, divided into paragraphs as plain text is (`options.lines`), or a list of
    strings, one a paragraph. `lang` defaults to `options.language`, `id` to `path#BYTE`, where the
    line begins. Other keys are ignored, as are blank lines.

    A `lang` that is not a language tag is a fault of its record; the pieces that continue its
    document are left out too.

    Raises:
      UserError: as `plain_text.iter_lines` does; invalid JSON, or a value of the wrong type.
    """
    left_out = False
    for number, offset, line in iter_lines(path, counts, options):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = parse_object(line, where)
        continues = record.get("continues") is True
        if left_out and continues:
            continue
        language = _get(record, "lang", where) or options.language
        left_out = not is_language_tag(language)
        if left_out:
            counts.record_fault(path, f'{where}: "lang": {no_language(language)}', options.on_error)
            continue
        text = _get(record, "text", where)
        name = _get(record, "id", where)
        name = f"{path}#{offset}" if name is None else mend_surrogates(str(name), path, counts)
        if isinstance(text, str):
            paragraphs = split_paragraphs(mend_surrogates(text, path, counts), options.lines)
        else:
            paragraphs = normalise_space(mend_surrogates(part, path, counts) for part in text)
        yield Document(name, language, paragraphs, continues)


def to_line(document: Document) -> bytes:
    """Returns the line that `read` turns into the document again; `continues` marks its pieces."""
    text = "\n\n".join(document.paragraphs)
    record: dict[str, object] = {"id": document.id, "lang": document.language, "text": text}
    if document.continues:
        record["continues"] = True
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _get(record: dict[str, object], key: str, where: str) -> object:
    value = record.get(key)
    if key == "text":
        if key not in record:
            raise UserError(f'{where}: no "text"; every object needs one')
        is_list = isinstance(value, list) and all(isinstance(part, str) for part in value)
        fits, kind = isinstance(value, str) or is_list, "a string or a list of strings"
    elif key == "id":
        fits = value is None or (isinstance(value, str | int) and not isinstance(value, bool))
        kind = "a string or a whole number"
    else:
        fits, kind = value is None or isinstance(value, str), "a string"
    if not fits:
        raise UserError(f'{where}: "{key}" is not of the right type; make it {kind}')
    return value


def mend_surrogates(text: str, path: str, counts: Counts) -> str:
    """Returns the text as `replace_surrogates` does; counts the characters that are replaced."""
    whole = replace_surrogates(text)
    if whole is not text:
        counts.add_not_utf8(path, whole.count("\ufffd") - text.count("\ufffd"))
    return whole
