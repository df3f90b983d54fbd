"""Checks of a learned vocabulary: equal ids in two libraries, and the coverage of languages."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import WordPieceVocabulary, build_tokenizer, load_vocabulary
from official_cmlm.tokenization.wordpiece import bare_wordpiece

from .mixture import count_words

# Texts that the tokenizers see at once.
_BATCH = 4096


def differences(
    vocabulary: WordPieceVocabulary, texts: Sequence[str], normalization: str = "bert"
) -> list[str]:
    """Returns a message for each text to which tensorflow_text and `tokenizers` give different ids.

    Both normalise as BERT's first release does, so that ids must be equal. With
    `normalization="tensorflow_text"`, the project's default, the differences are those of the two
    normalisers. `tokenizers` measures long words in characters, not in bytes.

    Raises:
      UserError: the vocabulary, written to a file, reads as another one.
    """
    with tempfile.TemporaryDirectory() as folder:
        vocabulary.save(folder)
        read = load_vocabulary(Path(folder))
    if read.tokens != vocabulary.tokens:
        raise UserError("the vocabulary does not read as it was written; a line end in an entry?")
    theirs = bare_wordpiece(
        dataclasses.replace(read, normalization="bert"), vocabulary.max_bytes_per_word
    )
    ours = build_tokenizer(dataclasses.replace(read, normalization=normalization))
    found = []
    for start in range(0, len(texts), _BATCH):
        # A file of text holds valid Unicode alone, so half surrogate pairs are replaced.
        batch = [text.encode("utf-8", "replace").decode() for text in texts[start : start + _BATCH]]
        rows = ours.tokenize(batch).to_list()
        encoded = theirs.encode_batch(batch, add_special_tokens=False)
        for number, (row, other) in enumerate(zip(rows, encoded, strict=True), start + 1):
            if row != other.ids:
                tokens = [vocabulary.tokens[i] for i in row]
                places = enumerate(zip(tokens, other.tokens))
                at = next((i for i, (a, b) in places if a != b), len(tokens))
                one, two = (" ".join(each[at : at + 4]) for each in (tokens, other.tokens))
                found.append(f"line {number}: {one!r} by tensorflow_text, {two!r} by tokenizers")
    return found


def coverage_table(vocabulary: WordPieceVocabulary, texts: Mapping[str, Sequence[str]]) -> str:
    """Formats a Markdown table of the tokens per word and the share of `[UNK]` of each language.

    Words are those between spaces, and Han characters; tokens are those of the records.
    """
    tokenizer, unknown = build_tokenizer(vocabulary), vocabulary.tokens.index("[UNK]")
    lines = ["language | tokens per word | unknown", "--- | ---: | ---:"]
    for language, sample in texts.items():
        ids = tokenizer.tokenize(sample).values
        per_word = len(ids) / max(1, sum(map(count_words, sample)))
        rate = 100 * np.sum(ids == unknown) / max(1, len(ids))
        lines.append(f"{language} | {per_word:.3f} | {rate:.3f} %")
    return "".join(f"| {line} |\n" for line in lines)
