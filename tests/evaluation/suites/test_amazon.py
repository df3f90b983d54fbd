"""Amazon reviews: the split, the classifier, training through the encoder."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data import amazon as amazon_reviews
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.suites import amazon
from official_cmlm.evaluation.suites.amazon import split
from tests.evaluation import toy


def _encode(texts):
    """Counts good words minus bad words, in any language, and the length."""
    good, bad = ("good", "gut", "bon"), ("bad", "schlecht", "mal")
    count = [[sum(w in t for w in good) - sum(w in t for w in bad), len(t) % 3] for t in texts]
    return np.array(count, np.float32)


def _rows(count, good, bad):
    return [(1 + i % 5, f"{good if i % 5 >= 3 else bad} {i}") for i in range(count)]


def _table(root, name, *rows):
    toy.write(root / f"amazon/{name}.tsv", [f"{stars}\t{text}" for stars, text in _rows(*rows)])


def _tables(root, train=50, test=10):
    _table(root, "en/train", train, "good", "bad")
    _table(root, "en/test", test, "good", "bad")
    _table(root, "de/test", test, "gut", "schlecht")


def _run(root, encode=_encode, **options):
    return toy.run(amazon, encode, root, **options)


def test_features_that_separate_english_separate_german(tmp_path):
    """Features that separate English separate German; other languages are at chance."""
    _tables(tmp_path)
    _table(tmp_path, "fr/test", 10, "mal", "bon")
    report = _run(tmp_path)
    assert report.get("en", "accuracy_frozen") == 100.0
    assert report.get("de", "accuracy_frozen") == 100.0
    assert report.get("fr", "accuracy_frozen") == 0.0
    assert report.get("mean", "accuracy_frozen") == 50.0
    assert {s.task: s.count for s in report.scores} == {"en": 10, "de": 10, "fr": 10, "mean": 20}
    assert report.notes == ["accuracy_trained: this encoder cannot be trained here"]


def test_only_chosen_languages_are_scored(tmp_path):
    """Only they are tested, the mean is named as over a part; an unknown one is an error."""
    _tables(tmp_path)
    toy.write_text(tmp_path / "amazon/fr/test.tsv", "no review")
    report = _run(tmp_path, languages=["DE"])
    assert {score.task for score in report.scores} == {"de", "mean"}
    assert report.notes[0] == "mean is over a part that was chosen: de"
    assert not report.failures
    with pytest.raises(
        UserError, match="amazon.languages: the data has no 'ja'; it has en, de, fr"
    ):
        _run(tmp_path, languages=["ja"])


def test_encoder_is_trained_for_each_seed(tmp_path):
    """The encoder's trainer gets 90 % of the training reviews, each seed once."""
    _tables(tmp_path)
    calls = []

    def fine_tune(texts, labels, classes, seed):
        calls.append((len(texts), classes, seed))
        assert labels.tolist() == [int("good" in text) for text in texts]
        return lambda tested: np.full(len(tested), seed)

    report = _run(tmp_path, CachedEncoder(_encode, fine_tune=fine_tune), seeds=2)
    assert calls == [(45, 2, 0), (45, 2, 1)]
    # 2 of 5 reviews are positive: seed 0 says never, seed 1 always.
    scores = {(s.task, s.metric): s for s in report.scores}
    trained = scores["de", "accuracy_trained"]
    assert (trained.value, trained.count) == (50.0, 10)
    assert trained.deviation == pytest.approx(np.std([60, 40], ddof=1))
    assert scores["mean", "accuracy_trained"].value == 50.0
    assert scores["en", "accuracy_frozen"].deviation == 0.0
    assert not report.notes
    report = _run(tmp_path, CachedEncoder(_encode, fine_tune=fine_tune), train_encoder=False)
    assert {score.metric for score in report.scores} == {"accuracy_frozen"} and len(calls) == 2


def test_sizes_are_cut(tmp_path):
    """A random part of larger files is used, the same for all seeds."""
    _tables(tmp_path, train=400, test=50)
    encode = toy.Recording(_encode)
    report = _run(tmp_path, CachedEncoder(encode), max_train=60, max_test=20, seeds=3)
    assert {s.count for s in report.scores if s.task != "mean"} == {20}
    assert len(encode.texts) <= 60 + 2 * 20


