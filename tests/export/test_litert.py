"""LiteRT models: what `encode` gives, by the example that users copy."""

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from export import export_litert
from export.formats.huggingface_tokenizer import write_tokenizer
from official_cmlm.checkpoints.encoder_directory import EncodingSettings, write_settings
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.tokenization import build_tokenizer
from tests.checkpoints.helpers import REFERENCES, TEXTS

LITERAL = "a <mask> b </s> [MASK] [SEP] <unk> <pad>"
LONG = "the old house under the large red tree; " * 5


def _example():
    """Returns the names of `examples/encode_litert.py`."""
    pytest.importorskip("ai_edge_litert", reason="needs the package ai-edge-litert")
    path = Path(__file__).parents[2] / "examples" / "encode_litert.py"
    return SimpleNamespace(**runpy.run_path(str(path)))


PROMPTS = {"query": "the ", "STS": "old house "}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Returns an encoder directory of MPNet, which has a bias by distance, and its export."""
    folder = tmp_path_factory.mktemp("litert")
    import_checkpoint(REFERENCES / "mpnet", folder / "encoder")
    write_settings(folder / "encoder", EncodingSettings(PROMPTS, "STS"))
    return folder, export_litert.export(
        export_litert.LitertOptions(folder / "encoder", folder / "litert", lengths=[16, 40])
    )


def test_embeddings_equal_encode(folders):
    """Float: to 1e-5, at both lengths, and cut at the longer one; int8: nearly the direction."""
    folder, _ = folders
    encoder = SentenceEncoder.load(folder / "encoder")
    texts = [*TEXTS, LITERAL, LONG]
    lengths = encoder.count_tokens(texts)
    assert min(lengths) < 16 < sorted(lengths)[-2] <= 40 < max(lengths), lengths
    example = _example()
    exact = example.LiteRTEncoder(str(folder / "litert"), "float32")
    for asked in ({"prompt_name": "query"}, {}):
        expected = encoder.encode(texts, on_long="ignore", **asked)
        np.testing.assert_allclose(exact.encode(texts, **asked), expected, atol=1e-5)
    got = example.LiteRTEncoder(str(folder / "litert"), "int8").encode(texts)
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (got * expected).sum(1) / norms
    # 8 bits of random weights of 16 components are rougher than those of a trained encoder.
    assert 0.95 < cosines.min() < 1 - 1e-7
    assert exact.encode([]).shape == (0, 16)


@pytest.mark.parametrize("name", ["distiluse", "mpnet", "roberta", "xlm_roberta"])
def test_special_tokens_in_a_text_are_text(tmp_path, name):
    """Every kind of tokenizer agrees with `encode` on them."""
    vocabulary = read_vocabulary(REFERENCES / name, None)
    write_tokenizer(tmp_path, vocabulary, "bert", 64)
    special = vocabulary.special_ids
    for text in (LITERAL, "".join(LITERAL.split()), TEXTS[0]):
        (expected,) = build_tokenizer(vocabulary).tokenize([text]).to_list()
        got = _example().read_tokenizer(tmp_path / "tokenizer.json").encode(text).ids
        assert got == [special["cls"], *expected, special["sep"]]


def test_files_and_description(folders):
    folder, sizes = folders
    names = [f"encoder_{n}{kind}.tflite" for n in (16, 40) for kind in ("", "_int8")]
    assert list(sizes) == names
    for name, size in sizes.items():
        assert (folder / "litert" / name).stat().st_size == size
    assert sizes["encoder_16_int8.tflite"] < sizes["encoder_16.tflite"]
    values = json.loads((folder / "litert" / "litert.json").read_text())
    assert values == {
        "default_prompt_name": "STS",
        "embedding_size": 16,
        "lengths": [16, 40],
        "normalize": False,
        "padding_id": 1,
        "prompts": PROMPTS,
        "weights": ["float32", "int8"],
    }


@pytest.mark.long
def test_all_minilm_keeps_its_vectors(tmp_path, real_weights):
    """A trained encoder: float to 1e-5, int8 a mean cosine of 0.99, a quarter of the size."""
    import_checkpoint(real_weights, tmp_path / "minilm")
    sizes = export_litert.export(
        export_litert.LitertOptions(tmp_path / "minilm", tmp_path / "litert", lengths=[64])
    )
    texts = json.loads((REFERENCES / "all_minilm.json").read_text())["texts"]
    expected = SentenceEncoder.load(tmp_path / "minilm", max_seq_length=64).encode(texts)
    for kind in export_litert.WEIGHTS:
        got = _example().LiteRTEncoder(str(tmp_path / "litert"), kind).encode(texts)
        cosines = (got * expected).sum(1) / np.linalg.norm(got, axis=1)
        print(kind, np.abs(got - expected).max(), cosines.mean(), cosines.min(), sizes)
        if kind == "float32":
            np.testing.assert_allclose(got, expected, atol=1e-5)
    assert cosines.mean() > 0.99
    assert sizes["encoder_64_int8.tflite"] < 0.26 * sizes["encoder_64.tflite"]


def test_refusals_leave_nothing(folders, tmp_path):
    model, there = folders[0] / "encoder", folders[0] / "litert"
    says = r"--lengths must be 3 to 40 \(the position table\), got 41"
    with pytest.raises(UserError, match=says):
        export_litert.export(export_litert.LitertOptions(model, tmp_path / "new", lengths=[16, 41]))
    assert not list(tmp_path.iterdir())
    other = shutil.copytree(there, tmp_path / "other")
    (other / "model.tflite").write_bytes(b"mine")
    for folder, overwrite, says in (
        (there, False, "pass --overwrite"),
        (other, True, "other: holds model.tflite, which this program has not"),
        (model, True, "holds no export"),
    ):
        with pytest.raises(UserError, match=says):
            export_litert.export(
                export_litert.LitertOptions(model, folder, lengths=[16], overwrite=overwrite)
            )
