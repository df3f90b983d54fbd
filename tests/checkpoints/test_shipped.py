"""The encoders that ship: found by name, small, described, and of use."""

import numpy as np
import pytest

from official_cmlm.checkpoints.find_encoder import SHIPPED, list_shipped
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.data.sts import read_sts_benchmark
from official_cmlm.evaluation.metrics.similarity import spearman
from official_cmlm.search import Index

# Rows of texts that mean the same; others do not.
SAME = [
    ("The file could not be read.", "Reading the file failed."),
    ("A man is playing a guitar.", "Someone plays music on an instrument."),
    ("How do I cancel my order?", "I want to stop a purchase."),
]

ENGLISH = ["mini-en", "static-en"]
MULTILINGUAL = ["mini-multi", "static-multi"]
# Questions, each with its answer in another language among texts in the question's own.
ACROSS = [
    ("When does the train to Madrid leave?", "El tren a Madrid sale a las ocho de la mañana."),
    ("Wo schläft die Katze?", "The cat is sleeping on the sofa."),
    (
        "How do I open a file?",
        "Klicken Sie auf Datei und dann auf Öffnen, um eine Datei zu öffnen.",
    ),
    ("¿Qué tiempo hará mañana?", "明天会下雨。"),
]
DISTRACTORS = [
    "The bus to London stops here.",
    "Der Hund spielt im Garten.",
    "She closed the door and left.",
    "El libro está sobre la mesa.",
]


def test_shipped_encoders_are_small():
    """A package that everybody installs holds 46 MB of weights at most."""
    assert list_shipped() == sorted(ENGLISH + MULTILINGUAL)
    sizes = {
        name: sum(path.stat().st_size for path in (SHIPPED / name).iterdir())
        for name in list_shipped()
    }
    assert sizes["mini-multi"] <= 16e6 and sizes["static-multi"] <= 10e6
    assert sum(sizes.values()) <= 46e6


@pytest.mark.parametrize("name", ENGLISH + MULTILINGUAL)
def test_shipped_encoder_is_found_by_name_and_ranks_texts(name):
    encoder = SentenceEncoder.load(name)
    first, second = (encoder.encode(list(texts)) for texts in zip(*SAME))
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-5)
    similarity = first @ second.T
    np.testing.assert_array_equal(similarity.argmax(axis=1), [0, 1, 2])
    assert similarity.diagonal().min() > 0.25


def test_shipped_encoders_search_their_teachers_index(real_weights, tmp_path):
    texts = [text for text, _ in SAME]
    Index.build(SentenceEncoder.load(real_weights), texts).save(tmp_path / "index")
    for name in ENGLISH:
        index = Index.load(tmp_path / "index", SentenceEncoder.load(name))
        hits = index.search([text for _, text in SAME], k=1)
        assert [hit[0].text for hit in hits] == texts


@pytest.mark.parametrize("name", MULTILINGUAL)
def test_index_finds_the_answer_in_another_language_first(name):
    """A text in the question's language that fits less comes after it."""
    # A table of words does not know that rain is weather.
    pairs = ACROSS[:-1] if name == "static-multi" else ACROSS
    answers = [answer for _, answer in pairs]
    index = Index.build(SentenceEncoder.load(name), answers + DISTRACTORS)
    hits = index.search([question for question, _ in pairs], k=1)
    assert [hit[0].text for hit in hits] == answers


@pytest.mark.parametrize("name", ENGLISH + MULTILINGUAL)
def test_backends_agree_on_it(name):
    texts = [text for pair in SAME for text in pair]
    by_onnx, by_tensorflow = (
        SentenceEncoder.load(name, backend=backend).encode(texts)
        for backend in ("onnx", "tensorflow")
    )
    np.testing.assert_allclose(by_onnx, by_tensorflow, atol=2e-5)


@pytest.mark.parametrize("name", ENGLISH + MULTILINGUAL)
def test_shipped_encoder_has_a_card(name):
    """Its teacher, texts, scores and the command that made it; the notice names it too."""
    card = (SHIPPED / name / "README.md").read_text("utf-8")
    teacher = ["all-MiniLM-L6-v2", "Apache-2.0"]
    if name in MULTILINGUAL:
        teacher = ["multilingual-e5-small", "MIT"]
    for part in (f"# {name}", *teacher, "STS-B", "experiments/shipped"):
        assert part in card
    assert name in (SHIPPED / "NOTICE").read_text("utf-8")


@pytest.mark.long
@pytest.mark.parametrize(("name", "expected"), [("mini-en", 80.48), ("static-en", 76.96)])
def test_score_equals_the_card(name, expected, data_dir):
    """STS-B's test set, Spearman × 100."""
    path = data_dir / "senteval/downstream/STS/STSBenchmark/sts-test.csv"
    pairs = read_sts_benchmark(path)
    encoder = SentenceEncoder.load(name)
    first, second = (encoder.encode(texts) for texts in (pairs.first, pairs.second))
    got = spearman((first * second).sum(axis=1), pairs.gold)
    assert got == pytest.approx(expected, abs=0.05)
