"""A classifier on sentence vectors, kept in a folder with its encoder."""

import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm import files
from official_cmlm.checkpoints.encoder_directory import OWN_FILES, EncoderDirectory, describe
from official_cmlm.errors import UserError
from official_cmlm.sentence_encoder import SentenceEncoder

# The weights, with the bias as the last row: float32 `[dim + 1, classes]`.
CLASSIFIER_NAME = "classifier.npy"


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """An encoder with a linear layer on its sentence vector, as `fine_tuning.fine_tune` trains it.

    >>> Classifier.load("my_classifier").predict(["A text."])     # doctest: +SKIP
    array([1])

    Attributes:
      encoder: embeds the texts.
      kernel: float32 `[dim, classes]`.
      bias: float32 `[classes]`.
    """

    encoder: SentenceEncoder
    kernel: np.ndarray
    bias: np.ndarray

    def predict(self, texts: str | Iterable[str]) -> np.ndarray:
        """Returns the label of each text: int64 `[n]`; of a single string, a number."""
        return np.argmax(self.predict_proba(texts), axis=-1)

    def predict_proba(self, texts: str | Iterable[str]) -> np.ndarray:
        """Returns the probability of each label: float32 `[n, classes]`."""
        return self.probabilities(self.encoder.encode(texts))

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the probability of each label of texts with these vectors of the encoder.

        Args:
          vectors: float32 `[…, dim]`.

        Returns:
          float32 `[…, classes]`.
        """
        logits = vectors @ self.kernel + self.bias
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes an encoder directory with the classifier beside it.

        All that takes an encoder directory takes the folder: it is evaluated, exported and served.

        Args:
          folder: the folder to write.
          overwrite: whether a folder that holds a classifier already may be replaced.

        Raises:
          UserError: if the folder holds something else, or the encoder's vector is computed by
            weights outside of the encoder, or of a backend without a Keras model.
        """
        import tensorflow as tf

        model = self.encoder.model
        if model.projection is not None:
            raise UserError(
                f"{folder}: sentence_vector {model.config.sentence_vector} cannot be stored with a "
                "classifier; fine-tune with the vector pooled"
            )
        own = f"{OWN_FILES}|{re.escape(CLASSIFIER_NAME)}"
        output = files.output_folder(folder, overwrite, self.is_at, own, "classifier", "folder")
        with files.staged_folder(output) as partial:
            describe(partial, model.config, self.encoder.vocabulary, self.encoder.max_seq_length)
            tf.train.Checkpoint(encoder=model).save(str(partial / "ckpt"))
            with files.atomic_write(partial / CLASSIFIER_NAME) as file:
                files.write_array(file, np.vstack([self.kernel, self.bias]).astype(np.float32))

    @staticmethod
    def is_at(folder: Path) -> bool:
        """Returns whether a folder holds an encoder with a classifier."""
        return EncoderDirectory.is_at(folder) and (folder / CLASSIFIER_NAME).exists()

    @classmethod
    def load(cls, folder: str | os.PathLike, **options: Any) -> "Classifier":
        """Loads a folder that `save` has written.

        Args:
          folder: the folder.
          **options: of `SentenceEncoder.load`, such as `backend`.

        Raises:
          UserError: if the folder holds no classifier, or a damaged one.
        """
        if not cls.is_at(Path(folder)):
            raise UserError(f"{folder}: holds no classifier (no {CLASSIFIER_NAME}); fine-tune one")
        encoder = SentenceEncoder.load(folder, **options)
        return cls(encoder, *read_layer(Path(folder), encoder.dimension))


def read_layer(folder: Path, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel and bias of a saved classifier on vectors of this dimension.

    Raises:
      UserError: if they are damaged.
    """
    path = folder / CLASSIFIER_NAME
    try:
        weights = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UserError(f"{path}: damaged ({error}); save the classifier again") from None
    if weights.dtype != np.float32 or weights.ndim != 2 or len(weights) != dimension + 1:
        raise UserError(
            f"{path}: {weights.dtype} {list(weights.shape)}, expected float32 with {dimension + 1} "
            "rows; save the classifier again"
        )
    return weights[:-1], weights[-1]
