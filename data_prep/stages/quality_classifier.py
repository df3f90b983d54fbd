"""Stage "quality filter" by a trained classifier: logistic regression on n-grams and signals.

`cmlm train-quality-classifier` makes the model, one file of JSON.
"""

import base64
import dataclasses
import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import read_object, write_json
from official_cmlm.common.hashing import MIX_1
from official_cmlm.common.validation import Flag, OneOf, between

from ..counts import DropCounter
from ..readers.document import Document
from . import SentenceCutter, keep_paragraphs
from .quality_signals import Lines, Words, has_end_mark, is_spaced, stop_words, symbol_ratios

LEVELS = ("document", "paragraph", "sentence")
_FORMAT = "official_cmlm quality classifier 1"
# Bound of a signal, in standard deviations, so that one signal cannot outweigh all others.
_MAX_SIGNAL = 5.0
SIGNALS = (
    *("log_words", "mean_word_length", "alphabetic", "number_signs", "ellipses", "stop_words"),
    *("end_marks", "bullet_lines", "ellipsis_lines", "duplicate_lines", "duplicate_characters"),
    *("top_2gram", "duplicate_5gram"),
)


@dataclass(frozen=True)
class Features:
    """The n-grams that describe a text; the values are our own.

    Attributes:
      bits: n-grams are hashed into 2^bits weights.
      character_ngrams: lengths, in characters, spaces included; case is kept.
      word_ngrams: lengths, in words.
    """

    bits: int = 17
    character_ngrams: tuple[int, ...] = (3, 5)
    word_ngrams: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 30:
            raise ValueError(f"bits must be 1 to 30, got {self.bits}")
        for name in ("character_ngrams", "word_ngrams"):
            if not all(n >= 1 for n in getattr(self, name)):
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def buckets(self, words: Words) -> np.ndarray:
        """Returns the number of each n-gram's weight, repetitions included; [n-grams] int64."""
        hashed = [words.hashes(n) for n in self.word_ngrams]
        hashed += [words.character_hashes(n) for n in self.character_ngrams]
        places = []
        for kind, hashes in enumerate(hashed):
            # Each kind is hashed differently, so a word and the same characters have different
            # weights.
            mixed = (hashes ^ (hashes >> np.uint64(31))) * (np.uint64(MIX_1) + np.uint64(2 * kind))
            places.append(mixed >> np.uint64(64 - self.bits))
        return np.concatenate(places).astype(np.int64) if places else np.zeros(0, np.int64)


def signals(paragraphs: list[str], words: Words, language: str) -> np.ndarray:
    """Measures a text: [signals] float64 in the order of `SIGNALS`; NaN for unknown ones."""
    lines = Lines.of(paragraphs)
    spaced, function_words = is_spaced(language), stop_words(language)
    nothing = math.nan
    values = [
        math.log1p(len(words)) if spaced else nothing,
        words.mean_length if spaced else nothing,
        words.alphabetic if spaced else nothing,
        *(symbol_ratios(words) if spaced else (nothing, nothing)),
        words.share(function_words) if function_words else nothing,
        [has_end_mark(text) for text in paragraphs].count(True) / max(len(paragraphs), 1),
        *(lines.bullet, lines.ellipsis, lines.duplicate, lines.duplicate_characters),
        words.top(2) if spaced else nothing,
        words.duplicate(5) if spaced else nothing,
    ]
    return np.array(values)


@dataclass(frozen=True, eq=False)
class QualityModel:
    """A trained classifier.

    Attributes:
      features: how texts become n-grams.
      weights: weights of the n-grams, [2^bits] float32.
      signal_weights: weights of the signals, [signals] float64.
      signal_means: the signals' means over the training examples, [signals] float64.
      signal_scales: their standard deviations, [signals] float64.
      bias: added to the weighted sum.
      report: measurements of the training, for people.
    """

    features: Features
    weights: np.ndarray
    signal_weights: np.ndarray
    signal_means: np.ndarray
    signal_scales: np.ndarray
    bias: float
    report: dict[str, object] = field(default_factory=dict)

    def score(self, paragraphs: list[str], language: str) -> float:
        """Returns the probability, 0 to 1, that the text is of the kind kept in training."""
        words = Words(paragraphs)
        buckets = self.features.buckets(words)
        dense = standardise(
            signals(paragraphs, words, language), self.signal_means, self.signal_scales
        )
        # As in training, n-grams that all differ make a vector of length 1.
        sparse = float(self.weights.take(buckets).sum(dtype=np.float64)) / math.sqrt(
            len(buckets) or 1
        )
        logit = sparse + float(dense @ self.signal_weights) + self.bias
        return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0

    @property
    def level(self) -> str:
        """The kind of text that it learned to judge: "document" (paragraphs too) or "sentence"."""
        level = self.report.get("level") if isinstance(self.report, dict) else None
        return "sentence" if level == "sentence" else "document"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one file of JSON, the weights of n-grams as base64 of little-endian float32."""
        content = {
            "format": _FORMAT,
            "features": dataclasses.asdict(self.features),
            "signals": {
                name: {"weight": weight, "mean": mean, "scale": scale}
                for name, weight, mean, scale in zip(
                    SIGNALS,
                    self.signal_weights.tolist(),
                    self.signal_means.tolist(),
                    self.signal_scales.tolist(),
                )
            },
            "bias": self.bias,
            "report": self.report,
            "weights": base64.b64encode(self.weights.astype("<f4").tobytes()).decode(),
        }
        write_json(path, content)


def standardise(values: np.ndarray, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Returns signals in standard deviations from the mean; 0 for unknown ones."""
    return np.nan_to_num(np.clip((values - means) / scales, -_MAX_SIGNAL, _MAX_SIGNAL), nan=0.0)


