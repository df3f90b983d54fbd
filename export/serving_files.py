"""Files of TensorFlow Serving beside a model: configuration, requests that warm it up."""

from pathlib import Path

import tensorflow as tf

# As a container has the export: `docker run -v "$PWD/work/tfhub:/models" …`.
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
NAME = "sentence_encoder"
# Texts of a warm-up request: one, and as many as a batch.
_BATCHES = (1, 64)
_TEXTS = ("A short text.", "A text of some more words than the other one, for it is longer.")


def write_configuration(folder: Path) -> None:
    """Writes `models.config` and `batching.config` into an export."""
    (folder / "models.config").write_text(_MODELS, encoding="utf-8")
    (folder / "batching.config").write_text(_BATCHING, encoding="utf-8")


def write_warm_up(version: Path) -> None:
    """Writes the warm-up requests into a version of the serving model."""
    extra = version / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        for log in warm_up_logs():
            writer.write(log)


def warm_up_logs() -> list[bytes]:
    """Returns serialized `PredictionLog`s, so that no client waits for a signature's first call."""
    logs = []
    for count in _BATCHES:
        texts = [_TEXTS[index % len(_TEXTS)].encode() for index in range(count)]
        feature = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for text in texts]
        examples = [
            tf.train.Example(features=tf.train.Features(feature={"text": each})) for each in feature
        ]
        serialized = [example.SerializeToString() for example in examples]
        logs += [_log(name, "text", texts) for name in ("serving_default", "serve_normalized")]
        logs += [_log("serve_examples", "examples", serialized), _log("tokenize", "text", texts)]
    return logs


def _log(signature: str, name: str, strings: list[bytes]) -> bytes:
    """Returns a `PredictionLog` of one `PredictRequest`.

    Field numbers are those of TensorFlow Serving's `apis/prediction_log.proto`, `predict.proto` and
    `model.proto`. They are written here as the package tensorflow-serving-api, which has these
    messages, follows TensorFlow's versions, which this project's need not be.
    """
    tensor = tf.make_tensor_proto(strings, tf.string).SerializeToString()
    model = _field(1, NAME.encode()) + _field(3, signature.encode())
    request = _field(1, model) + _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, value: bytes) -> bytes:
    """Returns a string, bytes or a message in a protocol buffer."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Returns a number in groups of seven bits, the lowest first."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
