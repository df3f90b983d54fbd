"""`export.classify`: labels of a table's texts, and their comparison with the right ones."""

import csv
import json

import numpy as np
import pytest

from official_cmlm.encoding.classifier import Classifier
from tests import binaries


class Animals:
    """An encoder whose vectors say whether a text has a cat, and whether it has a dog."""

    def encode(self, texts):
        return np.array([["cat" in text, "dog" in text] for text in texts], np.float32)


@pytest.fixture
def classify(tmp_path, monkeypatch):
    """Returns a function that labels a table in the folder; it gives the status and the rows."""
    layer = np.array([[9, 0], [0, 9]], np.float32), np.array([0, 1], np.float32)
    classifier = Classifier(Animals(), *layer, ("kitten", "puppy"))
    monkeypatch.setattr(Classifier, "load", lambda folder, **options: classifier)
    monkeypatch.setattr(
        "official_cmlm.checkpoints.find_encoder.find_encoder", lambda name: tmp_path
    )
    monkeypatch.chdir(tmp_path)

    def classify(file, *flags):
        flags = ("--model=mine", f"--input={file}", "--to=out.csv", *flags)
        status = binaries.call("export.classify", *flags)
        if status:
            assert not (tmp_path / "out.csv").exists()
            return status, []
        with open("out.csv", newline="", encoding="utf-8") as output:
            return status, list(csv.DictReader(output))

    return classify


def test_a_table_gets_labels_in_order(tmp_path, classify, monkeypatch, capsys):
    """Over several chunks; rows without a text are left out, and keep the numbers of the others."""
    monkeypatch.setattr("export.classify._TEXTS_AT_ONCE", 2)
    texts = ["a cat,\nä", None, "a dog", "", "", "a cat", "neither"]
    lines = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    status, rows = classify("a.jsonl", "--on_missing=skip")
    assert status == 0
    assert [(row["id"], row["text"], row["label"]) for row in rows] == [
        ("0", texts[0], "kitten"),
        ("2", texts[2], "puppy"),
        ("5", texts[5], "kitten"),
        ("6", texts[6], "puppy"),
    ]
    # Softmax of 0 and 1.
    assert float(rows[3]["probability"]) == pytest.approx(1 / (1 + np.exp(-1)), abs=1e-4)
    shown = capsys.readouterr()
    assert "out.csv: labels of 4 texts" in shown.out and "accuracy" not in shown.out
    assert "warning: 3 rows without a text were left out" in shown.err


def test_right_labels_are_compared(tmp_path, classify, capsys):
    """Rows without one are not counted; a label that the classifier lacks is never right."""
    right = [("cat", "kitten"), ("dog", "kitten"), ("dog", "puppy"), ("dog", ""), ("cat", "fish")]
    table = "".join(f"x{i},{text},{label}\n" for i, (text, label) in enumerate(right))
    (tmp_path / "a.csv").write_text(f"key,body,kind\n{table}")
    flags = ("--column=body", "--id_column=key", "--label_column=kind")
    status, rows = classify("a.csv", *flags)
    assert status == 0 and [row["id"] for row in rows] == ["x0", "x1", "x2", "x3", "x4"]
    assert capsys.readouterr().out.splitlines() == [
        "4 of 5 rows have a label in kind",
        "accuracy: 50.0 % of 4 texts with a right label",
        "  fish: 1 texts, 0.0 % right; taken for kitten 1",
        "  kitten: 2 texts, 50.0 % right; taken for puppy 1",
        "  puppy: 1 texts, 100.0 % right",
        "out.csv: labels of 5 texts",
    ]


def test_a_table_without_labels_says_so(tmp_path, classify, capsys):
    (tmp_path / "a.csv").write_text("text,kind\ncat,\n")
    assert classify("a.csv", "--label_column=kind")[0] == 0
    assert "0 of 1 rows have a label in kind\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "file, flags, says",
    [
        ("a.csv", ["--label_column=sort"], "a.csv: no column 'sort' beside the text, it has kind"),
        ("a.csv,c.csv", ["--label_column=kind"], "c.csv: no column 'kind' beside the text"),
        ("a.csv", ["--to=labels.txt"], "--to=labels.txt: name a .csv file"),
        ("a.csv", ["--to=a.csv"], "a.csv: is also an input"),
        ("b.txt", ["--label_column=kind"], "b.txt: lines of text have no columns; leave out"),
    ],
)
def test_mistakes_are_one_line(tmp_path, classify, capsys, file, flags, says):
    (tmp_path / "a.csv").write_text("text,kind\ncat,kitten\n")
    (tmp_path / "b.txt").write_text("cat\n")
    (tmp_path / "c.csv").write_text("text\ncat\n")
    assert classify(file, *flags)[0] == 1
    assert says in capsys.readouterr().err
