"""SentEval's transfer tasks end to end on toy files."""

import functools

import numpy as np
import pytest

from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.senteval import TASKS
from official_cmlm.evaluation.metrics import cross_validation
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig
from official_cmlm.evaluation.metrics.senteval_ranking import RankingConfig
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import read_tasks, score_tasks
from official_cmlm.evaluation.suites import senteval as senteval_suite
from official_cmlm.evaluation.suites.senteval import Options, PairFeatures
from tests.evaluation import coco_files, toy


@pytest.fixture(scope="module")
def report(senteval_data):
    """Returns the report of all tasks."""
    return toy.run(senteval_suite, toy.encode, senteval_data)


def test_every_task_is_scored(report):
    """All twelve, with the metrics of the toolkit; what a word decides is learnt."""
    assert report.failures == []
    scores = {(score.task, score.metric): score for score in report.scores}
    accuracies = ["accuracy", "dev_accuracy"]
    correlations = ["pearson", "spearman", "dev_pearson"]
    metrics = {"MRPC": [*accuracies, "f1"], "SICK-R": correlations, "STS-B": correlations}
    wanted = {(name, metric) for name in TASKS for metric in metrics.get(name, accuracies)}
    assert set(scores) == wanted | {("average", "cmlm")}
    assert all(scores[key].value > 80 for key in scores if key[0] != "SST5"), scores
    assert scores["MR", "accuracy"].count == scores["MR", "dev_accuracy"].count == 120
    assert scores["TREC", "accuracy"].count == 20
    assert scores["TREC", "dev_accuracy"].count == 240
    assert scores["SST2", "accuracy"].count == 60
    assert scores["SNLI", "accuracy"].count == 59
    # CMLM's average has accuracies, and Pearson's correlation for SICK-R.
    nine = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E"]
    values = [report.get(name, "accuracy") for name in nine] + [report.get("SICK-R", "pearson")]
    assert report.get("average", "cmlm") == pytest.approx(np.mean(values))
    assert any("declutr_without_coco: not computed without STS12" in note for note in report.notes)


def test_development_scores_are_of_their_own_set(tmp_path):
    """Sets whose labels are turned around: one is all right, the other all wrong."""
    toy.write_senteval(tmp_path)
    for path in (tmp_path / "SST/binary/sentiment-test", tmp_path / "SNLI/labels.test"):
        turned = {"0": "1", "1": "0", "entailment": "contradiction", "contradiction": "entailment"}
        lines = [line.rpartition("\t") for line in path.read_text().splitlines()]
        toy.write(path, [f"{a}{b}{turned.get(c, c)}" for a, b, c in lines])
    path = tmp_path / "SICK/SICK_test_annotated.txt"
    path.write_text(path.read_text().replace("\t5\t", "\t?\t").replace("\t1\t", "\t5\t"))
    path.write_text(path.read_text().replace("\t?\t", "\t1\t"))
    report = toy.run(senteval_suite, toy.encode, tmp_path, tasks=["SST2", "SNLI", "SICK-R"])
    assert report.failures == []
    for task in ("SST2", "SNLI"):
        assert report.get(task, "dev_accuracy") > 80
        assert report.get(task, "accuracy") < 20
    assert report.get("SICK-R", "dev_pearson") > 80
    assert report.get("SICK-R", "pearson") < -80


def test_snli_is_trained_as_in_the_toolkit(senteval_data, monkeypatch):
    """At most 16 epochs, evaluated after each, no weight decay; batches are the configuration's."""
    seen = []
    fit = cross_validation.MiniBatchSolver.fit

    def recording(self, train, dev, strengths):
        seen.append((self.config, list(strengths)))
        return fit(self, train, dev, strengths)

    monkeypatch.setattr(cross_validation.MiniBatchSolver, "fit", recording)
    options = Options("literature", tasks=["SNLI", "SST2"])
    toy.run(senteval_suite, toy.encode, senteval_data, options)
    (snli, strengths), (other, _) = seen
    assert snli == ClassifierConfig("adam", 64, tenacity=5, epoch_size=1, max_epoch=15)
    assert strengths == [1e-9]
    assert other == ClassifierConfig("adam", 64, tenacity=5, epoch_size=4, max_epoch=200)


