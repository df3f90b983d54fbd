"""Opens the ONNX folders of other projects, whose graphs compute token outputs or sentence vectors.

Such a folder has `onnx/model.onnx` or `model.onnx`, a tokenizer of Hugging Face, and optionally
sentence-transformers' `modules.json`, which names the pooling. NumPy pools token outputs.
"""

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
_INT8 = ("model_int8.onnx", "model_quantized.onnx")


class PublicOnnxBackend(GraphBackend):
    """A backend for a graph of sentence vectors, or of token outputs that are pooled here."""

    padded_length = 0

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
        self._is_sentence = SENTENCE in outputs
        self._output = SENTENCE if self._is_sentence else outputs[0]
        self._modules, self._pooling = modules, POOLINGS[pooling]
        self.embedding_id = EmbeddingId(pooling, "pooled")
        self.max_positions = positions
        probe = self.embed(np.zeros([1, 2], np.int32), np.array([2], np.int32))
        self.dimension = probe.shape[1]

    def embed(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See `backends.Backend.embed`."""
        mask = mask_of(word_ids, lengths)
        outputs = self._run(self._output, word_ids, mask).astype(np.float32, copy=False)
        if self._is_sentence:
            return outputs
        vectors = self._pool(outputs, mask[:, :, np.newaxis])
        for dense in self._modules.dense:
            vectors = vectors @ dense.kernel + dense.bias
            vectors = np.tanh(vectors) if dense.activation == "tanh" else vectors
        return unit(vectors) if self._modules.normalize else vectors

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
    return OpenedFolder(
        PublicOnnxBackend(path, modules, pooling, positions, computation.device),
        vocabulary,
        min(length, positions)
        if computation.max_seq_length is None
        else computation.max_seq_length,
        settings,
        build_tokenizer(vocabulary, tensorflow=False),
    )
