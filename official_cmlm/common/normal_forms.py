"""Unicode's normal forms, in time that grows with a text's length, whatever is in it."""

import itertools
import re
import unicodedata
from typing import Literal

# Combining marks are among the characters that are in no word; languages write a few in a row.
_RUN = re.compile(r"[^\w\x00-\u02ff]{31,}")


def normalise(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Returns what `unicodedata.normalize` does, which sorts marks in quadratic time.

    Half a million marks in a row would take minutes there, unless they are sorted already.
    """
    return unicodedata.normalize(form, _RUN.sub(_sort_marks, text))


def _sort_marks(run: re.Match[str]) -> str:
    groups = itertools.groupby(run[0], lambda char: unicodedata.combining(char) > 0)
    ordered = (sorted(group, key=unicodedata.combining) for _, group in groups)
    return "".join(itertools.chain.from_iterable(ordered))
