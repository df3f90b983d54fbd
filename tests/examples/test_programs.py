"""Each program of examples/ runs, at a tiny size, and does what it says."""

import io
import json
import re
import runpy
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from tests.docs.pages import ROOT
from tests.docs.work_folder import write_inputs

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Writes a user's own texts, tables and translations."""
    folder = tmp_path_factory.mktemp("examples") / "inputs"
    write_inputs(folder)
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a program in this process, where TensorFlow is there already; returns what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_encode_and_compare(run, exported):
    """Equal sentences have the cosine 1."""
    texts = ["the cat sat", "the dog ran", "the cat sat"]
    lines = run("encode_and_compare.py", f"--encoder={exported[0]}", *texts).splitlines()
    assert len(lines) == 3
    assert lines[1].strip() == "1.000  the cat sat  |  the cat sat"


def test_encode_onnx(run, exported, tmp_path):
    """Equal sentences have the cosine 1; vectors are those of `encode`, default prompt included."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from export import export_onnx
    from official_cmlm import SentenceEncoder

    model = shutil.copytree(exported[0], tmp_path / "model")
    encoder = SentenceEncoder.load(model)
    encoder.prompts["search"], encoder.default_prompt_name = "slowly walked: ", "search"
    encoder.save_settings(model)
    export_onnx.export(str(model), str(tmp_path / "onnx"), ["float32"], False)
    texts = ["the cat sat", "the dog ran by the river", "the cat sat"]
    printed = run("encode_onnx.py", tmp_path / "onnx", *texts)
    vectors = encoder.encode(texts, normalize_embeddings=True)
    got = [float(number) for number in re.findall(r"-?\d\.\d*", printed)]
    np.testing.assert_allclose(np.reshape(got, [3, 3]), vectors @ vectors.T, atol=1e-3)


def test_semantic_search_finds_the_text_itself(run, exported, tmp_path):
    """A text finds itself first; the index is kept, and made again for other texts."""
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\na red bird\nwater and stone\n")
    arguments = ("--query=a red bird", "--most=1")
    arguments = (f"--encoder={exported[0]}", f"--texts={path}", *arguments)
    first = run("semantic_search.py", *arguments)
    assert re.search(r"1\.00  a red bird", first)
    assert np.load(tmp_path / "texts.index" / "vectors.npy").shape == (3, 16)
    assert run("semantic_search.py", *arguments) == first


def _postgres(monkeypatch):
    """Puts a stand-in for a server with pgvector in place of the two packages."""
    rows = []

    def execute(statement, values=()):
        if statement.startswith("SELECT"):
            order = sorted(rows, key=lambda row: -float(row[1] @ values[0]))
            return [(text,) for text, _ in order[: values[1]]]
        return None

    connection = mock.MagicMock(execute=execute)
    connection.__enter__.return_value = connection
    connection.cursor().executemany = lambda statement, values: rows.extend(values)
    for name in ("psycopg", "pgvector", "pgvector.psycopg"):
        monkeypatch.setitem(sys.modules, name, mock.MagicMock(connect=lambda url: connection))


@pytest.mark.parametrize("store", ["chroma", "qdrant", "lancedb", "pgvector"])
def test_vector_stores_find_the_text_itself(run, exported, tmp_path, monkeypatch, store):
    if store == "pgvector":
        _postgres(monkeypatch)
    else:
        pytest.importorskip({"chroma": "chromadb", "qdrant": "qdrant_client"}.get(store, store))
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\na red bird\nwater and stone\n")
    arguments = (f"--encoder={exported[0]}", f"--texts={path}", "--query=a red bird", "--most=2")
    assert run("vector_stores.py", f"--store={store}", *arguments).splitlines()[0] == "a red bird"


def test_bitext_retrieval_of_equal_files(run, exported, files, tmp_path):
    """Each line of a file finds itself in a copy; files of unequal length are refused."""
    lines = list(dict.fromkeys((files / "train.en").read_text().lower().splitlines()))
    (tmp_path / "a").write_text("\n".join(lines))
    (tmp_path / "b").write_text("\n".join(lines[:-1]))
    encoder, first = f"--encoder={exported[0]}", f"--first={tmp_path}/a"
    out = run("bitext_retrieval.py", encoder, first, f"--second={tmp_path}/a")
    assert out.count("found 100.0 % of first → second, 100.0 % of second → first") == 2
    with pytest.raises(SystemExit):
        run("bitext_retrieval.py", encoder, first, f"--second={tmp_path}/b")


@pytest.fixture
def labelled(tmp_path):
    """Two classes that have no word in common."""
    path = tmp_path / "labelled.tsv"
    path.write_text("good\tthe red cat sat\nbad\ta stone ran over\n" * 8)
    return f"--train={path}"


@pytest.mark.long
def test_fine_tuning_in_keras_2(run, exported, labelled):
    """The encoder is trained too: with its own rate it learns in some passes."""
    modules = f"--modules={exported[1]}"
    out = run("fine_tune_keras2.py", modules, labelled, "--epochs=12", "--learning_rate=0.01")
    # With dropout: not always all of them.
    accuracy = re.search(
        r"accuracy on the training data: ([\d.]+), classes: \['bad', 'good'\]", out
    )
    assert float(accuracy[1]) > 0.8


@pytest.mark.long
def test_a_frozen_encoder_in_keras_2(run, exported, labelled):
    """Only the classifier is trained."""
    arguments = (f"--modules={exported[1]}", labelled, "--epochs=60", "--learning_rate=0.05")
    out = run("fine_tune_keras2.py", *arguments, "--frozen")
    assert "accuracy on the training data: 1.000, classes: ['bad', 'good']" in out


@pytest.mark.long
def test_fine_tuning_by_this_project(run, exported, labelled):
    """The accuracy on the test data is that of the trained classifier."""
    encoder, test = f"--encoder={exported[0]}", labelled.replace("--train", "--test")
    settings = ("--epochs=12", "--learning_rate=0.01")
    out = run("fine_tune_classifier.py", encoder, labelled, test, *settings)
    assert "accuracy on the test data: 1.000, classes: ['bad', 'good']" in out


def test_few_shot(run, exported, labelled):
    """A text of each class, which the classifier has seen."""
    texts = ("a stone ran over", "the red cat sat")
    lines = run("few_shot_scikit_learn.py", f"--encoder={exported[0]}", labelled, *texts)
    assert [line.split()[0] for line in lines.splitlines()] == ["bad", "good"]


@pytest.mark.long
def test_classifier_in_keras_3(run, exported, labelled):
    out = run("classify_keras3.py", f"--modules={exported[1]}", labelled, "--epochs=100")
    assert "accuracy on the training data: 1.000, classes: ['bad', 'good']" in out


def test_serving_client(run, monkeypatch):
    """One request for all texts; tests/export/test_serving_client.py has the whole conversation."""
    asked = []

    def urlopen(request):
        asked.append(json.loads(request.data))
        return io.BytesIO(b'{"outputs": [[1.0, 0.0], [0.6, 0.8]]}')

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    assert run("serving_client.py", "a cat", "a dog").split() == ["0.600", "a", "dog"]
    assert asked == [{"signature_name": "serve_normalized", "inputs": {"text": ["a cat", "a dog"]}}]


_TINY = (
    "task.encoder.num_layers=1,task.encoder.hidden_size=16,task.encoder.num_attention_heads=2,"
    "task.encoder.intermediate_size=24,"
)
_SHORT = (
    "task.train_data.seq_length=16,task.train_data.bucket_boundaries=[16],"
    "task.train_data.max_bucket_batch_size=8,trainer.checkpoint_interval=2,"
    "trainer.steps_per_loop=1,trainer.summary_interval=1"
)


def _program(name, *arguments, folder):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
def test_train_on_folder(files, tmp_path):
    """Twice: the second time everything is there."""
    arguments = (
        f"--texts={files}/my/text_*.txt",
        f"--work_dir={tmp_path}/work",
        "--vocab_size=200",
        f"--overrides={_TINY}{_SHORT},task.train_data.global_batch_size=8,trainer.train_steps=2",
    )
    for _ in range(2):
        out = _program("train_on_folder.py", *arguments, folder=tmp_path)
        assert out.splitlines()[-1].startswith("encoder: ")
    assert (tmp_path / "work" / "tfhub" / "serving" / "1" / "saved_model.pb").exists()


def test_every_program_is_tested():
    """A new example has a test here, or beside the tests of the code that it shows."""
    tests = [
        path
        for folder in ("examples", "export")
        for path in (ROOT / "tests" / folder).glob("test_*.py")
    ]
    tested = "".join(path.read_text() for path in tests)
    for path in EXAMPLES.glob("*.py"):
        assert path.name in tested, path.name
