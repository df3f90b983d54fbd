"""Texts to items that an encoder embeds, and items to vectors."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.encoder import OpenedEncoder, check_vectors
from official_cmlm.tokenization import TokenRows

# Approximate number of characters a token, where an encoder cannot count its tokens.
_CHARACTERS = 4


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts that are tokenised once, when they arrive.

    Attributes:
      items: the items for `embed`, one a text; ids are without those beyond the length.
      tokens: int64 `[n]`, tokens of each before it is cut; an estimate if they are not `exact`.
      exact: whether the encoder counts its tokens.
    """

    items: list[Any]
    tokens: np.ndarray
    exact: bool = True


class TokenEmbedder:
    """A `SentenceEncoder` as the service sees it.

    Attributes:
      name: name of the encoder.
      dimension: width of the vectors.
      max_seq_length: tokens that are read of a text; None if that is not known.
      prompts: the names that requests may give.
      how: backend and precision, for people.
    """

    def __init__(self, encoder: SentenceEncoder, name: str, precision: str = "float32") -> None:
        """Takes the encoder, and embeds two texts, so that the first request need not wait."""
        self.encoder, self.name = encoder, name
        self.dimension, self.max_seq_length = encoder.dimension, encoder.max_seq_length
        self.prompts = sorted(encoder.prompts)
        self.how = f"{encoder.backend.name}, {precision}"
        self.embed(self.read(["A short text.", ""]).items)

    def read(self, texts: Sequence[str], whole: bool = False, **prompt: str | None) -> Rows:
        """Tokenises texts after a prompt.

        Args:
          texts: n strings.
          whole: whether ids beyond the length are kept.
          **prompt: `role`, `query` or `document`, or `prompt_name`; without either, the encoder's
            default prompt is taken.

        Raises:
          UserError: if the encoder has no prompt of this name.
        """
        _check_prompt(prompt.get("prompt_name"), self.prompts)
        rows = self.encoder.token_rows(texts, **prompt)
        items = np.split(rows.values, rows.row_splits[1:-1]) if texts else []
        return _cut_rows(items, None if whole else self.max_seq_length - 2)

    def read_ids(self, rows: Sequence[Sequence[int]]) -> Rows:
        """Returns rows of ids that a client has sent, special tokens included.

        Rows without special tokens are refused, as they may be the ids of another tokenizer.

        Raises:
          UserError: for such a row, or a number that is not an id of the vocabulary.
        """
        special, most = self.encoder.vocabulary.special_ids, len(self.encoder.vocabulary)
        for number, ids in enumerate(rows):
            if len(ids) < 2 or ids[0] != special["cls"] or ids[-1] != special["sep"]:
                raise UserError(
                    f"input {number} holds token ids that are not of /tokenize, as they lack its"
                    " first and last; send texts (LangChain: check_embedding_ctx_length=False)"
                )
            if not 0 <= min(ids) <= max(ids) < most:
                raise UserError(f"input {number} has ids that are not of 0 to {most - 1}")
        return _cut_rows([np.array(ids[1:-1], np.int32) for ids in rows], self.max_seq_length - 2)

    def embed(self, items: Sequence[Any]) -> np.ndarray:
        """Embeds items of `read`: float32 `[n, dimension]`."""
        values = np.concatenate([np.zeros([0], np.int32), *items])
        return self.encoder.encode_rows(TokenRows(values, np.cumsum([0, *map(len, items)])))


class TextEmbedder:
    """Any other encoder, with the attributes and methods of `TokenEmbedder` but rows of ids.

    Texts are tokenised when they arrive only where the encoder takes their ids.
    """

    def __init__(self, opened: OpenedEncoder) -> None:
        """Takes the encoder, and tries it on two texts; raises `UserError` if it fails."""
        self._opened, self.name, self.how = opened, opened.name, opened.kind
        self.max_seq_length, self.prompts = opened.max_seq_length, sorted(opened.roles)
        self.dimension = self.embed(self.read(["A short text.", ""]).items).shape[1]

    def read(
        self, texts: Sequence[str], role: str | None = None, prompt_name: str | None = None
    ) -> Rows:
        """Tokenises texts, or notes their role, see `TokenEmbedder.read`."""
        _check_prompt(prompt_name, self.prompts)
        # An encoder without roles for retrieval embeds queries and documents alike.
        name = prompt_name or role
        role = name if name in self._opened.roles else ""
        before = self._opened.roles[role].prompt if role else self._opened.prompt
        whole, count = [before + text for text in texts], self._opened.count_tokens
        if self._opened.tokenize:
            return _cut_rows(self._opened.tokenize(whole), self.max_seq_length - 2)
        items = [(role, text) for text in texts]
        if count is None:
            return Rows(items, np.array([2 + len(t) // _CHARACTERS for t in texts]), exact=False)
        return Rows(items, np.asarray(count(whole)))

    def embed(self, items: Sequence[Any]) -> np.ndarray:
        """Embeds items of `read`, in a call for each role."""
        if self._opened.encode_ids:
            return check_vectors(self._opened.encode_ids)(list(items))
        vectors: list[Any] = [None] * len(items)
        for role in {role for role, _ in items}:
            chosen = [i for i, item in enumerate(items) if item[0] == role]
            encode = self._opened.roles[role].encode if role else self._opened.encode
            for i, row in zip(chosen, check_vectors(encode)([items[i][1] for i in chosen])):
                vectors[i] = row
        return np.stack(vectors)


Embedder = TokenEmbedder | TextEmbedder


def _check_prompt(name: str | None, names: list[str]) -> None:
    if name is not None and name not in names:
        raise UserError(f"no prompt {name!r:.60}; the encoder has {', '.join(names) or 'none'}")


def _cut_rows(rows: list[np.ndarray], most: int | None) -> Rows:
    """Returns rows cut to `most` ids; they are copies, as a view would hold the ids of all rows."""
    return Rows([ids[:most].copy() for ids in rows], np.array([len(ids) + 2 for ids in rows]))
