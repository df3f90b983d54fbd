"""Transfer of inference: files of both publishers, the classifier, its scores."""

import csv
import io

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.suites import xnli
from tests.evaluation import toy

NAMES = ("entailment", "neutral", "contradiction")
TRAIN = "XNLI-MT-1.0/multinli/multinli.train.en.tsv"


def _vector(text):
    """Returns one of three axes for the word `class0` to `class2`, otherwise zeros."""
    axis = text.partition("class")[2][:1]
    return [float(axis == str(i)) for i in range(3)]


def _encode(texts):
    return np.array([_vector(text) for text in texts], np.float32)


def _rows(count, language="en", wrong=0):
    """Returns rows whose hypothesis names their label; the first `wrong` ones name the next."""
    return [
        (f"{language} premise {i}", f"{language} class{(i + (i < wrong)) % 3} {i}", NAMES[i % 3])
        for i in range(count)
    ]


def _write_training(root, count=1500, name=TRAIN):
    """Writes as many rows as the classifier needs before it is stopped for lack of progress."""
    rows = [[a, b, c.replace("contradiction", "contradictory")] for a, b, c in _rows(count)]
    toy.write(root / name, ["premise\thypo\tlabel", *map("\t".join, rows)])


def _write_copy(root, language, rows, split="test"):
    """Writes a file as XTREME's script does."""
    written = io.StringIO()
    csv.writer(written, delimiter="\t").writerows(rows)
    toy.write_text(root / f"xnli/{split}-{language}.tsv", written.getvalue())


def _write_official(root, rows_by_language, split="test"):
    """Writes the file of all languages: more columns, the languages mixed."""
    header = "language\tgold_label\tsentence1_parse\tsentence1\tsentence2\tpairID"
    blocks = [
        [f"{language}\t{c}\t(a)\t{a}\t{b}\t{i}" for i, (a, b, c) in enumerate(rows)]
        for language, rows in rows_by_language.items()
    ]
    lines = [line for together in zip(*blocks, strict=True) for line in together]
    toy.write(root / f"xnli/xnli.{split}.tsv", [header, *lines])


def _tests():
    """Returns tests of 12 rows, of which 0, 3 and 6 have another label than their hypothesis."""
    return {name: _rows(12, name, wrong) for name, wrong in (("en", 0), ("de", 3), ("sw", 6))}


EXPECTED = {"en": 100.0, "de": 75.0, "sw": 50.0, "macro": 62.5}


@pytest.mark.parametrize("write", ["copy", "official"])
def test_features_that_separate_english_are_tested_in_every_language(tmp_path, write):
    """The scores are the shares of hypotheses that name their label."""
    _write_training(tmp_path)
    if write == "copy":
        for language, rows in _tests().items():
            _write_copy(tmp_path, language, rows)
    else:
        _write_official(tmp_path, _tests())
    report = toy.run(xnli, _encode, tmp_path)
    assert {score.task: score.value for score in report.scores} == EXPECTED
    assert {score.metric for score in report.scores} == {"accuracy"}
    assert {score.task: score.count for score in report.scores}["macro"] == 24
    macro = "macro is the mean of de sw"
    assert report.notes == [f"trained on 1500 rows of {TRAIN}", macro] and report.seeds == [1111]
    assert toy.run(xnli, _encode, tmp_path) == report


def test_development_set_has_its_own_metric(tmp_path):
    """Languages are chosen by any of their codes; English alone has no mean."""
    _write_training(tmp_path, name="multinli_translated/multinli.train.en.tsv")
    for language, rows in _tests().items():
        _write_copy(tmp_path, language, rows, "dev")
    report = toy.run(xnli, _encode, tmp_path, split="dev", languages=["swa", "ENG"])
    values = {score.task: (score.metric, score.value) for score in report.scores}
    assert values == {k: ("dev_accuracy", EXPECTED[k]) for k in ("en", "sw")} | {
        "macro": ("dev_accuracy", 50.0)
    }
    report = toy.run(xnli, _encode, tmp_path, split="dev", languages=["en"])
    assert [score.task for score in report.scores] == ["en"]
    with pytest.raises(UserError, match=r"xnli\.test\.tsv: missing; XNLI-1\.0"):
        toy.run(xnli, _encode, tmp_path)


def test_first_rows_are_trained_on(tmp_path):
    """More rows than that, here of no use, are not read by the encoder."""
    _write_training(tmp_path)
    _write_copy(tmp_path, "de", _tests()["de"])
    encode = toy.Recording(_encode)
    report = toy.run(xnli, encode, tmp_path, max_train=1200)
    assert report.get("de", "accuracy") == 75.0
    assert "en premise 1199" in encode.texts and "en premise 1200" not in encode.texts
    assert report.notes[0] == f"trained on 1200 rows of {TRAIN}"
    with pytest.raises(UserError, match=r"train\.en\.tsv: 19 rows to train on, 20 are the fewest"):
        toy.run(xnli, _encode, tmp_path, max_train=19)


def test_rows_are_read_as_they_were_written(tmp_path):
    """Quotes of `csv` are taken off; rows without a known label or a column are left out."""
    rows = [['"Go," he said', 'he "went"', "neutral"], *_rows(3), ("a", "b", "-"), ("a", "b")]
    _write_copy(tmp_path, "de", rows)
    data = DataFolder(tmp_path)
    (pairs,) = xnli.read_inferences(data, tmp_path / "xnli/test-de.tsv").values()
    assert (pairs.first[0], pairs.second[0]) == ('"Go," he said', 'he "went"')
    assert pairs.gold.tolist() == [1, 0, 1, 2] and pairs.skipped == 2


@pytest.mark.parametrize(
    "lines", [[], ["a\tb"] * 3, ["language\tgold_label\tsentence1\tsentence2"]]
)
def test_file_without_labels_concerns_one_language(tmp_path, lines):
    """XTREME's test files have none. A training file without them stops the suite."""
    _write_training(tmp_path)
    _write_copy(tmp_path, "de", _tests()["de"])
    toy.write(tmp_path / "xnli/test-fr.tsv", lines)
    report = toy.run(xnli, _encode, tmp_path)
    assert report.get("macro", "accuracy") == 75.0
    assert [line.partition(":")[0] for line in report.failures] == ["fr"]
    toy.write(tmp_path / TRAIN, lines)
    with pytest.raises(UserError, match="each label, entailment and neutral and contradiction;"):
        toy.run(xnli, _encode, tmp_path)
