"""The binary that trains the main-content classifier: what it learns from and what it says."""

import weakref
from collections import Counter

import pytest
from absl.testing import flagsaver

from data_prep import train_quality_classifier as binary
from data_prep.readers import Document
from data_prep.stages.quality_classifier import load_model
from official_cmlm.common.errors import UserError
from tests.data_prep.binaries import run_binary
from tests.data_prep.quality_examples import menus, prose


def test_samples_do_not_depend_on_order():
    documents = [(document, False) for document in prose(50)]
    few = binary.sample(documents, 10, seed=1)
    assert few == binary.sample(documents[::-1] + documents, 10, seed=1)
    assert few != binary.sample(documents, 10, seed=2)
    assert len(binary.sample(documents, 1000, seed=1)) == 50


def test_memory_holds_only_the_sample():
    """At most two samples are held while the documents are read."""
    alive = []

    class Counted(Document):
        __slots__ = ("__weakref__",)

    def read():
        for document in prose(40):
            counted = Counted(document.id, document.language, document.paragraphs)
            alive.append(weakref.ref(counted))
            yield counted, False
            del counted
            assert sum(one() is not None for one in alive) <= 11

    assert len(binary.sample(read(), 5, seed=1)) == 5


def test_pieces_of_a_document_are_held_out_together():
    """All are in normal form, as `prepare` gives them to the classifier."""
    texts = [one.paragraphs[0] for one in prose(60)]
    pieces = [
        Document(f"{n}/{part}", "en", [f"cafe\u0301 {texts[3 * n + part]}"], part > 0)
        for n in range(20)
        for part in range(3)
    ]
    with flagsaver.flagsaver():
        binary.define_flags()
        binary.FLAGS(["prog", "--output=x", "--kept=x", "--dropped=x", "--held_out=0.5"])
        examples = list(binary.make_examples(iter(pieces)))
    assert [one.id for one, _ in examples] == [one.id for one in pieces]
    assert all(one.paragraphs[0].startswith("caf\u00e9 ") for one, _ in examples)
    measured = Counter(one.id.split("/")[0] for one, is_measured in examples if is_measured)
    assert set(measured.values()) == {3} and len(measured) < 20


def run(tmp_path, *arguments):
    run_binary(binary, f"--output={tmp_path}/model.json", "--bits=10", *arguments)


def write(path, documents):
    path.write_text("\n\n".join("\n".join(one.paragraphs) for one in documents) + "\n")
    return str(path)


def test_binary(tmp_path, capsys):
    kept = write(tmp_path / "kept.txt", prose(80))
    dropped = write(tmp_path / "dropped.txt", menus(80))
    run(tmp_path, f"--kept={kept}", f"--dropped={dropped}", "--held_out=0.3")
    printed = capsys.readouterr().out
    assert "| threshold | precision" in printed and "learned from" in printed
    report = load_model(tmp_path / "model.json").report
    assert report["kept"]["learned_from"] + report["kept"]["held_out"] == 80
    rows = {row["threshold"]: row for row in report["held_out"]}
    assert rows[0.5]["precision"] == rows[0.5]["recall"] == 1
    first = (tmp_path / "model.json").read_bytes()
    run(tmp_path, f"--kept={kept}", f"--dropped={dropped}", "--held_out=0.3", "--overwrite")
    assert (tmp_path / "model.json").read_bytes() == first


def test_sentences(tmp_path, capsys):
    """Each sentence is an example; those of a document are all learned from, or all measured on."""
    texts = [one.paragraphs[0] for one in prose(120)]
    written = [Document("", "en", [" ".join(texts[3 * n : 3 * n + 3])]) for n in range(40)]
    kept = write(tmp_path / "kept.txt", written)
    dropped = write(tmp_path / "dropped.txt", menus(80))
    run(tmp_path, f"--kept={kept}", f"--dropped={dropped}", "--held_out=0.3", "--level=sentence")
    model = load_model(tmp_path / "model.json")
    counts = model.report["kept"]
    assert counts["learned_from"] + counts["held_out"] == 120 and counts["held_out"] % 3 == 0
    assert f"learned from {counts['learned_from']} sentences to keep" in capsys.readouterr().out
    assert model.level == "sentence"
    assert {row["threshold"]: row for row in model.report["held_out"]}[0.5]["precision"] == 1
    run(tmp_path, f"--kept={kept}", f"--dropped={dropped}", "--overwrite")
    assert load_model(tmp_path / "model.json").level == "document"
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{text[:-1]} again\n" for text in texts))
    arguments = [f"--kept={lines}", f"--dropped={dropped}", "--level=sentence", "--overwrite"]
    run(tmp_path, *arguments, "--lines=sentences", "--documents_by=file", "--held_out=0")
    assert load_model(tmp_path / "model.json").report["kept"]["learned_from"] == 120


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(UserError, match="/no/such: no such directory"):
        run(tmp_path, "--output=/no/such/model.json", "--kept=x", "--dropped=x")


def test_binary_with_too_few_examples(tmp_path):
    one = write(tmp_path / "one.txt", prose(1))
    with pytest.raises(UserError, match=r"--kept: 1 document\(s\) are too few"):
        run(tmp_path, f"--kept={one}", f"--dropped={one}")
