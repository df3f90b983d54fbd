"""Pipes in the place of files are refused before they are opened, which would wait for a writer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.formats.published_files import read_tensors, weight_files
from official_cmlm.checkpoints.integrity import latest_good_checkpoint
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.backends.onnx_session import GraphBackend
from official_cmlm.encoding.classifier import read_layer
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.data.beir import HINT
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.metrics.principal_components import PrincipalComponentRemoval
from official_cmlm.search import Index
from official_cmlm.tokenization import load_vocabulary
from tests.search.toy_encoder import Words
from tests.unchanged.values import DATA

# A name, and what reads the file of that name in a folder.
READERS = {
    "model.safetensors": lambda path: read_tensors(weight_files(path.parent), lambda name: True),
    "onnx/model.onnx": lambda path: GraphBackend(path, path),
    "queries.jsonl": lambda path: DataFolder(path.parent).file(path, HINT),
    "sts.csv": lambda path: DataFolder(path.parent).lines(path, HINT),
    "classifier.npy": lambda path: read_layer(path.parent, 3),
    "components.npz": PrincipalComponentRemoval.load,
    "sentencepiece.model": load_vocabulary,
}


# Opens the pipes below a folder from the second minute on, until its input is closed.
RELEASE = """
import os, pathlib, select, sys
wait = 60
while not select.select([sys.stdin], [], [], wait)[0]:
    wait = 0.1
    for path in pathlib.Path(sys.argv[1]).rglob("*"):
        path.is_fifo() and os.close(os.open(path, os.O_RDWR))
"""


@pytest.fixture(autouse=True)
def writer(tmp_path):
    """Ends what waits for a writer, by a process of its own: the wait may stop all threads."""
    command = [sys.executable, "-S", "-E", "-c", RELEASE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        yield


def pipe(path: Path) -> Path:
    """Puts a pipe in the place of a file."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def check_refused(path: Path, read) -> None:
    with pytest.raises(UserError, match=f"{path.name}: a pipe, not a file; ") as caught:
        read()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_refuses_a_pipe(tmp_path, name):
    path = pipe(tmp_path / name)
    check_refused(path, lambda: READERS[name](path))


@pytest.mark.parametrize("name", ["checkpoint", "ckpt-1.index", "weights.safetensors"])
def test_pipes_of_an_encoder_directory(tmp_path, name):
    folder = shutil.copytree(DATA / "imported", tmp_path / "model")
    path = pipe(folder / name)
    check_refused(path, lambda: SentenceEncoder.load(folder, backend="onnx"))
    check_refused(path, lambda: EncoderDirectory.open(folder).weights_digest)
    if name != "weights.safetensors":
        check_refused(path, lambda: latest_good_checkpoint(folder))


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("approximate", [True, False])
def test_pipes_of_an_index(tmp_path, approximate, verify):
    Index.build(Words(), ["a", "b"], approximate=approximate).save(tmp_path / "index")
    for number, path in enumerate(sorted((tmp_path / "index").iterdir())):
        if path.name != "index.json":
            copy = shutil.copytree(tmp_path / "index", tmp_path / str(number))
            piped = pipe(copy / path.name)
            check_refused(piped, lambda copy=copy: Index.load(copy, Words(), verify=verify))


def test_pipes_of_embeddings(tmp_path):
    entry = {"file": "a.npy", "ids": "a.jsonl", "rows": 2}
    text = '{"rows": 2, "columns": 24, "precision": "float32", "shards": [%s]}'
    (tmp_path / "manifest.json").write_text(text % str(entry).replace("'", '"'))
    np.save(tmp_path / "a.npy", np.ones([2, 24], np.float32))
    for name in ("a.jsonl", "a.npy"):
        check_refused(pipe(tmp_path / name), lambda: Index.from_embeddings(tmp_path, Words()))
