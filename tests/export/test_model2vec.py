"""Folders for model2vec: the encoder's own vectors, by model2vec's computation in NumPy."""

import json

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file

from export.export_model2vec import export
from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints.encoder_directory import EncodingSettings, write_settings
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.exporting import ExportOptions
from tests.checkpoints.helpers import REFERENCES
from tests.conftest import write_encoder

STATIC = REFERENCES / "static"
# All words of the test vocabulary are known.
TEXTS = ["the cat sat on the mat.", "A dog ran, and then it flew over the old house!", "water"]


def embed(folder, texts):
    """Computes as model2vec does: float64 means over known tokens, of length 1 if it says so."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    table = np.float64(load_file(folder / "model.safetensors")["embeddings"])
    assert config["model_type"] == "model2vec" and len(table) == tokenizer.get_vocab_size()
    unknown = tokenizer.token_to_id("[UNK]")
    tokenizer.enable_truncation(config["max_length"])
    rows = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        rows.append(table[[i for i in ids if i != unknown]].mean(axis=0))
    rows = np.array(rows)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) if config["normalize"] else rows


def cosines(first, second):
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / lengths


@pytest.fixture
def write(tmp_path, vocabulary):
    """Returns a function that writes a static encoder of random weights; returns its folder.

    Its positions are alike unless `positions` says otherwise.
    """

    def write(positions=0.0, **fields):
        fields = {"num_layers": 0, "pooling": "weighted_mean", "normalize": True} | fields
        folder = write_encoder(tmp_path / "encoder", vocabulary, 9, **fields)
        file = folder / "weights.safetensors"
        arrays, draw = load_file(file), np.random.default_rng(0).normal
        for path in folder.glob("ckpt-*"):
            path.unlink()
        (folder / "checkpoint").unlink(missing_ok=True)
        for name, array in arrays.items():
            if not name.startswith("language_model_head"):
                arrays[name] = np.float32(array + 0.3 * draw(size=array.shape))
        places = arrays["position_embedding/embeddings"]
        places[:] = places[0] + positions * draw(size=places.shape)
        save_file(arrays, file)
        return folder

    return write


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pooling": "mean", "normalize": False},
        {"embedding_width": 6, "dense_size": 12, "dense_activation": "none"},
    ],
    ids=["weighted", "mean", "narrow"],
)
def test_vectors_are_those_of_the_encoder(write, tmp_path, fields):
    """The special tokens count too, and a text is cut at the same token."""
    folder = write(**fields)
    export(ExportOptions(folder, tmp_path / "out"))
    expected = SentenceEncoder.load(folder, backend="onnx").encode(TEXTS, on_long="ignore")
    vectors = embed(tmp_path / "out", TEXTS)
    assert cosines(vectors, expected).min() > 0.999999
    if fields.get("normalize", True):
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    longer = SentenceEncoder.load(folder, 40, backend="onnx").encode(TEXTS)
    assert cosines(vectors, longer).min() < 0.9999


def test_model2vec_itself_loads_the_folder(write, tmp_path):
    model2vec = pytest.importorskip("model2vec")
    folder = write()
    export(ExportOptions(folder, tmp_path / "out"))
    expected = SentenceEncoder.load(folder, backend="onnx").encode(TEXTS, on_long="ignore")
    theirs = model2vec.StaticModel.from_pretrained(tmp_path / "out").encode(TEXTS)
    assert cosines(theirs, expected).min() > 0.9999


@pytest.mark.parametrize("name", ["wordpiece", "byte_pair", "unigram", "module"])
def test_an_import_comes_out_as_it_went_in(tmp_path, name):
    """Tokenizer, table but for its scale, length of texts, modules and prompts."""
    import_checkpoint(STATIC / name, tmp_path / "in")
    write_settings(tmp_path / "in", EncodingSettings({"query": "the "}))
    export(ExportOptions(tmp_path / "in", tmp_path / "out"))
    again = import_checkpoint(tmp_path / "out", tmp_path / "again")
    assert again.vocabulary.hash == read_vocabulary(STATIC / name, None, bare=True).hash
    assert again.encoding.prompts == {"query": "the "}
    expected = np.load(STATIC / name / "expected.npy")
    texts = json.loads((STATIC / "texts.json").read_text())
    encoder = SentenceEncoder.load(tmp_path / "again", backend="onnx")
    # `module` counts unknown words, and model2vec cannot: they are in the last text.
    known = [i for i, text in enumerate(texts) if text and (name, i) != ("module", 4)]
    vectors = encoder.encode([texts[i] for i in known], on_long="ignore")
    assert cosines(vectors, expected[known]).min() > 0.999999
    modules = json.loads((tmp_path / "out/modules.json").read_text())
    kinds = [module["type"].split(".")[-1] for module in modules]
    assert kinds == ["StaticEmbedding", "Normalize"][: 1 + (name != "byte_pair")]


def test_an_order_of_words_is_averaged_with_a_warning(write, tmp_path, capsys):
    folder = write(positions=0.2)
    export(ExportOptions(folder, tmp_path / "out"))
    assert "its vectors depend on the order of tokens" in capsys.readouterr().err
    expected = SentenceEncoder.load(folder, backend="onnx").encode(TEXTS, on_long="ignore")
    assert 0.9 < cosines(embed(tmp_path / "out", TEXTS), expected).min() < 0.9999


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_layers": 1}, "1 blocks and pooling weighted_mean; model2vec has tables"),
        ({"pooling": "max"}, "0 blocks and pooling max; model2vec has tables of vectors alone"),
        ({"dense_size": 8}, "model2vec has no layers with activation after the mean"),
    ],
)
def test_other_encoders_are_refused(write, tmp_path, fields, message):
    with pytest.raises(UserError, match=message):
        export(ExportOptions(write(**fields), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_special_tokens_of_byte_pairs_are_refused(tmp_path):
    """If they count, as in an encoder that was trained here."""
    import_checkpoint(STATIC / "byte_pair", tmp_path / "in")
    file = tmp_path / "in" / "weights.safetensors"
    arrays = load_file(file)
    arrays["dense/bias"] += 1
    arrays["token_weights/embeddings"][:] = 0
    save_file(arrays, file)
    with pytest.raises(UserError, match="its special tokens count in the mean; .* not byte_pair"):
        export(ExportOptions(tmp_path / "in", tmp_path / "out"))
