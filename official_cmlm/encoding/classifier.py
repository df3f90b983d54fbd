"""A classifier on sentence vectors, kept in a folder with its encoder."""

import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.checkpoints.encoder_directory import OWN_FILES, EncoderDirectory, describe
from official_cmlm.common import files
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder

# The weights, with the bias as the last row: float32 `[dim + 1, classes]`.
CLASSIFIER_NAME = "classifier.npy"
# A list of the labels' names, if they have any.
LABELS_NAME = "classifier_labels.json"
# An object of scores on held-out texts, which `cmlm adapt` writes.
SCORES_NAME = "classifier_scores.json"


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """An encoder with a linear layer on its sentence vector, as `fine_tuning.fine_tune` trains it.

    Examples:
      >>> Classifier.load("my_classifier").predict(["A text."])     # doctest: +SKIP
      array([1])

    Attributes:
      encoder: embeds the texts.
      kernel: float32 `[dim, classes]`.
      bias: float32 `[classes]`.
      label_names: name of each label; empty: labels are numbers.
    """

    encoder: SentenceEncoder
    kernel: np.ndarray
    bias: np.ndarray
    label_names: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str] | list[int]:
        """The names of the labels, or their numbers if they have none."""
        return list(self.label_names) or list(range(len(self.bias)))

    def predict(self, texts: str | Iterable[str]) -> np.ndarray:
        """Returns the label of each text: int64 `[n]`; a number for a single string."""
        return np.argmax(self.predict_proba(texts), axis=-1)

    def predict_names(self, texts: Iterable[str]) -> list[str]:
        """Returns the name of the label of each text."""
        return [self.label_names[label] for label in self.predict(list(texts))]

    def predict_proba(self, texts: str | Iterable[str]) -> np.ndarray:
        """Returns the probability of each label: float32 `[n, classes]`."""
        return self.probabilities(self.encoder.encode(texts))

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """Returns `predict_proba` of vectors: float32 `[…, dim]` to float32 `[…, classes]`."""
        logits = vectors @ self.kernel + self.bias
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes an encoder directory with the classifier beside it.

        The folder can be used like any encoder directory: it can be evaluated, exported and served.

        Raises:
          UserError: if the folder holds something other than a classifier, or holds a classifier
            and `overwrite` is false; if the encoder's vector is computed by weights outside of the
            encoder, or its backend has no Keras model.
        """
        from official_cmlm.checkpoints.weights import save_weights

        model = self.encoder.model
        if model.projection is not None:
            raise UserError(
                f"{folder}: sentence_vector {model.config.sentence_vector} cannot be stored with a "
                "classifier; fine-tune with the vector pooled"
            )
        own = "|".join([OWN_FILES, *map(re.escape, (CLASSIFIER_NAME, LABELS_NAME, SCORES_NAME))])
        output = files.output_folder(folder, overwrite, self.is_at, own, "classifier", "")
        with files.stage_folder(output) as partial:
            describe(partial, model.config, self.encoder.vocabulary, self.encoder.max_seq_length)
            save_weights(partial, model)
            self.encoder.save_settings(partial)
            with files.atomic_write(partial / CLASSIFIER_NAME) as file:
                files.write_array(file, np.vstack([self.kernel, self.bias]).astype(np.float32))
            if self.label_names:
                files.write_json(partial / LABELS_NAME, self.label_names)

    @staticmethod
    def is_at(folder: Path) -> bool:
        """Returns whether a folder holds an encoder with a classifier."""
        return EncoderDirectory.is_at(folder) and (folder / CLASSIFIER_NAME).exists()

    @classmethod
    def load(cls, folder: str | os.PathLike, **options: Any) -> "Classifier":
        """Loads a folder that `save` has written, with options of `SentenceEncoder.load`.

        Raises:
          UserError: if the folder holds no classifier, or a damaged one.
        """
        if not cls.is_at(Path(folder)):
            raise UserError(f"{folder}: holds no classifier (no {CLASSIFIER_NAME}); fine-tune one")
        encoder = SentenceEncoder.load(folder, **options)
        return cls.beside(encoder, Path(folder))

    @classmethod
    def beside(cls, encoder: SentenceEncoder, folder: Path) -> "Classifier":
        """Returns the classifier of a folder with an encoder that is loaded already.

        Raises:
          UserError: if the classifier is damaged.
        """
        kernel, bias = read_layer(folder, encoder.dimension)
        return cls(encoder, kernel, bias, read_label_names(folder, len(bias)))


def read_layer(folder: Path, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel and bias of a saved classifier on vectors of this dimension.

    Raises:
      UserError: if they are damaged.
    """
    path = folder / CLASSIFIER_NAME
    advice = "save the classifier again"
    weights = files.read_array(path, advice)
    if weights.dtype != np.float32 or weights.ndim != 2 or len(weights) != dimension + 1:
        raise UserError(
            f"{path}: {weights.dtype} {list(weights.shape)}, expected float32 with {dimension + 1} "
            f"rows; {advice}"
        )
    if not np.isfinite(weights).all():
        raise UserError(f"{path}: holds non-finite values; {advice}")
    return weights[:-1], weights[-1]


def read_label_names(folder: Path, classes: int) -> tuple[str, ...]:
    """Returns the names of the labels of a saved classifier; none if they are numbers.

    Raises:
      UserError: if they are damaged.
    """
    path = folder / LABELS_NAME
    if not path.exists():
        return ()
    names = files.read_json(path, "save the classifier again")
    if (
        not isinstance(names, list)
        or len(names) != classes
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError(f"{path}: is not a list of {classes} names; save the classifier again")
    return tuple(names)
