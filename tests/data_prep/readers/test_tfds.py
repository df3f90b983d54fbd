"""Data sets of TensorFlow Datasets: tfds' own mock, and one that is written and read for real."""

import numpy as np
import pytest

from data_prep.readers import Counts, Document, ReadOptions, get_stored_size, read_documents
from official_cmlm.common.errors import UserError
from tests.prepared_datasets import write_dataset

tfds = pytest.importorskip("tensorflow_datasets")

LITTLE = "little/20230601.zh-min-nan"
TEXTS = ["One  line\nof text.\n\nAnother paragraph, é語.", " \n", "The third."]


def _read(name, data_dir, **options):
    report = Counts()
    options = ReadOptions(tfds_data_dir=str(data_dir), **options)
    return list(read_documents([f"tfds:{name}"], options, report)), report


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Makes the data set `LITTLE`: three examples in `train`, one in `test`."""
    root = tmp_path_factory.mktemp("tfds")
    features = tfds.features.FeaturesDict(
        {
            "text": tfds.features.Text(),
            "title": tfds.features.Text(),
            "n": tfds.features.Scalar(np.int64),
        }
    )
    train = [{"text": text, "title": f"Title {n}.", "n": n} for n, text in enumerate(TEXTS)]
    write_dataset(root, f"{LITTLE}/1.0.0", features, {"train": train, "test": train[:1]})
    return root


@pytest.mark.parametrize("name", [LITTLE, f"{LITTLE}:1.0.0"])
def test_a_prepared_data_set(data_dir, name):
    """A document an example, in the stored order, which is the same each time."""
    documents, report = _read(name, data_dir)
    path, language = f"tfds:{name}", "zh-min-nan"
    assert documents == [
        Document(f"{path}#0", language, ["One line of text.", "Another paragraph, é語."]),
        Document(f"{path}#2", language, ["The third."]),
    ]
    assert (report.files, report.documents_read, report.counters["read/without_text"]) == (1, 2, 1)
    assert _read(name, data_dir)[0] == documents


def test_split_and_feature(data_dir):
    """The options choose; a name without a language leaves that to the options."""
    documents, _ = _read(LITTLE, data_dir, tfds_split="test[:1]", text_feature="title")
    assert [document.paragraphs for document in documents] == [["Title 0."]]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("wikipedia/20230601.de", "de"),
        ("wiki40b/fr", "fr"),
        ("imdb_reviews/plain_text", "sw"),
        ("lm1b", "sw"),
    ],
)
def test_mock(tmp_path, name, language):
    """Well-known data sets are read from tfds' mock; nothing is downloaded."""
    with tfds.testing.mock_data(num_examples=4):
        documents, _ = _read(name, tmp_path, language="sw")
    assert [document.id for document in documents] == [f"tfds:{name}#{i}" for i in range(4)]
    assert {document.language for document in documents} == {language}
    assert all(isinstance(document, Document) and document.paragraphs for document in documents)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (LITTLE, {"tfds_split": "dev"}, "no split 'dev' .* of test, train"),
        (LITTLE, {"text_feature": "x"}, "no text feature 'x'.*: n, text, tit"),
        (LITTLE, {"text_feature": "n"}, "no text feature 'n'"),
        ("little/other", {}, "not prepared in .*--tfds_data_dir"),
        ("wikipedia/20230601.en", {}, "not prepared in .*--tfds_data_dir"),
        ("no_such_data_set", {}, "not prepared in .*--tfds_data_dir"),
        ("huggingface:glue", {}, "not a name such as"),
        ("../little", {}, "not a name such as"),
    ],
)
def test_mistakes(data_dir, name, options, message):
    """Each is one line, and nothing is fetched."""
    with pytest.raises(UserError, match=message) as caught:
        _read(name, data_dir, **options)
    assert "\n" not in str(caught.value)


def test_damaged_files(data_dir, tmp_path):
    """A fault of the data set, as of a file."""
    import shutil

    shutil.copytree(data_dir, tmp_path / "copy")
    path = next((tmp_path / "copy").rglob("*-train.*record*"))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="tfds:little.*: cannot be read"):
        _read(LITTLE, tmp_path / "copy")


@pytest.mark.parametrize(("split", "files"), [("train", 3), ("train[:2]", 2), ("test", 1)])
def test_stored_size_is_that_of_the_examples_that_are_read(data_dir, split, files):
    """A file holds one example here."""
    options = ReadOptions(tfds_data_dir=str(data_dir), tfds_split=split)
    paths = sorted(data_dir.rglob(f"little-{split.partition('[')[0]}.*"))[:files]
    assert get_stored_size(f"tfds:{LITTLE}", options) == sum(path.stat().st_size for path in paths)


def test_stored_size_of_a_split_that_does_not_exist(data_dir):
    options = ReadOptions(tfds_data_dir=str(data_dir), tfds_split="dev")
    with pytest.raises(UserError, match="no split 'dev' .* of test, train"):
        get_stored_size(f"tfds:{LITTLE}", options)