def test_average_of_chosen_tasks_is_named_as_such(senteval_data):
    """It is named as such; what was not chosen is neither missing nor a failure."""
    report = toy.run(senteval_suite, toy.encode, senteval_data, tasks=["SST2", "SICK-R"])
    mean = (report.get("SST2", "accuracy") + report.get("SICK-R", "pearson")) / 2
    assert report.get("average_of_chosen", "main_metrics") == pytest.approx(mean)
    assert "average" not in {score.task for score in report.scores}
    assert report.unscored == []
    assert report.notes == [
        "average_of_chosen: the mean of SST2 (accuracy), SICK-R (pearson); no paper's average"
    ]
    report = toy.run(senteval_suite, toy.encode, senteval_data, tasks=["SST2"])
    assert {score.task for score in report.scores} == {"SST2"}
    report = toy.run(senteval_suite, toy.encode, senteval_data, tasks=["SST2", "COCO"])
    assert [one.task for one in report.missing] == ["COCO"]
    assert report.notes == ["average_of_chosen main_metrics: not computed without COCO"]


def test_coco_is_ranked_in_both_directions(tmp_path, monkeypatch):
    """Ranked in both directions; the mean of six figures, that of the development set apart."""
    coco_files.write_coco(tmp_path)
    small = functools.partial(RankingConfig, projection=8, batch_size=20, negatives=4)
    monkeypatch.setattr(senteval_suite, "RankingConfig", small)
    ticks = []
    report = SuiteReport(progress=lambda *begun: ticks.append(begun) or ticks.append)
    options = Options(tasks=["COCO"], seeds=2)
    toy.evaluate(senteval_suite, toy.encode, DataFolder(tmp_path), options, report)
    assert report.unscored == []
    scores = {score.metric: score for score in report.scores}
    six = [f"{of}_recall@{k}" for of in ("caption", "image") for k in (1, 5, 10)]
    assert list(scores) == ["mean_recall", "dev_mean_recall", *six]
    assert all(score.task == "COCO" and score.count == 200 for score in report.scores)
    mean = np.mean([scores[name].value for name in six])
    assert scores["mean_recall"].value == pytest.approx(mean)
    assert scores["image_recall@10"].value > 50
    assert scores["mean_recall"].deviation is not None
    assert ticks[0] == ("COCO", 42)
    assert sum(ticks[1:]) == 42


def test_declutr_averages_have_the_papers_metrics(senteval_data, tmp_path):
    """Each task by the paper's metric; development sets by the metrics of the authors' code."""
    folder = tmp_path / "STS"
    for year in senteval_suite.DECLUTR_STS:
        toy.write_year(folder / f"{year}-en-test", ["5", "4", "1", "0"])
    values = {(task, "accuracy"): 50.0 for task in senteval_suite.DECLUTR_TASKS}
    values |= {(task, "dev_accuracy"): 40.0 for task in senteval_suite.DECLUTR_TASKS}
    values |= {("MRPC", "accuracy"): 60.0, ("MRPC", "f1"): 80.0, ("MRPC", "dev_accuracy"): 61.0}
    for task, spearman, dev in (("SICK-R", 10.0, 11.0), ("STS-B", 20.0, 21.0)):
        values |= {
            (task, "spearman"): spearman,
            (task, "dev_pearson"): dev,
            (task, "pearson"): 99.0,
        }
    values |= {("SNLI", "accuracy"): 99.0, ("SNLI", "dev_accuracy"): 70.0}
    values |= {("COCO", "mean_recall"): 30.0, ("COCO", "dev_mean_recall"): 31.0}
    for task in ("SICK-R", "STS-B"):
        del values[task, "accuracy"], values[task, "dev_accuracy"]

    def averages(tasks):
        report = SuiteReport()
        for (task, metric), value in values.items():
            report.add(task, metric, value, 1)
        data, options = DataFolder(tmp_path), Options(tasks=list(tasks))
        suite_tasks = senteval_suite.tasks(data, options, report)
        untrained = (task for task in suite_tasks if not task.trained_by)
        score_tasks(read_tasks(untrained, {}), report, lambda task: task.score(toy.encode, report))
        return {s.metric: s.value for s in report.scores if s.task == "average"}

    gold = np.array([5, 4, 1, 0])
    vectors = toy.encode([*toy.GOOD, *toy.BAD])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ranks = np.argsort(np.argsort(vectors @ vectors[0]))
    years = 5 * 100 * np.corrcoef(ranks, np.argsort(np.argsort(gold)))[0, 1]
    means = averages(senteval_suite.TASKS)
    test, dev = 8 * 50 + 70 + 10 + 20 + years, 8 * 40 + 61 + 11 + 21 + years
    assert means.pop("cmlm") == pytest.approx((7 * 50 + 60 + 99) / 9)
    expected = {
        "declutr_without_coco": test / 16,
        "declutr": (test + 30) / 17,
        "declutr_dev_without_coco": dev / 16,
        "declutr_dev": (dev + 31) / 17,
        "declutr_dev_with_snli": (dev + 31 + 70) / 18,
    }
    assert means == pytest.approx(expected)
    assert set(averages(TASKS)) == {"cmlm", "declutr_without_coco", "declutr_dev_without_coco"}
    assert set(averages(senteval_suite.CMLM_TASKS)) == {"cmlm"}


