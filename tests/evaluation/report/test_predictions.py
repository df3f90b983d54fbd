"""Predictions of pairs in files, the intervals of their scores and of differences of encoders."""

import csv
import json

import numpy as np
import pytest
from scipy import stats

from official_cmlm.evaluation.encoding import OpenedEncoder
from official_cmlm.evaluation.report import driver
from tests.evaluation import toy

WORDS = ("cats", "dogs, black", 'a "bird"', "the sea", "blue sky", "old stone", "sun", "moon")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Scores two encoders on 60 pairs, the second beside the first; returns folder and results."""
    root = tmp_path_factory.mktemp("predictions")
    rng = np.random.default_rng(0)
    rows = [
        f"g\tf\ty\t{i}\t{rng.integers(6)}\t{WORDS[i % 8]} {i}\t{WORDS[i % 3]} {i // 2}"
        for i in range(60)
    ]
    toy.write(root / "data/senteval/downstream/STS/STSBenchmark/sts-test.csv", rows)
    options = driver.parse_options(["sts"], ["sts.tasks=STS-B"])
    results, compare = [], []
    for name, width in (("a", 64), ("b", 8)):
        encoder = OpenedEncoder(
            name, "python", name * 16, lambda texts, width=width: toy.encode(texts, width)
        )
        results.append(
            driver.run(
                *(encoder, "", name, root / "data", root / name, options),
                compare=compare,
                save_predictions=True,
            )
        )
        compare = driver.read_compared([str(root / name / "results.json")])
    return root, results


def _predictions(root, name):
    with (root / name / "predictions/sts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, *(np.array([float(row[key]) for row in rows]) for key in ("gold", "predicted"))


def test_the_score_follows_from_the_file(runs):
    """Spearman's correlation of its columns, by SciPy, is the score; texts are as they were."""
    root, results = runs
    for name, found in zip("ab", results):
        rows, gold, predicted = _predictions(root, name)
        score = found["suites"]["sts"]["scores"][0]
        assert score["value"] == pytest.approx(100 * stats.spearmanr(predicted, gold).statistic)
        low, high = score["interval"]
        assert low < score["value"] < high
        assert rows[2]["first"] == 'a "bird" 2' and {row["task"] for row in rows} == {"STS-B"}


def test_intervals_agree_with_resampling_by_hand(runs):
    """Intervals of a score and of a paired difference, within what a thousand samples can tell."""
    root, results = runs
    (_, gold, first), (_, _, second) = (_predictions(root, name) for name in "ba")
    rng = np.random.default_rng(5)
    found = []
    for _ in range(1000):
        rows = rng.integers(len(gold), size=len(gold))
        found.append(
            [100 * stats.spearmanr(one[rows], gold[rows]).statistic for one in (first, second)]
        )
    found = np.array(found)
    score = results[1]["suites"]["sts"]["scores"][0]
    ends = (
        np.percentile(found[:, 0], [2.5, 97.5]),
        np.percentile(found[:, 0] - found[:, 1], [2.5, 97.5]),
    )
    width = ends[0][1] - ends[0][0]
    assert score["interval"] == pytest.approx(ends[0], abs=0.15 * width)
    assert score["differences"]["a" * 16] == pytest.approx(ends[1], abs=0.15 * width)
    text = (root / "b/results.md").read_text()
    low, high = score["differences"]["a" * 16]
    assert rf"\[{low:.2f}, {high:.2f}\]" in text and "1000 bootstrap samples" in text


def test_predictions_of_another_run_are_not_compared(runs):
    """A file that does not give the score that the results have is left alone."""
    root, _ = runs
    path = root / "a/results.json"
    other = json.loads(path.read_text()) | {"folder": str(root / "a")}
    other["suites"]["sts"]["scores"][0]["value"] += 1.0
    mine = json.loads((root / "b/results.json").read_text())["suites"]["sts"]
    del mine["scores"][0]["differences"]
    driver.predictions.add_differences("sts", mine, root / "b", other)
    assert "differences" not in mine["scores"][0]