def load_model(path: str | os.PathLike[str]) -> QualityModel:
    """Reads the file that `QualityModel.save` wrote.

    Raises:
      UserError: no such file, or another kind of file, or a damaged one.
    """
    again = "train it with cmlm train-quality-classifier"
    content = read_object(path, f"name a quality classifier, or {again}")
    if content.get("format") != _FORMAT:
        raise UserError(f"{path}: not a file of the form {_FORMAT!r}; {again}")
    with guard_reading(path, again):
        return _model(content)


def _model(content: dict) -> QualityModel:
    features = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content["features"].items()
    }
    rows = [content["signals"][name] for name in SIGNALS]
    weight, mean, scale = (
        np.array([float(row[key]) for row in rows]) for key in ("weight", "mean", "scale")
    )
    weights = np.frombuffer(base64.b64decode(content["weights"], validate=True), "<f4")
    model = QualityModel(
        Features(**features), weights, weight, mean, scale, float(content["bias"]),
        content["report"],
    )  # fmt: skip
    if len(weights) != 1 << model.features.bits:
        raise ValueError(f"{len(weights)} weights, not {1 << model.features.bits}")
    numbers = (weights, weight, mean, scale, [model.bias])
    if not all(np.isfinite(part).all() for part in numbers) or (scale <= 0).any():
        raise ValueError("a number is out of range")
    return model


@functools.lru_cache(maxsize=4)
def _load_cached_model(path: str) -> QualityModel:
    return load_model(path)


@dataclass(frozen=True)
class QualityClassifier:
    """The stage: drops documents or paragraphs that the model scores low.

    Attributes:
      model: file that data_prep.train_quality_classifier wrote; texts with low scores are dropped.
      threshold: least score to keep, 0 to 1; the model's file has a table.
      level: texts that the model judges: whole documents, each paragraph, or each sentence (CMLM
        §3), at which documents are cut.

    `SentenceClassifier` judges sentences.
    """

    model: Annotated[str, Flag("quality_model")] = ""
    threshold: Annotated[float, between(0, 1), Flag("quality_threshold")] = 0.5
    level: Annotated[str, OneOf(LEVELS), Flag("quality_level")] = "document"

    def __call__(self, document: Document, counters: DropCounter) -> Document | None:
        """Returns the document, or the paragraphs of it that stay, or None.

        Counts `quality/classifier` for documents and `quality/paragraph_classifier`.
        """
        model = _load_cached_model(self.model)
        paragraphs = document.paragraphs
        if self.level == "paragraph":
            paragraphs = []
            for text in document.paragraphs:
                if model.score([text], document.language) >= self.threshold:
                    paragraphs.append(text)
                else:
                    counters.drop("quality/paragraph_classifier", document.language)
        elif model.score(document.paragraphs, document.language) < self.threshold:
            paragraphs = []
        if not paragraphs:
            counters.drop("quality/classifier", document.language)
            return None
        return keep_paragraphs(document, paragraphs)


class SentenceClassifier(SentenceCutter):
    """The model as a judge of single sentences, after splitting; see `QualityClassifier`.

    CMLM §3: "a classifier which detects whether a sentence belongs to the main content of the web
    page or not".
    """

    stage = "quality"
    reason = "quality/sentence_classifier"
    none_left = "quality/no_sentence_left"

    def __init__(self, model: str, threshold: float = 0.5) -> None:
        """Loads the model; raises `UserError` as `load_model` does."""
        super().__init__()
        self.model, self._threshold = _load_cached_model(model), threshold

    def keep(self, documents: Sequence[tuple[Document, list[str]]]) -> np.ndarray:
        """Returns whether each sentence scores the threshold or more."""
        score, threshold = self.model.score, self._threshold
        return np.array(
            [
                score([sentence], document.language) >= threshold
                for document, sentences in documents
                for sentence in sentences
            ],
            bool,
        )
