"""STS: the correlation by hand, and the quirks of the files."""

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.sts import (
    ScoredPairs,
    read_semeval,
    read_sick,
    read_sts_benchmark,
    similarity_spearman,
)

VECTORS = {"x": [1.0, 0.0], "y": [0.0, 2.0], "xy": [3.0, 3.0], "-x": [-5.0, 0.0], "0": [0.0, 0.0]}


def _encode(texts):
    return np.array([VECTORS[text] for text in texts])


def _pairs(*rows):
    first, second, gold = zip(*rows)
    return ScoredPairs(list(first), list(second), np.array(gold, float))


def test_perfect_and_reversed_order():
    """Cosines 1, 0.71, 0 and -1; lengths do not matter."""
    rows = [("x", "x"), ("x", "xy"), ("x", "y"), ("x", "-x")]
    for gold, expected in (([5, 4, 2, 0], 100.0), ([0, 1, 2, 3], -100.0)):
        pairs = _pairs(*[(*row, score) for row, score in zip(rows, gold)])
        assert similarity_spearman(_encode, pairs) == pytest.approx(expected)


def test_ties_share_their_rank():
    """Ranks 1.5 1.5 3 against 1 2 3: Pearson of the ranks is sqrt(3)/2."""
    pairs = _pairs(("x", "y", 1), ("y", "x", 2), ("x", "x", 3))
    assert similarity_spearman(_encode, pairs) == pytest.approx(100 * 3**0.5 / 2)


def test_a_vector_of_zeros_is_like_nothing():
    pairs = _pairs(("x", "-x", 0), ("x", "0", 1), ("x", "x", 2))
    assert similarity_spearman(_encode, pairs) == pytest.approx(100.0)


def test_too_few_pairs():
    with pytest.raises(ValueError, match="at least 2"):
        similarity_spearman(_encode, _pairs(("x", "x", 1)))


def test_files(tmp_path):
    """Quotes stay in the sentences; pairs without gold are left out; subsets are joined."""
    (tmp_path / "sts.csv").write_text(
        'g\tf\ty\t1\t2.5\ta "b\tc\nshort line\ng\tf\ty\t2\t0\td\te\tz\n'
    )
    pairs = read_sts_benchmark(tmp_path / "sts.csv")
    assert (pairs.first, pairs.second) == (['a "b', "d"], ["c", "e"])
    assert pairs.gold.tolist() == [2.5, 0.0]
    (tmp_path / "sick.txt").write_text(
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        '1\tA "x\tB\t3.3\tNEUTRAL\n'
    )
    assert read_sick(tmp_path / "sick.txt").first == ['A "x']
    for name, texts, scores in (("b", "p\tq\nr\ts\n", "1\n\n"), ("a", "t\tu\textra\n", "4\n")):
        (tmp_path / f"STS.input.{name}.txt").write_text(texts)
        (tmp_path / f"STS.gs.{name}.txt").write_text(scores)
    pairs = read_semeval(tmp_path)
    assert (pairs.first, pairs.second, pairs.gold.tolist()) == (["t", "p"], ["u", "q"], [4.0, 1.0])


def test_missing_and_unequal_files(tmp_path):
    with pytest.raises(UserError, match=r"sts\.csv: missing"):
        read_sts_benchmark(tmp_path / "sts.csv")
    with pytest.raises(UserError, match=r"no STS\.input"):
        read_semeval(tmp_path)
    (tmp_path / "STS.input.a.txt").write_text("p\tq\nr\ts\n")
    (tmp_path / "STS.gs.a.txt").write_text("1\n")
    with pytest.raises(UserError, match="2 pairs but 1 scores"):
        read_semeval(tmp_path)
