"""The table of `benchmarks.encode`: agreement, and STS-B's test set where it is at hand."""

import numpy as np
import pytest
from scipy import stats

from benchmarks import encode
from official_cmlm.evaluation.data.sts import ScoredPairs

FIGURES = {
    "all_per_second": 100.0,
    "per_core_second": 50.0,
    "requests_per_second": 80.0,
    "p50_ms": 4.0,
    "p95_ms": 5.0,
    "peak_mib": 300.0,
}


@pytest.fixture
def vectors():
    """Vectors of two sides: ours, and others 0.01 away."""
    rng, sides = np.random.default_rng(0), {"ours": [], "ours_litert": []}
    for rows in (4, 12):
        exact = rng.normal(size=[rows, 8])
        exact /= np.linalg.norm(exact, axis=1, keepdims=True)
        for side, moved in (("ours", 0.0), ("ours_litert", 0.01)):
            sides[side].append((exact + moved * (np.arange(8) == 3)).astype("f"))
    return sides


def _rows(capsys):
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    return rows[0], {row[0]: row[1:] for row in rows[2:]}


def test_the_table_has_the_spearman_of_each_way(vectors, capsys):
    """The vectors are the first texts of the pairs, then the second ones."""
    gold = np.arange(6.0)
    pairs = ScoredPairs([f"a{i}" for i in range(6)], [f"b{i}" for i in range(6)], gold)
    figures = {side: [FIGURES, FIGURES] for side in ("ours", "ours_litert")}
    encode.print_table(figures, vectors, pairs)
    header, rows = _rows(capsys)
    assert header[0] == "side" and header[-1] == "STS-B test"
    for side, row in rows.items():
        texts = vectors[side][1]
        unit = texts / np.linalg.norm(texts, axis=1, keepdims=True)
        expected = stats.spearmanr((unit[:6] * unit[6:]).sum(1), gold).statistic
        assert row[:6] == ["100.0", "50.0", "80.0", "4.0", "5.0", "300"]
        assert float(row[-1]) == pytest.approx(100 * expected, abs=0.006)
    assert rows["ours"][6:8] == ["0.0e+00", "1.0000"]
    assert rows["ours_litert"][6] == "1.0e-02"


def test_ratios_compare_rounds(capsys):
    """The median of the rounds' ratios; our faster way in float32."""
    rounds = [{**FIGURES, "all_per_second": speed} for speed in (100.0, 200.0, 300.0)]
    slow = [{**FIGURES, "all_per_second": 50.0}] * 3
    encode.print_ratios({"ours": slow, "ours_onnx": rounds, "openvino": slow})
    assert capsys.readouterr().out == "ratio encode_float32_vs_openvino 4.00\n"
