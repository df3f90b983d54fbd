"""SentEval's transfer tasks end to end on toy files."""

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.senteval import TASKS
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites import senteval as senteval_suite
from official_cmlm.evaluation.suites.senteval import Options, PairFeatures
from tests.evaluation import toy


@pytest.fixture(scope="module")
def toy_data(tmp_path_factory):
    """A folder of toy tasks."""
    root = tmp_path_factory.mktemp("senteval")
    toy.write_senteval(root / "senteval/downstream")
    return root


@pytest.fixture(scope="module")
def results(toy_data):
    """The report of all tasks and the encoder that was used."""
    encoder, report = CachedEncoder(toy.encode), SuiteReport()
    senteval_suite.evaluate(encoder, DataFolder(toy_data), Options(), report)
    return report, encoder


def test_every_task_is_scored(results):
    """All twelve, with the metrics of the toolkit; what a word decides is learnt."""
    report, _ = results
    assert report.failures == []
    found = {(score.task, score.metric): score for score in report.scores}
    correlations = ["pearson", "spearman"]
    metrics = {"MRPC": ["accuracy", "f1"], "SICK-R": correlations, "STS-B": correlations}
    wanted = {(name, metric) for name in TASKS for metric in metrics.get(name, ["accuracy"])}
    assert set(found) == wanted | {("average", "cmlm")}
    assert all(found[key].value > 80 for key in found if key != ("SST5", "accuracy")), found
    assert found["MR", "accuracy"].count == 120
    assert found["SST2", "accuracy"].count == 60
    assert found["SNLI", "accuracy"].count == 59


def test_average_is_that_of_the_nine(results):
    """CMLM's average has accuracies, and Pearson's correlation for SICK-R."""
    report, _ = results
    nine = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E"]
    values = [report.get(name, "accuracy") for name in nine] + [report.get("SICK-R", "pearson")]
    assert report.get("average", "cmlm") == pytest.approx(np.mean(values))
    assert any("declutr_without_coco: not computed without STS12" in note for note in report.notes)


def test_no_sentence_is_encoded_twice(results):
    """MR's sentences are CR's, SUBJ's and MPQA's here."""
    _, encoder = results
    assert encoder.encoded < encoder.asked / 4


def test_declutr_average(toy_data):
    """MRPC counts by the mean of accuracy and F1, SICK-R and STS-B by Spearman, years by `mean`."""
    folder = toy_data / "senteval/downstream/STS"
    for year in senteval_suite.DECLUTR_STS:
        toy.write_year(folder / f"{year}-en-test", ["5", "4", "1", "0"])
    values = {(task, "accuracy"): 50.0 for task in senteval_suite.DECLUTR_TASKS}
    values |= {("MRPC", "accuracy"): 60.0, ("MRPC", "f1"): 80.0}
    values |= {("SICK-R", "spearman"): 10.0, ("SICK-R", "pearson"): 99.0}
    values |= {("STS-B", "spearman"): 20.0, ("STS-B", "pearson"): 99.0}
    report = SuiteReport()
    for (task, metric), value in values.items():
        report.add(task, metric, value, 1)
    data, root = DataFolder(toy_data), toy_data / "senteval/downstream"
    senteval_suite._averages(toy.encode, data, root, Options(), report)
    gold = np.array([5, 4, 1, 0])
    vectors = toy.encode([*toy.GOOD, *toy.BAD])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ranks = np.argsort(np.argsort(vectors @ vectors[0]))
    year = 100 * np.corrcoef(ranks, np.argsort(np.argsort(gold)))[0, 1]
    expected = (8 * 50 + 70 + 10 + 20 + 5 * year) / 16
    assert report.get("average", "declutr_without_coco") == pytest.approx(expected)


def test_several_seeds_have_a_deviation(toy_data):
    """Mean and standard deviation over seeds; the same seeds give the same numbers."""
    runs = []
    for seeds in (1, 3, 3):
        report = SuiteReport()
        options = Options(tasks=["SST5"], seeds=seeds)
        senteval_suite.evaluate(toy.encode, DataFolder(toy_data), options, report)
        runs.append(report.scores[0])
    assert runs[0].deviation is None
    assert runs[1].deviation is not None
    assert runs[1] == runs[2]


@pytest.mark.parametrize("configuration", senteval_suite.CONFIGURATIONS)
@pytest.mark.parametrize("solver", ["mini_batch", "logistic_regression"])
def test_configurations_and_solvers(toy_data, configuration, solver):
    """Each is taken to the end; the task is easy for all."""
    report = SuiteReport()
    options = Options(configuration, solver, tasks=["SST2", "TREC"])
    senteval_suite.evaluate(toy.encode, DataFolder(toy_data), options, report)
    assert report.get("SST2", "accuracy") > 80
    assert report.get("TREC", "accuracy") > 90


def test_pair_features():
    """|u - v| and u∗v, for SNLI behind u and v, whichever rows are asked for."""
    u, v = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 0.5], [1.0, 1.0]])
    assert PairFeatures(u, v)[np.array([1])].tolist() == [[2, 3, 3, 4]]
    both = PairFeatures(u, v, with_both=True)
    assert both[np.array([0, 1])].tolist() == [
        [1, 2, 2, 0.5, 2, 1, 1, 1.5],
        [3, 4, 1, 1, 3, 4, 2, 3],
    ]
    assert len(both) == 2


def test_a_missing_task_does_not_stop_the_others(toy_data, tmp_path):
    """One line says which file, where it comes from and where it belongs."""
    toy.write(tmp_path / "SST/binary/sentiment-train", ["no label here"])
    report = SuiteReport()
    options = Options(tasks=["SUBJ", "SST2", "SNLI"])
    senteval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, report)
    assert report.scores == []
    (sst,) = report.failures
    subj, snli = report.unscored[:2]
    assert (
        subj.startswith("SUBJ: ")
        and "subj.objective: missing; SentEval's get_transfer_data.bash" in subj
    )
    assert "none of its 1 lines has the expected columns" in sst
    assert "s1.train: missing" in snli


def test_malformed_lines_are_counted(tmp_path):
    """They are skipped; the note says how many."""
    toy.write_senteval(tmp_path)
    path = tmp_path / "SST/binary/sentiment-train"
    path.write_text(path.read_text() + "no tab\n\n")
    report = SuiteReport()
    senteval_suite.evaluate(toy.encode, DataFolder(tmp_path), Options(tasks=["SST2"]), report)
    assert report.notes[0] == "sentiment-train: skipped 2 malformed lines"
    assert report.get("SST2", "accuracy") > 80


def test_too_few_for_the_folds(tmp_path):
    """Folds that some class cannot fill are refused by name."""
    toy.write_senteval(tmp_path, count=8)
    report = SuiteReport()
    senteval_suite.evaluate(toy.encode, DataFolder(tmp_path), Options(tasks=["MR"]), report)
    assert report.failures == ["MR: 5 folds need two classes of at least 10 examples, got [8, 8]"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"configuration": "quick"}, "configuration must be one of literature, hub, fast"),
        ({"solver": "svm"}, "solver must be one of mini_batch, logistic_regression"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"tasks": ["SST"]}, "tasks.0. must be one of MR, CR.* got 'SST'"),
    ],
)
def test_bad_options(values, message):
    """Each says what is possible."""
    with pytest.raises(ValueError, match=message):
        Options(**values)


def test_no_folder(tmp_path):
    """Without any of the folders the tasks' own files are named."""
    with pytest.raises(UserError, match="no such folder"):
        DataFolder(tmp_path / "nowhere")
