"""The settings of the service, from which the flags of `cmlm serve` are made."""

import dataclasses
from typing import Annotated

from official_cmlm.common.validation import OneOf, between


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all together.

    Attributes:
      max_body_mb: largest body of a request, in MiB; larger ones get 413.
      max_inputs: most texts a request.
      max_characters: characters that are read of a text; see --on_long.
      max_batch_tokens: most tokens that are encoded in one call; requests of more are encoded in
        pieces.
      max_queue_tokens: most tokens that wait; requests beyond get 429 with Retry-After. While none
        wait, a request of any size is taken.
      max_connections: most connections at once; requests on others get 503.
      shutdown_seconds: how long requests may take to end after SIGTERM.
    """

    max_body_mb: Annotated[int, between(1, 256)] = 8
    max_inputs: Annotated[int, between(1, 1_000_000)] = 2048
    max_characters: Annotated[int, between(1, 1 << 28)] = 100_000
    max_batch_tokens: Annotated[int, between(1, 1 << 24)] = 16_384
    max_queue_tokens: Annotated[int, between(1, 1 << 32)] = 2_000_000
    max_connections: Annotated[int, between(1, 100_000)] = 512
    shutdown_seconds: Annotated[int, between(0, 3600)] = 30


@dataclasses.dataclass(frozen=True)
class Settings:
    """Name and address of the service, who may ask, and how texts are embedded.

    Attributes:
      name: name of the model, which requests give in their field model. Default: the folder's name.
      host: address to listen on. Other machines reach 0.0.0.0; set CMLM_API_KEY then, and put a
        server with TLS before it.
      port: port to listen on; 0: a free one, which is printed.
      allow_anyone: whether other machines are served without a key.
      on_long: whether a text with more tokens than the encoder reads, or more characters than
        --max_characters, is cut, or its request gets 400 (cut, error).
      access_log: whether standard output gets a line of JSON a request, with an id.
      normalize: whether vectors are scaled to length 1, as OpenAI's are.
      prompt_name: name of the encoder's prompt, such as query, for requests that name none.
        Default: the encoder's default prompt.
      limits: see the class.
    """

    name: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, between(0, 65535)] = 8000
    allow_anyone: bool = False
    on_long: Annotated[str, OneOf(("cut", "error"))] = "cut"
    access_log: bool = False
    normalize: bool = True
    prompt_name: str | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
