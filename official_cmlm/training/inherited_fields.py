"""Fields of `task.encoder` that a training inherits from the encoder that it starts from.

The network and the length for encoding are always inherited: the start's weights fit only its own
network, and all positions up to its length are trained. The definition of the sentence vector is
inherited too if the encoder was made for sentences: imported with a pooling of its own, or trained
by an objective of sentences. A plain language model does not define it, and the experiment decides.
"""

import dataclasses
import os
from collections.abc import Collection

from official_cmlm.checkpoints.encoder_directory import (
    CONFIG_NAME,
    NO_SETTINGS,
    EncoderDirectory,
    EncodingSettings,
)
from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.objectives import objectives

# Fields of `task.encoder` that define the sentence vector.
VECTOR_FIELDS = (
    "pooling",
    "padded_length",
    "padding_id",
    "sentence_vector",
    "num_projections",
    "projection_depth",
    "projection_width",
    "normalize",
)
# Fields that the experiment always decides, and fields that it decides if it names them.
_TRAINING_FIELDS = ("drophead_rate",)
_TRAINING_FIELDS_IF_NAMED = ("dropout_rate", "attention_dropout_rate")
# The experiment always decides these too; results do not depend on them, so no line is printed.
_MEMORY_FIELDS = ("remat",)


@dataclasses.dataclass(frozen=True)
class StartingEncoder:
    """Encoder that a training starts from.

    Attributes:
      folder: its encoder directory.
      encoder: its network and sentence vector.
      max_seq_length: its length for encoding, in tokens.
      for_sentences: whether the encoder was made for sentences; false for language models.
      settings: its prompts and similarity; ranges belong to weights that a training changes.
    """

    folder: str
    encoder: EncoderConfig
    max_seq_length: int
    for_sentences: bool
    settings: EncodingSettings = NO_SETTINGS

    def fields_to_inherit(self, needed: Collection[str], named: Collection[str]) -> dict:
        """Returns the fields of `task.encoder` that a training inherits.

        Args:
          needed: fields of the vector that the experiment says its method needs.
          named: all fields of the encoder that the experiment sets.
        """
        own = {*_TRAINING_FIELDS, *_MEMORY_FIELDS, *needed}
        own |= {name for name in _TRAINING_FIELDS_IF_NAMED if name in named}
        if not self.for_sentences:
            own |= set(VECTOR_FIELDS)
        return {name: value for name, value in self.encoder.as_dict().items() if name not in own}

    def fields_to_reset(self, result: EncoderConfig) -> dict:
        """Returns fields to reset: they belong to an inherited vector that a setting replaced."""
        values: dict = {}
        own = self.encoder
        if result.pooling != own.pooling and result.padded_length == own.padded_length:
            values["padded_length"] = own.padded_length if result.pooled_by.padded else 0
        if result.sentence_vector == "pooled" and result.num_projections == own.num_projections:
            values["num_projections"] = 0
        return values

    def notes(
        self, experiment: EncoderConfig, result: EncoderConfig, needed: Collection[str]
    ) -> list[str]:
        """Returns lines to print: each field where the start, the experiment and the result differ.

        Args:
          experiment: the encoder as the experiment's files have it.
          result: the encoder that is trained.
          needed: see `fields_to_inherit`.
        """
        lines = []
        for name in (*VECTOR_FIELDS, *_TRAINING_FIELDS, *_TRAINING_FIELDS_IF_NAMED):
            trained, planned, now = (
                getattr(config, name) for config in (self.encoder, experiment, result)
            )
            if now != trained:
                why = "as is set"
                if now == planned:
                    why = "which the method needs" if name in needed else "the experiment's"
                if now == planned and name in VECTOR_FIELDS and not self.for_sentences:
                    why = "the experiment's, as that is not a sentence encoder"
                lines.append(f"task.encoder.{name}: {now}, {why}; {self.folder} has {trained}")
            elif now != planned and name in VECTOR_FIELDS:
                lines.append(f"task.encoder.{name}: {now}, kept from {self.folder}, not {planned}")
        return lines

    def length_notes(self, longest: int) -> list[str]:
        """Returns a line if the start's length for encoding and that of the training differ."""
        now = encoding_length(self, longest)
        if longest == self.max_seq_length:
            return []
        if now == longest:
            why = f"that of the training; {self.folder} has {self.max_seq_length}"
        else:
            why = f"kept from {self.folder}; the training reads {longest}"
        return [f"length for encoding: {now} tokens, {why}"]


def read_starting_encoder(path: str) -> StartingEncoder:
    """Reads the starting encoder from an encoder directory, or from the directory of a checkpoint.

    Raises:
      UserError: if neither is an encoder directory.
    """
    folder = path if EncoderDirectory.is_at(path) else os.path.dirname(path)
    # The message about a missing directory names what was given.
    directory = EncoderDirectory.open(folder if EncoderDirectory.is_at(folder) else path)
    settings = EncodingSettings.of_values(directory.values, directory.path / CONFIG_NAME)
    length = directory.max_seq_length
    return StartingEncoder(folder, directory.config, length, directory.for_sentences, settings)


def source_of_weights(init_checkpoint: str, model_dir: str | None) -> StartingEncoder | None:
    """Reads the encoder whose weights a run begins with; None: they are random.

    Args:
      init_checkpoint: what the training starts from, or empty.
      model_dir: the run's folder. If it has checkpoints, the run goes on from them, and the encoder
        that it once started from may be gone.

    Raises:
      UserError: if `init_checkpoint` is not an encoder directory.
    """
    if model_dir and EncoderDirectory.is_at(model_dir) and checkpoints_of(model_dir):
        return read_starting_encoder(model_dir)
    return read_starting_encoder(init_checkpoint) if init_checkpoint else None


def encoding_length(start: StartingEncoder | None, longest: int) -> int:
    """Returns the length for encoding of a trained encoder, in tokens.

    Args:
      start: see `source_of_weights`.
      longest: longest sequence of the training. From random weights, position embeddings beyond it
        are not trained.
    """
    return longest if start is None else max(start.max_seq_length, longest)


def is_for_sentences(start: StartingEncoder | None, trained: Collection[str]) -> bool:
    """Returns whether an encoder that these objectives have trained is for sentences."""
    trains_vectors = any(not objectives()[name].is_language_model for name in trained)
    return trains_vectors or (start is not None and start.for_sentences)
