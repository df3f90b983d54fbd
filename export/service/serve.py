"""Serves an encoder by HTTP, as OpenAI's embeddings: `python -m export.service.serve`.

    python -m export.service.serve --model=work/encoder
    curl http://127.0.0.1:8000/v1/embeddings -H 'Content-Type: application/json' \
        -d '{"model": "encoder", "input": ["A text.", "Another one."]}'

Requests that arrive together are encoded together. `/` lists the addresses, `/health` says whether
it runs, `/metrics` has Prometheus's figures. Of an index it shows a page to search it, of a saved
classifier it gives labels (`/v1/classify`). With CMLM_API_KEY in the environment, requests must
carry that key, or one of several that white space divides. It ends on SIGTERM and Ctrl-C, after the
requests that it has.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra

if TYPE_CHECKING:
    from official_cmlm.encoding.classifier import Classifier
    from official_cmlm.search import Index

    from .embedder import Embedder

FLAGS = flags.FLAGS
_KEY = "CMLM_API_KEY"


def define_flags() -> None:
    """Defines the flags: encoder, address, key and limits of the service."""
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
            "max_batch_tokens",
            16_384,
            1 << 24,
            "Most tokens that are encoded in one call; requests of more are encoded in pieces.",
        ),
        (
            "max_queue_tokens",
            2_000_000,
            1 << 32,
            "Most tokens that wait; requests beyond get 429 with Retry-After.",
        ),
        (
            "max_queue_mb",
            256,
            1 << 20,
            "Most MiB of bodies, texts and vectors; requests beyond get 429 with Retry-After.",
        ),
        ("max_characters", 100_000, 1 << 28, "Characters that are read of a text; see --on_long."),
        (
            "max_requests",
            256,
            100_000,
            "Most requests at once; others get 429 with Retry-After.",
        ),
        (
            "max_connections",
            512,
            100_000,
            "Most connections at once; with more, those are closed that sent no whole request or do"
            " not read.",
        ),
    ):
        flags.DEFINE_integer(name, default, meaning, 1, most)
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
    flags.DEFINE_bool(
        "access_log", False, "Whether standard output gets a line of JSON a request, with an id."
    )
    flags.DEFINE_bool("normalize", True, "Whether vectors are scaled to length 1, as OpenAI's are.")
    flags.DEFINE_string(
        "prompt_name",
        None,
        "Name of the encoder's prompt, such as query, for requests that name none. Default: the"
        " encoder's default prompt.",
    )
    cli.define_model()
    cli.required("model")


def _log(line: str) -> None:
    """Prints a line of the access log; a closed pipe or a full disk ends no request."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    check_extra("serve", "starlette", "uvicorn", "prometheus_client")
    api_keys = _api_keys(os.environ)
    if FLAGS.max_body_mb > FLAGS.max_queue_mb:
        raise UserError(
            f"--max_body_mb={FLAGS.max_body_mb}: more than may wait, "
            f"--max_queue_mb={FLAGS.max_queue_mb}; lower the one or raise the other"
        )
    listening = _bound(FLAGS.host, FLAGS.port)
    cli.announce(f"opening {FLAGS.model} …")
    import uvicorn

    from .app import Settings, create_app
    from .batching import Limits
    from .connections import ConnectionLimits, http_protocol
    from .embedder import Prompt, UnknownPrompt

    embedder, index, classifier = _opened()
    prompt = Prompt(FLAGS.prompt_name)
    try:
        exact = embedder.read(["A text."], prompt).exact
    except UnknownPrompt as error:
        raise UserError(f"--prompt_name={FLAGS.prompt_name}: {error}") from None
    if FLAGS.on_long == "error" and not (exact and embedder.max_seq_length):
        raise UserError(
            f"--on_long=error: {FLAGS.model} does not say how many tokens its texts have; pass "
            "--on_long=cut"
        )
    log = _log if FLAGS.access_log else None
    settings = Settings(
        name=FLAGS.name or embedder.name,
        api_keys=api_keys,
        max_inputs=FLAGS.max_inputs,
        max_body_bytes=FLAGS.max_body_mb << 20,
        max_characters=FLAGS.max_characters,
        cut=FLAGS.on_long == "cut",
        normalize=FLAGS.normalize,
        prompt=prompt,
        loopback=_is_local(listening),
        held_bytes=FLAGS.max_queue_mb << 20,
        requests=FLAGS.max_requests,
        log=log,
        limits=Limits(FLAGS.max_batch_tokens, FLAGS.max_queue_tokens),
    )
    app = create_app(embedder, settings, index, classifier)
    config = uvicorn.Config(
        app,
        # Otherwise each fault of a client would be a line with a warning.
        log_level="error",
        access_log=False,
        server_header=False,
        http=http_protocol(ConnectionLimits(connections=FLAGS.max_connections), log),
        ws="none",
        # Requests are answered earlier; this time is for connections that take no answer.
        timeout_graceful_shutdown=FLAGS.shutdown_seconds + 2,
    )
    if not api_keys and not _is_local(listening):
        cli.warn(f"--host={FLAGS.host}: anyone who reaches it may use it; set {_KEY}")
    # uvicorn ends in order, and then sends the signal once more, which is ignored.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    what = f"{settings.name} ({embedder.dimension} dimensions, {embedder.how})"
    address = f"http://{_address(listening)}"
    if index is not None:
        cli.announce(f"{len(index)} texts, with a page to search them at {address}/")
    # Otherwise garbage collection of the objects made so far would delay requests by tens of ms.
    gc.freeze()
    _server(config, app.state, f"{what} at {address}/v1").run([listening])


