"""Studies as they run: nothing is trained twice, other versions are refused, results are whole."""

import contextlib
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from experiments.study.findings import ROOT
from experiments.study.report import write_report
from experiments.study.runs import StudyRunner
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import Stopped, UserError
from official_cmlm.tokenization import WordPieceVocabulary
from official_cmlm.training import checks
from tests.conftest import make_documents
from tests.experiments.study_helpers import (
    STS_B,
    InProcess,
    change_at,
    plan_trials,
    write_data,
    write_study,
)
from tests.training.tiny_training import TINY

EVERYTHING = ["mlm.1", "mlm.2", "readout.1", "readout.2"]


def _read_results(work):
    return json.loads((work / "results.json").read_text())


def _copy(work, folder, change):
    """Copies a study's results into another folder; `change` edits them."""
    results = _read_results(work)
    change(results)
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", autouse=True)
def no_checks_of_inputs():
    """Leaves out checks that take seconds; tests of trainings have them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "check_run", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, records_dir):
    """Runs the tiny study, stopped twice, to its end."""
    folder = tmp_path_factory.mktemp("study")
    data_folder = write_data(folder)
    study, work = write_study(folder), folder / "work"
    calls, out = [], io.StringIO()
    with contextlib.redirect_stdout(out):
        # Before the first evaluation; in the third training; then to the end.
        for stop_at in (3, 4, None):
            calls.append(InProcess(records_dir, stop_at))
            with contextlib.suppress(Stopped):
                StudyRunner(study, work, data_folder, call=calls[-1]).run()
    return study, data_folder, work, calls, out.getvalue()


def test_a_stopped_study_goes_on_and_trains_nothing_twice(finished, records_dir):
    """Each arm is trained and scored once over all commands; a further one does nothing."""
    study, data_folder, work, calls, printed = finished
    assert [name for call in calls for name in call.made] == ["data_prep.create_documents"]
    assert sorted(name for call in calls for name in call.trained) == EVERYTHING
    assert sorted(name for call in calls for name in call.scored) == EVERYTHING
    assert "[3/4] mlm seed 2" in printed
    again = InProcess(records_dir)
    StudyRunner(study, work, data_folder, call=again).run()
    assert not (again.made or again.trained or again.scored)


def test_a_result_says_all_that_a_table_needs(finished):
    """Scores by protocol, steps, examples, tokens, device, seconds, versions."""
    _, _, work, *_ = finished
    result = _read_results(work)["mlm.2"]
    assert result["steps"] == 2
    training = result["settings"]["training"]
    assert (training["experiment"], training["precision"]) == ("mlm/english_base", "float32")
    assert (result["examples"], result["tokens"], result["seconds"]) == (16, 160, 1.5)
    assert result["devices"] == ["/device:CPU:0"] and result["versions"]["tensorflow"]
    assert -100 <= result["scores"]["sts/STS-B/spearman"] <= 100
    assert result["scores"]["validation/mlm/masked_token_accuracy"] == 0.1
    assert STS_B in result["evaluation_files"] and result["protocols"]["sts"]
    readout = _read_results(work)["readout.2"]
    assert readout["steps"] == 0 and "validation/validation_loss" not in readout["scores"]


def test_an_arm_that_is_not_trained_has_the_weights_of_its_start(finished):
    """The seeds are the same; only the pooling differs."""
    _, _, work, *_ = finished
    weights = []
    for seed in (1, 2):
        mean = load_encoder(EncoderDirectory.open(work / "models" / f"mlm.{seed}"))
        readout = load_encoder(EncoderDirectory.open(work / "models" / f"readout.{seed}"))
        assert readout.config.pooling == "max" and mean.config.pooling == "mean"
        weights.append([variable.numpy() for variable in mean.weights])
        for one, two in zip(weights[-1], readout.weights):
            np.testing.assert_array_equal(one, two.numpy())
    assert not np.allclose(weights[0][0], weights[1][0])


def test_the_report_compares_by_seed_and_names_what_is_missing(finished, tmp_path):
    """Means and differences follow from the results; a missing seed is named and left out."""
    study, _, work, *_ = finished
    scores = {
        tuple(name.split(".")): result["scores"]["sts/STS-B/spearman"]
        for name, result in _read_results(work).items()
    }
    copied = _copy(work, tmp_path / "work", lambda results: None)
    line = write_report(study, copied, "tiny")
    text = (copied / "study.md").read_text()
    assert "missing" not in line and "Missing" not in text
    mean = (scores["mlm", "1"] + scores["mlm", "2"]) / 2
    deviation = abs(scores["mlm", "1"] - scores["mlm", "2"]) / 2**0.5
    assert f"| mlm | {mean:.1f} ± {deviation:.1f} |".replace("-", "−") in text
    difference = sum(scores["readout", s] - scores["mlm", s] for s in "12") / 2
    assert f"{difference:+.1f}".replace("-", "−") in text
    assert "| +30.2 | 76.6 − 46.35: STSB of CMLM base and BERT Mean" in text
    assert (copied / "study.png").read_bytes().startswith(b"\x89PNG")
    _copy(work, copied, lambda results: results.pop("readout.2"))
    assert write_report(study, copied, "tiny").endswith("missing: readout seed 2")
    text = (copied / "study.md").read_text()
    assert "Missing, and in no figure here: readout seed 2." in text and "| readout |" in text
    # Without any result an arm has no rows.
    _copy(work, copied, lambda results: [results.pop(f"readout.{seed}") for seed in (1, 2)])
    assert write_report(study, copied, "tiny").endswith("missing: readout seeds 1, 2")
    assert "| readout |" not in (copied / "study.md").read_text()


def test_results_that_cannot_be_compared_are_named(finished, tmp_path):
    """Arms that were scored on different files, and a study without any result."""
    study, _, work, *_ = finished

    def change(results):
        results["readout.1"]["evaluation_files"][STS_B] = "0" * 64

    with pytest.raises(UserError, match="scored on another .*sts-test.csv than"):
        write_report(study, _copy(work, tmp_path, change), "tiny")
    with pytest.raises(UserError, match="no results of this study yet"):
        write_report(study, _copy(work, tmp_path, dict.clear), "tiny")


@pytest.mark.parametrize(
    ("change", "part", "message"),
    [
        (change_at("common", "trainer", "train_steps", 4), "training", "steps was 2, is 4"),
        (change_at("scores", "set", []), "scores", "set was .*delete it there"),
        (
            change_at("arms", 0, "experiment", "demo"),
            "training",
            "was .*mlm/english_base.*, is .*demo",
        ),
    ],
)
def test_results_of_another_version_are_refused(finished, tmp_path, change, part, message):
    """One line: which file, what differs, what to do. With --report_only too."""
    _, data_folder, work, *_ = finished
    study = write_study(tmp_path, change)
    with pytest.raises(UserError, match=f"parts/mlm.1.{part}.json was .*{message}.*--work_dir"):
        plan_trials(study, data_folder, work)
    with pytest.raises(UserError, match=f"results.json: mlm.1 was .*{message}.*--work_dir"):
        write_report(study, work, "tiny")


def test_an_arm_is_scored_again_with_fewer_suites(finished, tmp_path, records_dir):
    """Suites that an earlier scoring has left in the evaluation's folder are left out."""
    study, data_folder, work, *_ = finished
    shutil.copytree(work, tmp_path / "work")
    (tmp_path / "work/parts/mlm.1.scores.json").unlink()
    parts = tmp_path / "work/evaluation/mlm.1/parts"
    shutil.copy(parts / "sts.json", parts / "tatoeba.json")
    call = InProcess(records_dir)
    StudyRunner(study, tmp_path / "work", data_folder, call=call).run()
    assert call.scored == ["mlm.1"] and not call.trained
    again, before = (_read_results(folder)["mlm.1"] for folder in (tmp_path / "work", work))
    assert again["scores"] == before["scores"] and again["protocols"] == before["protocols"]


