"""Backends, which compute the vectors of a padded batch of token ids for `SentenceEncoder`.

A backend is a module of this package with a function `open_folder(folder, computation)`, and a line
in `BACKENDS`. A backend is imported only when a caller names it, so that the packages of other
backends need not be installed.
"""

import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra, is_installed
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.checkpoints.encoder_directory import EncodingSettings
    from official_cmlm.tokenization import Tokenizer, Vocabulary
    from official_cmlm.vectors.embeddings import EmbeddingId

# `queries` are single texts, where the time of each counts; `bulk` is many texts, where the number
# of texts per second counts.
WORKLOADS = ("queries", "bulk")
# Precisions of ONNX Runtime.
_ONNX = ("float32", "int8")
# Name -> module.
BACKENDS = {
    "tensorflow": "official_cmlm.encoding.backends.tensorflow",
    "onnx": "official_cmlm.encoding.backends.onnx",
    # This backend chooses the faster of the two above on this machine.
    "auto": "official_cmlm.encoding.backends.auto",
}


@runtime_checkable
class Backend(Protocol):
    """The computation of embeddings of padded batches; several threads call `embed` at once.

    Attributes:
      name: its key in `BACKENDS`.
      embedding_id: the sentence vector that it computes; the weights may be unknown.
      dimension: width of the embeddings.
      max_positions: the longest sequence that it takes, in tokens.
      padded_length: length to which the backend itself pads each row, in tokens, see
        `EncoderConfig.padded_length`; 0 if it does not pad.
      batch_tokens: tokens of a batch, padding included, that reach full speed and fit in the
        caches; a batch of long sentences has fewer sentences.
      call_tokens: tokens whose computation takes about as long as the fixed costs of a call; a
        batch has no more tokens of padding than these.
      concurrent: number of batches that are computed at once.
    """

    name: str
    embedding_id: "EmbeddingId"
    dimension: int
    max_positions: int
    padded_length: int
    batch_tokens: int
    call_tokens: int
    concurrent: int

    def embed(self, word_ids: "np.ndarray", lengths: "np.ndarray") -> "np.ndarray":
        """Embeds a padded batch.

        Args:
          word_ids: int32 `[batch, seq]`, special tokens included; `seq` is the longest row.
          lengths: int32 `[batch]`, real tokens of each row; the rest is padding.

        Returns:
          float32 `[batch, dimension]`.
        """


@dataclasses.dataclass(frozen=True)
class Computation:
    """The way to compute an encoder's vectors; see `SentenceEncoder.load`.

    Attributes:
      max_seq_length: longest text, in tokens; None: the encoder's own.
      precision: precision of the arithmetic; each backend has its own set.
      override: the vector to compute.
      device: the device; None: the backend's default.
      workload: the one of `WORKLOADS` for which `auto` chooses a backend.
    """

    max_seq_length: int | None = None
    precision: str = "float32"
    override: VectorOverride = OWN_VECTOR
    device: str | None = None
    workload: str = WORKLOADS[0]


@dataclasses.dataclass(frozen=True)
class OpenedFolder:
    """An encoder directory that a backend has opened.

    Attributes:
      backend: computes the embeddings.
      vocabulary: the directory's vocabulary.
      max_seq_length: longer texts are cut to this many tokens.
      settings: prompts and the like.
      tokenizer: turns texts into ids; None: `tokenization.build_tokenizer` makes it.
    """

    backend: Backend
    vocabulary: "Vocabulary"
    max_seq_length: int
    settings: "EncodingSettings"
    tokenizer: "Tokenizer | None" = None


def open_folder(name: str, folder: Path, computation: Computation) -> OpenedFolder:
    """Opens an encoder directory, or a public encoder's folder, by the backend of that name.

    For `auto` and the workload `queries`, ONNX Runtime is taken without a measurement, as the
    import of TensorFlow takes longer than hundreds of queries; TensorFlow opens an encoder that is
    too large for it. For `bulk` see `backends.auto`.

    Raises:
      UserError: if the backend is unknown, or cannot open the folder.
    """
    if name not in BACKENDS:
        raise UserError(f"backend {name!r}: no such backend; take one of {', '.join(BACKENDS)}")
    if name == "auto" and computation.workload == "queries" and computation.precision in _ONNX:
        onnx, name = importlib.import_module(BACKENDS["onnx"]), "tensorflow"
        try:
            return onnx.open_folder(folder, computation)
        except UserError:
            exact = computation.precision == "float32" and is_installed("tensorflow")
            if not exact or onnx.has_graphs(folder):
                raise
    if name == "tensorflow":
        check_extra("train", "tensorflow")
    return importlib.import_module(BACKENDS[name]).open_folder(folder, computation)
