"""The backend of ONNX Runtime: an exported folder, without TensorFlow, or an encoder directory.

The graph of an encoder directory is written once, which needs TensorFlow and the package `onnx`,
and kept in the user's cache folder.
"""

import dataclasses
import json
import os
import warnings
from pathlib import Path

import numpy as np

from official_cmlm.backends import Opened
from official_cmlm.backends.onnx_graph import (
    IDS,
    MASK,
    METADATA,
    PRECISIONS,
    SENTENCE,
    TOKENS,
    TYPES,
    GraphDescription,
)
from official_cmlm.checkpoints.encoder_directory import (
    CONFIG_NAME,
    EncoderDirectory,
    read_published_settings,
)
from official_cmlm.checkpoints.huggingface_tokenizer import read_vocabulary
from official_cmlm.configs.encoder import POOLINGS, VectorOverride
from official_cmlm.embeddings import EmbeddingId
from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.files import atomic_write, digest
from official_cmlm.tokenization import (
    BytePairVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    WordPieceVocabulary,
    build_tokenizer,
    load_vocabulary,
)
from official_cmlm.tokenization.wordpiece import MARKERS, read_wordpiece

# Folder of the graphs in an exported folder, where sentence-transformers looks for them.
SUBFOLDER = "onnx"
# Version of the graphs in the cache; another number makes new graphs of the same weights.
_GRAPH_VERSION = 3


