"""The backend of ONNX Runtime: graphs equal the Keras encoder, folders open without TensorFlow."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from export import export_onnx
from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.checkpoints.weights import save_weights, weights_of
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.encoding.backends import Computation, auto, onnx_graph
from official_cmlm.encoding.backends import onnx as backend_onnx
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.checkpoints.helpers import REFERENCES, TEXTS
from tests.conftest import make_documents, tiny_encoder_config, write_encoder

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SHAPES = {
    "mean": {},
    "max, unit length": {"pooling": "max", "normalize": True},
    "cls, relu": {"pooling": "cls", "hidden_activation": "relu"},
    "pooler, exact gelu": {"pooling": "cls_pooler", "hidden_activation": "gelu_exact"},
    "first and last": {"pooling": "first_last", "layer_norm_epsilon": 1e-5},
    "embeddings and last": {"pooling": "embedding_last", "embedding_width": 6},
    "padded": {"pooling": "mean_padded", "padded_length": 9, "padding_id": 1},
    "like RoBERTa": {"position_offset": 2, "type_vocab_size": 1},
    "no types": {"type_vocab_size": 0},
    "like MPNet": {"relative_position_buckets": 32, "position_offset": 2, "type_vocab_size": 0},
    "like MPNet, padded": {
        "relative_position_buckets": 8,
        "pooling": "mean_padded",
        "padded_length": 9,
    },
    "like ALBERT": {"embedding_width": 6, "pooling": "cls_pooler"},
    "weights of tokens": {"pooling": "weighted_mean"},
    "no blocks": {"num_layers": 0, "pooling": "weighted_mean", "dense_size": 5},
    "dense": {"dense_size": 5},
    "dense without tanh": {"dense_size": 40, "dense_activation": "none", "normalize": True},
    "projected": {
        "sentence_vector": "projected_mean",
        "num_projections": 4,
        "projection_depth": 2,
        "normalize": True,
    },
}


def random_encoder(config):
    """Builds an encoder without weights of 0 or 1, so that each weight counts."""
    model = SentenceEncoderModel(config)
    rng = np.random.default_rng(3)
    for variable in model.variables:
        value = rng.normal(scale=0.3, size=variable.shape)
        variable.assign(value + 1 if "gamma" in variable.name else value)
    return model


def ids_and_mask(config, lengths=(7, 3, 11, 2)):
    rng = np.random.default_rng(4)
    ids = rng.integers(6, config.vocab_size, [len(lengths), max(lengths)])
    mask = np.arange(max(lengths)) < np.array(lengths)[:, np.newaxis]
    return ids, mask.astype(np.int64)


def graph_of(model, vocabulary, precision="float32", length=24, **options):
    return onnx_graph.graph_of(weights_of(model), vocabulary, length, precision, **options)


def by_keras(model, ids, mask, type_of_all=0):
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids * 0 + type_of_all}
    return model({name: tf.constant(array, tf.int32) for name, array in inputs.items()})


def assert_near(vectors, expected):
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((vectors * expected).sum(axis=1) / norms > 0.99).all()


def run(graph, ids, mask, **more):
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids), **more}
    outputs = session.run(None, {name: feeds[name] for name in names})
    return dict(zip((value.name for value in session.get_outputs()), outputs))


@pytest.mark.parametrize("overrides", SHAPES.values(), ids=SHAPES)
def test_the_graph_equals_the_keras_encoder(vocabulary, overrides):
    """The vector comes first, for programs that know outputs by their place, then token outputs.

    Two lengths are compared, so that no shape is a constant of the graph.
    """
    config = tiny_encoder_config(vocab_size=len(vocabulary), **overrides)
    model = random_encoder(config)
    graph = graph_of(model, vocabulary)
    onnx.checker.check_model(graph)
    for lengths in ((7, 3, 11, 2), (5,)):
        ids, mask = ids_and_mask(config, lengths)
        got, expected = run(graph, ids, mask), by_keras(model, ids, mask)
        assert [*got] == ["sentence_embedding", "last_hidden_state"]
        np.testing.assert_allclose(got["sentence_embedding"], expected["default"], atol=1e-5)
        real = mask > 0
        tokens = expected["sequence_output"].numpy()[:, : ids.shape[1]]
        np.testing.assert_allclose(got["last_hidden_state"][real], tokens[real], atol=2e-5)


def test_distances_beyond_the_last_bucket(vocabulary):
    """Tokens of long texts, in float32 and in 8 bits."""
    config = tiny_encoder_config(
        vocab_size=len(vocabulary), max_position_embeddings=300, relative_position_buckets=32
    )
    model = random_encoder(config)
    ids, mask = ids_and_mask(config, (290, 140, 3))
    expected = by_keras(model, ids, mask)["default"].numpy()
    got = run(graph_of(model, vocabulary, length=300), ids, mask)
    np.testing.assert_allclose(got["sentence_embedding"], expected, atol=1e-5)
    eight = graph_of(model, vocabulary, backend_onnx.fastest_int8(), length=300)
    assert_near(run(eight, ids, mask)["sentence_embedding"], expected)


def test_part_without_a_graph_is_refused(vocabulary, monkeypatch):
    """Whatever an encoder has besides, its vector is never computed without."""
    model = random_encoder(tiny_encoder_config(vocab_size=len(vocabulary), dense_size=5))
    monkeypatch.setattr(onnx_graph._Encoder, "_dense", lambda self, vector, name: vector)
    with pytest.raises(UserError, match="^the encoder's weights dense/bias, dense/kernel: ONNX"):
        graph_of(model, vocabulary)


def test_token_types_are_read(vocabulary):
    """A second text has other types; without the input every token has type 0."""
    config = tiny_encoder_config(vocab_size=len(vocabulary))
    model = random_encoder(config)
    ids, mask = ids_and_mask(config)
    expected = by_keras(model, ids, mask, type_of_all=1)["default"]
    got = run(graph_of(model, vocabulary), ids, mask, token_type_ids=np.ones_like(ids))
    np.testing.assert_allclose(got["sentence_embedding"], expected, atol=1e-5)
    without = graph_of(model, vocabulary, token_types=False)
    names = [value.name for value in onnx.load_from_string(without).graph.input]
    assert names == ["input_ids", "attention_mask"]
    got, expected = run(without, ids, mask), by_keras(model, ids, mask)["default"]
    np.testing.assert_allclose(got["sentence_embedding"], expected, atol=1e-5)


@pytest.mark.parametrize("precision", ["qint8_avx2", "qint8_avx512_vnni"])
def test_weights_of_8_bits(vocabulary, precision):
    """Vectors stay close; what AVX2 sums in 16 bits fits; each column uses its whole range."""
    config = tiny_encoder_config(vocab_size=len(vocabulary), hidden_size=64, intermediate_size=128)
    model = random_encoder(config)
    graph = graph_of(model, vocabulary, precision)
    tensors = {
        t.name: onnx.numpy_helper.to_array(t)
        for t in onnx.load_from_string(graph).graph.initializer
    }
    kernels = {name: t for name, t in tensors.items() if name.endswith("kernel_int8")}
    assert len(kernels) == 4 * config.num_layers
    # The word table too is of integers, each row up to the end of its range.
    table = tensors["word_embeddings/embeddings_int8"]
    assert table.dtype == np.int8 and (np.abs(table.astype(int)).max(axis=1) == 127).all()
    assert "word_embeddings/embeddings" not in tensors
    most = 64 if precision == "qint8_avx2" else 127
    for kernel in kernels.values():
        assert (np.abs(kernel.astype(int)).max(axis=0) == most).all()
        if precision == "qint8_avx2":
            # Two products of an unsigned and a signed byte.
            assert 2 * 255 * np.abs(kernel.astype(int)).max() < 1 << 15
    ids, mask = ids_and_mask(config)
    rounded, exact = (run(content, ids, mask) for content in (graph, graph_of(model, vocabulary)))
    assert_near(rounded["sentence_embedding"], exact["sentence_embedding"])


@pytest.fixture
def folder(tmp_path, vocabulary, monkeypatch):
    """An encoder directory, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = random_encoder(tiny_encoder_config(vocab_size=len(vocabulary)))
    return write_encoder(tmp_path / "model", vocabulary, model=model)