def test_json_lines_are_read(tmp_path):
    """The form of amazon_reviews_multi; stars may be strings."""
    for language, part in (("en", "train"), ("en", "test"), ("ja", "test")):
        rows = [{"stars": str(s), "review_body": t} for s, t in _rows(50, "good", "bad")]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        broken = '{"stars": 5}\n{"stars"\n[1]\n{"stars": "x", "review_body": "y"}\n'
        toy.write_text(tmp_path / f"amazon/dataset_{language}_{part}.json", text + broken)
    report = _run(tmp_path)
    assert report.get("ja", "accuracy_frozen") == 100.0 and report.scores[0].count == 50
    assert report.notes[:3] == [
        f"{name}: 4 malformed reviews skipped" for name in ("en (train)", "en", "ja")
    ]


ITEMS = """<?xml version="1.0" encoding="UTF-8"?><items>
<item><rating>5.0</rating><text>good &amp; fine
two lines</text><title>x</title></item>
<item><text><![CDATA[bad & <b>]]></text><rating>2.0</rating></item>
<item><rating>4.0</rating></item>
<item><rating>3.0</rating><text>bad &bomb; &quot;so so&quot;</text></item>
"""


def test_categories_of_a_language_count_together(tmp_path):
    """All categories of a language count together; three stars are negative.

    The file is not well-formed XML; entities that it defines stay as they are.
    """
    for category in ("books", "dvd"):
        for part in ("train", "test"):
            toy.write_text(tmp_path / f"amazon/en/{category}/{part}.review", ITEMS)
    data, folder = DataFolder(tmp_path), tmp_path / "amazon"
    assert amazon_reviews.languages(folder) == ["en"]
    reviews = amazon_reviews.read(data, folder, "en", "train")
    assert reviews.labels.tolist() == [1, 0, 0, 1, 0, 0] and reviews.skipped == 2
    assert reviews.texts[:3] == ["good & fine\ntwo lines", "bad & <b>", 'bad &bomb; "so so"']
    assert _run(tmp_path).get("en", "accuracy_frozen") == 100.0


def test_malformed_lines_of_a_table(tmp_path):
    """Exactly two columns, a number and a text."""
    path = tmp_path / "en/test.tsv"
    toy.write(path, ["5\ta", "x\ta", "4", "4\t ", "nan\ta", "3\ta\tb", ""])
    reviews = amazon_reviews.read(DataFolder(tmp_path), tmp_path, "en", "test")
    assert reviews.texts == ["a"] and reviews.skipped == 5


@settings(deadline=None)
@given(st.lists(st.integers(0, 1), min_size=4, max_size=200), st.integers(0, 3))
def test_split_has_every_row_once(labels, seed):
    """Every row once, both labels on both sides, about a tenth for development."""
    labels = np.array(labels)
    counts = np.bincount(labels, minlength=2)
    if counts.min() < 2:
        with pytest.raises(UserError, match="more than 3 stars"):
            split(labels, 0.1, seed)
        return
    train, dev = split(labels, 0.1, seed)
    assert sorted([*train, *dev]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels[dev]) == {0, 1}
    assert np.bincount(labels[dev]).tolist() == [max(1, round(0.1 * c)) for c in counts]
    again = split(labels, 0.1, seed)
    assert np.array_equal(train, again[0]) and np.array_equal(dev, again[1])


def test_seeds_split_differently():
    """Otherwise several seeds would be one."""
    labels = np.arange(100) % 2
    assert not np.array_equal(split(labels, 0.1, 0)[1], split(labels, 0.1, 1)[1])


def test_missing_language_does_not_stop_others(tmp_path):
    """Without an English test set the others are tested."""
    _tables(tmp_path)
    (tmp_path / "amazon/en/test.tsv").unlink()
    report = _run(tmp_path)
    assert report.get("de", "accuracy_frozen") == 100.0
    assert [one.task for one in report.missing] == ["en"] and not report.failures


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "missing"), ("nonsense\n", "no review"), ("5\ta\n4\tb\n", "more than 3 stars")],
)
def test_bad_training_reviews(tmp_path, text, message):
    """Nothing can be done without them: an error, one line."""
    _tables(tmp_path)
    path = tmp_path / "amazon/en/train.tsv"
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        _run(tmp_path)
