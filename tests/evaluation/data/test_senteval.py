"""SentEval's files: order, encodings, labels."""

from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.senteval import TASKS, order_by_length
from tests.evaluation import toy


def test_order_is_the_toolkits():
    """Examples are sorted by words of the first sentence, of the second, then by label."""
    rows = [("b  b", "x", 1), ("a", "x y", 0), ("a", "x", 1), ("a", "", 0)]
    examples = order_by_length(rows)
    assert examples.first == ["a", "a", "a", "b b"]
    assert examples.second == [".", "x", "x y", "x"]
    assert examples.labels.tolist() == [0, 1, 0, 1]
    assert order_by_length([("", "", 0)]).first == ["."]


def test_order_of_snli_is_the_toolkits(tmp_path):
    """Examples are sorted by words of the second sentence, of the first, then by label."""
    rows = [
        ("a b", "x", "neutral"),
        ("a b", "x", "contradiction"),
        ("a", "x y", "entailment"),
        ("a b c", "x", "entailment"),
        ("a b", "x", "entailment"),
    ]
    for part in ("train", "dev", "test"):
        for i, name in enumerate(("s1", "s2", "labels")):
            toy.write(tmp_path / f"SNLI/{name}.{part}", [row[i] for row in rows])
    examples = TASKS["SNLI"].read(DataFolder(tmp_path), tmp_path, [])["train"]
    assert examples.first == ["a b", "a b", "a b", "a b c", "a"]
    assert examples.second == ["x", "x", "x", "x", "x y"]
    # The toolkit's classes: entailment, neutral, contradiction.
    assert examples.labels.tolist() == [2, 0, 1, 0, 0]


def test_files_as_they_are(senteval_data):
    """A byte order mark, Latin-1, and labels of every task."""
    data, root, notes = DataFolder(senteval_data), senteval_data / "senteval/downstream", []
    trec = TASKS["TREC"].read(data, root, notes)["train"]
    assert any("café" in text for text in trec.first)
    assert set(trec.labels) == {4, 5}
    assert set(TASKS["MRPC"].read(data, root, notes)["test"].labels) == {0, 1}
    assert set(TASKS["SICK-E"].read(data, root, notes)["dev"].labels) == {0, 2}
    assert set(TASKS["SICK-R"].read(data, root, notes)["dev"].labels) == {1.0, 5.0}
    mr = TASKS["MR"].read(data, root, notes)["train"]
    assert all(
        (label == 1) == (text.split()[0] in ("fine", "great"))
        for text, label in zip(mr.first, mr.labels)
    )
    assert notes == []