SENTENCES = [d.paragraphs[0].split(". ")[0] for d in make_documents(30, seed=5)] + ["", "ß ﬁ Éa"]


def test_an_encoder_directory_by_both_backends(folder):
    """The graph is written once, whatever texts are cut to."""
    expected = SentenceEncoder.load(folder, backend="tensorflow").encode(SENTENCES)
    encoder = SentenceEncoder.load(folder, backend="onnx")
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    cache = folder.parent / "cache" / "official_cmlm"
    (graph,) = cache.glob("*.onnx")
    before = graph.stat().st_mtime_ns
    assert SentenceEncoder.load(folder, 9, backend="onnx").max_seq_length == 9
    assert [path.stat().st_mtime_ns for path in cache.glob("*.onnx")] == [before]
    pooled = SentenceEncoder.load(folder, backend="onnx", pooling="max").encode(SENTENCES)
    assert np.abs(pooled - expected).max() > 0.1 and len(list(cache.glob("*.onnx"))) == 2
    SentenceEncoder.load(folder, backend="onnx", precision="int8")
    assert len(list(cache.glob("*.onnx"))) == 3
    with pytest.raises(ValueError, match="precision must be float32 or int8"):
        SentenceEncoder.load(folder, backend="onnx", precision="bfloat16")


def test_other_weights_make_another_graph(folder, vocabulary):
    """In the place of the one before, though files have the same sizes, names and times."""
    before = SentenceEncoder.load(folder, backend="onnx").encode(SENTENCES)
    cache = folder.parent / "cache" / "official_cmlm"
    (old,) = cache.glob("*.onnx")
    weights = folder / "weights.safetensors"
    stat = weights.stat()
    encoder = random_encoder(tiny_encoder_config(vocab_size=len(vocabulary)))
    encoder.variables[0].assign(-encoder.variables[0])
    save_weights(folder, encoder)
    assert weights.stat().st_size == stat.st_size
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    vectors = SentenceEncoder.load(folder, backend="onnx").encode(SENTENCES)
    expected = SentenceEncoder.load(folder, backend="tensorflow").encode(SENTENCES)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert np.abs(vectors - before).max() > 0.1
    (new,) = cache.glob("*.onnx")
    assert new != old and not old.with_suffix(".sha256").exists()


