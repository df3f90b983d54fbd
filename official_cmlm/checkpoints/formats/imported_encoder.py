"""An encoder that was read from a public checkpoint: settings, vocabulary and arrays."""

import dataclasses
from typing import Annotated

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import EncoderWeights
from official_cmlm.checkpoints.encoder_directory import NO_SETTINGS, EncodingSettings
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.tokenization import Vocabulary, load_vocabulary


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """Settings that override the source's, or that the source lacks.

    Attributes:
      pooling: how token outputs become the sentence vector. Default: as a sentence-transformers
        folder says, else mean.
      vocab_file: vocabulary for sources that carry none. Default: the source's own.
      lower_case: whether a WordPiece vocabulary is uncased. Default: as the source says, else
        whether its entries hold capitals.
      drop_head: whether to leave out the masked-language-model head. Default: keep it.
      drop_surplus: whether to leave out tensors that the encoder has no place for, such as a
        classifier's. Default: refuse and list them.
    """

    pooling: Annotated[str, OneOf(("", "mean", "max", "cls"))] = ""
    vocab_file: str = ""
    lower_case: bool | None = None
    drop_head: bool = False
    drop_surplus: bool = False

    def vocabulary(self) -> Vocabulary:
        """Reads `vocab_file`."""
        return load_vocabulary(self.vocab_file, self.lower_case)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportedEncoder(EncoderWeights):
    """An encoder that was read from a public checkpoint.

    Attributes:
      vocabulary: its vocabulary.
      max_seq_length: default length for encoding, in tokens.
      notes: remarks for the user about this import, one sentence each.
      for_sentences: whether the source or the user says how token outputs become a vector; false
        for plain language models.
      encoding: prompts and the like, if the source has them.
    """

    vocabulary: Vocabulary
    max_seq_length: int
    notes: list[str]
    for_sentences: bool = True
    encoding: EncodingSettings = NO_SETTINGS


def check_finite(where: str, encoder: ImportedEncoder) -> None:
    """Raises `UserError` if a weight is non-finite."""
    for name, tensor in (encoder.encoder | (encoder.head or {})).items():
        if not np.isfinite(tensor).all():
            raise UserError(
                f"{where}: {name} holds non-finite values; take another checkpoint of the training"
            )
