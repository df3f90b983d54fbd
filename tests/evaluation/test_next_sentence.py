"""Recall of the next sentence: hand-worked cases, ties and zeros."""

import numpy as np
import pytest

from official_cmlm.evaluation.metrics.nearest import next_sentence_recall


def lookup(**vectors):
    return lambda texts: np.array([vectors[text] for text in texts])


def test_hand_worked():
    """b's successor is nearer to a than to b, so two of three are found; lengths do not matter."""
    encode = lookup(
        a=[1, 0, 0], b=[0.9, 0.1, 0], c=[0, 0, 5], A=[3, 0.5, 0], B=[0, 1, 0], C=[0, 0.1, 1]
    )
    assert next_sentence_recall(encode, ["a", "c"], ["A", "C"]) == 1
    assert next_sentence_recall(encode, ["a", "b", "c"], ["A", "B", "C"]) == pytest.approx(2 / 3)


def test_ties_count_by_chance():
    """An encoder that gives everything one vector finds 1 of n, not all and not none."""
    constant = lambda texts: np.ones([len(texts), 4])  # noqa: E731
    assert next_sentence_recall(constant, list("abcde"), list("ABCDE")) == pytest.approx(0.2)
    zeros = lambda texts: np.zeros([len(texts), 4])  # noqa: E731
    assert next_sentence_recall(zeros, list("abcde"), list("ABCDE")) == pytest.approx(0.2)


def test_against_a_plain_loop():
    rng = np.random.default_rng(0)
    table = {text: rng.normal(size=6) for text in "abcdefghijABCDEFGHIJ"}
    first, second = "abcdefghij", "ABCDEFGHIJ"
    hits = 0
    for a, b in zip(first, second):
        cosines = [
            table[a] @ table[c] / np.linalg.norm(table[a]) / np.linalg.norm(table[c])
            for c in second
        ]
        hits += second[int(np.argmax(cosines))] == b
    encode = lambda texts: np.array([table[t] for t in texts])  # noqa: E731
    assert next_sentence_recall(encode, list(first), list(second)) == pytest.approx(hits / 10)


@pytest.mark.parametrize(("first", "second"), [([], []), (["a"], ["A", "B"])])
def test_no_pairs(first, second):
    with pytest.raises(ValueError, match="as many first as second"):
        next_sentence_recall(lambda texts: np.ones([len(texts), 2]), first, second)
