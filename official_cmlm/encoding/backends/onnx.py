"""The backend of ONNX Runtime, for exported folders and for encoder directories.

The graph of an encoder directory is written once and kept in the user's cache folder, with its
digest beside it. Nothing here needs TensorFlow.
"""

import dataclasses
import json
import os
import warnings
from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, read_published_settings
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.checkpoints.find_encoder import encoder_directory_of
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.common.errors import UserError, guard_reader, guard_reading
from official_cmlm.common.files import (
    atomic_write,
    cache_folder,
    digest,
    is_cached,
    note_cached,
    remove_cached,
)
from official_cmlm.configs.encoder import POOLINGS, VectorOverride
from official_cmlm.encoding.backends import Computation, OpenedFolder
from official_cmlm.encoding.backends.onnx_graph import (
    METADATA,
    PRECISIONS,
    SENTENCE,
    SUBFOLDER,
    TOKENS,
    GraphDescription,
    graph_name,
    graph_of,
)
from official_cmlm.encoding.backends.onnx_session import GraphBackend, mask_of
from official_cmlm.encoding.backends.public_onnx import open_public
from official_cmlm.tokenization import (
    BytePairVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    WordPieceVocabulary,
    build_tokenizer,
    load_vocabulary,
)
from official_cmlm.tokenization.wordpiece import read_wordpiece
from official_cmlm.vectors.embeddings import EmbeddingId

# Version of the graphs in the cache; a new number makes new graphs of the same weights.
_GRAPH_VERSION = 3
# The producer's name, which is at the beginning of the file of each graph of this project.
_PRODUCER = b"official_cmlm"


