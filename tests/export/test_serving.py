"""The serving model: signatures, equal vectors, ops of TensorFlow Serving, and its files."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import empty_pb2
from google.protobuf.unknown_fields import UnknownFieldSet
from tensorflow.core.framework import tensor_pb2

from export import export_litert, export_onnx, export_sentence_transformers
from export.formats import tfhub
from export.formats.preprocessing import Preprocess
from export.formats.serving import Serving, make_warm_up_logs
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel
from tests.conftest import WORDS, tiny_encoder_config
from tests.export.serving_ops import CORE_OPS, TEXT_OPS, example_of, module_ops, trace_ops

# The texts have every length, some beyond the 24 tokens that are kept, in no order.
TEXTS = [" ".join(WORDS[i % 7 : i % 7 + (i * 11) % 37]) for i in range(70)]


@pytest.fixture(scope="module")
def serving(exported):
    return tf.saved_model.load(str(exported[1] / "serving" / "1"))


@pytest.fixture(scope="module")
def encoded(exported):
    return SentenceEncoder.load(exported[0]).encode(TEXTS)


@pytest.fixture(scope="module")
def preprocess(vocabulary):
    return Preprocess(vocabulary, 24, 48, {})


@pytest.mark.parametrize("part", tfhub.PARTS)
def test_only_ops_of_tensorflow_serving_2_18(exported, part):
    ops = module_ops(exported[1] / part)
    assert len(ops) > 30
    assert ops <= CORE_OPS | TEXT_OPS


# Each way to pool and each activation once.
_PROJECTED = {"sentence_vector": "projected_mean", "num_projections": 3}
VARIANTS = [
    {"pooling": "first_last", "hidden_activation": "gelu_exact", "normalize": True},
    {"pooling": "max", "hidden_activation": "relu"},
    {"pooling": "mean_padded", "padded_length": 24},
    {"pooling": "cls_pooler", **_PROJECTED},
]


@pytest.mark.long
@pytest.mark.parametrize("overrides", VARIANTS, ids=lambda overrides: overrides["pooling"])
def test_only_ops_of_tensorflow_serving_for_other_encoders(vocabulary, overrides):
    """Serving model and encoder of the pair, traced; saving adds nothing that depends on them."""
    model = SentenceEncoderModel(tiny_encoder_config(vocab_size=len(vocabulary), **overrides))
    serving = Serving(Preprocess(vocabulary, 24, 48, {}, "a "), model, dim=5)
    ops = trace_ops(serving.serve_normalized)
    core = tfhub.build_functional_encoder(model)
    inputs = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}
    ops |= trace_ops(tf.function(lambda batch: core(batch, training=False)), inputs)
    assert ops - CORE_OPS - TEXT_OPS == set()


def test_the_signatures_and_their_names(serving):
    described = {
        name: (sorted(one.structured_input_signature[1]), sorted(one.structured_outputs))
        for name, one in serving.signatures.items()
    }
    assert described == {
        "serving_default": (["text"], ["default"]),
        "serve_normalized": (["text"], ["default"]),
        "serve_examples": (["examples"], ["default"]),
        "tokenize": (["text"], ["input_mask", "input_word_ids"]),
    }


@pytest.mark.parametrize("count", [0, 1, 2, 70])
def test_equals_encode(serving, encoded, count):
    """Groups of similar lengths come back in the order of the texts."""
    got = serving.signatures["serving_default"](tf.constant(TEXTS[:count], tf.string))["default"]
    assert got.shape == (count, 16)
    np.testing.assert_allclose(got, encoded[:count], atol=1e-5)


def test_normalized_and_examples(serving, encoded):
    lengths = np.linalg.norm(encoded, axis=1, keepdims=True)
    got = serving.signatures["serve_normalized"](tf.constant(TEXTS))["default"]
    np.testing.assert_allclose(got, encoded / lengths, atol=1e-5)
    examples = tf.constant([example_of(text) for text in TEXTS])
    got = serving.signatures["serve_examples"](examples)["default"]
    np.testing.assert_allclose(got, encoded, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
        serving.signatures["serve_examples"](tf.constant([tf.train.Example().SerializeToString()]))


def test_tokenize_equals_the_ids_of_the_encoder(exported, serving):
    """Padded to the fixed length of 24."""
    tokenize, texts = serving.signatures["tokenize"], [*TEXTS[:2], "a cat"]
    inputs = SentenceEncoder.load(exported[0]).inputs(texts)
    got = tokenize(tf.constant(texts))
    for name, each in got.items():
        expected = np.pad(inputs[name], [(0, 0), (0, 24 - inputs[name].shape[1])])
        np.testing.assert_array_equal(each, expected)
    assert inputs["input_word_ids"].shape[1] < 24
    # A request is divided: each piece is computed alone, answers are joined along the batch.
    pieces = [tokenize(tf.constant(piece, tf.string)) for piece in (texts[:1], [], texts[1:])]
    for name, each in got.items():
        np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), each)


@pytest.mark.long
def test_versions_are_added_to_an_export(exported, tmp_path, saved):
    """Alone, the other ones stay; what would remove one is refused."""
    out = shutil.copytree(exported[1], tmp_path / "out")

    def export(overwrite, version, dim=None):
        options = {"overwrite": overwrite, "version": version, "dim": dim}
        return tfhub.export(TfhubOptions(exported[0], out, **options)).parts

    def contents():
        files = (path for path in out.rglob("*") if path.is_file())
        return {str(path.relative_to(out)): path.read_bytes() for path in files}

    before = contents()
    assert export(False, 0, dim=5) == ("serving/2",)
    after = contents()
    new = {name for name in after if name.startswith("serving/2/")}
    assert {name: after[name] for name in after.keys() - new} == before
    assert "serving/2/assets.extra/tf_serving_warmup_requests" in new
    with pytest.raises(UserError, match=r"out/serving/2: exists already; pass --overwrite, or"):
        export(False, 2)
    with pytest.raises(UserError, match=r"--overwrite would remove serving/2; pass --version=N"):
        export(True, None)
    with pytest.raises(UserError, match="--version=0 to add"):
        export(False, None)
    assert contents() == after
    assert saved["serving/2"].serve(tf.constant(["a"]))["default"].shape == (1, 5)
    assert export(True, 2) == ("serving/2",)
    assert saved["serving/2"].serve(tf.constant(["a"]))["default"].shape == (1, 16)
    assert {name: each for name, each in contents().items() if name not in new} == before


@pytest.mark.parametrize("version, number", [(None, 1), (0, 1), (7, 7)])
def test_version_of_a_new_export(tmp_path, version, number):
    assert tfhub._check_version(tmp_path / "new", version, False) == (number, False)


def test_weights_are_constants_as_far_as_a_graph_can_hold_them(exported, encoded, preprocess):
    """All of them here; with less room the tables first, then all are variables."""
    model = load_encoder(EncoderDirectory.open(exported[0]))
    sizes = []
    for most in (1_600_000_000, 20_000, 0):
        serving = Serving(preprocess, model, most_frozen=most)
        if most < 1_600_000_000:
            got = serving.serve(tf.constant(TEXTS))["default"]
            np.testing.assert_allclose(got, encoded, atol=1e-5)
        sizes.append(len(serving.variables) - len(preprocess.variables))
        tables = [v.name for v in serving.variables if v.name.endswith("/embeddings:0")]
        assert len(tables) == (0 if most > 20_000 else 3)
    assert sizes[0] == 0 and 3 <= sizes[1] < sizes[2] == len(model.variables)


def test_dim_and_normalize(exported, encoded, tmp_path, bfloat16, saved):
    """The leading components, of length 1 again; pair and serving agree and say so.

    Whatever policy is set, the exported encoder computes and returns float32.
    """
    tfhub.export(TfhubOptions(exported[0], tmp_path / "out", normalize=True, dim=5))
    expected = encoded[:, :5] / np.linalg.norm(encoded[:, :5], axis=1, keepdims=True)
    preprocess, encoder, serving = (saved[part] for part in tfhub.PARTS)
    got = serving.serve(tf.constant(TEXTS))["default"]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    outputs = encoder(preprocess(tf.constant(TEXTS)), training=False)
    np.testing.assert_allclose(outputs["default"], expected, atol=1e-5)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["default"])
    assert {tensor.dtype for tensor in tf.nest.flatten(outputs)} == {tf.float32}
    assert outputs["sequence_output"].shape[-1] == 16
    described = json.loads(encoder.described)
    assert described["dim"] == 5 and described["encoder"]["normalize"] is True
    with pytest.raises(UserError, match="--dim must be 1 to 16"):
        tfhub.export(TfhubOptions(exported[0], tmp_path / "new", dim=17))


def test_classifier_is_exported_with_its_encoder(exported, tmp_path, saved, monkeypatch, capsys):
    """Its probabilities are those of the class; exports without it say so.

    One of these are shorter vectors, as it belongs to the encoder's own.
    """
    encoder = SentenceEncoder.load(exported[0], backend="tensorflow")
    random = np.random.default_rng(0)
    kernel, bias = random.normal(size=[16, 3]), random.normal(size=[3])
    classifier = Classifier(encoder, kernel.astype(np.float32), bias.astype(np.float32))
    classifier.save(tmp_path / "mine")
    mine = str(tmp_path / "mine")
    tfhub.export(TfhubOptions(mine, tmp_path / "out"))
    assert "warning" not in capsys.readouterr().err
    serving = saved["serving/1"]
    assert "classify" in serving.signatures()
    probabilities = serving.classify(tf.constant(TEXTS))["probabilities"]
    np.testing.assert_allclose(probabilities, classifier.predict_proba(TEXTS), atol=1e-5)
    assert trace_ops(serving.classify) <= CORE_OPS | TEXT_OPS
    tfhub.export(TfhubOptions(mine, tmp_path / "short", dim=5))
    assert "classify" not in saved["serving/1"].signatures()
    export_sentence_transformers.export(
        export_sentence_transformers.FolderOptions(mine, tmp_path / "st")
    )
    export_onnx.export(export_onnx.OnnxOptions(mine, tmp_path / "onnx", precisions=["float32"]))
    monkeypatch.setattr(export_litert, "convert", lambda *arguments: [b""])
    export_litert.export(
        export_litert.LitertOptions(mine, tmp_path / "litert", lengths=[8], weights=["float32"])
    )
    assert capsys.readouterr().err.count("its classifier is not exported; export.export_tfhub") == 4


def _fields(message):
    """Returns number -> content of the fields of a serialized message without repeated fields."""
    fields = UnknownFieldSet(empty_pb2.Empty.FromString(message))
    return {field.field_number: field.data for field in fields}


def test_warm_up_requests_can_be_answered(exported, serving):
    """Read back as messages: every signature, by its own name of the input, with results.

    Field numbers from TensorFlow Serving's `apis/*.proto`.
    """
    path = exported[1] / "serving" / "1" / "assets.extra" / "tf_serving_warmup_requests"
    logs = [log.numpy() for log in tf.data.TFRecordDataset(str(path))]
    assert logs == make_warm_up_logs(serving.signatures)
    counts = []
    for log in logs:
        request = _fields(_fields(_fields(log)[6])[1])
        specification, tensor = _fields(request[1]), _fields(request[2])
        assert specification[1] == b"sentence_encoder"
        signature = specification[3].decode()
        strings = tf.constant(tf.make_ndarray(tensor_pb2.TensorProto.FromString(tensor[2])))
        outputs = serving.signatures[signature](**{tensor[1].decode(): strings})
        assert {len(rows) for rows in outputs.values()} == {len(strings)}
        counts.append((signature, len(strings)))
    assert sorted(counts) == sorted((name, n) for name in serving.signatures for n in (1, 64))


def test_configuration_names_the_folders_of_a_container(exported):
    """`-v export:/models`, as docs/serving.md starts it."""
    models = (exported[1] / "models.config").read_text()
    assert 'base_path: "/models/serving"' in models and 'name: "sentence_encoder"' in models
    assert "max_execution_batch_size { value: 64 }" in (exported[1] / "batching.config").read_text()