def _opened() -> "tuple[Embedder, Index | None, Classifier | None]":
    """Opens an index with its encoder, a classifier with its encoder, or an encoder.

    TensorFlow is imported only for an encoder that needs it.
    """
    from official_cmlm.encoding.classifier import Classifier
    from official_cmlm.encoding.encoders import is_model, load_model, open_encoder
    from official_cmlm.search import Index

    from .embedder import TextEmbedder, TokenEmbedder

    folder = Path(os.path.abspath(os.path.expanduser(FLAGS.model)))
    if Index.is_at(folder):
        chosen = dict(Index.read_settings(folder).get("encoder", {}))
        if not chosen.get("model"):
            raise UserError(f"{FLAGS.model}: names no encoder; make it by cmlm index")
        for flag in chosen.keys() - {"model"}:
            if FLAGS[flag].present:
                raise UserError(f"--{flag}: leave it out; the index {FLAGS.model} decides it")
        encoder = load_model("queries", chosen)
        index = Index.load(folder, encoder, verify=False)
        return TokenEmbedder(encoder, folder.name, chosen["precision"]), index, None
    if is_model(FLAGS.model):
        encoder, classifier = load_model("queries"), None
        # The labels belong to the vectors that the classifier was trained on.
        if Classifier.is_at(folder) and not (FLAGS.pooling or FLAGS.sentence_vector):
            classifier = Classifier.beside(encoder, folder)
        return TokenEmbedder(encoder, folder.name, FLAGS.precision), None, classifier
    if FLAGS.backend != "auto":
        raise UserError(f"--backend={FLAGS.backend}: {FLAGS.model} has no other backend")
    cli.quiet_tensorflow()
    vector = {name: FLAGS[name].value for name in ("precision", "pooling", "sentence_vector")}
    return TextEmbedder(open_encoder(FLAGS.model, FLAGS.max_seq_length, **vector)), None, None


def _api_keys(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the keys, one of which a request must carry; white space divides them."""
    keys = environment.get(_KEY)
    if keys is not None and not keys.strip():
        raise UserError(
            f"{_KEY}: is set and blank; give it a key, or unset it to serve without one"
        )
    return tuple((keys or "").split())


def _server(config: Any, state: Any, what: str) -> Any:
    """Returns uvicorn's server, which prints when it begins and ends to serve."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            cli.announce(f"serving {what}")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            cli.announce("ending …")
            loop = asyncio.get_running_loop()
            # Requests without an answer by then get 503; connections that take none are aborted.
            loop.call_later(FLAGS.shutdown_seconds, state.end)
            loop.call_later(FLAGS.shutdown_seconds + 1, self._abort)
            await super().shutdown(sockets)
            if state.ended:
                # Python would wait for threads that still tokenise texts or compute a batch.
                os._exit(0)

        def _abort(self) -> None:
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    return Server(config)


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket bound to the address, so that errors precede anything that takes long."""
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
