"""What a training keeps of the encoder that it starts from.

The network is always the start's, or its weights would not fit. What a sentence vector is, and up
to which length, is the start's too if it was made for sentences: imported with a pooling of its
own, or trained by an objective of sentences. Of a plain language model these say nothing, and the
experiment decides.
"""

import dataclasses
import os
from collections.abc import Collection
from pathlib import Path

from official_cmlm.checkpoints.encoder_directory import (
    CONFIG_NAME,
    LANGUAGE_MODEL_OBJECTIVES,
    is_sentence_encoder,
    read_description,
)
from official_cmlm.configs.encoder import EncoderConfig

# Fields of `task.encoder` that say what a sentence vector is.
OF_THE_VECTOR = (
    "pooling",
    "padded_length",
    "padding_id",
    "sentence_vector",
    "num_projections",
    "projection_depth",
    "projection_width",
    "normalize",
)
# Fields that are the experiment's, whatever it starts from; and those that are if it names them.
_OF_THE_TRAINING = ("drophead_rate",)
_OF_THE_TRAINING_IF_NAMED = ("dropout_rate", "attention_dropout_rate")
# The experiment's too; what is trained does not depend on it, so nothing is said.
_OF_THE_MEMORY = ("remat",)


@dataclasses.dataclass(frozen=True)
class Start:
    """The encoder that a training starts from.

    Attributes:
      folder: its encoder directory.
      encoder: its network and sentence vector.
      max_seq_length: its length for encoding, in tokens.
      for_sentences: whether its sentence vector was made to be one; false for language models.
    """

    folder: str
    encoder: EncoderConfig
    max_seq_length: int
    for_sentences: bool

    def taken_over(self, needed: Collection[str], named: Collection[str]) -> dict:
        """The fields of `task.encoder` that a training takes over.

        Args:
          needed: fields of the vector that the experiment says its method needs.
          named: all fields of the encoder that the experiment sets.
        """
        own = {*_OF_THE_TRAINING, *_OF_THE_MEMORY, *needed}
        own |= {name for name in _OF_THE_TRAINING_IF_NAMED if name in named}
        if not self.for_sentences:
            own |= set(OF_THE_VECTOR)
        return {name: value for name, value in self.encoder.as_dict().items() if name not in own}

    def without_leftovers(self, result: EncoderConfig) -> dict:
        """What goes with a vector of the start, where a setting has chosen another one.

        Args:
          result: the encoder after all settings.
        """
        values: dict = {}
        own = self.encoder
        if result.pooling != own.pooling and result.padded_length == own.padded_length:
            values["padded_length"] = 0 if result.pooling != "mean_padded" else own.padded_length
        if result.sentence_vector == "pooled" and result.num_projections == own.num_projections:
            values["num_projections"] = 0
        return values

    def notes(
        self, experiment: EncoderConfig, result: EncoderConfig, needed: Collection[str]
    ) -> list[str]:
        """Lines to print: each field where the start, the experiment and the result differ.

        Args:
          experiment: the encoder as the experiment's files have it.
          result: the encoder that is trained.
          needed: see `taken_over`.
        """
        lines = []
        for name in (*OF_THE_VECTOR, *_OF_THE_TRAINING, *_OF_THE_TRAINING_IF_NAMED):
            theirs, own, now = (
                getattr(config, name) for config in (self.encoder, experiment, result)
            )
            if now != theirs:
                why = "as is set"
                if now == own:
                    why = "which the method needs" if name in needed else "the experiment's"
                if now == own and name in OF_THE_VECTOR and not self.for_sentences:
                    why = "the experiment's, as that is no sentence encoder"
                lines.append(f"task.encoder.{name}: {now}, {why}; {self.folder} has {theirs}")
            elif now != own and name in OF_THE_VECTOR:
                lines.append(f"task.encoder.{name}: {now}, kept from {self.folder}, not {own}")
        return lines

    def length_notes(self, longest: int) -> list[str]:
        """A line where the length for encoding and that of the training differ; see `length`."""
        now = length(self, longest)
        if longest == now == self.max_seq_length:
            return []
        kept = f"kept from {self.folder}" if now == self.max_seq_length else "that of the training"
        rest = f"; the training reads {longest}" if now != longest else ""
        rest += f"; {self.folder} has {self.max_seq_length}" if now != self.max_seq_length else ""
        return [f"length for encoding: {now} tokens, {kept}{rest}"]


def read_start(path: str) -> Start:
    """Reads what is kept of an encoder directory, or of that of a checkpoint in one.

    Raises:
      UserError: if there is none.
    """
    folder = path if (Path(path) / CONFIG_NAME).exists() else os.path.dirname(path)
    # The message about a missing directory names what was given.
    config, _, max_seq_length = read_description(
        folder if (Path(folder) / CONFIG_NAME).exists() else path
    )
    return Start(folder, config, max_seq_length, is_sentence_encoder(folder))


def length(start: Start | None, longest: int) -> int:
    """Length for encoding of a trained encoder, in tokens.

    Args:
      start: what it started from; None: random weights.
      longest: longest sequence of the training.
    """
    if start is not None and start.for_sentences:
        return max(start.max_seq_length, longest)
    # Position embeddings beyond the longest training sequence are not trained.
    return longest


def for_sentences(start: Start | None, objectives: Collection[str]) -> bool:
    """Whether an encoder that these objectives have trained is one of sentences."""
    return not set(objectives) <= LANGUAGE_MODEL_OBJECTIVES or (
        start is not None and start.for_sentences
    )
