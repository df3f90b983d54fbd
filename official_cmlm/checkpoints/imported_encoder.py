"""A public encoder in this project's terms: settings, vocabulary and arrays of weights."""

import dataclasses

import numpy as np

from official_cmlm.checkpoints.encoder_directory import NO_SETTINGS, EncodingSettings
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.tokenization import Vocabulary, load_vocabulary

Tensors = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """Settings that override those of the source, or that it lacks.

    Attributes:
      pooling: `mean`, `max` or `cls`; empty takes the source's, else `mean`.
      vocab_file: a vocabulary for sources without one; empty takes the source's.
      lower_case: whether the vocabulary is uncased; None: as the source says, else by its entries.
      drop_head: leave out the language-model head.
      drop_surplus: leave out tensors that the encoder has no place for.
    """

    pooling: str = ""
    vocab_file: str = ""
    lower_case: bool | None = None
    drop_head: bool = False
    drop_surplus: bool = False

    def vocabulary(self) -> Vocabulary:
        """Reads `vocab_file`."""
        return load_vocabulary(self.vocab_file, self.lower_case)


@dataclasses.dataclass(frozen=True)
class ImportedEncoder:
    """An encoder that was read from a public checkpoint.

    Attributes:
      config: the encoder's shape and pooling.
      vocabulary: its vocabulary.
      max_seq_length: default length for encoding, in tokens.
      encoder: weights by the names of `modeling.sentence_encoder.encoder_variables`, float32.
      head: weights of the language-model head by the names of `head_variables`; None without one.
      notes: remarks for the user about this import, one sentence each.
      for_sentences: whether the source or the user says how token outputs become a vector; false
        for plain language models.
      encoding: prompts and the like, if the source has them.
    """

    config: EncoderConfig
    vocabulary: Vocabulary
    max_seq_length: int
    encoder: Tensors
    head: Tensors | None
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