class OnnxBackend:
    """Embeds by a graph of `onnx_graph`; see `backends.Backend`.

    Attributes:
      description: the facts that the graph stores.
    """

    name = "onnx"
    batch_tokens = 2048

    def __init__(self, graph: Path | bytes, name: str | os.PathLike = "graph") -> None:
        """Opens a graph.

        Args:
          graph: the `.onnx` file, or its content.
          name: name of a content, for messages.

        Raises:
          UserError: if ONNX Runtime is missing, or cannot read the file.
        """
        check_extra("onnx", "onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = usable_cores()
        # A thread that spins while it waits for work takes its core from the other batch.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Errors are raised as exceptions, so they are not logged too.
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                graph if isinstance(graph, bytes) else os.fspath(graph),
                options,
                providers=["CPUExecutionProvider"],
            )
            values = self._session.get_modelmeta().custom_metadata_map[METADATA]
            self.description = GraphDescription(**json.loads(values))
        except Exception as error:  # ONNX Runtime's errors have no common class.
            where = name if isinstance(graph, bytes) else graph
            raise UserError(
                f"{where}: ONNX Runtime cannot open it as a graph of export.export_onnx "
                f"({str(error)[:160]}); export it again"
            ) from None
        self._takes_types = TYPES in {value.name for value in self._session.get_inputs()}
        self.embedding_id = EmbeddingId(self.description.pooling, self.description.sentence_vector)
        self.dimension = self.description.dimension
        self.max_positions = self.description.max_positions
        self.padded_length = self.description.padded_length
        # While one batch is in a single-threaded step, another one uses the other cores.
        self.concurrent = 2 if usable_cores() > 1 else 1

    def embed(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See `backends.Backend.embed`."""
        return self._output(SENTENCE, word_ids, lengths)

    def token_embeddings(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns the last layer's outputs: float32 `[batch, seq, hidden]`."""
        return self._output(TOKENS, word_ids, lengths)

    def _output(self, name: str, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        mask = np.arange(word_ids.shape[1]) < lengths[:, np.newaxis]
        feeds = {IDS: word_ids.astype(np.int64), MASK: mask.astype(np.int64)}
        if self._takes_types:
            feeds[TYPES] = np.zeros(word_ids.shape, np.int64)
        return self._session.run([name], feeds)[0]


def graph_name(precision: str) -> str:
    """Returns the name of a graph's file: `model.onnx`, `model_qint8_avx2.onnx`."""
    return "model.onnx" if precision == "float32" else f"model_{precision}.onnx"


def fastest_int8() -> str:
    """Returns the key of `PRECISIONS` for this processor."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        flags = []
    # These sum four 8-bit products in 32 bits, as the instructions of 64-bit ARM do.
    with_32_bits = {"avx512_vnni", "avx_vnni", "asimddp"} & set(flags)
    return "qint8_avx512_vnni" if with_32_bits else "qint8_avx2"


def open_folder(
    folder: Path, max_seq_length: int | None, precision: str, override: VectorOverride
) -> Opened:
    """Opens an exported folder or an encoder directory; see `backends.open_folder`.

    The precision is `float32`, `int8`, which is `fastest_int8`, or another key of `PRECISIONS`.

    Raises:
      UserError: if the folder is neither, or has no such vector or precision.
      ValueError: for another precision.
    """
    if precision not in ("int8", *PRECISIONS):
        raise ValueError(
            f"precision must be float32 or int8 with the backend onnx; got {precision!r}"
        )
    precision = fastest_int8() if precision == "int8" else precision
    if EncoderDirectory.is_at(folder):
        directory = EncoderDirectory.open(folder)
        vocabulary, settings = directory.vocabulary, directory.settings
        backend = _of_encoder_directory(directory, max_seq_length, precision, override)
    else:
        backend = OnnxBackend(_exported_graph(folder, precision))
        _check_vector(folder, override, backend.embedding_id)
        vocabulary = _vocabulary(folder, backend.description)
        settings = read_published_settings(folder, backend.description.normalize)
    length = backend.description.max_seq_length if max_seq_length is None else max_seq_length
    tokenizer = build_tokenizer(vocabulary, tensorflow=False)
    return Opened(backend, vocabulary, length, settings, tokenizer)


def is_exported(folder: Path) -> bool:
    """Returns whether a folder holds graphs of `export.export_onnx`."""
    return any((folder / SUBFOLDER / graph_name(name)).exists() for name in PRECISIONS)


def _exported_graph(folder: Path, precision: str) -> Path:
    if not is_exported(folder):
        raise UserError(
            f"{folder}: neither an encoder directory (no {CONFIG_NAME}) nor an export "
            f"({SUBFOLDER}/{graph_name('float32')}); write one with export.export_onnx"
        )
    path = folder / SUBFOLDER / graph_name(precision)
    if not path.exists():
        raise UserError(f"{path}: not there; export it with --precisions={precision}")
    return path


def _check_vector(folder: Path, override: VectorOverride, exported: EmbeddingId) -> None:
    for name in ("pooling", "sentence_vector"):
        wanted, has = getattr(override, name), getattr(exported, name)
        if wanted not in (None, has):
            raise UserError(
                f"{folder}: was exported with {name} {has}, not {wanted}; export it again with "
                f"--{name}={wanted}, or load the encoder directory"
            )


def _vocabulary(folder: Path, description: GraphDescription) -> Vocabulary:
    """Reads the vocabulary of an exported folder, whose files are Hugging Face's."""
    if description.vocabulary == WordPieceVocabulary.kind:
        markers = description.settings.get("markers", "bert")
        if markers not in tuple(MARKERS):
            raise UserError(
                f"{folder}: its vocabulary's markers, {markers!r}, are not known here; export it "
                "again, or take a newer release"
            )
        vocabulary = read_wordpiece(folder / "vocab.txt", lower_case=True, markers=markers)
    elif description.vocabulary == BytePairVocabulary.kind:
        vocabulary = load_vocabulary(folder / "merges.txt")
    elif description.vocabulary == SentencePieceVocabulary.kind:
        vocabulary = read_vocabulary(folder, None)
    else:
        raise UserError(f"{folder}: its vocabulary, {description.vocabulary!r}, is not known here")
    try:
        return dataclasses.replace(vocabulary, **description.settings)
    except TypeError:
        raise UserError(
            f"{folder}: its vocabulary has settings that are not known here "
            f"({', '.join(map(str, description.settings))}); export it again, or take a newer "
            "release"
        ) from None


def _of_encoder_directory(
    directory: EncoderDirectory,
    max_seq_length: int | None,
    precision: str,
    override: VectorOverride,
) -> OnnxBackend:
    """Opens the graph in the cache; writes it if the directory has changed since."""
    check_extra("onnx", "onnxruntime")
    # The length that texts are cut to is part of the graph only if they are padded to it.
    pooling = POOLINGS.get(override.pooling)
    padded_to = max_seq_length if pooling and pooling.padded else None
    # A family is all graphs of the directory with the same vector.
    vector = (override.pooling, override.sentence_vector, padded_to)
    family = f"onnx-{_hash([str(directory.path.resolve()), vector])}-{precision}-"
    content = [_GRAPH_VERSION, directory.config.as_dict(), directory.max_seq_length]
    path = cache_folder() / f"{family}{_hash([*content, directory.weights_digest])}.onnx"
    if os.path.exists(path):
        try:
            return OnnxBackend(path)
        except UserError:
            # The file is damaged, so it is written again.
            pass
    check_extra("onnx", "onnx", "onnxruntime")
    from official_cmlm.backends.onnx_graph import graph_of
    from official_cmlm.checkpoints.weights import load_encoder

    model = load_encoder(directory, override, padded_to)
    length = padded_to or directory.max_seq_length
    graph = graph_of(model, directory.vocabulary, length, precision)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(graph)
        # The other graphs of this family are of weights that the directory has no longer.
        for older in set(path.parent.glob(f"{family}*.onnx")) - {path}:
            older.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(
            f"{path.parent}: cannot keep the graph of {directory.path} ({error.strerror}), so it "
            "is made at each load; set XDG_CACHE_HOME to a folder that can be written",
            stacklevel=2,
        )
        return OnnxBackend(graph, name=directory.path)
    return OnnxBackend(path)


def _hash(values: list) -> str:
    return digest([], json.dumps(values, sort_keys=True))


def cache_folder() -> Path:
    """Returns `official_cmlm` below XDG_CACHE_HOME or `~/.cache`; it need not exist.

    A user may remove its content at any time: it can be made again.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "official_cmlm"


def usable_cores() -> int:
    """Returns the cores that this process may use, or fewer if its environment says so.

    The variables are those that `worker_processes` sets to a process's share.
    """
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return min(cores, int(value))
    return cores
