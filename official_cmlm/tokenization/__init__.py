"""The one place where vocabularies are read and tokenizers built.

Records, `encode`, the exported preprocess module and the tests all get their ids from
`build_tokenizer` or `build_graph_tokenizer`; tests check that the two give equal ids.
"""

import os
from pathlib import Path

from official_cmlm.common.errors import UserError, guard_reader
from official_cmlm.tokenization.byte_pair import BytePairVocabulary, read_byte_pair
from official_cmlm.tokenization.sentence_piece import (
    MODEL_NAME,
    SentencePieceVocabulary,
    read_sentence_piece,
)
from official_cmlm.tokenization.vocabulary import (
    AfterSpace,
    GraphTokenizer,
    Tokenizer,
    TokenRows,
    Vocabulary,
    build_graph_tokenizer,
    build_tokenizer,
)
from official_cmlm.tokenization.wordpiece import WordPieceVocabulary, read_wordpiece

__all__ = [
    "VOCABULARY_FILES",
    "AfterSpace",
    "BytePairVocabulary",
    "GraphTokenizer",
    "SentencePieceVocabulary",
    "TokenRows",
    "Tokenizer",
    "Vocabulary",
    "WordPieceVocabulary",
    "build_graph_tokenizer",
    "build_tokenizer",
    "load_vocabulary",
]

# Files that `Vocabulary.save` writes, of any kind of vocabulary.
VOCABULARY_FILES = ("vocab.txt", "vocab.json", "merges.txt", "byte_pair.json", MODEL_NAME)


@guard_reader()
def load_vocabulary(
    path: str | os.PathLike,
    lower_case: bool | None = None,
    max_bytes_per_word: int | None = None,
) -> Vocabulary:
    """Reads a vocabulary.

    Args:
      path: a WordPiece `vocab.txt` (one token a line, UTF-8; the line's index is the id), the
        `merges.txt` of a byte-level BPE vocabulary with its `vocab.json` beside it, the `.model` of
        a SentencePiece vocabulary, or a folder that holds one of these, e.g. an encoder directory
        or a folder of records. The settings of a `vocab.txt` are read from the `.json` of
        the same stem if it exists.
      lower_case: overrides the WordPiece setting; required without saved settings.
      max_bytes_per_word: overrides the WordPiece setting; default 1000.

    Raises:
      UserError: if the file is missing or not UTF-8, lacks a special token, has an empty or
        duplicate line, or if the casing is unknown.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    if path.name in ("merges.txt", "vocab.json") or (
        path.is_dir() and (path / "merges.txt").exists()
    ):
        if not (folder / "merges.txt").exists():
            raise UserError(f"{path}: no merges.txt beside it; name a vocab.txt or a merges.txt")
        if lower_case or max_bytes_per_word is not None:
            raise UserError(
                f"{path}: byte-level BPE has neither casing nor a longest word; leave out "
                "--lower_case and --max_bytes_per_word"
            )
        return read_byte_pair(folder)
    if path.suffix == ".model" or (path.is_dir() and (path / MODEL_NAME).exists()):
        if lower_case or max_bytes_per_word is not None:
            raise UserError(
                f"{path}: a SentencePiece model has its own normalisation and no longest word; "
                "leave out --lower_case and --max_bytes_per_word"
            )
        return read_sentence_piece(path / MODEL_NAME if path.is_dir() else path)
    if path.is_dir():
        if not (path / "vocab.txt").exists():
            raise UserError(f"{path}: a folder without vocab.txt; name the vocabulary file")
        path = path / "vocab.txt"
    return read_wordpiece(path, lower_case, max_bytes_per_word)
