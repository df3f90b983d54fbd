"""The main-content classifier: its optimum, its file, its stage."""

import base64
import json
import math
from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from data_prep import train_quality_classifier as training
from data_prep.counts import DropCounter
from data_prep.readers import Document
from data_prep.stages.quality_classifier import (
    SIGNALS,
    Features,
    QualityClassifier,
    QualityModel,
    SentenceClassifier,
    load_model,
    signals,
)
from data_prep.stages.quality_signals import Words
from official_cmlm.common.errors import UserError
from tests.data_prep.quality_examples import menus, prose

SMALL = Features(bits=10)


@pytest.fixture(scope="module")
def model():
    return training.train(prose(60), menus(60), SMALL)


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.json")
    return str(tmp_path / "model.json")


def small_problem():
    rng = np.random.default_rng(0)
    ngrams = rng.random((40, 12)) * (rng.random((40, 12)) < 0.4)
    dense = rng.standard_normal((40, 3))
    labels = (ngrams[:, 0] - ngrams[:, 1] + dense[:, 0] + rng.standard_normal(40) > 0).astype(float)
    return ngrams, dense, labels


def test_the_optimum_is_flat():
    """The gradient of the mean log loss and of the cost of weights, by hand, is 0 there."""
    ngrams, dense, labels = small_problem()
    l2 = 0.02
    weights, signal_weights, bias = training.fit(csr_matrix(ngrams), dense, labels, l2)
    both, result = np.hstack([ngrams, dense]), np.r_[weights, signal_weights]
    error = 1 / (1 + np.exp(-both @ result - bias)) - labels
    np.testing.assert_allclose(both.T @ error / len(labels) + l2 * result, 0, atol=1e-6)
    assert error.mean() == pytest.approx(0, abs=1e-6)


def test_score_is_the_model_of_training(model):
    """The stage's score of a text and the training's matrix product are the same number."""
    documents = [*prose(5, seed=7), *menus(5, seed=8), Document("z", "zh", ["委员会将于下周。"])]
    ngrams, values = training.vectors(documents, SMALL)
    assert np.isnan(values[-1]).sum() == 8 and not np.isnan(values[:-1]).any()
    dense = np.nan_to_num(np.clip((values - model.signal_means) / model.signal_scales, -5, 5))
    logits = ngrams @ model.weights + dense @ model.signal_weights + model.bias
    np.testing.assert_allclose(
        training.scores(model, documents), 1 / (1 + np.exp(-logits)), rtol=1e-9
    )


def test_n_grams_are_counted_by_what_they_are():
    words = Words(["one two one"])
    buckets = Features(bits=20, character_ngrams=(3,), word_ngrams=(1, 2)).buckets(words)
    # Words: one, two, one; pairs: both differ; characters: "one" comes twice.
    assert len(buckets) == 3 + 2 + 9
    counts = sorted(Counter(buckets.tolist()).values(), reverse=True)
    assert counts == [2, 2, *[1] * 10]
    assert buckets.min() >= 0 and buckets.max() < 1 << 20
    assert len(Features(bits=8).buckets(Words([]))) == 0


def test_signals_by_hand():
    text = ["The house, of # old.", "The house, of # old.", "- is it ..."]
    values = dict(zip(SIGNALS, signals(text, Words(text), "en")))
    assert values["log_words"] == pytest.approx(math.log(15))
    assert values["number_signs"] == 2 / 14 and values["ellipses"] == 1 / 14
    assert values["stop_words"] == 4 / 14
    assert values["end_marks"] == 1
    assert values["bullet_lines"] == values["ellipsis_lines"] == values["duplicate_lines"] == 1 / 3
    assert values["duplicate_5gram"] > 0 and len(values) == len(SIGNALS)