class OnnxBackend(GraphBackend):
    """A backend that embeds by a graph of `onnx_graph`.

    Attributes:
      description: the facts that the graph stores.
    """

    def __init__(
        self, graph: Path | bytes, where: str | os.PathLike, device: str | None = None
    ) -> None:
        super().__init__(graph, where, device)
        with guard_reading(where, "export it again"):
            values = self._session.get_modelmeta().custom_metadata_map[METADATA]
            self.description = GraphDescription(**json.loads(values))
        self.embedding_id = EmbeddingId(self.description.pooling, self.description.sentence_vector)
        self.dimension = self.description.dimension
        self.max_positions = self.description.max_positions
        self.padded_length = self.description.padded_length

    def embed(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See `backends.Backend.embed`."""
        return self._run(SENTENCE, word_ids, mask_of(word_ids, lengths))

    def token_embeddings(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns the last layer's outputs: float32 `[batch, seq, hidden]`."""
        return self._run(TOKENS, word_ids, mask_of(word_ids, lengths))


def fastest_int8() -> str:
    """Returns the key of `PRECISIONS` for this processor."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        flags = []
    # These flags mean that four 8-bit products are summed in 32 bits; asimddp is of 64-bit ARM.
    with_32_bits = {"avx512_vnni", "avx_vnni", "asimddp"} & set(flags)
    return "qint8_avx512_vnni" if with_32_bits else "qint8_avx2"


def open_folder(folder: Path, computation: Computation) -> OpenedFolder:
    """Opens an encoder's folder; see `backends.open_folder`.

    A folder of `export.export_onnx` and a public folder of ONNX graphs are opened by their own
    graph. For an encoder directory, a graph is written into the cache; so it is for a public folder
    with weights, which is first imported into the cache.

    The precision is a key of `PRECISIONS`, or `int8`, which stands for `fastest_int8`.

    Raises:
      UserError: if the folder is none of these, or has no such vector, precision or device.
      ValueError: for another precision.
    """
    if computation.precision not in ("int8", *PRECISIONS):
        raise ValueError(
            "precision must be float32 or int8 with the backend onnx; got "
            f"{computation.precision!r}"
        )
    if computation.precision == "int8":
        computation = dataclasses.replace(computation, precision=fastest_int8())
    if has_graphs(folder) and is_exported(folder):
        path = folder / SUBFOLDER / graph_name(computation.precision)
        if not path.exists():
            raise UserError(
                f"{path}: not there; export it with --precisions={computation.precision}"
            )
        backend = OnnxBackend(path, path, computation.device)
        _check_vector(folder, computation.override, backend.embedding_id)
        vocabulary = _vocabulary(folder, backend.description)
        settings = read_published_settings(folder, backend.description.normalize)
    elif is_public(folder):
        return open_public(folder, computation)
    else:
        directory = encoder_directory_of(folder)
        vocabulary, settings = directory.vocabulary, directory.settings
        graph = _graph_of(directory, computation)
        where = directory.path if isinstance(graph, bytes) else graph
        backend = OnnxBackend(graph, where, computation.device)
        if computation.override.layer is not None:
            # The directory's ranges are of the last layer's vectors, not of this layer's.
            backend.embedding_id = backend.embedding_id.of_layer(computation.override.layer)
    length = computation.max_seq_length
    length = backend.description.max_seq_length if length is None else length
    tokenizer = build_tokenizer(vocabulary, tensorflow=False)
    return OpenedFolder(backend, vocabulary, length, settings, tokenizer)


def is_exported(folder: Path) -> bool:
    """Returns whether a folder holds graphs of `export.export_onnx`."""
    paths = (folder / SUBFOLDER / graph_name(name) for name in PRECISIONS)
    return any(_PRODUCER in _head(path) for path in paths if path.is_file())


def has_graphs(folder: Path) -> bool:
    """Returns whether a folder is opened by its own graphs, exported here or elsewhere."""
    return not EncoderDirectory.is_at(folder) and (is_exported(folder) or is_public(folder))


def is_public(folder: Path) -> bool:
    """Returns whether a folder has graphs of another project, and no weights to import."""
    graphs = any(folder.glob("*.onnx")) or any((folder / SUBFOLDER).glob("*.onnx"))
    return graphs and not EncoderDirectory.is_at(folder) and not any(folder.rglob("*.safetensors"))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(64)


def _check_vector(folder: Path, override: VectorOverride, exported: EmbeddingId) -> None:
    for name in ("pooling", "sentence_vector"):
        chosen, has = getattr(override, name), getattr(exported, name)
        if chosen not in (None, has):
            raise UserError(
                f"{folder}: was exported with {name} {has}, not {chosen}; export it again with "
                f"--{name}={chosen}, or load the encoder directory"
            )


@guard_reader("export it again, or take a newer release")
def _vocabulary(folder: Path, description: GraphDescription) -> Vocabulary:
    """Reads the vocabulary of an exported folder, whose files are Hugging Face's."""
    if description.vocabulary == WordPieceVocabulary.kind:
        markers = description.settings.get("markers", "bert")
        vocabulary = read_wordpiece(folder / "vocab.txt", lower_case=True, markers=markers)
    elif description.vocabulary == BytePairVocabulary.kind:
        vocabulary = load_vocabulary(folder / "merges.txt")
    elif description.vocabulary == SentencePieceVocabulary.kind:
        vocabulary = read_vocabulary(folder, None)
    else:
        raise UserError(f"{folder}: its vocabulary, {description.vocabulary!r}, is not known here")
    return dataclasses.replace(vocabulary, **description.settings)


def _graph_of(directory: EncoderDirectory, computation: Computation) -> Path | bytes:
    """Returns the path of the directory's graph in the cache, after writing it if it is not there.

    If the cache cannot be written, the content of the graph is returned instead.
    """
    precision, override = computation.precision, computation.override
    # The length that texts are cut to is part of the graph only if they are padded to it.
    pooling = POOLINGS.get(override.pooling)
    padded_to = computation.max_seq_length if pooling and pooling.padded else None
    # A family is all graphs of the directory with the same vector and precision.
    vector = (str(override), padded_to)
    family = f"onnx-{_hash([str(directory.path.resolve()), vector])}-{precision}-"
    content = [_GRAPH_VERSION, directory.config.as_dict(), directory.max_seq_length]
    path = cache_folder() / f"{family}{_hash([*content, directory.weights_digest])}.onnx"
    if is_cached(path):
        return path
    weights = read_weights(directory, override, padded_to)
    length = padded_to or directory.max_seq_length
    graph = graph_of(weights, directory.vocabulary, length, precision)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(graph)
        note_cached(path, path)
        # The other graphs of this family were made before the directory changed.
        for other in set(path.parent.glob(f"{family}*.onnx")) - {path}:
            remove_cached(other)
    except OSError as error:
        warnings.warn(
            f"{path.parent}: cannot keep the graph of {directory.path} ({error.strerror}), so it "
            "is made at each load; set XDG_CACHE_HOME to a folder that can be written",
            stacklevel=2,
        )
        return graph
    return path


def _hash(values: list) -> str:
    return digest([], json.dumps(values, sort_keys=True))
