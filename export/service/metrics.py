"""Figures of the service for Prometheus."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from .batching import Batcher

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = tuple(2.0**i for i in range(16))


class Metrics:
    """The figures of one service.

    Attributes:
      registry: all figures, with memory, processor time and open files of this process.
      tokenizing: seconds of tokenising.
    """

    def __init__(self, batcher: Batcher) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, histogram, gauge = (
            partial(kind, registry=self.registry) for kind in (Counter, Histogram, Gauge)
        )
        self._requests = counter("cmlm_requests", "Requests of embeddings.", ["status"])
        self._seconds = histogram("cmlm_request_seconds", "Duration.", buckets=_SECONDS)
        self._counts = {
            "texts": counter("cmlm_texts", "Texts that were embedded."),
            "tokens": counter("cmlm_tokens", "Tokens that were read of them."),
            "cut_texts": counter("cmlm_cut_texts", "Texts of which only a part was read."),
        }
        self._sizes = [
            histogram(f"cmlm_batch_{name}", f"{name.capitalize()} a batch.", buckets=_SIZES)
            for name in ("requests", "texts", "tokens")
        ]
        self._waits = histogram("cmlm_queue_seconds", "From a request's body to its first batch.")
        self.tokenizing = histogram("cmlm_tokenize_seconds", "Tokenising of texts.")
        self._computing = histogram("cmlm_batch_seconds", "Computing of a batch.")
        gauge("cmlm_waiting_tokens", "Tokens in the queue.").set_function(lambda: batcher.waiting)
        oldest = gauge("cmlm_oldest_seconds", "How long the oldest request waits.")
        oldest.set_function(lambda: batcher.oldest_seconds)
        batcher.on_batch = self._count_batch

    def count_request(self, status: int, seconds: float, counts: dict[str, int]) -> None:
        """Counts an answer, and the texts that it is about."""
        self._requests.labels(status).inc()
        self._seconds.observe(seconds)
        for name, count in counts.items():
            self._counts[name].inc(count)

    def _count_batch(self, sizes: tuple[int, ...], waits: list[float], seconds: float) -> None:
        self._computing.observe(seconds)
        for figure, size in zip(self._sizes, sizes):
            figure.observe(size)
        for wait in waits:
            self._waits.observe(wait)
