"""The serving model: strings in, embeddings out, for TensorFlow Serving, and the files beside it.

It runs `cpu_forward.embed`, as `SentenceEncoder.encode` does, and like that sorts the texts of a
request by length, so that little is padding. Everything is in the graph, of ops that TensorFlow
Serving 2.18 has; `tests/export/serving_ops.py` lists them.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.common.protobuf_messages import Messages
from official_cmlm.modeling.cpu_forward import embed, inference_weights, join_kernels
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

from .preprocessing import Preprocess, check_rank, cut_bytes, pack_ids

# Bytes of weights that become constants of the graph. Its file, like every protocol buffer, has at
# most 2 GiB, and the vocabulary is in it too.
MOST_FROZEN = 1_600_000_000
# Most tokens of a group of texts, padding included, and the least length of its texts as a share of
# the greatest. Smaller groups have less padding, but multiply smaller matrices.
_GROUP_TOKENS, _SHORTEST = 1024, 0.7
# Texts of this many tokens or fewer count as equally long.
_SHORT = 8
# Groups that are computed concurrently, as batches are in `encode`.
_CONCURRENT = 2
# A function that is not inlined has its constants, and those computed from them when the graph is
# optimised, once for all signatures, and its matrix products are not inside a loop.
_NOT_INLINED = {"_noinline": True}
# Paths are those of a container with the export: `docker run -v "$PWD/work/tfhub:/models" …`.
_MODELS = """\
model_config_list {
  config {
    name: "sentence_encoder"
    base_path: "/models/serving"
    model_platform: "tensorflow"
    model_version_policy { latest { num_versions: 1 } }
  }
}
"""
# The model sorts the texts of a batch by length itself, so batches of any texts may be formed.
_BATCHING = """\
# Texts of a request at most; a longer one is refused.
max_batch_size { value: 4096 }
# Texts that are computed together; longer requests are divided.
enable_large_batch_splitting { value: true }
max_execution_batch_size { value: 64 }
# How long a text waits for others, in microseconds.
batch_timeout_micros { value: 1000 }
# Requests that wait; further ones are refused.
max_enqueued_batches { value: 1000 }
# As many as cores is a good number.
num_batch_threads { value: 2 }
"""
_SERVED_NAME = "sentence_encoder"
# Texts of a warm-up request: one, and as many as a batch.
_BATCHES = (1, 64)
_TEXTS = ("A short text.", "A text of some more words than the other one, for it is longer.")

# Messages of TensorFlow Serving's `apis/prediction_log.proto`, `predict.proto` and `model.proto`.
# The package tensorflow-serving-api, which has them, requires certain versions of TensorFlow.
_MESSAGES = Messages(
    "official_cmlm.serving",
    {
        "PredictionLog": {"predict_log": (6, "PredictLog", None)},
        "PredictLog": {"request": (1, "PredictRequest", None)},
        "PredictRequest": {"model_spec": (1, "ModelSpec", None), "inputs": (2, "Input", [])},
        "ModelSpec": {"name": (1, "string", None), "signature_name": (3, "string", None)},
        # An entry of a map, whose value is a serialized `TensorProto`.
        "Input": {"key": (1, "string", None), "value": (2, "bytes", None)},
    },
)

_TEXT = [tf.TensorSpec([None], tf.string, name="text")]
_EXAMPLES = [tf.TensorSpec([None], tf.string, name="examples")]


class Serving(tf.Module):
    """Strings to embeddings.

    Strings of another rank, and embeddings that are not finite because the weights are too large,
    are an `InvalidArgumentError`.

    Attributes:
      preprocess: the preprocess module.
      frozen: names of the weights that are constants of the graph; the others are variables.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        encoder: SentenceEncoderModel,
        dim: int | None = None,
        most_frozen: int = MOST_FROZEN,
        layer: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Builds the module.

        Args:
          preprocess: the preprocess module, whose prompt embedded texts get too.
          encoder: the encoder.
          dim: leading components of the embedding that are kept. Default: all.
          most_frozen: most bytes of weights that become constants. The others stay variables, first
            of all the table of words; the model is somewhat slower then.
          layer: kernel and bias of a classifier of the embedding, which makes a signature
            `classify`.
        """
        super().__init__(name="serving")
        self.preprocess = preprocess
        weights = inference_weights(encoder, "float32")
        self.frozen = _choose_frozen(weights, most_frozen)
        # The variables are saved, but not the encoder's own callables, which check nothing.
        variables = {name: weights[name] for name in weights if name not in self.frozen}
        self._variables = list(variables.values())
        if encoder.projection is not None:
            self._variables += encoder.projection.variables
        arrays = {name: weights[name].numpy() for name in self.frozen}
        arrays = join_kernels(arrays, encoder.config)

        def embeddings(word_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
            # Weights are passed as tensors: for variables, the forward pass would take another
            # kernel for the norms.
            read = {name: tf.convert_to_tensor(weight) for name, weight in variables.items()}
            read |= {name: tf.constant(array) for name, array in arrays.items()}
            vectors = embed(read, encoder.config, encoder.projection, word_ids, lengths)
            return shorten(vectors, dim, encoder.config.normalize)

        inputs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
        function = tf.function(
            embeddings, inputs, autograph=False, experimental_attributes=_NOT_INLINED
        )
        # As an attribute, the function itself would be saved under its name, and it checks nothing.
        self._embed = lambda word_ids, lengths: function(word_ids, lengths)
        self._width = dim or encoder.config.embedding_size
        # Padding is computed too, so at least this length is computed.
        self._computed = encoder.config.padded_length
        if layer:

            def classify(text: tf.Tensor) -> dict[str, tf.Tensor]:
                return {"probabilities": tf.nn.softmax(self._encode(text) @ layer[0] + layer[1])}

            # It is not a method, as all methods are saved.
            self.classify = tf.function(classify, _TEXT, autograph=False)

    @tf.function(input_signature=_TEXT, autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the vectors, float32 `[batch, embedding_size]`."""
        return {"default": self._encode(text)}

    @tf.function(input_signature=_TEXT, autograph=False)
    def serve_normalized(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the vectors of `serve`, scaled to length 1; vectors of zeros stay zeros."""
        return {"default": scale_to_unit(self._encode(text))}

    @tf.function(input_signature=_EXAMPLES, autograph=False)
    def serve_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the vectors of serialized `tf.train.Example`s with a bytes feature `text`."""
        feature = {"text": tf.io.FixedLenFeature([], tf.string)}
        return {"default": self._encode(tf.io.parse_example(check_rank(examples), feature)["text"])}

    @tf.function(input_signature=_TEXT, autograph=False)
    def tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Tokenises texts without a prompt, as the encoder reads them.

        Returns:
          `input_word_ids` and `input_mask`, int32 `[batch, seq_length]`, special tokens included.
          The width is the same for all texts, as servers join the answers of a divided request
          along the batch.
        """
        tokens, starts, lengths = self._tokenize_rows(text)
        longest = self.preprocess.seq_length
        ids = self._pad(tokens, starts, lengths, tf.constant(longest))
        mask = tf.sequence_mask(lengths, longest, tf.int32)
        return {"input_word_ids": ids, "input_mask": mask}

    def signatures(self) -> dict[str, tf.types.experimental.PolymorphicFunction]:
        """Returns the functions by the names of their signatures."""
        signatures = {
            "serving_default": self.serve,
            "serve_normalized": self.serve_normalized,
            "serve_examples": self.serve_examples,
            "tokenize": self.tokenize,
        }
        return signatures | ({"classify": self.classify} if hasattr(self, "classify") else {})

    def _tokenize_rows(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns all texts' tokens, int32, and each text's start and length with special tokens.

        Lengths, int32 `[batch]`, are the lengths after texts are cut.
        """
        text = cut_bytes(check_rank(text), self.preprocess.most_bytes)
        tokens = self.preprocess.tokenize(text)
        lengths = tf.cast(tokens.row_lengths(), tf.int32) + 2
        starts = tf.cast(tokens.row_starts(), tf.int32)
        return tokens.values, starts, tf.minimum(lengths, self.preprocess.seq_length)

    def _pad(
        self, tokens: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, longest: tf.Tensor
    ) -> tf.Tensor:
        """Returns the ids of some texts, int32 `[texts, longest]`."""
        return pack_ids([tokens], [starts], [lengths - 2], longest, self.preprocess.special)

    def _encode(self, text: tf.Tensor) -> tf.Tensor:
        """Embeds the texts in groups of similar lengths, the longest first."""
        tokens, starts, lengths = self._tokenize_rows(self.preprocess.add_prompt(text))
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        starts, lengths = tf.gather(starts, order), tf.gather(lengths, order)
        sizes = self._count_groups(tf.maximum(lengths, self._computed))
        begins, groups = tf.cumsum(sizes, exclusive=True), tf.size(sizes)

        def group(number: tf.Tensor, vectors: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            begin, end = begins[number], begins[number] + sizes[number]
            of_group = lengths[begin:end]
            # The first text is the longest.
            ids = self._pad(tokens, starts[begin:end], of_group, of_group[0])
            return number + 1, vectors.write(number, self._embed(ids, of_group))

        _, vectors = tf.while_loop(
            lambda number, vectors: number < groups,
            group,
            [
                tf.constant(0),
                tf.TensorArray(
                    tf.float32, groups, infer_shape=False, element_shape=[None, self._width]
                ),
            ],
            parallel_iterations=_CONCURRENT,
        )
        vectors = tf.gather(vectors.concat(), tf.math.invert_permutation(order))
        return tf.debugging.check_numerics(vectors, "the embedding")

    def _count_groups(self, lengths: tf.Tensor) -> tf.Tensor:
        """Returns how many texts each group has, of lengths in descending order."""
        limits = _list_length_limits(max(self.preprocess.seq_length, self._computed))
        kinds = tf.searchsorted(tf.constant(limits), lengths)
        places = tf.range(tf.size(lengths))
        first = tf.math.unsorted_segment_min(places, kinds, len(limits))
        most = tf.constant([max(_GROUP_TOKENS // limit, 1) for limit in limits])
        part = (places - tf.gather(first, kinds)) // tf.gather(most, kinds)
        # The parts of a kind have numbers of their own.
        return tf.unique_with_counts(kinds * tf.size(lengths) + part).count


def _list_length_limits(longest: int) -> list[int]:
    """Returns limits in tokens, ascending to `longest`; texts between two count as equally long."""
    limits = [longest]
    while limits[-1] > _SHORT:
        limits.append(max(int(limits[-1] * _SHORTEST), _SHORT))
    return limits[::-1]


def scale_to_unit(vectors: tf.Tensor) -> tf.Tensor:
    """Scales each row of `[batch, hidden]` to length 1, in float32; rows of zeros stay zeros."""
    # Norms are computed in float64, where no square of a float32 overflows, as in `encode`.
    wide = tf.cast(vectors, tf.float64)
    norms = tf.maximum(tf.norm(wide, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    return tf.cast(wide / norms, tf.float32)


def shorten(vectors: tf.Tensor, dim: int | None, normalize: bool) -> tf.Tensor:
    """Returns the first `dim` components of each row, normalised again if the rows were."""
    if dim is None:
        return vectors
    return scale_to_unit(vectors[:, :dim]) if normalize else vectors[:, :dim]


def _choose_frozen(weights: dict[str, tf.Variable], most: int) -> frozenset[str]:
    """Returns the names of weights that fit into `most` bytes together, tables last."""
    # Looking up rows of a table is as fast in a variable; matrix products gain by constants.
    names = sorted(weights, key=lambda name: name.endswith("/embeddings"))
    sizes = np.cumsum([4 * int(np.prod(weights[name].shape)) for name in names])
    return frozenset(name for name, size in zip(names, sizes) if size <= most)


def write_configuration(folder: Path) -> None:
    """Writes `models.config` and `batching.config` into an export."""
    (folder / "models.config").write_text(_MODELS, encoding="utf-8")
    (folder / "batching.config").write_text(_BATCHING, encoding="utf-8")


def write_warm_up(version: Path, signatures: Iterable[str]) -> None:
    """Writes warm-up requests for these signatures into a version of the serving model."""
    extra = version / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        for log in make_warm_up_logs(signatures):
            writer.write(log)


def make_warm_up_logs(signatures: Iterable[str]) -> list[bytes]:
    """Returns serialized `PredictionLog`s, so that no client waits for a signature's first call."""
    logs = []
    for count in _BATCHES:
        texts = [_TEXTS[index % len(_TEXTS)].encode() for index in range(count)]
        features = [{"feature": {"text": {"bytes_list": {"value": [text]}}}} for text in texts]
        serialized = [tf.train.Example(features=row).SerializeToString() for row in features]
        for name in signatures:
            by_example = name == "serve_examples"
            inputs = ("examples", serialized) if by_example else ("text", texts)
            logs.append(_make_log(name, *inputs))
    return logs


def _make_log(signature: str, name: str, strings: list[bytes]) -> bytes:
    """Returns a `PredictionLog` of one `PredictRequest`."""
    tensor = tf.make_tensor_proto(strings, tf.string).SerializeToString()
    model = {"name": _SERVED_NAME, "signature_name": signature}
    request = {"model_spec": model, "inputs": [{"key": name, "value": tensor}]}
    return _MESSAGES.new("PredictionLog", predict_log={"request": request}).SerializeToString()
