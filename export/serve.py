"""Serves an encoder by HTTP, as OpenAI's embeddings: `python -m export.serve`.

    python -m export.serve --model=work/encoder
    curl http://127.0.0.1:8000/v1/embeddings -H 'Content-Type: application/json' \
        -d '{"model": "encoder", "input": ["A text.", "Another one."]}'

Requests that arrive together are encoded together. `/health` says whether it runs, `/metrics` has
Prometheus's figures. With CMLM_API_KEY in the environment, requests must carry that key. It ends on
SIGTERM and Ctrl-C, after the requests that it has.
"""

import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra

FLAGS = flags.FLAGS
_KEY = "CMLM_API_KEY"


def define_flags() -> None:
    """Defines the flags: encoder, address, key and limits of the service."""
    flags.DEFINE_string(
        "model",
        None,
        "The encoder: an encoder directory, a folder of export.export_tfhub, a"
        " sentence-transformers folder, or package.module:object with encode(list of str)."
        " Required.",
    )
    flags.DEFINE_string(
        "name", None, "What requests call it in their field model. Default: the folder's name."
    )
    flags.DEFINE_string(
        "host",
        "127.0.0.1",
        "Address to listen at. Others than this machine reach it at 0.0.0.0; set CMLM_API_KEY then,"
        " and put a server with TLS before it.",
    )
    flags.DEFINE_integer(
        "port", 8000, "Port to listen at; 0: one that is free, which is printed.", 0, 65535
    )
    for name, default, most, meaning in (
        ("max_inputs", 2048, 1_000_000, "Most texts a request."),
        ("max_body_mb", 8, 256, "Largest body of a request, in MiB; larger ones get 413."),
        (
            "max_batch",
            256,
            1_000_000,
            "Most texts that are encoded in one call; requests of more are encoded in pieces.",
        ),
        (
            "max_queue",
            8192,
            100_000_000,
            "Most texts that wait; requests beyond get 503 with Retry-After.",
        ),
        (
            "max_queue_mb",
            256,
            1 << 20,
            "Most MiB of bodies that are read or wait; requests beyond get 503 with Retry-After.",
        ),
        ("max_characters", 100_000, 1 << 28, "Characters that are read of a text; see --on_long."),
        (
            "max_requests",
            256,
            100_000,
            "Most requests of embeddings at once; others get 503 with Retry-After.",
        ),
        (
            "max_connections",
            512,
            100_000,
            "Most connections at once; with more, those are closed that sent no whole request.",
        ),
    ):
        flags.DEFINE_integer(name, default, meaning, 1, most)
    flags.DEFINE_float(
        "max_wait_ms",
        2.0,
        "How long a request waits for others, in ms, when nothing is encoded meanwhile.",
        0,
        1000,
    )
    flags.DEFINE_integer(
        "shutdown_seconds", 30, "How long requests may take to end after SIGTERM.", 0, 3600
    )
    flags.DEFINE_enum(
        "on_long",
        "cut",
        ("cut", "error"),
        "What happens to a text with more tokens than the encoder reads, or more than"
        " --max_characters: the rest is not read, or its request gets 400.",
    )
    flags.DEFINE_bool("normalize", True, "Whether vectors are scaled to length 1, as OpenAI's are.")
    flags.DEFINE_integer(
        "max_seq_length", None, "Tokens that are read of a text. Default: the encoder's own.", 3
    )
    flags.DEFINE_string(
        "prompt_name",
        None,
        "Name of the encoder's prompt, such as query, that is put before each text. Default: none.",
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        ("float32", "bfloat16"),
        "Of the products; bfloat16 is faster on processors that have it.",
    )
    cli.define_vector_override()
    cli.required("model")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    check_extra("serve", "fastapi", "uvicorn", "prometheus_client")
    api_key = _api_key(os.environ)
    if FLAGS.max_inputs > FLAGS.max_queue:
        raise UserError(
            f"--max_inputs={FLAGS.max_inputs}: more than may wait, --max_queue={FLAGS.max_queue}; "
            "lower the one or raise the other"
        )
    if FLAGS.max_body_mb > FLAGS.max_queue_mb:
        raise UserError(
            f"--max_body_mb={FLAGS.max_body_mb}: more than may wait, "
            f"--max_queue_mb={FLAGS.max_queue_mb}; lower the one or raise the other"
        )
    listening = _bound(FLAGS.host, FLAGS.port)
    cli.import_tensorflow()
    import uvicorn

    from official_cmlm.encoders import open_encoder

    from .service.app import Settings, create_app
    from .service.batching import Limits
    from .service.connections import ConnectionLimits, http_protocol
    from .service.embedder import Embedder, with_prompt

    opened = open_encoder(
        FLAGS.model, FLAGS.max_seq_length, FLAGS.precision, FLAGS.pooling, FLAGS.sentence_vector
    )
    if FLAGS.on_long == "error" and (opened.count_tokens is None or opened.max_seq_length is None):
        raise UserError(
            f"--on_long=error: {FLAGS.model} does not say how many tokens its texts have; pass "
            "--on_long=cut"
        )
    encode, count_tokens = with_prompt(opened, FLAGS.prompt_name)
    embedder = Embedder(encode, count_tokens, opened.max_seq_length, FLAGS.on_long, FLAGS.normalize)
    settings = Settings(
        name=FLAGS.name or opened.name,
        api_key=api_key,
        max_inputs=FLAGS.max_inputs,
        max_body_bytes=FLAGS.max_body_mb << 20,
        max_characters=FLAGS.max_characters,
        cut=FLAGS.on_long == "cut",
        held_bytes=FLAGS.max_queue_mb << 20,
        requests=FLAGS.max_requests,
        limits=Limits(FLAGS.max_batch, FLAGS.max_wait_ms / 1000, FLAGS.max_queue),
    )
    config = uvicorn.Config(
        create_app(embedder, settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        http=http_protocol(ConnectionLimits(connections=FLAGS.max_connections)),
        ws="none",
        timeout_graceful_shutdown=FLAGS.shutdown_seconds,
    )
    if settings.api_key is None and not _is_local(listening):
        cli.warn(f"--host={FLAGS.host}: anyone who reaches it may use it; set {_KEY}")
    # uvicorn ends in order, and then sends the signal once more.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    _server(config, _address(listening), settings.name, embedder.dimension).run([listening])


def _api_key(environment: Mapping[str, str]) -> str | None:
    """Returns the key that requests must carry; None if none is set."""
    key = environment.get(_KEY)
    if key is None:
        return None
    if not key.strip():
        raise UserError(
            f"{_KEY}: is set and blank; give it a key, or unset it to serve without one"
        )
    # A header cannot carry white space around the key, such as a file's last line break.
    return key.strip()


def _server(config: Any, address: str, name: str, dimension: int) -> Any:
    """Returns uvicorn's server, which prints when it begins and ends to serve."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            cli.announce(f"serving {name} ({dimension} dimensions) at http://{address}/v1")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            cli.announce("ending …")
            await super().shutdown(sockets)

    return Server(config)


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket at the address, before anything that takes long."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise UserError(
            f"--host={host} --port={port}: cannot be listened at ({error.strerror or error}); name "
            "another one"
        ) from None
    return bound


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_local(listening: socket.socket) -> bool:
    host = listening.getsockname()[0]
    return host == "::1" or host.startswith("127.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