def test_a_training_without_a_record_is_refused(finished, tmp_path):
    """A training under unknown settings is not resumed under those of the study."""
    _, data_folder, work, *_ = finished
    copied = tmp_path / "work"
    shutil.copytree(work, copied, ignore=shutil.ignore_patterns("results.json", "mlm.1.*.json"))
    study = write_study(tmp_path, change_at("common", "trainer", "train_steps", 4))
    with pytest.raises(UserError, match="models/mlm.1: exists, and no part of this job has made"):
        plan_trials(study, data_folder, copied)
    assert not (copied / "parts" / "mlm.1.training.json").exists()


def test_settings_follow_contents_not_places(finished, tmp_path):
    """Moved folders, titles, columns and further arms change nothing; records and starts do."""
    study, data_folder, work, *_ = finished
    settings = {run.name: run.settings for run in plan_trials(study, data_folder, work)}
    moved = tmp_path / "elsewhere"
    shutil.copytree(work, moved)
    other = write_study(
        tmp_path,
        lambda s: s["arms"].append(
            {"name": "random", "experiment": "mlm/english_base", "train": False}
        ),
        title="Other",
        seeds=[2, 1, 3],
    )
    others = {run.name: run.settings for run in plan_trials(other, data_folder, moved)}
    assert {name: others[name] for name in settings} == settings and len(others) == 9
    manifest = moved / "data" / "books" / "dataset.json"
    values = json.loads(manifest.read_text())
    values["counters"]["other"] = 1
    manifest.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"mlm.1.training.json was .*\(records.books was"):
        plan_trials(study, data_folder, moved)
    shutil.copy(work / "data" / "books" / "dataset.json", manifest)
    shutil.rmtree(moved / "models")
    for part in (moved / "parts").glob("*.training.json"):
        part.unlink()
    longer = {"params_override": {"trainer": {"train_steps": 4}}}
    other = write_study(tmp_path, lambda s: s["arms"][0].update(longer))
    others = {run.name: run.settings["training"] for run in plan_trials(other, data_folder, moved)}
    # The read-out itself is as it was; its start is another one.
    before = settings["readout.1"]["training"]
    assert others["readout.1"] == before | {"start": others["readout.1"]["start"]} != before