def test_save_and_load(model, path, tmp_path):
    loaded = load_model(path)
    for name in ("weights", "signal_weights", "signal_means", "signal_scales"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    assert (loaded.bias, loaded.features, loaded.report) == (model.bias, SMALL, {})
    documents = [*prose(3, seed=9), *menus(3, seed=9)]
    assert training.scores(loaded, documents).tolist() == training.scores(model, documents).tolist()
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()


def _damage(content, **changes):
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: "{", "not valid JSON .*; name a quality classifier"),
        (lambda c: "[]", "must hold an object"),
        (lambda c: _damage(c, format="other"), "not a file of the form"),
        (lambda c: _damage(c, weights=c["weights"][:-8]), r"damaged \(1023 weights, not 1024\)"),
        (lambda c: _damage(c, weights="é"), "damaged"),
        (lambda c: _damage(c, weights=base64.b64encode(b"\0\0\xc0\x7f" * 1024).decode()),
         "a number is out of range"),
        (lambda c: _damage(c, bias=None), "damaged"),
        (lambda c: _damage(c, signals={}), "KeyError: 'log_words'"),
        (lambda c: _damage(c, features={"bits": 10, "colour": 1}), "colour"),
        (lambda c: _damage(c, features={"bits": 99}), "damaged"),
        (lambda c: _damage(c, features=[]), "damaged"),
        (lambda c: _damage(c, features=c["features"] | {"word_ngrams": [0]}), "word_ngrams"),
        (lambda c: json.dumps({k: v for k, v in c.items() if k != "bias"}), "KeyError: 'bias'"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(change, message, path):
    content = json.loads(open(path, encoding="utf-8").read())
    with open(path, "w", encoding="utf-8") as file:
        file.write(change(content))
    with pytest.raises(UserError, match=message) as caught:
        load_model(path)
    assert str(caught.value).startswith(path) and "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="json: no such file; name a quality classifier, or train"):
        load_model(tmp_path / "nowhere.json")
    with pytest.raises(UserError, match="a folder, not a file"):
        load_model(tmp_path)


def test_stage_on_paragraphs(path):
    stage, counters = QualityClassifier(path, level="paragraph"), DropCounter()
    good, bad = prose(1, seed=3)[0].paragraphs, menus(1, seed=3)[0].paragraphs
    mixed = Document("d", "en", [*bad, *good, *bad])
    assert stage(mixed, counters).paragraphs == good
    assert stage(Document("e", "en", bad), counters) is None
    assert counters == {"quality/paragraph_classifier": 3, "quality/classifier": 1}


def test_threshold_is_kept_inclusive(path):
    document = menus(1, seed=3)[0]
    score = load_model(path).score(document.paragraphs, "en")
    above = math.nextafter(score, 1)
    for level, reasons in (("document", 1), ("paragraph", 2)):
        counters = DropCounter()
        stage = QualityClassifier(path, score, level)
        assert stage(document, counters) is document and not counters
        assert QualityClassifier(path, above, level)(document, counters) is None
        assert counters["quality/classifier"] == 1 and len(counters) == reasons


def test_precision_and_recall_by_hand():
    table = training.precision_recall(np.array([0.9, 0.5, 0.1]), np.array([0.6, 0.2, 0.2, 0.0]))
    rows = {row["threshold"]: row for row in table}
    result = {"precision": 2 / 3, "recall": 2 / 3, "dropped": 3 / 4}
    assert rows[0.5] == {"threshold": 0.5} | result
    assert rows[0.95]["recall"] == 0 and rows[0.95]["dropped"] == 1
    assert "| 0.5 | 66.7% | 66.7% | 75.0% |" in training.format_table(table)


def test_an_empty_model_says_one_half():
    empty = QualityModel(
        SMALL, np.zeros(1024, np.float32), *[np.zeros(len(SIGNALS))] * 2, np.ones(len(SIGNALS)), 0.0
    )
    assert empty.score(["Anything."], "en") == 0.5
    assert empty.score([], "zh") == 0.5


def test_single_sentences(model, path):
    """Each is judged alone, in its document's language; the document is cut where one goes."""
    good = [one.paragraphs[0] for one in prose(8, seed=5)]
    bad = [one.paragraphs[0] for one in menus(3, seed=6)]
    assert all(model.score([text], "en") > 0.5 for text in good)
    assert not any(model.score([text], "en") > 0.5 for text in bad)
    documents = [
        (Document("a", "en", []), [good[0], good[1], bad[0], good[2]]),
        (Document("a", "en", [], True), [good[3], bad[1]]),
        (Document("a", "en", [], True), [good[4]]),
        (Document("b", "en", []), [bad[2]]),
        (Document("c", "en", []), [good[5]]),
        (Document("d", "en", []), []),
    ]
    counters = DropCounter()
    cut = SentenceClassifier(path)
    # However many documents are judged at once.
    result = [*cut(documents[:2], counters), *cut(documents[2:], counters)]
    assert [(d.id, d.continues, sentences) for d, sentences in result] == [
        ("a", False, good[:2]),
        ("a#quality-1", False, [good[2]]),
        ("a", True, [good[3]]),
        ("a", False, [good[4]]),
        ("c", False, [good[5]]),
        ("d", False, []),
    ]
    assert counters == {"quality/sentence_classifier": 3, "quality/no_sentence_left": 1}
    assert [len(list(SentenceClassifier(path, 1.0)(documents, DropCounter())))] == [1]


@pytest.mark.parametrize("report", [{}, {"level": "page"}, {"level": 3}, [], None])
def test_level_of_older_models(model, report):
    """They learned from documents."""
    assert QualityModel(**(vars(model) | {"report": report})).level == "document"
