"""The interface of vocabularies and of their tokenizers."""

import abc
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from official_cmlm.common.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

# The roles of special tokens; each vocabulary has a token for each of them.
ROLES = ("pad", "unknown", "cls", "sep", "mask")


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """The ids of several texts, end to end.

    Attributes:
      values: int32 `[tokens]`.
      row_splits: int64 `[texts + 1]`; text i has `values[row_splits[i]:row_splits[i + 1]]`.
    """

    values: "np.ndarray"
    row_splits: "np.ndarray"

    def to_list(self) -> list[list[int]]:
        """Returns a list of ids for each text."""
        bounds = self.row_splits.tolist()
        return [self.values[a:b].tolist() for a, b in itertools.pairwise(bounds)]


@dataclasses.dataclass(frozen=True)
class AfterSpace:
    """The change of the ids of texts that follow other text and a space.

    Attributes:
      replaced: int64 `[texts]`, the number of first ids of each text that are replaced.
      ids: the ids that replace them.
    """

    replaced: "np.ndarray"
    ids: TokenRows


class Tokenizer(Protocol):
    """A tokenizer for Python, by the fastest library for the kind of vocabulary."""

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
        """Returns ids without special tokens; lone surrogates count as `?`."""

    def after_space(self, texts: Sequence[str]) -> AfterSpace | None:
        """Returns how the ids of each text change if other text and a space precede it.

        Neither the texts nor the other text begin or end with white space. So the ids of texts that
        are joined by single spaces are the ids of the first text, and then for each later text the
        ids that replace its first ids and the rest of its ids. None means that ids never change,
        which is so for most tokenizers.
        """
        del texts
        return None


class GraphTokenizer(Protocol):
    """A tokenizer for TensorFlow graphs: in tf.data and inside a SavedModel."""

    def tokenize(self, texts: "tf.Tensor") -> "tf.RaggedTensor":
        """Maps strings `[batch]` to int32 `[batch, (tokens)]` without special tokens."""


@dataclasses.dataclass(frozen=True)
class Vocabulary(abc.ABC):
    """The entries, settings and special tokens of a tokenizer.

    Attributes:
      tokens: the entries; the index is the id.
      kind: name of the tokenizer, as `dataset.json` shows it.
      special_tokens: role -> entry, for each of `ROLES`.
    """

    tokens: tuple[str, ...]
    kind: ClassVar[str]
    special_tokens: ClassVar[dict[str, str]]

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def special_ids(self) -> dict[str, int]:
        """Role -> id."""
        return {role: self.tokens.index(self.special_tokens[role]) for role in ROLES}

    def select(self, ids: Sequence[int]) -> Self:
        """Returns the vocabulary with only these entries, by old ids in the new order.

        Special tokens must be among them. Byte-level BPE, whose merges name entries, is not cut.
        """
        return dataclasses.replace(self, tokens=tuple(self.tokens[i] for i in ids))

    @abc.abstractmethod
    def continues_word(self, token: str) -> bool:
        """Returns whether an entry continues the word that the token before it began."""

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids for people to read; special tokens are among its words.

        What the tokenizer removes, such as accents or the number of spaces, does not come back.
        """

    @property
    def space_changes_ids(self) -> bool:
        """Whether the ids of a text change if a space precedes it; see `AfterSpace`."""
        return False

    @property
    @abc.abstractmethod
    def hash(self) -> str:
        """16 hexadecimal digits over entries and settings; equal means equal ids."""

    @abc.abstractmethod
    def settings(self) -> dict[str, bool | int | str]:
        """Returns the settings that determine ids, besides the entries."""

    @abc.abstractmethod
    def save(self, folder: str | os.PathLike) -> list[str]:
        """Writes the vocabulary into an existing folder; returns the names of its files."""

    def most_bytes(self, tokens: int) -> int | None:
        """Returns how many bytes of a text determine its first tokens; None: perhaps all of them.

        Bytes after these need not be tokenised. A cut inside a word may change the ids of that
        word. They would be among the first `tokens` only if the word were longer than any in text.
        """
        del tokens
        return None

    @abc.abstractmethod
    def tokenizer(self, tensorflow: bool = True) -> Tokenizer:
        """Builds the tokenizer for Python; one that works without TensorFlow may be slower."""

    @abc.abstractmethod
    def graph_tokenizer(self) -> GraphTokenizer:
        """Builds the tokenizer for TensorFlow graphs."""


def build_tokenizer(vocabulary: Vocabulary, tensorflow: bool = True) -> Tokenizer:
    """Builds the tokenizer for Python: records and `encode` use it.

    Args:
      vocabulary: its vocabulary.
      tensorflow: whether it may need TensorFlow; then it is the fastest one.
    """
    return vocabulary.tokenizer(tensorflow)


def build_graph_tokenizer(vocabulary: Vocabulary) -> GraphTokenizer:
    """Builds the tokenizer for graphs: tf.data and exported modules use it."""
    return vocabulary.graph_tokenizer()


def check_unicode(where: Path, tokens: Iterable[str]) -> None:
    """Raises `UserError` if an entry has half a surrogate pair, as JSON allows."""
    for token in tokens:
        try:
            token.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{where}: the entry {token!r:.80} has half a surrogate pair, which no text"
                " has; take a whole copy"
            ) from None


def utf8(texts: Sequence[str]) -> list[bytes]:
    """Encodes texts in UTF-8; lone surrogates become `?`."""
    return [text.encode("utf-8", "replace") for text in texts]


def token_rows(rows: list[list[int]]) -> TokenRows:
    """Concatenates the ids of several texts."""
    import numpy as np

    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values = np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths.sum())
    return TokenRows(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


class FromGraph(Tokenizer):
    """A graph tokenizer that is called from Python; its vocabulary has no `space_changes_ids`."""

    def __init__(self, graph: GraphTokenizer) -> None:
        self._graph = graph

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
        import tensorflow as tf

        ragged = self._graph.tokenize(tf.constant(utf8(texts), tf.string))
        return TokenRows(ragged.values.numpy(), ragged.row_splits.numpy())
