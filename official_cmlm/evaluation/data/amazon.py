"""Amazon reviews in several languages, in three published formats."""

import dataclasses
import html
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder, finite, json_object
from official_cmlm.evaluation.scores import MissingData

HINT = (
    "reviews in several languages (Webis-CLS-10, Prettenhofer and Stein 2010) belong into "
    "DATA_DIR/amazon as <language>/{train,test}.tsv (stars, tab, text), "
    "dataset_<language>_{train,test}.json (amazon_reviews_multi) or "
    "<language>/<category>/{train,test}.review (cls-acl10-unprocessed)"
)


@dataclasses.dataclass(frozen=True)
class Reviews:
    """Reviews with binary sentiment labels.

    Attributes:
      texts: n reviews.
      labels: int `[n]`, 1 for more than 3 stars (CMLM, section 4.5.2), otherwise 0.
      skipped: number of malformed entries of the file.
    """

    texts: list[str]
    labels: np.ndarray
    skipped: int

    def take(self, rows: np.ndarray) -> "Reviews":
        """Returns the reviews with these indices, in this order."""
        return Reviews([self.texts[i] for i in rows], self.labels[rows], self.skipped)


def languages(folder: Path) -> list[str]:
    """Finds the languages with test reviews, as files or folders name them."""
    codes = {path.parent.name for path in folder.glob("*/test.tsv")}
    codes |= {path.parent.parent.name for path in folder.glob("*/*/test.review")}
    names = (path.name for path in folder.glob("dataset_*_test.json"))
    codes |= {name.removeprefix("dataset_").removesuffix("_test.json") for name in names}
    return sorted(codes)


def read(data: DataFolder, folder: Path, language: str, part: str) -> Reviews:
    """Reads a language's reviews, `train` or `test`, of all categories, in any of the formats."""
    table = folder / language / f"{part}.tsv"
    records = folder / f"dataset_{language}_{part}.json"
    marked_up = sorted((folder / language).glob(f"*/{part}.review"))
    if table.is_file():
        paths, parse = [table], parse_table
    elif records.is_file():
        paths, parse = [records], parse_records
    elif marked_up:
        paths, parse = marked_up, parse_markup
    else:
        raise MissingData(table, HINT)
    return _reviews(data, paths, parse)


Rows = list[tuple[float, str] | None]


def parse_table(lines: Sequence[str]) -> Rows:
    """Reads (stars, text) of each line `stars<TAB>text`; None for a malformed line."""
    split = (line.split("\t") for line in lines if line.strip())
    return [_row(*cells) if len(cells) == 2 else None for cells in split]


def parse_records(lines: Sequence[str]) -> Rows:
    """Reads (stars, text) of JSON lines with `stars` and `review_body`; None if malformed."""
    records = map(json_object, filter(str.strip, lines))
    return [_row(record.get("stars"), record.get("review_body")) for record in records]


def parse_markup(lines: Sequence[str]) -> Rows:
    """Reads (stars, text) from `<rating>` and `<text>` of each `<item>`; None if malformed.

    The files are not well-formed XML, so items are found by pattern. Character references are
    replaced as in HTML.
    """
    items = _elements("\n".join(lines), "item")
    return [_row(_field(item, "rating"), _field(item, "text")) for item in items]


def _reviews(
    data: DataFolder, paths: Sequence[Path], parse: Callable[[Sequence[str]], Rows]
) -> Reviews:
    rows = [row for path in paths for row in parse(data.lines(path, HINT))]
    good = [row for row in rows if row is not None]
    if not good:
        raise UserError(f"{paths[0]}: no review with stars and text; {HINT}")
    labels = np.array([int(stars > 3) for stars, _ in good])
    return Reviews([text for _, text in good], labels, len(rows) - len(good))


def _elements(text: str, name: str) -> list[str]:
    """Returns what is in each element of this name, from its start to the next end."""
    begin, end = f"<{name}>", f"</{name}>"
    return [part.partition(begin)[2] for part in text.split(end)[:-1] if begin in part]


def _field(item: str, name: str) -> str | None:
    elements = _elements(item, name)
    if not elements:
        return None
    text = elements[0].strip()
    is_literal = text.startswith("<![CDATA[") and text.endswith("]]>")
    return text[9:-3] if is_literal else html.unescape(elements[0])


def _row(stars: object, text: object) -> tuple[float, str] | None:
    number = finite(stars)
    if not isinstance(text, str) or not text.strip() or number is None:
        return None
    return number, text.strip()