def test_all_arms_have_the_same_seed(tmp_path, data, records_dir):
    """Also in objectives with records of their own; chosen arms come with their starts."""

    def change(study):
        readout = study["arms"][1]
        readout["train"] = True
        own = {"train_data": {**TINY["train_data"], "input_path": "$books"}}
        readout["params_override"]["task"]["objectives"] = {"quick_thought": own}

    study, work = write_study(tmp_path, change), tmp_path / "work"
    with StudyRunner(study, work, data, call=InProcess(records_dir)) as runner:
        runner.make_data()
        trials = {run.name: run for run in runner.plan_trials()}
        chosen = [[run.name for run in runner.plan_trials([name])] for name in ("mlm", "readout")]
    assert list(trials) == ["mlm.1", "readout.1", "mlm.2", "readout.2"]
    for name, one in trials.items():
        assert one.config.runtime.mixed_precision_dtype == "float32"
        assert one.config.task.train_data.seed == int(name[-1]) == one.seed
        if own := one.config.task.objectives.quick_thought:
            assert own.train_data.seed == one.seed
            assert one.start == work / "models" / f"mlm.{one.seed}"
    assert chosen == [["mlm.1", "mlm.2"], list(trials)]


def test_records_follow_what_they_are_made_of(tmp_path, data, records_dir):
    """Unfinished records are made again, those of other flags or contents are refused."""
    step = {"name": "more", "run": "create_documents"}
    step["flags"] = {"vocab_file": "$start/vocab.txt", "input": "$books", "keep_text": True}
    study = write_study(tmp_path, lambda study: study["data"].append(step))
    commands = []

    def make(word, study=study, status=0):
        def call(command):
            commands.append(command)
            return InProcess(records_dir)(command) or status

        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", word)
        WordPieceVocabulary(words, True, 100).save(tmp_path)
        with StudyRunner(study, tmp_path / "work", data, tmp_path, call) as runner:
            runner.make_data()

    with pytest.raises(UserError, match="data books: data_prep.create_docum.* with status 1"):
        make("cat", status=1)
    make("cat")
    assert {"--keep_text", f"--input={tmp_path}/work/data/books"} <= set(commands[2])
    make("cat")
    assert len(commands) == 3
    with pytest.raises(UserError, match="books.json was made by another.*flags.keep_text was"):
        make("cat", write_study(tmp_path, change_at("data", 0, "flags", "keep_text", True)))
    with pytest.raises(UserError, match="more.json was made .*reads.start was"):
        make("dog")
    (tmp_path / "work" / "data" / "books" / "dataset.json").write_text("{}")
    with pytest.raises(UserError, match="more.json was made .*reads.books was"):
        make("cat")


def test_missing_evaluation_files_are_named_before_the_first_step(tmp_path, data):
    """Files that no column needs may be missing."""
    study = write_study(tmp_path)
    StudyRunner(study, tmp_path / "work", data).check_evaluation()
    runner = StudyRunner(study, tmp_path / "work", tmp_path)
    with pytest.raises(UserError, match="column sts/STS-B/spearman: cannot be scored: STS-B: "):
        runner.check_evaluation()


@pytest.mark.long
def test_a_study_runs_its_programs(tmp_path, vocabulary):
    """Each part in a process of its own; the same command does nothing more."""
    data_folder = write_data(tmp_path)
    vocabulary.save(data_folder)
    documents = ["\n".join(document.paragraphs) for document in make_documents(120)]
    (data_folder / "text.txt").write_text("\n\n".join(documents))
    flags = {"input": "$data/text.txt", "vocab_file": "$data/vocab.txt"}
    write_study(tmp_path, change_at("data", 0, "flags", flags), seeds=[1])
    arguments = [f"--study={tmp_path / 'study.yaml'}", f"--data_dir={data_folder}"]
    command = [sys.executable, "-m", "experiments.study", f"--work_dir={tmp_path}/work", *arguments]
    for times in (0, 5):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("as before") == times
    results = _read_results(tmp_path / "work")
    assert [results[name]["examples"] > 0 for name in ("mlm.1", "readout.1")] == [True, False]
    params = (tmp_path / "work/models/mlm.1/params.yaml").read_text()
    assert "mixed_precision_dtype: float32" in params
