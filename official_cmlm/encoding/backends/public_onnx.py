"""Opens the ONNX folders of other projects, whose graphs compute token outputs or sentence vectors.

Such a folder has `onnx/model.onnx` or `model.onnx`, a tokenizer of Hugging Face, and optionally
sentence-transformers' `modules.json`, which names the pooling. NumPy pools token outputs.
"""

import threading
from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.encoder_directory import EncodingSettings
from official_cmlm.checkpoints.formats.huggingface import MODULES, Modules, read_modules
from official_cmlm.checkpoints.formats.huggingface_tokenizer import (
    model_max_length,
    read_vocabulary,
)
from official_cmlm.checkpoints.formats.published_files import read_json
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import digest
from official_cmlm.configs.encoder import POOLINGS
from official_cmlm.encoding.backends import Computation, OpenedFolder
from official_cmlm.encoding.backends.onnx_graph import SENTENCE, SUBFOLDER, graph_name
from official_cmlm.encoding.backends.onnx_session import IDS, MASK, TYPES, GraphBackend, mask_of
from official_cmlm.tokenization import build_tokenizer
from official_cmlm.vectors.embeddings import EmbeddingId
from official_cmlm.vectors.nearest import unit

# File names for each precision, the preferred one first.
_FLOAT = ("model.onnx", "model_optimized.onnx")
# The name of token outputs in exports of sentence-transformers.
_TOKENS = "token_embeddings"
_INT8 = ("model_int8.onnx", "model_quantized.onnx")


class PublicOnnxBackend(GraphBackend):
    """A backend for a graph of sentence vectors, or of token outputs that are pooled here."""

    # An honest graph computes two tokens in less; one with an endless loop is stopped then.
    most_seconds = 300.0

    def __init__(
        self, path: Path, modules: Modules, pooling: str, positions: int, device: str | None
    ) -> None:
        """Opens a graph.

        Args:
          path: the `.onnx` file.
          modules: the modules after the graph.
          pooling: a key of `configs.encoder.POOLINGS`.
          positions: the longest sequence, in tokens.
          device: see `SentenceEncoder.load`.

        Raises:
          UserError: if ONNX Runtime cannot read the file, or its inputs are unknown.
        """
        super().__init__(path, path, device)
        unknown = set(self._inputs) - {IDS, MASK, TYPES}
        outputs = [value.name for value in self._session.get_outputs()]
        if unknown or IDS not in self._inputs or not outputs:
            raise UserError(
                f"{path}: has inputs {', '.join(self._inputs)}; only {IDS}, {MASK} and {TYPES} are "
                "known here"
            )
        self._output = next(name for name in (SENTENCE, _TOKENS, *outputs) if name in outputs)
        self._is_sentence = self._output == SENTENCE
        self._modules, self._pooling = modules, POOLINGS[pooling]
        self.embedding_id = EmbeddingId(pooling, "pooled")
        # A graph may take only batches, or only texts, of one size.
        shape = self._session.get_inputs()[list(self._inputs).index(IDS)].shape
        self._rows, self.padded_length = (n if isinstance(n, int) else 0 for n in shape)
        self.max_positions = min(positions, self.padded_length or positions)
        probe, mask = np.zeros([1, 2], np.int32), np.ones([1, 2], bool)
        timer = threading.Timer(self.most_seconds, setattr, (self._options, "terminate", True))
        timer.start()
        try:
            shape = self._run_padded(probe, mask).shape
        except Exception:
            if self._options.terminate:
                message = f"{path}: did not end in {self.most_seconds} s; export it again"
                raise UserError(message) from None
            raise
        finally:
            timer.cancel()
        if shape[:-1] != ((1,) if self._is_sentence else (1, 2)):
            raise UserError(
                f"{path}: its output {self._output} has the shape {list(shape)} for a text of 2 "
                f"tokens; only {SENTENCE} [batch, dim] and outputs [batch, tokens, dim] are known"
            )
        self.dimension = self.embed(probe, np.array([2], np.int32)).shape[1]

    def embed(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See `backends.Backend.embed`."""
        mask = mask_of(word_ids, lengths)
        outputs = self._run_padded(word_ids, mask).astype(np.float32, copy=False)
        if self._is_sentence:
            return outputs
        vectors = self._pool(outputs, mask[:, :, np.newaxis])
        for dense in self._modules.dense:
            vectors = vectors @ dense.kernel + dense.bias
            vectors = np.tanh(vectors) if dense.activation == "tanh" else vectors
        return unit(vectors) if self._modules.normalize else vectors

    def _run_padded(self, word_ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Returns the output, computed in batches of the graph's own size if it has one."""
        count, length = word_ids.shape
        rows = self._rows or max(count, 1)
        padding = (0, -count % rows), (0, max(self.padded_length - length, 0))
        word_ids, mask = np.pad(word_ids, padding), np.pad(mask, padding)
        starts = range(0, max(count, 1), rows)
        parts = [
            self._run(self._output, *(x[i : i + rows] for x in (word_ids, mask))) for i in starts
        ]
        outputs = np.concatenate(parts)[:count]
        return outputs[:, :length] if outputs.ndim > 2 else outputs

    def _pool(self, outputs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if self._pooling.first_token:
            return outputs[:, 0]
        if self._pooling.reduction == "max":
            return np.where(mask, outputs, np.finfo(np.float32).min).max(axis=1)
        return (outputs * mask).sum(axis=1) / mask.sum(axis=1)


def open_public(folder: Path, computation: Computation) -> OpenedFolder:
    """Opens a folder of another project.

    `computation.precision` is a key of `onnx_graph.PRECISIONS`.

    Raises:
      UserError: if a graph of this precision is missing, or if a module, the tokenizer or the
        vector is not supported.
    """
    precision, override = computation.precision, computation.override
    names = _FLOAT if precision == "float32" else (graph_name(precision), *_INT8)
    places = [place / name for name in names for place in (folder / SUBFOLDER, folder)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"{folder}: has no graph of precision {precision} ({', '.join(names)})")
    modules = read_modules(folder) if (folder / MODULES).exists() else Modules(folder)
    pooling = override.pooling or modules.pooling or "mean"
    others = override.layer or override.sentence_vector not in (None, "pooled")
    others = others or modules.word_weights is not None
    if others or pooling not in ("mean", "max", "cls"):
        raise UserError(
            f"{folder}: an ONNX graph of another project gives the vectors mean, max and cls, not "
            f"{override or 'means with WordWeights'}"
        )
    vocabulary = read_vocabulary(modules.transformer, None)
    values = read_json(modules.transformer / "config.json")
    positions = values.get("max_position_embeddings")
    positions = positions if type(positions) is int and positions > 2 else 512
    length = modules.max_seq_length or model_max_length(modules.transformer) or positions
    encoding: EncodingSettings = modules.encoding
    settings = EncodingSettings(
        encoding.prompts,
        encoding.default_prompt_name,
        encoding.similarity_fn_name,
        modules.normalize,
        weights=digest([path]),
    )
    backend = PublicOnnxBackend(path, modules, pooling, positions, computation.device)
    return OpenedFolder(
        backend,
        vocabulary,
        min(length, backend.max_positions)
        if computation.max_seq_length is None
        else computation.max_seq_length,
        settings,
        build_tokenizer(vocabulary, tensorflow=False),
    )