def test_damaged_cache_is_written_again(folder, monkeypatch):
    """The one is written again, the other is done without."""
    monkeypatch.setattr(auto, "tokens_per_second", lambda backend: len(backend.name))
    expected = SentenceEncoder.load(folder, backend="onnx").encode(SENTENCES)
    cache = folder.parent / "cache" / "official_cmlm"
    (graph,) = cache.glob("*.onnx")
    good = graph.read_bytes()
    changed = bytearray(good)
    # In the middle are weights.
    changed[len(good) // 2 : len(good) // 2 + 100] = bytes(100)
    unused = cache / "onnx-0-float32-0.onnx"
    unused.write_bytes(good)
    unused.with_suffix(".sha256").write_text("0")
    os.utime(unused.with_suffix(".sha256"), (0, 0))
    for damaged in (good[:1000], bytes(changed)):
        graph.write_bytes(damaged)
        vectors = SentenceEncoder.load(folder, backend="onnx").encode(SENTENCES)
        np.testing.assert_array_equal(vectors, expected)
        assert graph.read_bytes() == good
    assert not unused.exists() and not unused.with_suffix(".sha256").exists()
    (cache / "fastest.json").write_text("{")
    assert SentenceEncoder.load(folder, workload="bulk").backend.name == "tensorflow"
    assert json.loads((cache / "fastest.json").read_text())
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "file"))
    with pytest.warns(UserWarning, match="cannot keep the graph of .*; set XDG_CACHE_HOME"):
        vectors = SentenceEncoder.load(folder, backend="onnx").encode(SENTENCES)
    np.testing.assert_array_equal(vectors, expected)
    with pytest.warns(UserWarning, match="cannot keep the graph"):
        assert SentenceEncoder.load(folder, workload="bulk").backend.name == "tensorflow"


# Refuses TensorFlow and whatever else encoding does not need.
WITHOUT_TENSORFLOW = """
import sys
REFUSED = "tensorflow tensorflow_text tf_keras official absl scipy sklearn torch"
sys.modules.update(dict.fromkeys(REFUSED.split()))
import json, numpy as np, official_cmlm
texts, *folders = sys.argv[1:]
assert sys.modules["tensorflow"] is None
for folder in folders:
    for precision in ("float32", "int8"):
        encoder = official_cmlm.SentenceEncoder.load(folder, backend="onnx", precision=precision)
        vectors = encoder.encode(json.loads(texts), show_progress_bar=True, on_long="ignore")
        np.save(f"{folder}/{precision}", vectors)
try:
    official_cmlm.SentenceEncoder.load(folder, backend="tensorflow")
except official_cmlm.common.errors.UserError as error:
    assert "tensorflow is not installed" in str(error), error
else:
    raise SystemExit("loaded by TensorFlow")
"""


