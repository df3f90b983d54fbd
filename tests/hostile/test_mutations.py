"""Folders of each kind, changed at a random place: they work, or are refused in one line."""

import copy
import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest

from experiments import chains
from export import export_onnx, info
from export.search import index as indexing
from export.search import search
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import Reading, read_rows
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
from tests.hostile.test_files import _write_encoders, _write_rows
from tests.search.toy_encoder import Words

TEXTS = ["a cat", "zwei Wörter", "五个 字符"]
# These take the place of a value in a JSON file.
ODD = [None, True, -1, 0, 3, 10**9, 10**12, 10**400, 0.5, float("nan"), "", "x", "../x", "a\0b"]
ODD += ["\ud800", "x" * 300, [], {}, [[1]], {"a": None}, ["a"], [None], {"a": {"b": 1}}]


def _write_public(folder, name="bert"):
    _write_encoders(folder / "all")
    shutil.move(folder / "all" / name, folder / "encoder")
    shutil.rmtree(folder / "all")


def _write_directory(folder):
    """Writes an encoder directory with a classifier of two classes."""
    _write_public(folder)
    imported = import_checkpoint(folder / "encoder", folder / "own")
    shutil.rmtree(folder / "encoder")
    (folder / "own").rename(folder / "encoder")
    layer = np.ones([imported.config.hidden_size + 1, 2], np.float32)
    np.save(folder / "encoder/classifier.npy", layer)
    (folder / "encoder/classifier_labels.json").write_text('["a", "b"]')


def _write_export(folder, producer="official_cmlm"):
    """Writes an export; under the name of another producer its graph is a stranger's."""
    _write_public(folder)
    import_checkpoint(folder / "encoder", folder / "own")
    shutil.rmtree(folder / "encoder")
    options = export_onnx.OnnxOptions(folder / "own", folder / "encoder", precisions=["float32"])
    export_onnx.export(options)
    shutil.rmtree(folder / "own")
    graph = folder / "encoder/onnx/model.onnx"
    graph.write_bytes(graph.read_bytes().replace(b"official_cmlm", producer.encode()))
    if producer != "official_cmlm":
        (folder / "encoder/model.safetensors").unlink()


def _embed(folder):
    SentenceEncoder.load(folder / "encoder", backend="onnx").encode(TEXTS)


def _classify(folder):
    classifier = Classifier.load(folder / "encoder", backend="onnx")
    assert len(classifier.predict(TEXTS)) == len(TEXTS)


def _write_index(folder):
    index = Index.build(Words(), TEXTS, "int8")
    encoder = indexing.EncoderSettings(model="x")
    settings = indexing.IndexSettings(encoder, 200, {"a.txt": [1, 2, "0"]})
    index.settings = dataclasses.asdict(settings)
    index.save(folder / "index")


def _search(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("official_cmlm.encoding.encoders.load_model", lambda *unused: Words())
        index = search._open_index(search.Question(str(folder / "index"), TEXTS[0]))
    # Whatever passes the checksums is what was saved.
    assert [hit.text for hits in index.search(TEXTS, 1) for hit in hits] == TEXTS
    assert info.describe_index(folder / "index")["kind"] == "index"


def _read_tables(folder):
    for path in sorted(folder.iterdir()):
        assert all(isinstance(row.text, str) for row in read_rows(str(path), Reading()))


def _write_stages(folder):
    shutil.copy(chains.stage_files()["bitext_s3"], folder / "stages.yaml")


# Kind of folder -> its writer and its reader.
KINDS = {
    "encoder directory": (_write_directory, _classify),
    "sentence-transformers": (_write_public, _embed),
    "SentencePiece": (functools.partial(_write_public, name="xlm_roberta"), _embed),
    "byte pairs": (functools.partial(_write_public, name="roberta"), _embed),
    "static": (functools.partial(_write_public, name="static"), _embed),
    "export": (_write_export, _embed),
    "ONNX of others": (functools.partial(_write_export, producer="official_xxxx"), _embed),
    "index": (_write_index, _search),
    "tables": (_write_rows, _read_tables),
    "stages": (_write_stages, lambda folder: chains.read_stages(str(folder / "stages.yaml"))),
}


def _list_places(values):
    """Yields container and key of each value."""
    for key in list(values) if isinstance(values, dict) else range(len(values)):
        yield values, key
        if isinstance(values[key], dict | list):
            yield from _list_places(values[key])


def _change_values(rng, content):
    values = json.loads(content)
    places = list(_list_places(values)) if isinstance(values, dict | list) else []
    if not places:
        return json.dumps(ODD[rng.integers(len(ODD))]).encode()
    container, key = places[rng.integers(len(places))]
    if rng.integers(6):
        container[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])
    else:
        del container[key]
    return json.dumps(values).encode()


def _change_bytes(rng, content):
    changed = bytearray(content)
    start, length = int(rng.integers(len(content) + 1)), int(rng.integers(1, 9))
    kind = rng.integers(4)
    if kind == 0:
        del changed[start:]
    elif kind == 1:
        del changed[start : start + length]
    else:
        noise = rng.integers(256, size=length, dtype=np.uint8).tobytes()
        changed[start : start + (length if kind == 2 else 0)] = noise
    return bytes(changed)


def _change(rng, folder):
    """Changes one file of a folder; returns its path and its content before."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    path = paths[rng.integers(len(paths))]
    content = path.read_bytes()
    if path.suffix == ".json" and rng.integers(5):
        path.write_bytes(_change_values(rng, content))
    elif not rng.integers(12):
        path.unlink()
    else:
        path.write_bytes(_change_bytes(rng, content))
    return path, content


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [8, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore")
def test_changed_folders_work_or_are_refused_in_one_line(tmp_path, monkeypatch, kind, changes):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, (write, read) = tmp_path / "folder", KINDS[kind]
    folder.mkdir()
    write(folder)
    read(folder)
    for seed in range(changes):
        path, content = _change(np.random.default_rng([seed, len(kind)]), folder)
        try:
            read(folder)
        except UserError as error:
            assert str(error).isprintable() and len(str(error)) < 850
            assert str(folder) in str(error)
        except Exception as error:
            raise AssertionError(f"change {seed}, of {path}") from error
        path.write_bytes(content)


@pytest.mark.parametrize("name", [None, b"x", 5, "", "x" * 300, "a--b/c", "a\0b", "\ud800"])
def test_odd_names_are_refused_in_one_line(name):
    with pytest.raises(UserError) as caught:
        SentenceEncoder.load(name)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 850