def test_several_seeds_have_a_deviation(senteval_data):
    """So have averages, of each seed's average; the same seeds give the same numbers."""
    runs = []
    for seeds in (1, 3, 3):
        options = Options(tasks=["SST5", "SST2"], seeds=seeds)
        report = toy.run(senteval_suite, toy.encode, senteval_data, options)
        runs.append(report.scores)
    assert runs[0][0].deviation is runs[0][-1].deviation is None
    assert runs[1] == runs[2]
    tasks = [score.by_seed for score in runs[1] if score.metric == "accuracy"]
    means = [(one + other) / 2 for one, other in zip(*tasks)]
    assert len(means) == 3 and runs[1][-1].metric == "main_metrics"
    assert runs[1][-1].deviation == pytest.approx(np.std(means, ddof=1))


@pytest.mark.parametrize("configuration", senteval_suite.CONFIGURATIONS)
@pytest.mark.parametrize(
    "solver", ["mini_batch", pytest.param("logistic_regression", marks=pytest.mark.long)]
)
def test_every_configuration_and_solver_learns(senteval_data, configuration, solver):
    """Each is taken to the end; the task is easy for all."""
    options = Options(configuration, solver, tasks=["SST2", "TREC"])
    report = toy.run(senteval_suite, toy.encode, senteval_data, options)
    assert report.get("SST2", "accuracy") > 80
    assert report.get("TREC", "accuracy") > 90


def test_pair_features_are_computed_on_access():
    """|u - v| and u∗v, for SNLI after u and v, whichever rows are asked for."""
    u, v = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 0.5], [1.0, 1.0]])
    assert PairFeatures(u, v)[np.array([1])].tolist() == [[2, 3, 3, 4]]
    both = PairFeatures(u, v, with_both=True)
    assert both[np.array([0, 1])].tolist() == [
        [1, 2, 2, 0.5, 2, 1, 1, 1.5],
        [3, 4, 1, 1, 3, 4, 2, 3],
    ]
    assert len(both) == 2


def test_a_missing_task_does_not_stop_the_others(senteval_data, tmp_path):
    """One line says which file, where it comes from and where it belongs."""
    toy.write(tmp_path / "SST/binary/sentiment-train", ["no label here"])
    options = Options(tasks=["SUBJ", "SST2", "SNLI"])
    report = toy.run(senteval_suite, toy.encode, tmp_path, options)
    assert report.scores == []
    (sst,) = report.failures
    subj, snli = report.unscored[:2]
    assert (
        subj.startswith("SUBJ: ")
        and "subj.objective: missing; SentEval's get_transfer_data.bash" in subj
    )
    assert "none of its 1 lines has the expected columns" in sst
    assert "s1.train: missing" in snli


def test_malformed_lines_are_skipped_and_too_few_examples_refused(tmp_path):
    """Such lines are skipped and counted; folds that some class cannot fill are refused."""
    toy.write_senteval(tmp_path)
    path = tmp_path / "SST/binary/sentiment-train"
    path.write_text(path.read_text() + "no tab\n\n")
    toy.write(tmp_path / "MR/rt-polarity.pos", toy.GOOD)
    report = toy.run(senteval_suite, toy.encode, tmp_path, tasks=["SST2", "MR"])
    assert report.notes[0] == "sentiment-train: skipped 2 malformed lines"
    assert report.get("SST2", "accuracy") > 80
    assert report.failures == ["MR: 5 folds need two classes of at least 10 examples, got [60, 2]"]
