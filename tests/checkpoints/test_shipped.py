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


def test_shipped_encoders_are_small():
    """A package that everybody installs holds 20 MB of weights at most."""
    assert list_shipped() == ["mini-en", "static-en"]
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) <= 20e6


@pytest.mark.parametrize("name", ["mini-en", "static-en"])
def test_shipped_encoder_is_found_by_name_and_ranks_texts(name):
    encoder = SentenceEncoder.load(name)
    first, second = (encoder.encode(list(texts)) for texts in zip(*SAME))
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-5)
    similarity = first @ second.T
    np.testing.assert_array_equal(similarity.argmax(axis=1), [0, 1, 2])
    assert similarity.diagonal().min() > 0.3


def test_shipped_encoders_search_their_teachers_index(real_weights, tmp_path):
    texts = [text for text, _ in SAME]
    Index.build(SentenceEncoder.load(real_weights), texts).save(tmp_path / "index")
    for name in list_shipped():
        index = Index.load(tmp_path / "index", SentenceEncoder.load(name))
        hits = index.search([text for _, text in SAME], k=1)
        assert [hit[0].text for hit in hits] == texts


@pytest.mark.parametrize("name", ["mini-en", "static-en"])
def test_backends_agree_on_it(name):
    texts = [text for pair in SAME for text in pair]
    by_onnx, by_tensorflow = (
        SentenceEncoder.load(name, backend=backend).encode(texts)
        for backend in ("onnx", "tensorflow")
    )
    np.testing.assert_allclose(by_onnx, by_tensorflow, atol=2e-5)


@pytest.mark.parametrize("name", ["mini-en", "static-en"])
def test_shipped_encoder_has_a_card(name):
    """Its teacher, texts, scores and the command that made it."""
    card = (SHIPPED / name / "README.md").read_text()
    for part in (f"# {name}", "all-MiniLM-L6-v2", "Apache-2.0", "STS-B", "experiments/shipped"):
        assert part in card


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
