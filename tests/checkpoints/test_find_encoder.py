"""Encoders by name: folders, packages of weights, the hub, and what is said without one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from official_cmlm import SentenceEncoder
from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.common.errors import UserError
from tests.binaries import call
from tests.checkpoints.helpers import REFERENCES

TEXTS = ["A cat sat on the mat.", "Where is the key?", "x " * 300]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory):
    """Gives the tests a cache that is empty before the first one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.long
def test_a_package_of_weights_has_the_vectors_of_its_folder(real_weights):
    by_name = SentenceEncoder.load("all-MiniLM-L6-v2")
    by_folder = SentenceEncoder.load(real_weights, backend="tensorflow")
    vectors = [encoder.encode(TEXTS, on_long="ignore") for encoder in (by_name, by_folder)]
    assert by_name.max_seq_length == by_folder.max_seq_length == 256
    cosines = np.sum(vectors[0] * vectors[1], axis=1)
    assert cosines.min() > 0.99999


def test_nothing_of_tensorflow_is_imported(real_weights, tmp_path):
    program = f"""
import sys
sys.modules["tensorflow"] = sys.modules["torch"] = None
from official_cmlm import SentenceEncoder
from official_cmlm.search import Index
encoder = SentenceEncoder.load({str(real_weights)!r})
index = Index.build(encoder, ["The key is under the mat.", "Bread is baked."])
print(index.search("Where do I find the key?", k=1)[0].text)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "The key is under the mat.\n", done.stderr


def test_a_folder_is_imported_again_when_it_has_changed(real_weights, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(real_weights, folder)
    first = encoder_directory_of(folder).path
    assert encoder_directory_of(folder).path == first
    settings = folder / "sentence_bert_config.json"
    settings.write_text(settings.read_text().replace("256", "64"))
    second = encoder_directory_of(folder)
    assert second.path != first and second.max_seq_length == 64


def test_unwritable_cache_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="imported: cannot be written .* by XDG_CACHE_HOME"):
        encoder_directory_of(REFERENCES / "bert")


def test_damaged_or_unused_import_is_made_again(tmp_path):
    """The one is imported again, the other is removed when something else is imported."""
    first = encoder_directory_of(REFERENCES / "bert").path
    good = {path.name: path.read_bytes() for path in first.iterdir()}
    (first / "vocab.txt").write_bytes(good["vocab.txt"][:-20])
    assert encoder_directory_of(REFERENCES / "bert").path == first
    assert {path.name: path.read_bytes() for path in first.iterdir()} == good
    digest = first.with_suffix(".sha256")
    os.utime(digest, (0, 0))
    encoder_directory_of(REFERENCES / "bert")
    encoder_directory_of(REFERENCES / "roberta")
    assert first.exists()
    os.utime(digest, (0, 0))
    encoder_directory_of(REFERENCES / "mpnet")
    assert not first.exists() and not digest.exists()


def test_a_folder_hides_no_package(real_weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("all-MiniLM-L6-v2").mkdir()
    with pytest.raises(UserError, match=r"write \./all-MiniLM-L6-v2 for the folder"):
        find_encoder("all-MiniLM-L6-v2")
    assert find_encoder("./all-MiniLM-L6-v2") == Path("all-MiniLM-L6-v2")


def test_a_folder_on_pythons_path_is_not_a_package(real_weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(real_weights, tmp_path / "mine" / "model")
    assert find_encoder("mine") == Path("mine")


def test_unknown_names_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no folder, encoder that ships"):
        find_encoder("no-such-model")
    with pytest.raises(UserError, match="revision main: only names"):
        find_encoder(tmp_path, revision="main")
    with pytest.raises(UserError, match="not an encoder directory"):
        SentenceEncoder.load(tmp_path)


def test_the_hub_is_asked_after_its_cache(real_weights, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked = []

    def download(name: str, local_files_only: bool = False, **options: object) -> str:
        asked.append((name, local_files_only, options["revision"]))
        if local_files_only and name == "org/new":
            raise LocalEntryNotFoundError("not there")
        if name == "org/none":
            raise LocalEntryNotFoundError("not there") if local_files_only else OSError("offline")
        return str(REFERENCES / "static" / "module" if name == "org/static" else real_weights)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert find_encoder("org/old", revision="v1") == real_weights
    assert asked == [("org/old", True, "v1")]
    # This one has no config.json.
    assert find_encoder("org/static", revision="v1") == REFERENCES / "static" / "module"
    assert asked.pop() == ("org/static", True, "v1")
    assert find_encoder("org/new") == real_weights
    assert asked[1:] == [("org/new", True, None), ("org/new", False, None)]
    with pytest.raises(
        UserError, match="org/none: no such folder, not in the cache .* fetch it elsewhere"
    ):
        find_encoder("org/none")


def test_a_device_that_is_not_there(real_weights):
    with pytest.raises(UserError, match="device cuda: ONNX Runtime has .*cpu.* here"):
        SentenceEncoder.load(real_weights, backend="onnx", device="cuda")
    with pytest.raises(UserError, match=r"device cuda:1: TensorFlow has CPU:0"):
        SentenceEncoder.load(real_weights, backend="tensorflow", device="cuda:1")
    assert SentenceEncoder.load(real_weights, device="cpu").encode(TEXTS[:1]).shape == (1, 384)


def test_an_onnx_folder_of_another_project(real_weights, tmp_path, capsys):
    """A graph of token outputs beside a tokenizer and a pooling, without weights to import."""
    onnx = pytest.importorskip("onnx")
    from official_cmlm.checkpoints.encoder_weights import read_weights
    from official_cmlm.encoding.backends.onnx_graph import METADATA, graph_of

    folder = tmp_path / "public"
    shutil.copytree(real_weights, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    directory = encoder_directory_of(real_weights)
    graph = onnx.load_from_string(
        graph_of(read_weights(directory), directory.vocabulary, 256, "float32")
    )
    graph.producer_name = "pytorch"
    outputs = [output for output in graph.graph.output if output.name == "last_hidden_state"]
    del graph.graph.output[:], graph.metadata_props[:]
    graph.graph.output.extend(outputs)
    assert METADATA not in str(graph.metadata_props)
    (folder / "onnx").mkdir()
    onnx.save(graph, folder / "onnx" / "model.onnx")
    public = SentenceEncoder.load(folder)
    expected = SentenceEncoder.load(real_weights)
    options = {"on_long": "ignore"}
    np.testing.assert_allclose(
        public.encode(TEXTS, **options), expected.encode(TEXTS, **options), atol=1e-5
    )
    assert call("export.info", f"--model={folder}") == 0
    assert "vector:      384 numbers" in capsys.readouterr().out
    for pooling in ("first_last", "weighted_mean"):
        with pytest.raises(UserError, match=f"gives the vectors mean, max and cls, not.*{pooling}"):
            SentenceEncoder.load(folder, pooling=pooling)
    with pytest.raises(UserError, match="no graph of precision qint8"):
        SentenceEncoder.load(folder, precision="int8")
