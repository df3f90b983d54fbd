"""The HTTP service under several clients, and one client's time: `python -m benchmarks.service`.

    python -m benchmarks.service --model=work/minilm --seconds=1800

Starts `cmlm serve` and lets --clients threads, each with OpenAI's own client, send requests of 1
to --most_texts sentences without a pause. The vectors of every answer are compared with the first
vectors of the same texts. The server's memory is read every few seconds; its growth is counted
after the first fifth of the time. Then one client asks for single sentences, in turns with the
encoder itself in this process. A failed request makes the exit status 1.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import shared
from official_cmlm import cli
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.common.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the encoder, the clients and how long they send."""
    shared.define_text_flags()
    shared.define_model_flag()
    flags.DEFINE_integer("sentences", 2000, "Different sentences that are sent.", 10)
    flags.DEFINE_float("seconds", 180, "How long the clients send requests.", 1)
    flags.DEFINE_integer("clients", 8, "Threads that send requests.", 1)
    flags.DEFINE_integer("most_texts", 8, "Most texts a request; each request has 1 or more.", 1)


def main() -> int:
    """Runs the benchmark; returns 1 if a request failed."""
    # Otherwise the client logs a line for each request.
    cli.quiet_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        sentences = shared.real_sentences(shared.text_files(folder), FLAGS.sentences)
        encoder = str(find_encoder(FLAGS.model).absolute())
        with _serve(encoder) as (process, address):
            figures = Figures(address, sentences, FLAGS.most_texts)
            figures.run(FLAGS.clients, FLAGS.seconds, process.pid)
            print("".join(f"{line}\n" for line in figures.errors[:5]), end="")
            figures.report()
            _compare_with_encoder(encoder, address, sentences)
    print(f"figure exit_status {process.returncode}")
    return int(bool(figures.errors))


def _compare_with_encoder(encoder: str, address: str, sentences: list[str]) -> None:
    """Prints the median time of one client's requests, and of the encoder in this process."""
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    ours = SentenceEncoder.load(encoder, backend="onnx")
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=60)
    times: dict[str, list[float]] = {"service": [], "encoder": []}
    for number, sentence in enumerate(sentences):
        for name in times:
            began = time.perf_counter()
            if name == "encoder":
                ours.encode([sentence])
            else:
                _ask(connection, sentence)
            # The first requests are slower, as caches are empty.
            if number >= len(sentences) // 10:
                times[name].append(1000 * (time.perf_counter() - began))
    for name, milliseconds in times.items():
        print(f"figure {name}_p50_ms {statistics.median(milliseconds):.2f}")
    ratio = statistics.median(times["service"]) / statistics.median(times["encoder"])
    print(f"ratio p50_of_one_client {ratio:.2f}")


def _ask(connection: http.client.HTTPConnection, sentence: str) -> None:
    body = json.dumps({"model": "model", "input": sentence, "encoding_format": "base64"})
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/embeddings", body, headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise UserError(f"the service answers {answer.status}: {answer.read()[:200]!r}")
    answer.read()


@contextlib.contextmanager
def _serve(encoder: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Yields a service in a process of its own and its address, with `/v1`."""
    command = [sys.executable, "-m", "export.service.serve", f"--model={encoder}", "--port=0"]
    # With a key in the environment, the service would demand it from the clients.
    environment = {name: value for name, value in os.environ.items() if name != "CMLM_API_KEY"}
    process = subprocess.Popen(  # noqa: S603
        [*command, "--name=model"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process, _read_address(process)
    finally:
        process.send_signal(signal.SIGTERM)
        print(process.stderr.read(), end="", file=sys.stderr)
        process.wait(60)


class Figures:
    """Measurements of the clients.

    Attributes:
      milliseconds: time of each request that was answered.
      texts: number of texts in these requests.
      errors: a line for each request that failed.
      difference: largest difference between two vectors of one text.
      memory: MiB of the server, every few seconds.
      seconds: duration of the whole run.
    """

    def __init__(self, address: str, sentences: list[str], most_texts: int) -> None:
        self.milliseconds: list[float] = []
        self.errors: list[str] = []
        self.memory: list[float] = []
        self.texts, self.difference, self.seconds = 0, 0.0, 0.0
        self._address, self._sentences, self._most = address, sentences, most_texts
        # The first vector of each text that was sent, by its number.
        self._vectors: dict[int, Any] = {}
        self._lock = threading.Lock()

    def percentile(self, share: int) -> float:
        """Returns the time that `share` % of the requests did not exceed, in milliseconds."""
        if not self.milliseconds:
            raise UserError("no request was answered")
        return statistics.quantiles(self.milliseconds, n=100)[share - 1]

    def report(self) -> None:
        """Prints the figures."""
        settled = self.memory[len(self.memory) // 5 :]
        for name, value in (
            ("requests_per_second", f"{len(self.milliseconds) / self.seconds:.1f}"),
            ("sentences_per_second", f"{self.texts / self.seconds:.1f}"),
            *((f"p{share}_ms", f"{self.percentile(share):.1f}") for share in (50, 95, 99)),
            ("errors", len(self.errors)),
            ("largest_difference", f"{self.difference:.2g}"),
            ("memory_MiB", f"{settled[-1]:.0f}"),
            ("memory_growth_percent", f"{100 * (settled[-1] / settled[0] - 1):.2f}"),
        ):
            print(f"figure {name} {value}")

    def run(self, clients: int, seconds: float, pid: int) -> None:
        """Sends requests from `clients` threads for `seconds`, and reads the memory of `pid`."""
        # The seconds of this import do not count.
        import openai  # noqa: F401

        began = time.monotonic()
        threads = [
            threading.Thread(target=self._client, args=(i, began + seconds)) for i in range(clients)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.memory.append(_resident_mib(pid))
            threads[0].join(min(2, seconds / 10))
        self.seconds = time.monotonic() - began

    def _client(self, number: int, end: float) -> None:
        import numpy as np
        import openai

        rng = random.Random(number)  # noqa: S311 - no secret
        client = openai.OpenAI(base_url=self._address, api_key="none", max_retries=0)
        while time.monotonic() < end:
            chosen = rng.choices(range(len(self._sentences)), k=rng.randint(1, self._most))
            began = time.perf_counter()
            try:
                texts = [self._sentences[i] for i in chosen]
                answer = client.embeddings.create(model="model", input=texts)
                rows = np.array([item.embedding for item in answer.data], np.float32)
            except openai.OpenAIError as error:
                with self._lock:
                    self.errors.append(f"{type(error).__name__}: {error}")
                continue
            passed = 1000 * (time.perf_counter() - began)
            with self._lock:
                self.milliseconds.append(passed)
                self.texts += len(chosen)
                for i, row in zip(chosen, rows):
                    first = self._vectors.setdefault(i, row)
                    self.difference = max(self.difference, float(np.abs(first - row).max()))


def _read_address(process: subprocess.Popen) -> str:
    """Returns the address that the server prints; shows the messages that it prints before."""
    while line := process.stderr.readline():
        print(line, end="", file=sys.stderr)
        if line.startswith("serving "):
            return line.split()[-1]
    raise UserError("the server has ended before it served")


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    define_flags()
    cli.run(main)
