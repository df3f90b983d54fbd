"""Encoders of a few lines: equal words, near vectors."""

import functools
import zlib

import numpy as np

WIDTH = 24


class Words:
    """The sum of a random vector a word; `seed` makes another encoder."""

    max_seq_length = 1000

    def __init__(self, seed: int = 0, width: int = WIDTH) -> None:
        self.seed, self.width, self.calls = seed, width, []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.calls.append(len(texts))
        return np.stack([self._one(text) for text in texts]) if texts else np.zeros([0, self.width])

    def encode_document(self, texts: list[str], show_progress_bar=None) -> np.ndarray:
        """Embeds as `encode` does; calls the function with the number of texts."""
        vectors = self.encode(texts)
        if show_progress_bar:
            show_progress_bar(len(texts))
        return vectors

    def count_tokens(self, texts: list[str], prompt: str) -> np.ndarray:
        """Counts words, those of the prompt and two more, as of encoders with special tokens."""
        return np.array([len(f"{prompt} {text}".split()) + 2 for text in texts])

    def find_prompt(self, role: str) -> str:
        """Returns a prompt of one word for documents."""
        return "passage:" if role == "document" else ""

    def _one(self, text: str) -> np.ndarray:
        words = text.encode("utf-8", "replace").split() or [b""]
        return np.sum([_vector(self.seed, word, self.width) for word in words], axis=0)


@functools.lru_cache(10_000)
def _vector(seed: int, word: bytes, width: int) -> np.ndarray:
    return np.random.default_rng([seed, zlib.crc32(word)]).normal(size=width)


def unit_vectors(count: int, width: int = WIDTH, seed: int = 0, spread: float = 0.5) -> np.ndarray:
    """Makes unit vectors in loose clusters, so that neighbours are near."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=[max(1, count // 8), width])
    rows = centres[rng.integers(len(centres), size=count)]
    rows = rows + spread * rng.normal(size=[count, width])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
