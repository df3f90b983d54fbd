"""Checks of a learned vocabulary: equal ids in two libraries, and the coverage of languages."""

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.tokenization import build_tokenizer, load_vocabulary

from ..output.report import cell
from .mixture import count_words
from .wordpiece import PREFIX, bert_tokenizer

# Texts that the tokenizers see at once.
_BATCH = 4096


@dataclasses.dataclass(frozen=True)
class Difference:
    """A text that two libraries tokenise in different ways.

    Attributes:
      line: its number, from 1.
      text: the text.
      ours: tensorflow_text's tokens.
      theirs: the tokens of the `tokenizers` library.
    """

    line: int
    text: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    def __str__(self) -> str:
        places = zip(self.ours, self.theirs)
        same = next((i for i, (a, b) in enumerate(places) if a != b), len(self.ours))
        first, second = (" ".join(row[same : same + 4]) for row in (self.ours, self.theirs))
        return f"line {self.line}: {first!r} by tensorflow_text, {second!r} by tokenizers"


@dataclasses.dataclass(frozen=True)
class Coverage:
    """The coverage of a language's text by a vocabulary.

    Attributes:
      words: words between spaces; a Han character is a word.
      tokens: tokens of the same text.
      unknown: tokens that are `[UNK]`.
    """

    words: int
    tokens: int
    unknown: int

    @property
    def tokens_per_word(self) -> float:
        """Mean number of tokens of a word."""
        return self.tokens / max(1, self.words)

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are `[UNK]`, 0 to 1."""
        return self.unknown / max(1, self.tokens)


def check_round_trip(
    entries: Sequence[str],
    sentences: Sequence[str],
    lower_case: bool,
    max_bytes_per_word: int = 1000,
    normalization: str = "bert",
) -> list[Difference]:
    """Writes a vocabulary, reads it and tokenises with tensorflow_text and `tokenizers`.

    Both normalise as BERT's first release does, so that ids must be equal. With
    `normalization="tensorflow_text"`, the project's default, the differences are those of the two
    normalisers.

    Args:
      entries: in the order of their ids.
      sentences: to compare on.
      lower_case: whether the vocabulary is uncased.
      max_bytes_per_word: a longer word is `[UNK]`. `tokenizers` counts characters instead.
      normalization: tensorflow_text's side; see `WordPieceVocabulary`.

    Returns:
      The sentences whose ids differ; empty: the vocabulary is sound.

    Raises:
      UserError: the file that is written reads as other entries.
    """
    from tokenizers import models

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("".join(entry + "\n" for entry in entries), encoding="utf-8", newline="\n")
        vocabulary = load_vocabulary(path, lower_case, max_bytes_per_word)
    if vocabulary.tokens != tuple(entries):
        raise UserError("the vocabulary does not read as it was written; a line end in an entry?")
    vocabulary = dataclasses.replace(vocabulary, normalization=normalization)
    ids = {entry: i for i, entry in enumerate(entries)}
    model = models.WordPiece(
        ids,
        unk_token="[UNK]",
        max_input_chars_per_word=max_bytes_per_word,
        continuing_subword_prefix=PREFIX,
    )
    theirs = bert_tokenizer(model, lower_case)
    ours = build_tokenizer(vocabulary)
    found: list[Difference] = []
    for start in range(0, len(sentences), _BATCH):
        # A file of text holds valid Unicode alone, so half surrogate pairs are replaced.
        texts = [s.encode("utf-8", "replace").decode() for s in sentences[start : start + _BATCH]]
        rows = ours.tokenize(texts).to_list()
        encoded = theirs.encode_batch(texts, add_special_tokens=False)
        for at, (row, other) in enumerate(zip(rows, encoded, strict=True)):
            if row != other.ids:
                tokens = tuple(entries[i] for i in row)
                found.append(Difference(start + at + 1, texts[at], tokens, tuple(other.tokens)))
    return found


def coverage(
    entries: Sequence[str],
    texts: Mapping[str, Iterable[str]],
    lower_case: bool,
    max_bytes_per_word: int = 1000,
) -> dict[str, Coverage]:
    """Measures the coverage of each language, tokenised as the records will be.

    Args:
      entries: in the order of their ids.
      texts: language -> some of its text.
      lower_case: whether the vocabulary is uncased.
      max_bytes_per_word: a longer word is `[UNK]`.
    """
    from official_cmlm.tokenization import WordPieceVocabulary

    vocabulary = WordPieceVocabulary(tuple(entries), lower_case, max_bytes_per_word)
    tokenizer, unknown = build_tokenizer(vocabulary), list(entries).index("[UNK]")
    result = {}
    for language, lines in texts.items():
        lines = list(lines)
        values = tokenizer.tokenize(lines).values
        words = sum(map(count_words, lines))
        result[language] = Coverage(words, len(values), int(np.sum(values == unknown)))
    return result


def coverage_table(found: Mapping[str, Coverage]) -> str:
    """Formats a Markdown table of the tokens per word and the unknown rate of each language."""
    lines = ["language | tokens per word | unknown", "--- | ---: | ---:"]
    for language, row in found.items():
        rate = 100 * row.unknown_rate
        lines.append(f"{cell(language)} | {row.tokens_per_word:.3f} | {rate:.3f} %")
    return "".join(f"| {line} |\n" for line in lines)
