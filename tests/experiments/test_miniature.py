"""Studies as they run: nothing is trained twice, other versions are refused, results are whole."""

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import registry
from experiments.miniature import plan, records, report, runs
from official_cmlm.checkpoints.encoder_directory import load_encoder
from official_cmlm.errors import Stopped, UserError
from official_cmlm.sentence_encoder import SentenceEncoder
from official_cmlm.tokenization import WordPieceVocabulary
from official_cmlm.training import run as training
from tests.checkpoints.test_readout import TRAINED
from tests.conftest import make_documents, write_records
from tests.experiments.miniature_helpers import (
    STS_B,
    InProcess,
    carry_out,
    change_at,
    planned,
    write_data,
    write_study,
)
from tests.training.test_run import TINY

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data(tmp_path):
    """See `write_data`."""
    return write_data(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def no_checks_of_inputs():
    """They take seconds, and are those of every training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "check_run", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, records_dir):
    """The tiny study, stopped twice and finished."""
    folder = tmp_path_factory.mktemp("study")
    data_folder = write_data(folder)
    study, work = write_study(folder), folder / "work"
    calls, out = [], io.StringIO()
    with contextlib.redirect_stdout(out):
        # Before the first evaluation; in the second training; then to the end.
        for stop_at in (3, 3, None):
            calls.append(InProcess(records_dir, stop_at))
            with contextlib.suppress(Stopped):
                carry_out(study, data_folder, work, calls[-1])
    return study, data_folder, work, calls, out.getvalue()


def test_a_stopped_study_goes_on_and_trains_nothing_twice(finished, records_dir):
    """Each arm is trained and scored once over all commands; a further one does nothing."""
    study, data_folder, work, calls, printed = finished
    assert [name for call in calls for name in call.made] == ["data_prep.create_documents"]
    assert sorted(name for call in calls for name in call.trained) == ["mlm.1", "mlm.2"]
    everything = ["mlm.1", "mlm.2", "readout.1", "readout.2"]
    assert sorted(name for call in calls for name in call.scored) == everything
    assert "[3/4] mlm seed 2" in printed and "to the end)" in printed
    again = InProcess(records_dir)
    carry_out(study, data_folder, work, again)
    assert not (again.made or again.trained or again.scored)


def test_a_result_says_all_that_a_table_needs(finished):
    """Scores by protocol, steps, examples, tokens, device, seconds, versions."""
    _, _, work, *_ = finished
    found = json.loads((work / "results" / "mlm.2.json").read_text())
    assert (found["arm"], found["seed"], found["steps"]) == ("mlm", 2, 2)
    assert found["experiment"] == "mlm/english_base"
    assert (found["examples"], found["tokens"], found["seconds"]) == (16, 160, 1.5)
    assert found["devices"] == ["/device:CPU:0"] and found["versions"]["tensorflow"]
    assert -100 <= found["scores"]["sts/STS-B/spearman"] <= 100
    assert found["scores"]["validation/mlm/masked_token_accuracy"] == 0.1
    assert STS_B in found["evaluation_files"] and found["protocols"]["sts"]
    readout = json.loads((work / "results" / "readout.2.json").read_text())
    assert readout["steps"] == 0 and "validation/validation_loss" not in readout["scores"]


def test_an_arm_that_is_not_trained_has_the_weights_of_its_start(finished):
    """Of the same seed, and only reads them out otherwise."""
    _, _, work, *_ = finished
    weights = []
    for seed in (1, 2):
        mean, *_ = load_encoder(work / "models" / f"mlm.{seed}")
        found, *_ = load_encoder(work / "models" / f"readout.{seed}")
        assert found.config.pooling == "max" and mean.config.pooling == "mean"
        weights.append([variable.numpy() for variable in mean.weights])
        for one, two in zip(weights[-1], found.weights):
            np.testing.assert_array_equal(one, two.numpy())
    assert not np.allclose(weights[0][0], weights[1][0])


def test_projections_come_along_with_an_encoder_that_is_not_trained(tmp_path):
    """CMLM's Table 7, "proj", without training again."""
    documents, (_, vocabulary, _) = make_documents(10), load_encoder(TRAINED)
    write_records(tmp_path / "records", documents, vocabulary)
    task = {
        "encoder": json.loads((TRAINED / "encoder_config.json").read_text())["encoder"],
        "objectives": {"cmlm": {"num_projections": 3}},
        "train_data": {**TINY["train_data"], "input_path": str(tmp_path / "records")},
    }
    overrides = json.dumps({"runtime": {"distribution_strategy": "one_device"}, "task": task})
    config = registry.load("cmlm/english_base", [], overrides, str(TRAINED))
    folder = tmp_path / "model"
    runs._write_untrained(SimpleNamespace(seed=1, start=TRAINED, config=config, folder=folder))
    expected = SentenceEncoder.load(TRAINED, sentence_vector="projected_mean").encode(["a cat"])
    got = SentenceEncoder.load(folder, sentence_vector="projected_mean").encode(["a cat"])
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert not np.allclose(got, SentenceEncoder.load(TRAINED).encode(["a cat"]), atol=1e-3)


def test_the_report_compares_by_seed_and_names_what_is_missing(finished, tmp_path):
    """Means and differences follow from the files; a missing seed is named and left out."""
    study, _, work, *_ = finished
    scores = {}
    for arm in ("mlm", "readout"):
        for seed in (1, 2):
            found = json.loads((work / "results" / f"{arm}.{seed}.json").read_text())
            scores[arm, seed] = found["scores"]["sts/STS-B/spearman"]
    copied = tmp_path / "work"
    shutil.copytree(work / "results", copied / "results")
    line = report.write_report(study, copied, "tiny")
    text = (copied / "study.md").read_text()
    assert "missing" not in line and "Missing" not in text
    mean = (scores["mlm", 1] + scores["mlm", 2]) / 2
    deviation = abs(scores["mlm", 1] - scores["mlm", 2]) / 2**0.5
    assert f"| mlm | {mean:.1f} ± {deviation:.1f} |" in text
    difference = sum(scores["readout", s] - scores["mlm", s] for s in (1, 2)) / 2
    assert f"{difference:+.1f}".replace("-", "−") in text
    # CMLM's Table 2, STSB: 76.6 and 46.35.
    assert "76.6: CMLM base (CMLM, Table 2) | +30.2" in text.replace("+30.3", "+30.2")
    assert (copied / "study.png").read_bytes().startswith(b"\x89PNG")
    (copied / "results" / "readout.2.json").unlink()
    assert report.write_report(study, copied, "tiny").endswith("missing: readout seed 2")
    text = (copied / "study.md").read_text()
    assert "Missing, and in no figure here: readout seed 2." in text and "| readout |" in text
    # Without any result an arm has no rows.
    (copied / "results" / "readout.1.json").unlink()
    assert report.write_report(study, copied, "tiny").endswith("missing: readout seeds 1, 2")
    assert "| readout |" not in (copied / "study.md").read_text()
    (copied / "results" / "mlm.1.json").write_text("{")
    with pytest.raises(UserError, match="mlm.1.json: (no result|not valid JSON).*delete it"):
        report.write_report(study, copied, "tiny")


def test_results_scored_on_other_files_are_not_compared(finished, tmp_path):
    """Both files are named."""
    study, _, work, *_ = finished
    shutil.copytree(work / "results", tmp_path / "results")
    path = tmp_path / "results" / "readout.1.json"
    values = json.loads(path.read_text())
    values["evaluation_files"][STS_B] = "0" * 64
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="scored on another .*sts-test.csv than") as caught:
        report.write_report(study, tmp_path, "tiny")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            change_at("common", "trainer", "train_steps", 4),
            r"mlm.1.json: .*trainer.train_steps was 2, is 4.*models/mlm.1 to train",
        ),
        (change_at("scores", "set", []), r"mlm.1.json: .*set was .*delete the file to score"),
        (
            change_at("arms", 1, "experiment", "demo"),
            "experiment was .*mlm/english_base.*, is .*demo",
        ),
    ],
)
def test_results_of_another_version_are_refused(finished, tmp_path, change, message):
    """One line: which file, what differs, what to do. With --report_only too."""
    _, data_folder, work, *_ = finished
    study = write_study(tmp_path, change)
    for refusing in (
        lambda: planned(study, data_folder, work),
        lambda: report.write_report(study, work, "tiny"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            refusing()
        assert "\n" not in str(caught.value) and "--work_dir" in str(caught.value)


def test_a_training_of_another_version_is_refused(finished, tmp_path):
    """A folder without a result, trained under other settings, is not gone on with."""
    _, data_folder, work, *_ = finished
    copied = tmp_path / "work"
    shutil.copytree(work, copied, ignore=shutil.ignore_patterns("results", "evaluation"))
    study = write_study(tmp_path, change_at("common", "trainer", "train_steps", 4))
    with pytest.raises(UserError, match="trainer.train_steps was 2, is 4.*delete the folder"):
        planned(study, data_folder, copied)


def test_versions_follow_contents_not_places(finished, tmp_path, records_dir):
    """Moved folders, titles, columns and further arms change nothing; records and starts do."""
    study, data_folder, work, *_ = finished
    versions = {run.name: run.version for run in planned(study, data_folder, work)}
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
    found = {run.name: run.version for run in planned(other, data_folder, moved)}
    assert {name: found[name] for name in versions} == versions
    assert len(set(found.values())) == len(found) == 9
    manifest = moved / "data" / "books" / "dataset.json"
    values = json.loads(manifest.read_text())
    values["counters"]["other"] = 1
    manifest.write_text(json.dumps(values))
    with pytest.raises(UserError, match="json: made by another version.*its records, its start"):
        planned(study, data_folder, moved)
    shutil.rmtree(moved / "results")
    with pytest.raises(UserError, match=r"mlm.1: trained by another version.*input_path was"):
        planned(study, data_folder, moved)
    shutil.copy(work / "data" / "books" / "dataset.json", manifest)
    shutil.rmtree(moved / "models")
    longer = {"params_override": {"trainer": {"train_steps": 4}}}
    other = write_study(tmp_path, lambda s: s["arms"][1].update(longer))
    for one in planned(other, data_folder, moved):
        # The read-out itself is as it was; what it starts from is not.
        assert one.version != versions[one.name]


def test_all_arms_have_the_same_seed_and_start_from_it(tmp_path, data, records_dir):
    """Also in objectives with records of their own; `start_seed` fixes the start."""

    def change(study):
        readout = study["arms"][0]
        readout |= {"start_seed": 2, "train": True}
        own = {"train_data": {**TINY["train_data"], "input_path": "$books"}}
        readout["params_override"]["task"]["objectives"] = {"quick_thought": own}

    study, work = write_study(tmp_path, change), tmp_path / "work"
    records.make_data(study, records.places(study, data, work), InProcess(records_dir))
    found = {run.name: run for run in planned(study, data, work)}
    assert list(found) == ["mlm.1", "mlm.2", "readout.1", "readout.2"]
    for name, one in found.items():
        assert one.config.task.train_data.seed == int(name[-1]) == one.seed
        if own := one.config.task.objectives.quick_thought:
            assert own.train_data.seed == one.seed
            assert one.start == work / "models" / "mlm.2"


def test_chosen_arms_come_with_what_they_start_from(tmp_path, data, records_dir):
    """In the order of the study; the others are left for another time."""
    study, work = write_study(tmp_path), tmp_path / "work"
    names = records.places(study, data, work)
    records.make_data(study, names, InProcess(records_dir))
    for arms, expected in ((["mlm"], ["mlm"]), (["readout"], ["mlm", "readout"])):
        found = [run.name for run in plan.plan(study, names, work, arms)]
        assert found == [f"{arm}.{seed}" for seed in (1, 2) for arm in expected]


def test_records_of_another_recipe_are_refused(tmp_path, data, records_dir):
    """And those that are not complete are made again."""
    study, work = write_study(tmp_path), tmp_path / "work"
    call = InProcess(records_dir)
    records.make_data(study, records.places(study, data, work), call)
    (work / "data" / "books.json").unlink()
    records.make_data(study, records.places(study, data, work), call)
    records.make_data(study, records.places(study, data, work), call)
    assert len(call.made) == 2
    other = write_study(tmp_path, change_at("data", 0, "flags", "keep_text", True))
    with pytest.raises(UserError, match="books: made by another version.*step books.*delete"):
        records.make_data(other, records.places(other, data, work), call)


def test_a_recipe_includes_what_it_reads(tmp_path):
    """A vocabulary that changes makes the records that were made with it those of another one."""
    steps = [
        {"name": "words", "run": "build_vocab", "flags": {"vocab_size": 10}},
        {"name": "books", "run": "create_documents", "flags": {"vocab_file": "$words/vocab.txt"}},
    ]
    one = write_study(tmp_path, data=steps)
    steps[0]["flags"]["vocab_size"] = 20
    two = write_study(tmp_path, data=steps)
    assert records._recipe(one, one.data[1], {}) != records._recipe(two, two.data[1], {})
    steps[1]["flags"]["vocab_file"] = "$start/vocab.txt"
    study = write_study(tmp_path, data=steps)
    recipes = []
    for word in ("cat", "dog", "cat"):
        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", word)
        WordPieceVocabulary(words, True, 100).save(tmp_path)
        recipes.append(records._recipe(study, study.data[1], {"start": str(tmp_path)}))
    assert recipes[0] == recipes[2] != recipes[1]
    assert records._flag("keep_text", True) == "--keep_text"
    assert records._flag("check", False) == "--nocheck"
    assert records._flag("input", ["a", "b"]) == "--input=a,b"


def test_another_architecture_is_refused_before_the_first_step(tmp_path, data, records_dir):
    """Both arms are named."""
    change = change_at("arms", 0, "params_override", {"task": {"encoder": {"num_layers": 2}}})
    study, call = write_study(tmp_path, change), InProcess(records_dir)
    with pytest.raises(UserError, match=r"arm readout: .*that of arm mlm: num_layers 1 \(here 2\)"):
        carry_out(study, data, tmp_path / "work", call)
    assert not call.trained


def test_missing_evaluation_files_are_named_before_the_first_step(tmp_path, data):
    """Of the columns; what they do not need may be missing. Averages are warned of."""
    study = write_study(tmp_path)
    assert plan.check_evaluation(study, data) == []
    columns = [{"id": "sts/average/spearman_all", "label": "average"}]
    averaged = write_study(tmp_path, change_at("scores", "columns", columns))
    assert "may lack: STS12" in plan.check_evaluation(averaged, data)[0]
    (data / STS_B).unlink()
    with pytest.raises(UserError, match="column sts/STS-B/spearman: cannot be scored: STS-B: "):
        plan.check_evaluation(study, data)


def test_a_killed_runs_counts_are_not_known(tmp_path):
    """Counts of several runs are summed where their steps add up, and unknown otherwise."""
    study = write_study(tmp_path)

    class Trained:
        arm, seed, name = study.arm("mlm"), 1, "mlm.1"
        folder, start, overrides = tmp_path, None, {}
        config = registry.load("demo", [], "trainer.train_steps=10")

    base = {"devices": ["/device:CPU:0"], "versions": {}, "completed": True}
    (tmp_path / "history.jsonl").write_text("")
    for first, expected in ((4, 40), (3, None)):
        for name, steps in (("train_summary.0.json", first), ("train_summary.json", 6)):
            counts = {"steps": steps, "examples": 4 * steps, "tokens": 9 * steps, "seconds": 1.0}
            (tmp_path / name).write_text(json.dumps(base | counts))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs, "_is_complete", lambda *_: True)
            found = runs._trained(Trained(), study, None)
        assert (found["steps"], found["examples"]) == (10, expected)


def test_two_commands_do_not_work_in_one_folder(tmp_path):
    """The second waits: the lock is held, by programs that are started too."""
    with runs.working_in(tmp_path) as call:
        descriptor = os.open(tmp_path / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = call.keywords["keep"][0]
        assert call([sys.executable, "-c", f"import os; os.fstat({held})"]) == 0
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.long
def test_a_killed_study_goes_on(tmp_path, vocabulary):
    """`kill -9` of everything in the middle of a training; the same command ends the study."""
    data_folder = write_data(tmp_path)
    vocabulary.save(data_folder)
    documents = ["\n".join(document.paragraphs) for document in make_documents(120)]
    (data_folder / "text.txt").write_text("\n\n".join(documents))

    def change(study):
        study["data"][0]["flags"] = {"input": "$data/text.txt", "vocab_file": "$data/vocab.txt"}
        trainer = {"train_steps": 60, "checkpoint_interval": 2, "validation_interval": 60}
        study["common"]["trainer"] |= trainer

    write_study(tmp_path, change)
    work = tmp_path / "work"
    command = [sys.executable, "-m", "experiments.miniature", f"--study={tmp_path / 'study.yaml'}"]
    command += [f"--work_dir={work}", f"--data_dir={data_folder}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **pipes, cwd=ROOT, start_new_session=True) as first:
        printed = b""
        while not re.search(rb"\[3/4\].*train_and_eval on", printed, re.DOTALL):
            printed += (line := first.stdout.readline())
            assert line, printed.decode()
        os.killpg(first.pid, signal.SIGKILL)
    assert len(list((work / "results").iterdir())) == 2
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "data books: as before" in done.stdout and "study.md" in done.stdout
    found = {path.stem: json.loads(path.read_text()) for path in (work / "results").iterdir()}
    assert set(found) == {"mlm.1", "mlm.2", "readout.1", "readout.2"}
    assert [line.rpartition(": ")[2] for line in done.stdout.splitlines()].count("as before") == 3
    assert all(found[name]["examples"] > 0 for name in ("mlm.1", "mlm.2"))
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert again.stdout.count("as before") == 5
