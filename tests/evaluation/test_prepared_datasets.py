"""Evaluation data of TensorFlow Datasets, in place of files: the same scores, and mistakes."""

import hashlib

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suites import language_bias, qnli, sts
from tests.evaluation import toy
from tests.prepared_datasets import write_dataset

tfds = pytest.importorskip("tensorflow_datasets")

_PAIRS = [(f"the cat {a}", f"a cat {b}", s) for a, b, s in ((1, 1, 5.0), (2, 3, 0.4), (4, 4, 3.8))]
_ANSWERS = [("is it one?", "one", 0), ("is it two?", "a dog", 1), ("three?", "a three", 0)]
_SENTENCES = {
    "en": ["1 0 0", "0 1 0", "0 0 1", "1 1 0"],
    "de": ["9 1 0", "0 9 1", "NS", "9 9 1"],
}


def _dataset(root, name, kinds, **splits):
    """Writes rows of values in the order of `kinds`, feature -> its kind; GLUE's have an `idx`."""
    if name.startswith("glue"):
        kinds = {**kinds, "idx": tfds.features.Scalar(np.int32)}
    splits = {
        split: [dict(zip(kinds, (*row, number))) for number, row in enumerate(rows)]
        for split, rows in splits.items()
    }
    write_dataset(root, name, tfds.features.FeaturesDict(kinds), splits)


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """Returns two data folders: of files, and of the same rows as data sets in `tfds`."""
    files, root = (tmp_path_factory.mktemp(name) for name in ("files", "data"))
    text, label = tfds.features.Text(), tfds.features.ClassLabel
    kinds = {"sentence1": text, "sentence2": text, "label": tfds.features.Scalar(np.float32)}
    _dataset(root / "tfds", "glue/stsb/2.0.0", kinds, validation=_PAIRS, train=_PAIRS[:2])
    for part, count in (("dev", 3), ("train", 2)):
        lines = [f"g\tf\ty\t{i}\t{s}\t{a}\t{b}" for i, (a, b, s) in enumerate(_PAIRS[:count])]
        toy.write(files / f"STS/STSBenchmark/sts-{part}.csv", lines)
    labels = ("entailment", "not_entailment")
    kinds = {"question": text, "sentence": text, "label": label(names=labels)}
    _dataset(root / "tfds", "glue/qnli/2.0.0", kinds, validation=_ANSWERS)
    lines = [f"{i}\t{a}\t{b}\t{labels[n]}" for i, (a, b, n) in enumerate(_ANSWERS)]
    toy.write(files / "qnli/dev.tsv", ["index\tquestion\tsentence\tlabel", *lines])
    kinds = {"sentence1": text, "sentence2": text}
    kinds["label"] = label(names=("different_meaning", "paraphrase"))
    for language, sentences in _SENTENCES.items():
        rows = [(sentence, "other", i % 2) for i, sentence in enumerate(sentences)]
        _dataset(
            root / "tfds", f"paws_x_wiki/{language}/1.0.0", kinds, test=rows, validation=rows[:2]
        )
        for split, count in (("test", 4), ("dev", 2)):
            lines = [f"{sentence}\tother\t1" for sentence in sentences[:count]]
            toy.write(files / f"pawsx/{split}-{language}.tsv", lines)
    # A language of which a row was left out.
    _dataset(root / "tfds", "paws_x_wiki/fr/1.0.0", kinds, test=rows[1:])
    return files, root


@pytest.mark.parametrize(
    ("suite", "encode", "options", "count"),
    [
        (sts, toy.encode, {"tasks": ["STS-B"], "split": "dev"}, 2),
        (sts, toy.encode, {"tasks": ["STS-B"], "split": "train"}, 2),
        (qnli, toy.encode, {}, 1),
        (language_bias, toy.read_numbers, {"languages": ["en", "de"]}, 20),
        (language_bias, toy.read_numbers, {"languages": ["en", "DEU"], "split": "dev_2k"}, 20),
    ],
)
def test_scores_are_those_of_the_files(roots, suite, encode, options, count):
    """Data sets in `tfds`, or in the data folder itself; checksums of their files are kept."""
    files, root = roots
    expected = toy.run(suite, encode, files, **options)
    assert len(expected.scores) == count and not expected.failures
    for folder in (root, root / "tfds"):
        data, report = DataFolder(folder), SuiteReport()
        toy.evaluate(suite, encode, data, suite.Options(**options), report)
        assert not report.failures and not report.missing
        assert report.scores == expected.scores
        for name, digest in data.files.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert all(".tfrecord" in name for name in data.files) and data.files


@pytest.mark.parametrize(
    ("suite", "options", "message"),
    [
        (language_bias, {}, "en and fr have different rows in test|de and fr have different rows"),
        (language_bias, {"split": "train"}, "paws_x_wiki/de: no split 'train'; it has test, val"),
        (language_bias, {"languages": ["de", "ko"]}, "the data has no 'ko'; it has de, en, fr"),
    ],
)
def test_mistakes(roots, suite, options, message):
    """Each is one line."""
    with pytest.raises(UserError, match=message) as caught:
        toy.run(suite, toy.read_numbers, roots[1], **options)
    assert "\n" not in str(caught.value)


def test_parts_that_are_not_there(roots, tmp_path):
    """GLUE's test scores are not public; a feature that is not there is named."""
    (missing,) = toy.run(sts, toy.encode, roots[1], tasks=["STS-B"]).missing
    assert "STS-B" in str(missing) and "glue/stsb" in str(missing)
    text, absent = tfds.features.Text(), MissingData(tmp_path, "")
    _dataset(tmp_path, "little/qnli/2.0.0", {"question": text, "label": text}, test=[("a", "b")])
    with pytest.raises(UserError, match="little/qnli: no feature 'sentence' .* label, question"):
        DataFolder(tmp_path).dataset("little/qnli", "test", ("question", "sentence"), absent)
