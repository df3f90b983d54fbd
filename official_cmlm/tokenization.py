"""The one place where a vocabulary is read and a tokenizer is built.

Records, `encode`, the exported preprocess module and the tests all get their ids from the object
that `build_tokenizer` returns, so they cannot disagree.
"""

import dataclasses
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import tensorflow_text

REQUIRED_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A WordPiece vocabulary with its settings.

    Attributes:
      tokens: the entries; the index is the id.
      lower_case: lower-case, decompose and strip accents before splitting, as the uncased BERT
        vocabularies expect.
      max_bytes_per_word: a longer word becomes one `[UNK]`; bytes of UTF-8. tensorflow-text's own
        default of 100 turns whole unspaced Thai, Lao and Khmer clauses into `[UNK]`; 1000 makes
        none. 100 is right only to reproduce a vocabulary that was published with it.
    """

    tokens: tuple[str, ...]
    lower_case: bool
    max_bytes_per_word: int

    def __len__(self) -> int:
        return len(self.tokens)

    def id_of(self, token: str) -> int:
        return self.special_ids[token]

    @functools.cached_property
    def special_ids(self) -> dict[str, int]:
        """Ids of the five tokens that every vocabulary must have."""
        return {token: self.tokens.index(token) for token in REQUIRED_TOKENS}

    @functools.cached_property
    def hash(self) -> str:
        """16 hexadecimal digits over the entries and the settings; equal means equal ids."""
        digest = hashlib.sha256("\n".join(self.tokens).encode())
        digest.update(f"\n{self.lower_case}\n{self.max_bytes_per_word}".encode())
        return digest.hexdigest()[:16]

    def settings(self) -> dict[str, bool | int]:
        return {"lower_case": self.lower_case, "max_bytes_per_word": self.max_bytes_per_word}

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `vocab.txt` and its settings `vocab.json` into an existing folder."""
        path = Path(folder) / "vocab.txt"
        path.write_text("".join(f"{token}\n" for token in self.tokens), encoding="utf-8")
        path.with_suffix(".json").write_text(json.dumps(self.settings()) + "\n")


def load_vocabulary(
    path: str | os.PathLike,
    lower_case: bool | None = None,
    max_bytes_per_word: int | None = None,
) -> Vocabulary:
    """Reads a `vocab.txt`: one token a line, UTF-8; the line's index is the id.

    Args:
      path: the vocabulary file. Settings are read from the `.json` of the same stem beside it
        where there is one.
      lower_case: overrides that; must be given where there are no saved settings.
      max_bytes_per_word: overrides that; default 1000.

    Raises:
      UserError: if the file is missing or not UTF-8, lacks a special token, has an empty or
        duplicate line, or if the casing is not known.
    """
    path = Path(path)
    try:
        # A byte order mark in front is no part of the first token.
        text = path.read_text(encoding="utf-8-sig")
    except IsADirectoryError:
        raise UserError(f"{path}: a folder; name the vocabulary file in it") from None
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such vocabulary; python -m data_prep.build_vocab makes one"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    tokens = tuple(text.removesuffix("\n").replace("\r\n", "\n").split("\n")) if text else ()
    _check_tokens(path, tokens)
    saved = _read_settings(path.with_suffix(".json"))
    if lower_case is None:
        lower_case = saved.get("lower_case")
    if lower_case is None:
        raise UserError(f"{path}: casing unknown; pass --lower_case=true or --lower_case=false")
    if max_bytes_per_word is None:
        max_bytes_per_word = saved.get("max_bytes_per_word", 1000)
    return Vocabulary(tokens, lower_case, max_bytes_per_word)


def _read_settings(path: Path) -> dict[str, bool | int]:
    """The settings beside a vocabulary; empty where there are none."""
    if not path.exists():
        return {}
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path}: not valid JSON; delete it or write it again") from None
    if not isinstance(saved, dict):
        raise UserError(f"{path}: must hold an object with lower_case and max_bytes_per_word")
    if not isinstance(saved.get("lower_case", True), bool):
        raise UserError(f"{path}: lower_case must be true or false, got {saved['lower_case']!r}")
    longest = saved.get("max_bytes_per_word", 1000)
    if type(longest) is not int or longest < 1:
        raise UserError(f"{path}: max_bytes_per_word must be a positive integer, got {longest!r}")
    return saved


def _check_tokens(path: Path, tokens: tuple[str, ...]) -> None:
    missing = [token for token in REQUIRED_TOKENS if token not in set(tokens)]
    if missing:
        raise UserError(
            f"{path}: {len(tokens)} entries but no {' '.join(missing)}; add a line for each"
        )
    seen: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if not token:
            raise UserError(f"{path}: line {line} is empty; remove it (ids count lines)")
        if token in seen:
            raise UserError(
                f"{path}: {token!r} stands on lines {seen[token]} and {line}; remove one"
            )
        seen[token] = line


def build_tokenizer(vocabulary: Vocabulary) -> "tensorflow_text.FastBertTokenizer":
    """Builds tensorflow-text's fast WordPiece tokenizer; ids are int32.

    `tokenizer.tokenize(strings [batch])` gives a `RaggedTensor` int32 `[batch, (tokens)]` without
    special tokens. It runs in Python, in tf.data and inside a SavedModel, without assets.
    """
    import tensorflow as tf
    import tensorflow_text as tf_text

    return tf_text.FastBertTokenizer(
        vocab=list(vocabulary.tokens),
        token_out_type=tf.int32,
        unknown_token="[UNK]",
        max_bytes_per_word=vocabulary.max_bytes_per_word,
        lower_case_nfd_strip_accents=vocabulary.lower_case,
    )
