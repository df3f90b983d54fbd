"""The backend of TensorFlow: the encoder's CPU forward pass as one graph function."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.find_encoder import encoder_directory_of
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.encoding.backends import Computation, OpenedFolder
from official_cmlm.modeling.cpu_forward import Weights, embed, inference_weights, join_kernels
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.vectors.embeddings import EmbeddingId

# While TensorFlow prepares a graph, it takes up to about ten times the memory of its constants.
_MOST_CONSTANT_BYTES = 1 << 26


class TensorFlowBackend:
    """A backend that embeds with the weights of a Keras encoder; see `backends.Backend`.

    With the precision `float32` it reads the encoder's own variables, or constants made of them.
    """

    name = "tensorflow"
    # This is enough for full speed and small enough for the caches.
    batch_tokens = 2048
    # While one batch runs a single-threaded operation, the other keeps the cores busy.
    concurrent = 2

    def __init__(
        self, model: SentenceEncoderModel, precision: str = "float32", constant: bool = False
    ) -> None:
        """Takes the encoder.

        Args:
          model: the encoder.
          precision: one of `cpu_forward.PRECISIONS`.
          constant: whether to compute with a constant copy of the weights, which is faster without
            a GPU. After `model` is read, the variables are used again, as the caller may train it.
        """
        self._model = model
        self.embedding_id = EmbeddingId(model.config.pooling, model.config.sentence_vector)
        self.dimension: int = model.config.embedding_size
        self.max_positions: int = model.config.max_seq_length
        self.padded_length: int = model.config.padded_length
        # A GPU computes a large batch in the time of a small one.
        on_gpu = bool(tf.config.list_logical_devices("GPU"))
        self.call_tokens = self.batch_tokens if on_gpu else 32
        weights = inference_weights(model, precision)
        self._of_model = self._forward = self._function(lambda: weights)
        if constant and precision == "float32" and not on_gpu:
            self._forward = self._function(lambda: _constants(weights, model.config))
        # Two first calls at once would both prepare the graph, each with its constants.
        self._first_call: AbstractContextManager = threading.Lock()

    def _function(
        self, weights: Callable[[], Weights]
    ) -> tf.types.experimental.PolymorphicFunction:
        """Returns the forward pass; it is traced, and the weights are made, at its first call."""
        model = self._model
        return tf.function(
            lambda ids, lengths: embed(weights(), model.config, model.projection, ids, lengths),
            input_signature=[
                tf.TensorSpec([None, None], tf.int32),
                tf.TensorSpec([None], tf.int32),
            ],
        )

    @property
    def model(self) -> SentenceEncoderModel:
        """The Keras encoder; from now on its variables are read at each call."""
        self._forward = self._of_model
        return self._model

    def embed(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See `backends.Backend.embed`."""
        # The caller may be tracing a function of its own.
        with tf.init_scope(), self._first_call:
            vectors = self._forward(word_ids, lengths)
        self._first_call = nullcontext()
        return vectors.numpy()

    def token_embeddings(self, word_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns the last layer's outputs: float32 `[batch, seq, hidden]`.

        The Keras encoder computes them, which takes longer than `embed`.
        """
        mask = (np.arange(word_ids.shape[1]) < lengths[:, np.newaxis]).astype(np.int32)
        names = ("input_word_ids", "input_mask", "input_type_ids")
        inputs = dict(zip(names, map(tf.constant, (word_ids, mask, np.zeros_like(mask)))))
        return self._model(inputs)["sequence_output"].numpy()


def open_folder(folder: Path, computation: Computation) -> OpenedFolder:
    """Opens an encoder directory, or a public folder by import; see `backends.open_folder`."""
    directory = encoder_directory_of(folder)
    with tf.device(_device(computation.device)):
        model = load_encoder(directory, computation.override, computation.max_seq_length)
        backend = TensorFlowBackend(model, computation.precision, constant=True)
    if computation.override.layer is not None:
        # The directory's ranges are of the last layer's vectors, not of this layer's.
        backend.embedding_id = backend.embedding_id.of_layer(computation.override.layer)
    length = directory.length(computation.max_seq_length)
    return OpenedFolder(backend, directory.vocabulary, length, directory.settings)


def _constants(weights: Weights, config: EncoderConfig) -> Weights:
    """Returns the weights, with constants in place of all but the tables.

    If the constants would be too large, the weights are returned unchanged.
    """
    names = [name for name in weights if not name.endswith("/embeddings")]
    if sum(4 * weights[name].shape.num_elements() for name in names) > _MOST_CONSTANT_BYTES:
        return weights
    with tf.init_scope():
        arrays = {name: weights[name].numpy() for name in names}
    joined = join_kernels(arrays, config)
    return {**weights, **{name: tf.constant(array) for name, array in joined.items()}}


def _device(device: str | None) -> str | None:
    """Returns TensorFlow's name of a device; `cuda` is a GPU."""
    if device is None:
        return None
    kind, _, number = device.lower().partition(":")
    name = f"{'GPU' if kind == 'cuda' else kind.upper()}:{number or 0}"
    there = [device.name.rpartition("/device:")[2] for device in tf.config.list_logical_devices()]
    if name not in there:
        raise UserError(
            f"device {device}: TensorFlow has {', '.join(there)} here; take one of them"
        )
    return f"/{name}"
