"""Texts to items that an encoder embeds, and items to vectors, for several requests at once."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.encoder import OpenedEncoder, checked
from official_cmlm.tokenization import TokenRows

# The values of a request's `input_type`, and the role of retrieval that each names.
INPUT_TYPES = {"query": "query", "document": "document", "passage": "document"}
# Approximate number of characters a token, where an encoder cannot count its tokens.
_CHARACTERS = 4


class UnknownPrompt(UserError):
    """The encoder has no prompt of that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no prompt {name!r:.60}; the encoder has {', '.join(known) or 'none'}")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """The choice of a prompt by a request; without name and role, the encoder's default prompt.

    Attributes:
      name: name of the encoder's prompt.
      role: `query` or `document`, whose prompt is taken.
    """

    name: str | None = None
    role: str | None = None


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts that are read once, when they arrive.

    Attributes:
      items: the items for `Embedder.embed`, one a text; ids are without those beyond the length.
      tokens: int64 `[n]`, tokens of each before it is cut; an estimate if they are not `exact`.
      exact: whether the encoder counts its tokens.
    """

    items: list[Any]
    tokens: np.ndarray
    exact: bool = True

    @property
    def size(self) -> int:
        """Bytes of the items in memory, without the texts."""
        return sum(map(sys.getsizeof, self.items))


class Embedder(Protocol):
    """An encoder as the service sees it.

    Attributes:
      name: name of the encoder.
      dimension: width of the vectors.
      max_seq_length: tokens that are read of a text; None if that is not known.
      prompts: the names that requests may give.
      how: backend and precision, for the line at the start.
    """

    name: str
    dimension: int
    max_seq_length: int | None
    prompts: list[str]
    how: str

    def read(self, texts: Sequence[str], prompt: Prompt) -> Rows:
        """Reads texts; raises `UnknownPrompt`."""

    def embed(self, items: Sequence[Any]) -> np.ndarray:
        """Embeds the items of `read`: float32 `[n, dimension]`, a new array."""


class TokenEmbedder:
    """The `Embedder` of a `SentenceEncoder`: texts are tokenised when they arrive."""

    def __init__(self, encoder: SentenceEncoder, name: str, precision: str = "float32") -> None:
        """Takes the encoder, and embeds two texts, so that the first request need not wait."""
        self.encoder, self.name = encoder, name
        self.dimension, self.max_seq_length = encoder.dimension, encoder.max_seq_length
        self.prompts = sorted(encoder.prompts)
        self.how = f"{encoder.backend.name}, {precision}"
        self.embed(self.read(["A short text.", ""], Prompt()).items)

    def read(self, texts: Sequence[str], prompt: Prompt, whole: bool = False) -> Rows:
        """See `Embedder.read`; with `whole`, texts keep all of their ids."""
        if prompt.name is not None and prompt.name not in self.encoder.prompts:
            raise UnknownPrompt(prompt.name, self.prompts)
        rows = self.encoder.token_rows(texts, role=prompt.role, prompt_name=prompt.name)
        items = np.split(rows.values, rows.row_splits[1:-1]) if texts else []
        return _rows(items, None if whole else self.max_seq_length - 2)

    def rows_of_ids(self, given: Sequence[Sequence[int]]) -> Rows:
        """Returns rows of ids that a client has sent, special tokens included.

        Rows without special tokens are refused, as they may be the ids of another tokenizer.

        Raises:
          UserError: for such a row, or a number that is not an id of the vocabulary.
        """
        special, most = self.encoder.vocabulary.special_ids, len(self.encoder.vocabulary)
        for number, ids in enumerate(given):
            if len(ids) < 2 or ids[0] != special["cls"] or ids[-1] != special["sep"]:
                raise UserError(
                    f"input {number} holds token ids that are not of /tokenize, as they lack its"
                    " first and last; send texts (LangChain: check_embedding_ctx_length=False)"
                )
            if not 0 <= min(ids) <= max(ids) < most:
                raise UserError(f"input {number} has ids that are not of 0 to {most - 1}")
        items = [np.array(ids[1:-1][: self.max_seq_length - 2], np.int32) for ids in given]
        return Rows(items, np.array([len(ids) for ids in given], np.int64))

    def embed(self, items: Sequence[Any]) -> np.ndarray:
        """See `Embedder.embed`."""
        values = np.concatenate([np.zeros([0], np.int32), *items])
        splits = np.cumsum([0, *map(len, items)])
        return self.encoder.encode_rows(TokenRows(values, splits))


class TextEmbedder:
    """The `Embedder` of any other encoder.

    Texts are tokenised when they arrive only where the encoder takes their ids.
    """

    def __init__(self, opened: OpenedEncoder) -> None:
        """Takes the encoder, and tries it on two texts.

        Raises:
          UserError: if it fails on them.
        """
        self._opened, self.name, self.how = opened, opened.name, opened.kind
        self.max_seq_length, self.prompts = opened.max_seq_length, sorted(opened.roles)
        self.dimension = self.embed(self.read(["A short text.", ""], Prompt()).items).shape[1]

    def read(self, texts: Sequence[str], prompt: Prompt) -> Rows:
        """See `Embedder.read`."""
        role = prompt.name or prompt.role or ""
        if prompt.name is not None and prompt.name not in self._opened.roles:
            raise UnknownPrompt(prompt.name, self.prompts)
        # An encoder without roles for retrieval embeds queries and documents alike.
        role = role if role in self._opened.roles else ""
        before = self._opened.roles[role].prompt if role else self._opened.prompt
        whole, count = [before + text for text in texts], self._opened.count_tokens
        if self._opened.tokenize:
            return _rows(self._opened.tokenize(whole), self.max_seq_length - 2)
        items = [(role, text) for text in texts]
        if count is None:
            return Rows(items, np.array([2 + len(t) // _CHARACTERS for t in texts]), exact=False)
        return Rows(items, np.asarray(count(whole)))

    def embed(self, items: Sequence[Any]) -> np.ndarray:
        """See `Embedder.embed`."""
        if self._opened.encode_ids:
            return checked(self._opened.encode_ids)(list(items))
        found: list[Any] = [None] * len(items)
        for role in {role for role, _ in items}:
            chosen = [i for i, item in enumerate(items) if item[0] == role]
            encode = self._opened.roles[role].encode if role else self._opened.encode
            for i, row in zip(chosen, checked(encode)([items[i][1] for i in chosen])):
                found[i] = row
        return np.stack(found) if found else np.zeros([0, self.dimension], np.float32)


def _rows(found: list[np.ndarray], most: int | None) -> Rows:
    """Returns rows cut to `most` ids; they are copies, as a view would hold the ids of all rows."""
    return Rows([ids[:most].copy() for ids in found], np.array([len(ids) + 2 for ids in found]))


def embed_requests(
    embedder: Embedder, requests: Sequence[Sequence[Any]]
) -> list[np.ndarray | Exception]:
    """Embeds the items of several requests in one call; if it fails, halves are tried separately.

    Returns:
      The vectors or the error of each request; no error affects other requests.
    """
    try:
        vectors = embedder.embed([item for request in requests for item in request])
    except Exception as error:
        if len(requests) == 1:
            return [error]
        half = len(requests) // 2
        return [
            *embed_requests(embedder, requests[:half]),
            *embed_requests(embedder, requests[half:]),
        ]
    ends = np.cumsum([len(request) for request in requests])
    # Copies, as a view would hold the vectors of all requests.
    return [part.copy() for part in np.split(vectors, ends[:-1])] if requests else []