IMPORTED = ["xlm_roberta", "multilingual_minilm", "mpnet", "distiluse"]
OWN = {
    "mean": ("mean", None),
    "first_last": ("first_last", None),
    "cut": (None, 9),
    "narrow": (None, None),
}
ODD = [*TEXTS, "", "Vie\u0302\u0323t", "a <mask> b </s> [MASK] [SEP]", "ß ﬁ Éa"]


@pytest.fixture(scope="module")
def exports(tmp_path_factory, vocabulary):
    """Exports encoders of all kinds and encodes by them, in one process without TensorFlow.

    Returns: folder with an encoder directory and an export for each name.
    """
    root = tmp_path_factory.mktemp("exports")
    for name in IMPORTED:
        import_checkpoint(REFERENCES / name, root / name / "encoder")
    for name in OWN:
        width = 6 if name == "narrow" else 0
        config = tiny_encoder_config(vocab_size=len(vocabulary), embedding_width=width)
        write_encoder(root / name / "encoder", vocabulary, model=random_encoder(config))
    for name in (*IMPORTED, *OWN):
        pooling, length = OWN.get(name, (None, None))
        options = {"seq_length": length, "override": VectorOverride(pooling)}
        export_onnx.export(
            export_onnx.OnnxOptions(root / name / "encoder", root / name / "out", **options)
        )
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, json.dumps(ODD)]
    done = subprocess.run(
        [*command, *(str(root / name / "out") for name in (*IMPORTED, *OWN))],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if number % 3 else ())
        for number, name in enumerate([*IMPORTED, *OWN])
    ],
)
def test_an_export_is_loaded_without_tensorflow(exports, name):
    """SentencePiece, a table with more rows than entries, MPNet's markers, a module Dense.

    Also a vector and a network that sentence-transformers does not have, and the plain files.
    """
    output, (pooling, length) = exports / name / "out", OWN.get(name, (None, None))
    own = exports / name / "encoder"
    ours = SentenceEncoder.load(own, length, pooling=pooling, backend="tensorflow")
    expected = ours.encode(ODD, on_long="ignore")
    exact, approximate = (np.load(output / f"{p}.npy") for p in ("float32", "int8"))
    np.testing.assert_allclose(exact, expected, atol=1e-5)
    assert 0 < np.abs(approximate - expected).max() < 1
    assert (output / "modules.json").exists() == (name not in ("first_last", "narrow"))
    # The example's tokenizer takes letters with several marks otherwise.
    same = [i for i, text in enumerate(ODD) if "\u0302" not in text]
    got = example(output).encode([ODD[i] for i in same])
    np.testing.assert_allclose(got, expected[same], atol=1e-5)


def example(folder):
    """Loads the encoder of `examples/encode_onnx.py`."""
    path = Path(__file__).parents[3] / "examples" / "encode_onnx.py"
    return runpy.run_path(str(path))["Encoder"](folder)


@pytest.mark.parametrize("pooling", ["mean", "first_last"])
def test_an_export_keeps_prompts_and_ranges(folder, tmp_path, pooling):
    own = shutil.copytree(folder, tmp_path / "own")
    encoder = SentenceEncoder.load(own, pooling=pooling)
    encoder.prompts, encoder.default_prompt_name = {"query": "find: "}, "query"
    encoder.calibrate(SENTENCES)
    encoder.save_settings(own)
    output = tmp_path / "export"
    export_onnx.export(
        export_onnx.OnnxOptions(
            own, output, precisions=["float32"], override=VectorOverride(pooling)
        )
    )
    loaded = SentenceEncoder.load(output, backend="onnx")
    again = SentenceEncoder.load(own)
    assert loaded.prompts["query"] == "find: " and loaded.prompts == again.prompts
    assert loaded.default_prompt_name == again.default_prompt_name == "query"
    prompted = encoder.encode(SENTENCES)
    np.testing.assert_allclose(example(output).encode(SENTENCES), prompted, atol=1e-5)
    expected = encoder.encode(SENTENCES, precision="int8").astype(int)
    assert np.abs(loaded.encode(SENTENCES, precision="int8") - expected).max() <= 1


