"""The demo's stages: unchanged ones are reused, changed ones are run again."""

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest

from data_prep.sentences import split_paragraphs
from experiments.demo.__main__ import LEAST_STEPS_SHARE, TRAINING_START_SECONDS, training_share
from experiments.demo.report import read_sentences, sample_pairs
from experiments.stages import Stages
from official_cmlm.common.errors import UserError
from tests.binaries import call
from tests.conftest import make_documents, write_encoder, write_records

# Appends to a log what was made, then makes it.
MAKE = (
    "import sys, pathlib; p = pathlib.Path(sys.argv[1]); open(sys.argv[2], 'a').write(p.name); "
    "p.write_text(sys.argv[3])"
)


def run_all(folder, second="2", source=None):
    """Runs two stages that depend on each other; returns what was made now, and the seconds."""
    log = folder / "log"
    log.write_text("")
    stages = Stages(folder, [1, 1])
    if source is not None:
        stages.depends_on([str(source)])
    for title, name, text in (("one", "a", "1"), ("two", "b", second)):
        stages.run(title, folder / name, "-c", MAKE, str(folder / name), str(log), text)
    return log.read_text(), stages.taken


def test_a_second_run_reuses_everything(tmp_path, monkeypatch):
    """With the seconds of the run that made it, from which the steps of the training follow."""
    clock = SimpleNamespace(monotonic=itertools.count(step=7).__next__)
    monkeypatch.setattr("experiments.stages.time", clock)
    assert run_all(tmp_path) == ("ab", [7, 7])
    assert run_all(tmp_path) == ("", [7, 7])


def test_a_changed_stage_and_what_follows_run_again(tmp_path):
    run_all(tmp_path)
    assert run_all(tmp_path, second="3")[0] == "b"
    assert (tmp_path / "b").read_text() == "3"
    (tmp_path / "a").unlink()
    assert run_all(tmp_path, second="3")[0] == "a"


def test_a_changed_input_file_runs_everything_again(tmp_path):
    source = tmp_path / "source"
    for text in ("x", "longer", "longest"):
        source.write_text(text)
        assert run_all(tmp_path, source=source)[0] == "ab"


def test_a_failing_stage_stops_with_its_name(tmp_path):
    with pytest.raises(UserError, match="stage 'broken' failed with exit status 3"):
        Stages(tmp_path, [1]).run("broken", tmp_path / "a", "-c", "raise SystemExit(3)")


def test_an_interrupted_stage_keeps_its_output_to_go_on_from(tmp_path):
    out = tmp_path / "a"
    code = f"import pathlib; p = pathlib.Path({str(out)!r}); assert p.exists() or p.touch()"
    with pytest.raises(UserError):
        Stages(tmp_path, [1]).run("one", out, "-c", code)
    assert out.exists()
    Stages(tmp_path, [1]).run("one", out, "-c", code)


def test_what_no_stage_has_made_stays(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("years")
    for _ in range(2):
        with pytest.raises(UserError, match="b: exists, and no stage of .*stages.json has made it"):
            run_all(tmp_path)
    assert (tmp_path / "b" / "thesis.txt").read_text() == "years"


@pytest.mark.parametrize(
    "taken, budget, share",
    [
        ((10, 10), 190.0, 1.0),  # 20 + 50 + 100 + 20: just enough
        ((10, 10), 140.0, 0.5),
        ((20, 20), 280.0, 0.5),  # twice as slow, twice the time
        ((5, 5), 105.0, 1.0),
        ((10, 10), 20.0, LEAST_STEPS_SHARE),
        ((10, None), 20.0, 1.0),
    ],
)
def test_the_training_is_as_long_as_time_is_left(taken, budget, share):
    """Two stages of 10 s, then a training of 50 s and its 100 s of steps, and a stage of 20 s."""
    seconds = (10, 10, TRAINING_START_SECONDS + 100, 20)
    assert training_share(taken, seconds, budget) == pytest.approx(share)


def test_pairs_are_adjacent_and_unambiguous():
    """No sentence is the query or the answer of two pairs."""
    documents = [["a", "b", "c"], ["a", "d"], ["e"], ["f", "g"], ["h", "g"]]
    first, second = sample_pairs(documents, 10)
    adjacent = {pair for d in documents for pair in zip(d, d[1:])}
    assert set(zip(first, second)) <= adjacent
    assert len(set(first)) == len(first) == len(set(second)) == 3
    assert sample_pairs(documents, 2)[0] == first[:2]


def test_sentences_of_documents_are_those_of_their_text(tmp_path, vocabulary):
    """Also of documents that are cut into records of two sentences, each cut repeating one."""
    documents = make_documents(20)
    write_records(tmp_path, documents, vocabulary, keep_text=True, max_sentences=2)
    expected = [split_paragraphs(d.paragraphs[:1], "en", Counter()) for d in documents]
    assert max(map(len, expected)) > 4
    assert read_sentences(tmp_path) == expected
    write_records(tmp_path / "ids", documents, vocabulary)
    with pytest.raises(UserError, match="--keep_text"):
        read_sentences(tmp_path / "ids")


@pytest.mark.long
@pytest.mark.parametrize("start", ["random", "folder"])
def test_the_whole_way_on_own_text(start, tmp_path, vocabulary, capfd):
    """With the vocabulary of the start, or one of the text."""
    lines = ["".join(d.paragraphs) for d in make_documents(200)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines))
    tiny = "trainer.train_steps=2,trainer.steps_per_loop=1,trainer.validation_interval=2"
    overrides = (
        f"{tiny},task.train_data.global_batch_size=8,task.validation_data.global_batch_size=8"
    )
    if start == "folder":
        start = write_encoder(tmp_path / "own", vocabulary)
    flags = {"text": tmp_path / "text.txt", "start": start, "work_dir": tmp_path / "build"}
    flags["params_override"] = overrides
    assert call("experiments.demo", *(f"--{name}={value}" for name, value in flags.items())) == 0
    printed = capfd.readouterr().out
    assert ("own, its start" in printed) == ("vocabulary" not in printed) == (start != "random")
    assert list((tmp_path / "build").glob("*/report/recall.png"))


def test_the_report_compares_three(tmp_path, vocabulary, capsys):
    """The trained encoder, the same one with other weights, and TF-IDF; and the figure."""
    write_encoder(tmp_path / "model", vocabulary)
    write_records(tmp_path / "records", make_documents(20), vocabulary, keep_text=True)
    folders = {"model_dir": "model", "held_out_records": "records", "training_records": "records"}
    flags = [f"--{name}={tmp_path / folder}" for name, folder in folders.items()]
    assert (
        call("experiments.demo.report", *flags, f"--output_dir={tmp_path}/out", "--pairs=20") == 0
    )
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("this encoder", "untrained", "TF-IDF"))
    assert (tmp_path / "out" / "recall.png").exists()
