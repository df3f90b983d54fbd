"""Serves an encoder by HTTP, as OpenAI's embeddings: `cmlm serve`.

    cmlm serve work/encoder
    curl http://127.0.0.1:8000/v1/embeddings -H 'Content-Type: application/json' \
        -d '{"model": "encoder", "input": ["A text.", "Another one."]}'

Requests that arrive together are encoded together. `/` lists the addresses, `/health` says whether
it runs, `/metrics` has Prometheus's figures. Of an index it shows a page to search it, of a saved
classifier it gives labels (`/v1/classify`). With CMLM_API_KEY in the environment, requests must
carry that key, or one of several that white space divides; other machines are served only with a
key, or with --allow_anyone. SIGHUP makes it read its index again. It ends on SIGTERM and Ctrl-C,
after the requests that it has.
"""

import asyncio
import contextlib
import dataclasses
import functools
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

from .settings import Settings

if TYPE_CHECKING:
    from .service import Service

FLAGS = flags.FLAGS
_KEY = "CMLM_API_KEY"


def define_flags() -> None:
    """Defines the flags: the encoder, and the fields of `Settings`."""
    cli.define(Settings)
    cli.define_model()


def main() -> None:
    """Runs the binary."""
    # Until the server sets its handler, SIGHUP would end the process.
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    check_extra("serve", "prometheus_client", "pydantic", "starlette", "uvicorn")
    settings, keys = cli.read(Settings), read_keys(os.environ)
    listening = bind(settings.host, settings.port)
    host, port = listening.getsockname()[:2]
    is_local = host == "::1" or host.startswith("127.")
    if not (is_local or keys or settings.allow_anyone):
        raise UserError(
            f"--host={settings.host}: anyone who reaches it could use it; set {_KEY}, or pass "
            "--allow_anyone"
        )
    cli.announce(f"opening {FLAGS.model} …")
    service = open_service(settings, keys, is_local)
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if service.index is not None:
        cli.announce(f"{len(service.index)} texts, with a page to search them at {address}/")
    embedder = service.embedder
    what = f"{service.name} ({embedder.dimension} dimensions, {embedder.how}) at {address}/v1"
    # uvicorn ends in order, and then sends the signal once more, which is ignored.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda number, frame: None)
    # Otherwise garbage collection of the objects made so far would delay requests by tens of ms.
    gc.freeze()
    make_server(service, what).run([listening])


def open_service(settings: Settings, keys: tuple[str, ...], is_local: bool) -> "Service":
    """Opens an index with its encoder, a classifier with its encoder, or an encoder.

    TensorFlow is imported only for an encoder that needs it.
    """
    from official_cmlm.encoding.classifier import Classifier
    from official_cmlm.encoding.encoders import is_model, load_model, open_encoder
    from official_cmlm.search import Index

    from ..search.index import IndexSettings
    from .embedder import TextEmbedder, TokenEmbedder
    from .service import Service

    folder = Path(os.path.abspath(os.path.expanduser(FLAGS.model)))
    index, classifier = None, None
    if Index.is_at(folder):
        settings_of_index = dataclasses.asdict(IndexSettings.read(folder).encoder)
        if not settings_of_index["model"]:
            raise UserError(f"{FLAGS.model}: names no encoder; make it by cmlm index")
        for flag in settings_of_index.keys() - {"model"}:
            if FLAGS[flag].present:
                raise UserError(f"--{flag}: leave it out; the index {FLAGS.model} decides it")
        encoder = load_model("queries", settings_of_index)
        index = Index.load(folder, encoder)
        embedder = TokenEmbedder(encoder, folder.name, settings_of_index["precision"])
    elif is_model(FLAGS.model):
        encoder = load_model("queries")
        # The labels belong to the vectors that the classifier was trained on.
        if Classifier.is_at(folder) and not (FLAGS.pooling or FLAGS.sentence_vector):
            classifier = Classifier.beside(encoder, folder)
        embedder = TokenEmbedder(encoder, folder.name, FLAGS.precision)
    elif FLAGS.backend != "auto":
        raise UserError(f"--backend={FLAGS.backend}: {FLAGS.model} has no other backend")
    else:
        cli.quiet_tensorflow()
        vector = {name: FLAGS[name].value for name in ("precision", "pooling", "sentence_vector")}
        embedder = TextEmbedder(open_encoder(FLAGS.model, FLAGS.max_seq_length, **vector))
    try:
        is_exact = embedder.read(["A text."], prompt_name=settings.prompt_name).exact
    except UserError as error:
        raise UserError(f"--prompt_name={settings.prompt_name}: {error}") from None
    if settings.on_long == "error" and not (is_exact and embedder.max_seq_length):
        raise UserError(
            f"--on_long=error: {FLAGS.model} does not say how many tokens its texts have; pass "
            "--on_long=cut"
        )
    return Service(embedder, settings, keys, is_local, index, classifier)


def read_keys(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the keys, which white space divides; raises `UserError` if they are blank."""
    keys = environment.get(_KEY)
    if keys is not None and not keys.strip():
        raise UserError(
            f"{_KEY}: is set and blank; give it a key, or unset it to serve without one"
        )
    return tuple((keys or "").split())


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket bound to an address; raises `UserError` if it is not free here."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port} ({error.strerror or error}); choose another --host or "
            "--port"
        ) from None
    return listening


def reopen_index(service: "Service") -> None:
    """Replaces the index by what its folder holds now; searches that run keep the former one."""
    from official_cmlm.search import Index

    if service.index is None:
        return
    try:
        service.index = Index.load(FLAGS.model, service.embedder.encoder)
        cli.announce(f"opened {FLAGS.model} again: {len(service.index)} texts")
    except UserError as error:
        cli.warn(f"{error}; the former index is still served")


def make_server(service: "Service", what: str) -> Any:
    """Returns uvicorn's server, which prints when it begins and ends to serve.

    On SIGHUP it opens the index again.
    """
    import uvicorn

    from .app import create_app

    def log(line: str) -> None:
        # A closed pipe or a full disk ends no request.
        with contextlib.suppress(OSError, ValueError):
            print(line, flush=True)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            loop = asyncio.get_running_loop()
            reopen = functools.partial(loop.run_in_executor, None, reopen_index, service)
            loop.add_signal_handler(signal.SIGHUP, reopen)
            cli.announce(f"serving {what}")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            cli.announce("ending …")
            await super().shutdown(sockets)

    limits = service.settings.limits
    return Server(
        uvicorn.Config(
            create_app(service, log if service.settings.access_log else None),
            # Otherwise each fault of a client would be a line with a warning.
            log_level="error",
            access_log=False,
            server_header=False,
            ws="none",
            limit_concurrency=limits.max_connections,
            # Longer than nginx keeps a connection, so that it sends no request on a closed one.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=limits.shutdown_seconds,
        )
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