def test_refusals(folder, tmp_path):
    """A folder in use, another folder than an export, a precision that was not exported."""
    output = tmp_path / "export"
    export_onnx.export(export_onnx.OnnxOptions(folder, output, precisions=["float32"]))
    with pytest.raises(UserError, match="pass --overwrite"):
        export_onnx.export(export_onnx.OnnxOptions(folder, output, precisions=["float32"]))
    (output / "LICENSE").write_text("mine")
    export_onnx.export(
        export_onnx.OnnxOptions(folder, output, precisions=["float32"], overwrite=True)
    )
    assert (output / "LICENSE").read_text() == "mine"
    (output / "onnx" / "own.onnx").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"export: holds onnx/own.onnx, which this program has"):
        export_onnx.export(
            export_onnx.OnnxOptions(folder, output, precisions=["float32"], overwrite=True)
        )
    (output / "onnx" / "own.onnx").unlink()
    with pytest.raises(UserError, match=r"model_qint8_\w+.onnx: not there; export it with"):
        SentenceEncoder.load(output, backend="onnx", precision="int8")
    with pytest.raises(UserError, match="was exported with pooling mean, not max"):
        SentenceEncoder.load(output, backend="onnx", pooling="max")
    with pytest.raises(UserError, match="not an encoder directory"):
        (tmp_path / "empty").mkdir()
        SentenceEncoder.load(tmp_path / "empty", backend="onnx")
    # Without its weights the folder has only this graph.
    (output / "model.safetensors").unlink()
    (output / "onnx" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(UserError, match=r"model.onnx: damaged"):
        SentenceEncoder.load(output, backend="onnx")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"markers": "other"}, "damaged (KeyError: 'other')"),
        ({"markers": ["bert"]}, "unhashable type"),
        ({"colour": 3}, "unexpected keyword argument 'colour'"),
    ],
)
def test_a_graph_of_another_release_is_refused(tmp_path, vocabulary, settings, says):
    """Settings of a vocabulary that nobody here knows, in one line."""
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary.tokens))
    description = types.SimpleNamespace(vocabulary="wordpiece", settings=settings)
    with pytest.raises(UserError, match=re.escape(says)):
        backend_onnx._vocabulary(tmp_path, description)


def test_the_fastest_backend_is_measured_once(folder, monkeypatch):
    """The faster one is taken, and taken again without a measurement."""
    measured = []

    def measure(backend):
        measured.append(backend.name)
        return {"tensorflow": 1.0, "onnx": 2.0}[backend.name]

    monkeypatch.setattr(auto, "tokens_per_second", measure)
    for _ in range(2):
        assert SentenceEncoder.load(folder, workload="bulk").backend.name == "onnx"
    assert sorted(measured) == ["onnx", "tensorflow"]
    assert SentenceEncoder.load(folder, backend="auto", precision="int8").backend.name == "onnx"
    loaded = SentenceEncoder.load(folder, backend="auto", precision="bfloat16")
    assert (loaded.backend.name, len(measured)) == ("tensorflow", 2)
    # Queries are ONNX Runtime's without a measurement, as TensorFlow's import takes longest.
    assert SentenceEncoder.load(folder, pooling="max").backend.name == "onnx" and len(measured) == 2


def test_refusing_backend_is_left_out(folder, monkeypatch):
    """An encoder beyond what an ONNX file holds; where all refuse, the folder is the reason."""
    monkeypatch.setattr(onnx_graph, "_MOST_BYTES", 1000)
    with pytest.raises(UserError, match="an ONNX file holds 2 GiB"):
        SentenceEncoder.load(folder, backend="onnx")
    assert SentenceEncoder.load(folder, backend="auto").backend.name == "tensorflow"
    (folder / "weights.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="weights.safetensors: damaged"):
        SentenceEncoder.load(folder, pooling="max", backend="auto")


def test_a_measurement_counts_tokens(folder):
    backend = backend_onnx.open_folder(folder, Computation()).backend
    assert auto.tokens_per_second(backend, 0.01) > 0


@pytest.mark.parametrize("name", ["mean", "first_last", "mpnet"])
def test_fastembed_gives_every_pooling(exports, name):
    """It takes the first output of a graph as it is, where its own pooling is turned off."""
    fastembed = pytest.importorskip("fastembed", reason="it needs another huggingface_hub")
    from fastembed.common.model_description import ModelSource, PoolingType

    folder = exports / name / "out"
    expected = SentenceEncoder.load(folder, backend="onnx").encode(TEXTS, on_long="ignore")
    fastembed.TextEmbedding.add_custom_model(
        model=f"own/{name}",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(hf=f"own/{name}"),
        dim=expected.shape[1],
        model_file="onnx/model.onnx",
    )
    model = fastembed.TextEmbedding(f"own/{name}", specific_model_path=str(folder))
    np.testing.assert_allclose(list(model.embed(TEXTS)), expected, atol=1e-5)
