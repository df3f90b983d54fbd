"""Each program of examples/ runs, at a tiny size, and does what it says."""

import io
import json
import re
import runpy
import shutil
import sys
from unittest import mock

import numpy as np
import pytest

from tests.conftest import make_documents
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a program in this process, where TensorFlow is there already; returns what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


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
    export_onnx.export(
        export_onnx.OnnxOptions(str(model), str(tmp_path / "onnx"), precisions=["float32"])
    )
    texts = ["the cat sat", "the dog ran by the river", "the cat sat"]
    printed = run("encode_onnx.py", tmp_path / "onnx", *texts)
    vectors = encoder.encode(texts, normalize_embeddings=True)
    cosines = [float(number) for number in re.findall(r"-?\d\.\d*", printed)]
    np.testing.assert_allclose(np.reshape(cosines, [3, 3]), vectors @ vectors.T, atol=1e-3)


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


def test_bitext_retrieval_of_equal_files(run, exported, tmp_path):
    """Each line of a file finds itself in a copy; files of unequal length are refused."""
    lines = [document.paragraphs[0] for document in make_documents(20)]
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
@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs=12", "--learning_rate=0.01"),
        ("--epochs=60", "--learning_rate=0.05", "--frozen"),
    ],
)
def test_fine_tuning_in_keras_2(run, exported, labelled, arguments):
    """The encoder, with its own rate, learns in fewer passes than the classifier alone."""
    out = run("fine_tune_keras2.py", f"--modules={exported[1]}", labelled, *arguments)
    # With dropout: not always all of them.
    accuracy = re.search(
        r"accuracy on the training data: ([\d.]+), classes: \['bad', 'good'\]", out
    )
    assert float(accuracy[1]) > 0.8


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
