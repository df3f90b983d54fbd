"""Vectors and token counts of several requests at once."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import CountTokens, Encode, OpenedEncoder, checked
from official_cmlm.nearest import unit

from .batching import InputError


def with_prompt(opened: OpenedEncoder, name: str | None) -> tuple[Encode, CountTokens | None]:
    """Returns an encoder's `encode` and `count_tokens` for texts after one prompt.

    Args:
      opened: the encoder.
      name: of the role whose prompt is put before each text; None: no prompt, not even the
        encoder's default prompt.

    Raises:
      UserError: if it has no such prompt.
    """
    if name is None:
        encode, count = opened.encode, opened.count_tokens
        if opened.kind in ("encoder_directory", "sentence_transformers"):
            # Only these have a default prompt.
            encode = functools.partial(encode, prompt="")
        return encode, count
    if name not in opened.roles:
        known = ", ".join(sorted(opened.roles)) or "none"
        raise UserError(f"--prompt_name={name}: {opened.name} has no such prompt; it has {known}")
    role, count = opened.roles[name], opened.count_tokens
    if count is None or not role.prompt:
        return role.encode, count
    return role.encode, lambda texts: count([role.prompt + text for text in texts])


@dataclasses.dataclass(frozen=True)
class Embedded:
    """The answer to one request.

    Attributes:
      vectors: float32 `[n, dim]`.
      tokens: tokens that were read, special ones included; 0 where the encoder cannot count.
    """

    vectors: np.ndarray
    tokens: int


def joined(pieces: Sequence[Embedded]) -> Embedded:
    """Joins the answers to the pieces of one request."""
    return Embedded(
        np.concatenate([piece.vectors for piece in pieces]), sum(piece.tokens for piece in pieces)
    )


class TooLong(InputError):
    """A text has more tokens than the encoder reads, and such texts are refused.

    Attributes:
      index: of the text in its request.
      tokens: its tokens.
      most: those that are read.
    """

    def __init__(self, index: int, tokens: int, most: int) -> None:
        super().__init__(index)
        self.tokens, self.most = tokens, most

    def __str__(self) -> str:
        return f"input {self.index} has {self.tokens} tokens, at most {self.most} are read"


class Embedder:
    """Embeds the texts of several requests in one call of the encoder."""

    def __init__(
        self,
        encode: Encode,
        count_tokens: CountTokens | None = None,
        max_seq_length: int | None = None,
        on_long: Literal["cut", "error"] = "cut",
        normalize: bool = True,
    ) -> None:
        """Takes an encoder apart.

        Args:
          encode: n strings -> float `[n, dim]`.
          count_tokens: n strings -> int `[n]`; None if the encoder cannot say.
          max_seq_length: tokens that are read of a text; None if that is not known.
          on_long: what happens to a text with more: the rest is not read, or its request fails.
          normalize: scale the vectors to length 1, as OpenAI's are.

        Raises:
          UserError: if the encoder fails on a text.
        """
        self._encode, self._normalize = checked(encode), normalize
        self._count_tokens, self._most, self._on_long = count_tokens, max_seq_length, on_long
        # Also compiles what the first request would wait for.
        self.dimension = self._encode(["A short text.", ""]).shape[1]

    def __call__(self, requests: Sequence[Sequence[str]]) -> list[Embedded | Exception]:
        """Returns each request's result or error; no error affects other requests."""
        try:
            return self._together(requests)
        except Exception as error:
            if len(requests) == 1:
                return [error]
            # One of them may be at fault; the others get what they asked for.
            return [self([request])[0] for request in requests]

    def _together(self, requests: Sequence[Sequence[str]]) -> list[Embedded | Exception]:
        found: list[Embedded | Exception | None] = [None] * len(requests)
        counts = self._counts([text for request in requests for text in request])
        ends = np.cumsum([len(request) for request in requests])
        for i, (request, end) in enumerate(zip(requests, ends)):
            mine = counts[end - len(request) : end]
            if self._most is not None and self._on_long == "error" and (mine > self._most).any():
                first = int(np.argmax(mine > self._most))
                found[i] = TooLong(first, int(mine[first]), self._most)
        wanted = [i for i, one in enumerate(found) if one is None]
        texts = [text for i in wanted for text in requests[i]]
        vectors = self._encode(texts) if texts else np.zeros([0, self.dimension], np.float32)
        if self._normalize:
            vectors = unit(vectors, in_place=True)
        read = counts if self._most is None else np.minimum(counts, self._most)
        start = 0
        for i in wanted:
            size = len(requests[i])
            tokens = int(read[ends[i] - size : ends[i]].sum())
            # A copy, as a view would hold the vectors of all requests.
            found[i] = Embedded(vectors[start : start + size].copy(), tokens)
            start += size
        return found

    def _counts(self, texts: list[str]) -> np.ndarray:
        if self._count_tokens is None or not texts:
            return np.zeros([len(texts)], np.int64)
        return np.asarray(self._count_tokens(texts))
