"""One request: its texts are tokenised, counted, and computed together with those of others."""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request

from official_cmlm.common.errors import UserError

from .batching import Batcher, Overloaded
from .embedder import Embedder, Rows, TokenEmbedder
from .metrics import Metrics
from .settings import Settings

if TYPE_CHECKING:
    from official_cmlm.encoding.classifier import Classifier
    from official_cmlm.search import Index

# Requests of more characters are tokenised on another thread, so many texts at a time.
_LARGE_TEXTS, _TURN_TEXTS = 2048, 32
# Larger bodies are parsed, and larger answers made, on another thread.
_LARGE_BYTES = 1 << 16
# Seconds between two checks whether the client of a waiting request is still there.
_GONE_SECONDS = 0.25
_NO_IDS = (
    "this encoder takes no token ids; send texts (LangChain: check_embedding_ctx_length=False)"
)

T = TypeVar("T")


class Refusal(HTTPException):
    """The error that a request gets: HTTP's status, the field that is wrong, and OpenAI's code."""

    def __init__(
        self, status: int, message: str, param: str = "", code: str = "", **headers: str
    ) -> None:
        """Takes the parts of an error; `_` in the name of a header stands for `-`."""
        super().__init__(status, message, {k.replace("_", "-"): v for k, v in headers.items()})
        self.param, self.code = param or None, code or None


@dataclasses.dataclass
class Service:
    """Everything that is served, by the `name` that requests give, and the queue of requests.

    Attributes:
      embedder: the encoder.
      settings: limits, and how texts are embedded.
      keys: keys, one of which a request must carry; empty: no key is needed.
      is_local: whether only this machine is served; without keys, `Host` must name it then.
      index: texts that `/search` finds; it may be replaced at any time.
      classifier: labels of the encoder's vectors.
    """

    embedder: Embedder
    settings: Settings
    keys: tuple[str, ...] = ()
    is_local: bool = False
    index: "Index | None" = None
    classifier: "Classifier | None" = None

    def __post_init__(self) -> None:
        self.name, self.created = self.settings.name or self.embedder.name, int(time.time())
        self.batcher = Batcher(self.embedder.embed, self.settings.limits)
        self.metrics = Metrics(self.batcher)
        # One part of a large request at a time is tokenised, so that others have their turn.
        self.tokenizing = asyncio.Semaphore(1)


class Call:
    """One request.

    Attributes:
      service: the service that answers it.
      request: its headers.
      counts: its texts, their tokens that were read, and how many of them were cut.
      size: bytes of its body, and about as many as its answer has.
    """

    def __init__(self, service: Service, request: Request) -> None:
        self.service, self.request = service, request
        self.counts = {"texts": 0, "tokens": 0, "cut_texts": 0}
        self.size = 0

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a function, on another thread if the body or the answer is large."""
        if self.size <= _LARGE_BYTES:
            return function(*args)
        return await asyncio.to_thread(function, *args)

    async def embed(
        self, inputs: list[Any], truncate: bool | None = None, **prompt: str | None
    ) -> np.ndarray:
        """Returns the vectors of texts or of rows of ids: float32 `[n, dim]`; see `read`."""
        rows = await self.read(inputs, truncate, **prompt)
        try:
            pieces = self.service.batcher.submit(rows.items, rows.tokens)
        except Overloaded:
            message = "the server is overloaded; try again later"
            raise Refusal(429, message, code="overloaded", Retry_After="1") from None
        try:
            waiting = pieces
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=_GONE_SECONDS, return_when=asyncio.FIRST_EXCEPTION
                )
                # The first piece that fails ends the request.
                for piece in done:
                    piece.result()
                if waiting:
                    await self.check_client()
            return np.concatenate([piece.result() for piece in pieces])
        finally:
            for piece in pieces:
                piece.cancel()

    async def read(
        self, inputs: list[Any], truncate: bool | None = None, **prompt: str | None
    ) -> Rows:
        """Tokenises texts, or checks rows of ids, and counts the tokens that are read of them.

        Args:
          inputs: n strings, or n lists of ids.
          truncate: whether long ones are cut, or refused; None: as the service does.
          **prompt: `role` or `prompt_name`, see `TokenEmbedder.read`.

        Raises:
          Refusal: for an input that is too long, or not the encoder's.
        """
        settings, embedder = self.service.settings, self.service.embedder
        truncate = settings.on_long == "cut" if truncate is None else truncate
        if isinstance(inputs[0], str):
            lengths = [("characters", [*map(len, inputs)], settings.limits.max_characters)]
            rows = await self.tokenize(inputs, **prompt)
        else:
            lengths, rows = [], self._check_ids(inputs)
        if rows.exact and embedder.max_seq_length:
            lengths.append(("tokens", rows.tokens, embedder.max_seq_length))
        elif not truncate:
            raise Refusal(400, "the encoder does not say which texts are cut", "truncate")
        is_cut = np.zeros(len(inputs), bool)
        for unit, sizes, most in lengths:
            is_long = np.array(sizes) > most
            is_cut |= is_long
            if is_long.any() and not truncate:
                first = int(np.argmax(is_long))
                message = f"input {first} has {sizes[first]} {unit}, at most {most} are read"
                code = "context_length_exceeded"
                raise Refusal(400, f"{message}; send shorter texts", "input", code)
        tokens = np.minimum(rows.tokens, embedder.max_seq_length or rows.tokens)
        self.counts["texts"] += len(inputs)
        self.counts["tokens"] += int(tokens.sum()) if rows.exact else 0
        self.counts["cut_texts"] += int(is_cut.sum())
        return Rows(rows.items, tokens, rows.exact)

    async def tokenize(self, texts: list[str], **options: Any) -> Rows:
        """Tokenises the characters of texts that are read, with many of them part by part."""
        embedder, most = self.service.embedder, self.service.settings.limits.max_characters
        texts, parts = [text[:most] for text in texts], []
        try:
            with self.service.metrics.tokenizing.time():
                if sum(map(len, texts)) <= _LARGE_TEXTS:
                    return embedder.read(texts, **options)
                for start in range(0, len(texts), _TURN_TEXTS):
                    part = texts[start : start + _TURN_TEXTS]
                    async with self.service.tokenizing:
                        await self.check_client()
                        parts.append(await asyncio.to_thread(embedder.read, part, **options))
        except UserError as error:
            raise Refusal(400, str(error), "prompt_name") from None
        items = [item for part in parts for item in part.items]
        return Rows(items, np.concatenate([part.tokens for part in parts]), parts[0].exact)

    async def check_client(self) -> None:
        """Ends the request if its client went away."""
        if await self.request.is_disconnected():
            raise Refusal(499, "the client went away")

    def _check_ids(self, rows: list[list[int]]) -> Rows:
        if not isinstance(self.service.embedder, TokenEmbedder):
            raise Refusal(400, _NO_IDS, "input")
        try:
            return self.service.embedder.read_ids(rows)
        except UserError as error:
            raise Refusal(400, str(error), "input") from None
