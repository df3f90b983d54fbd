"""Predictions of pairs in files, the intervals of their scores and of differences of encoders."""

import csv
import json
import shutil
from unittest import mock

import numpy as np
import pytest
from scipy.stats import spearmanr

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.encoder import OpenedEncoder
from official_cmlm.evaluation.report import driver
from official_cmlm.evaluation.report.results import read_compared
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
        compare = read_compared([str(root / name)])
    return root, results


def _predictions(root, name):
    with (root / name / "predictions/sts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, *(np.array([float(row[key]) for row in rows]) for key in ("gold", "predicted"))


def test_the_score_follows_from_the_file(runs):
    """Spearman's correlation of its columns, by SciPy, is the score; texts are as they were."""
    root, results = runs
    for name, result in zip("ab", results):
        rows, gold, predicted = _predictions(root, name)
        score = result["suites"]["sts"]["scores"][0]
        assert score["value"] == pytest.approx(100 * spearmanr(predicted, gold).statistic)
        low, high = score["interval"]
        assert low < score["value"] < high
        assert rows[2]["first"] == 'a "bird" 2' and {row["task"] for row in rows} == {"STS-B"}


def test_results_are_compared_by_name(runs, monkeypatch):
    """A name stands for the folder that `cmlm evaluate` makes by default."""
    root, _ = runs
    shutil.copytree(root / "a", root / "mini_results")
    monkeypatch.chdir(root)
    for values in (["mini,b"], ["org/mini", "b/results.json"]):
        folders = [one["folder"] for one in read_compared(values)]
        assert folders == ["mini_results", "b"]
    with pytest.raises(UserError, match="other: .*name the encoder, the folder or the results"):
        read_compared(["other"])


def test_the_interval_of_a_difference_is_paired(runs):
    """It is that of both files' correlations over the same resampled pairs, and is shown."""
    root, results = runs
    (_, gold, first), (_, _, second) = (_predictions(root, name) for name in "ba")
    rows = np.random.default_rng(5).integers(len(gold), size=(1000, len(gold)))
    differences = [
        100 * (spearmanr(first[i], gold[i]).statistic - spearmanr(second[i], gold[i]).statistic)
        for i in rows
    ]
    low, high = results[1]["suites"]["sts"]["scores"][0]["differences"]["a" * 16]
    assert np.percentile(differences, [2.5, 97.5]) == pytest.approx(
        [low, high], abs=0.15 * (high - low)
    )
    text = (root / "b/results.md").read_text()
    assert rf"\[{low:.2f}, {high:.2f}\]" in text and "1000 bootstrap samples" in text


def _compare_again(runs, tmp_path, change, more=0.0):
    """Compares again after `change` of the first encoder's file, and with `more` in its score."""
    root, _ = runs
    shutil.copytree(root / "a", tmp_path / "a")
    path = tmp_path / "a/predictions/sts.csv"
    path.write_bytes(change(path.read_bytes()))
    other = json.loads((root / "a/results.json").read_text()) | {"folder": str(tmp_path / "a")}
    other["suites"]["sts"]["scores"][0]["value"] += more
    mine = json.loads((root / "b/results.json").read_text())["suites"]["sts"]
    assert mine["scores"][0]["differences"]
    for _ in range(2):
        driver.predictions.add_differences("sts", mine, root / "b", other)
    return mine


@pytest.mark.parametrize("more", [0.0, 1.0])
def test_an_interval_of_an_earlier_comparison_is_removed(runs, tmp_path, more):
    """Predictions of other pairs, or that do not give the score of the results, leave none."""

    def change(text):
        return text if more else b"\n".join([*text.splitlines()[:20], b""])

    mine = _compare_again(runs, tmp_path, change, more)
    assert not mine["scores"][0]["differences"] and "cannot be read" not in str(mine["notes"])


@pytest.mark.parametrize("damage", [b"STS-B,one,two\n", b"STS-B,a,b,c,d\n", b"\xff\n"])
def test_a_damaged_file_is_noted_once(runs, tmp_path, damage):
    """It leaves no interval."""
    mine = _compare_again(runs, tmp_path, lambda text: text + damage)
    assert not mine["scores"][0]["differences"]
    assert sum("cannot be read" in note for note in mine["notes"]) == 1


def test_long_texts_are_read(tmp_path):
    """A text may be longer than a field is by default in Python's CSV."""
    predictions = {"STS-B": [("long " * 40_000, "short", 1.0, 0.5)]}
    driver.predictions.write(tmp_path, "sts", predictions)
    assert driver.predictions.read(tmp_path, "sts") == predictions


def test_a_run_without_predictions_keeps_the_intervals(runs, tmp_path):
    """A suite is scored again for predictions that are wanted and not there, not otherwise."""
    root, results = runs
    shutil.copytree(root / "a", tmp_path / "a")

    def run(**kwargs):
        options = driver.parse_options(["sts"], ["sts.tasks=STS-B"])
        encoder = OpenedEncoder("a", "python", "a" * 16, lambda texts: toy.encode(texts, 64))
        with mock.patch.object(driver, "_write_reports"):
            result = driver.run(encoder, "", "a", root / "data", tmp_path / "a", options, **kwargs)
        return result["suites"]["sts"]["scores"][0].get("interval")

    interval = list(results[0]["suites"]["sts"]["scores"][0]["interval"])
    assert run() == interval
    path = tmp_path / "a/parts/sts.json"
    path.write_text(path.read_text().replace('"predictions": true', '"predictions": false'))
    assert run() == interval
    shutil.rmtree(tmp_path / "a/predictions")
    run(save_predictions=True)
    assert (tmp_path / "a/predictions/sts.csv").exists()
