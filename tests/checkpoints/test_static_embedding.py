"""Static encoders of model2vec and sentence-transformers: their vectors, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from safetensors.numpy import load_file, save_file

from official_cmlm import Index, SentenceEncoder
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint, read_source
from official_cmlm.checkpoints.weights import build
from official_cmlm.common.errors import UserError
from tests.binaries import call
from tests.checkpoints.helpers import REFERENCES
from tests.conftest import change_json

FOLDER = REFERENCES / "static"
TEXTS = json.loads((FOLDER / "texts.json").read_text())
KINDS = ("wordpiece", "byte_pair", "unigram", "module")


def assert_same_directions(vectors, expected, least=0.999999):
    """Asserts the cosines of rows; a row of zeros must be one in both."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert (lengths == 0).tolist() == [text == "" for text in TEXTS]
    cosines = (vectors * expected).sum(axis=1)[lengths > 0] / lengths[lengths > 0]
    assert cosines.min() > least, cosines


@pytest.fixture
def changed(tmp_path):
    """Returns a function that copies a reference; its caller changes the copy."""
    return lambda name: shutil.copytree(FOLDER / name, tmp_path / name)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Imports each reference once; returns name -> encoder directory."""
    folder = tmp_path_factory.mktemp("imported")
    for name in KINDS:
        import_checkpoint(FOLDER / name, folder / name)
    return {name: folder / name for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("backend", ["onnx", "tensorflow"])
def test_vectors_are_those_of_the_library(imported, name, backend):
    """With unknown words, which model2vec leaves out; an empty text is zeros in all libraries."""
    encoder, expected = SentenceEncoder.load(imported[name], backend=backend), read_expected(name)
    vectors = encoder.encode(TEXTS, on_long="ignore")
    assert_same_directions(vectors, expected)
    if name != "byte_pair":
        np.testing.assert_allclose(vectors, expected, atol=1e-6)


def read_expected(name):
    return np.load(FOLDER / name / "expected.npy")


@pytest.mark.parametrize("name", KINDS)
def test_int8_keeps_the_directions(imported, tmp_path, name):
    """In the file and in ONNX Runtime; the norms of rows differ by a factor of 30."""
    binary, source = "official_cmlm.encoding.shrink", f"--model={imported[name]}"
    assert call(binary, source, f"--output_dir={tmp_path / 'small'}", "--weights=int8") == 0
    for folder, precision in ((tmp_path / "small", "float32"), (imported[name], "int8")):
        encoder = SentenceEncoder.load(folder, backend="onnx", precision=precision)
        vectors = encoder.encode(TEXTS, on_long="ignore")
        assert_same_directions(vectors, read_expected(name), 0.9995)


def test_lengths_of_vectors_are_those_of_a_weighted_mean(changed, tmp_path):
    """Where they are not 1: each token counts as its vector is long, special ones not at all."""
    folder = changed("wordpiece")
    change_json(folder / "config.json", normalize=False)
    import_checkpoint(folder, tmp_path / "out")
    table = load_file(folder / "model.safetensors")["embeddings"]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [table[tokenizer.encode(text).ids] for text in TEXTS[:2]]
    expected = [np.linalg.norm(r.sum(0)) / np.linalg.norm(r, axis=1).sum() for r in rows]
    vectors = SentenceEncoder.load(tmp_path / "out", backend="onnx").encode(TEXTS[:2])
    lengths = np.linalg.norm(vectors, axis=1)
    assert lengths[0] / lengths[1] == pytest.approx(expected[0] / expected[1], rel=1e-5)


def test_lengths_of_texts_are_the_sources(changed):
    assert read_source(str(FOLDER / "module"), ImportOptions()).max_seq_length == 12 + 2
    folder = changed("wordpiece")
    for length, read in ((7, 7), (100_000, 512), (None, 512)):
        change_json(folder / "config.json", max_length=length)
        assert read_source(str(folder), ImportOptions()).max_seq_length == read + 2


def test_gradients_are_finite():
    """Also at the rows of zeros, which the layer normalisation divides by almost nothing."""
    source = read_source(str(FOLDER / "wordpiece"), ImportOptions())
    model, special = build(source)[0], source.vocabulary.special_ids
    ids = tf.constant([[special["cls"], 40, special["unknown"], special["sep"]]])
    inputs = {"input_word_ids": ids, "input_mask": tf.ones_like(ids)}
    with tf.GradientTape() as tape:
        vectors = model(inputs | {"input_type_ids": tf.zeros_like(ids)})["default"]
        loss = tf.reduce_sum(vectors * tf.range(8.0))
    gradients = tape.gradient(loss, model.trainable_variables)
    dense = [tf.convert_to_tensor(g).numpy() for g in gradients if g is not None]
    assert all(np.isfinite(g).all() for g in dense) and max(np.abs(g).max() for g in dense) > 0


def test_a_folder_of_others_searches_as_it_is():
    index = Index.build(SentenceEncoder.load(FOLDER / "wordpiece"), TEXTS[:3])
    assert index.search("the cat sat on a mat", k=1)[0].id == "0"


def test_settings_of_sentence_transformers_come_along(changed):
    folder = changed("module")
    change_json(folder / "config_sentence_transformers.json", prompts={"query": "the "})
    assert read_source(str(folder), ImportOptions()).encoding.prompts == {"query": "the "}
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1]))
    source = read_source(str(folder), ImportOptions())
    assert not source.config.normalize and len(source.notes) == 1
    change_json(folder / "config_sentence_transformers.json", similarity_fn_name="dot")
    with pytest.raises(UserError, match="similarity dot of vectors that are not scaled"):
        read_source(str(folder), ImportOptions())
    (folder / "modules.json").write_text(json.dumps([*modules, modules[1] | {"type": "a.Dense"}]))
    with pytest.raises(UserError, match="StaticEmbedding, Normalize, Dense cannot be represented"):
        read_source(str(folder), ImportOptions())


def test_a_table_that_does_not_fit_is_refused(changed):
    folder = changed("byte_pair")
    file = folder / "model.safetensors"
    arrays = load_file(file)
    for change, message in (
        ({"mapping": arrays["mapping"] + 1}, "tensors do not fit together"),
        ({"mapping": arrays["mapping"] - 1}, "tensors do not fit together"),
        ({"weights": arrays["weights"][1:]}, "tensors do not fit together"),
        ({"embeddings": arrays["embeddings"][0]}, "tensors do not fit together"),
        ({"head": arrays["weights"]}, "1 tensor.s. that the encoder has no place for: head"),
        ({"weights": arrays["mapping"]}, "weights is I64; the weights of an encoder must be F32"),
        ({name: arrays[name][9:] for name in ("mapping", "weights")}, "embedding table 287 rows"),
    ):
        save_file(arrays | change, file)
        with pytest.raises(UserError, match=message):
            read_source(str(folder), ImportOptions())
    save_file({"mapping": arrays["mapping"]}, file)
    with pytest.raises(UserError, match=r"missing: embedding\.weight"):
        read_source(str(folder), ImportOptions())
    with pytest.raises(UserError, match="a table of vectors, .* leave --pooling out"):
        read_source(str(folder), ImportOptions(pooling="max"))


def test_tokenizers_of_other_kinds_are_refused(changed):
    folder = changed("wordpiece")
    values = json.loads((folder / "tokenizer.json").read_text())
    for change, message in (
        ({"model": values["model"] | {"type": "WordLevel"}}, "tokenizer 'WordLevel' cannot be"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer.type is 'Metaspace'"),
        ({"added_tokens": [{"content": "the cat", "id": 90}]}, r"1 token\(s\) were added"),
    ):
        (folder / "tokenizer.json").write_text(json.dumps(values | change))
        with pytest.raises(UserError, match=message):
            read_source(str(folder), ImportOptions())
