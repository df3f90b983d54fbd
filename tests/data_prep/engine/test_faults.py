"""Runs that are stopped, disturbed or asked for something else."""

import errno
import json
import os
import subprocess
import sys

import pytest

from data_prep.engine import phases
from data_prep.engine.atomic import written
from data_prep.locking import locked
from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.engine.runs import ROOT, contents


@pytest.mark.long
@pytest.mark.parametrize(
    ("kills", "values"),
    [(10, {}), (3, {"deduplicate": "near", "workers": 2})],
    ids=["ten", "near-two-workers"],
)
def test_killed_at_any_moment(start, tmp_path, kills, values):
    """No output appears before the end, and at last it is that of an undisturbed run."""
    start(output_dir=tmp_path / "whole", **(values | {"workers": 1}))
    # Forks are killed in the midst of their work by a timer; one process imports TensorFlow.
    program = [sys.executable, "-m", "tests.data_prep.engine.killed_runs", str(tmp_path)]
    done = subprocess.run(
        [*program, str(kills), *(f"{name}={value}" for name, value in values.items())],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == kills and (found["runs_with_results_left"] > 0 or kills < 10)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("deduplicate", ["off", "near"])
def test_a_stopped_run_goes_on(start, stopped, tmp_path, monkeypatch, deduplicate):
    """What is done is not done again, and the output is the same to the byte."""
    start(output_dir=tmp_path / "whole", deduplicate=deduplicate)
    assert stopped(deduplicate=deduplicate) == "stop"
    assert not (tmp_path / "out").exists()
    done = []
    for name, phase in phases.PHASES.items():

        def counted(context, number, name=name, phase=phase):
            done.append((name, number))
            phase(context, number)

        monkeypatch.setitem(phases.PHASES, name, counted)
    start(deduplicate=deduplicate)
    assert done == [("write", number) for number in (2, 3, 4, 5)]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_stopped_before_the_last_rename(start, tmp_path, monkeypatch, capsys):
    """All is there but the name."""
    path = tmp_path / "text" / "part-3.jsonl"
    path.write_text(path.read_text() + "{")
    start(output_dir=tmp_path / "whole", on_error="skip")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("data_prep.engine.running.replace_folder", lambda *names: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            start(on_error="skip")
    # A script learns of the skipped file all the same; nobody is told how fast nothing was.
    assert start(on_error="skip") == cli.EXIT_SKIPPED
    shown = capsys.readouterr().out
    assert "some of the input skipped" in shown and "tokens/s" not in shown
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_records_of_before_stay_until_the_end(start, stopped, tmp_path):
    """A stopped run with --overwrite leaves them; a finished one replaces them."""
    start(max_sentences=2)
    before = contents(tmp_path / "out")
    stopped(overwrite=True)
    assert contents(tmp_path / "out") == before
    with pytest.raises(UserError, match="holds records already; pass --overwrite"):
        start()
    start(overwrite=True)
    assert contents(tmp_path / "out") != before


def test_a_second_run_at_once_is_refused(start, tmp_path):
    """It names the folder; when the first one is gone, it may run."""
    with locked(tmp_path / "out"):
        with pytest.raises(UserError, match="out: another run is writing it"):
            start()
    start()
    assert not (tmp_path / "out.lock").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_sentences": 2}, "begun with min_sentences 1, now it is 2"),
        ({"lines": "paragraphs"}, "begun with lines 'wrapped', now it is 'paragraphs'"),
        ({"deduplicate": "near"}, "begun with deduplicate 'exact', now it is 'near'"),
        ({"lower_case": False}, "begun with vocabulary"),
    ],
)
def test_a_changed_option_is_refused(start, stopped, tmp_path, values, message):
    """In one line that says which; the unfinished folder stays and can be finished."""
    stopped()
    with pytest.raises(UserError, match=f"out.partial: was {message}"):
        start(**values)
    start()
    assert (tmp_path / "out").exists()


def test_a_changed_input_is_refused(start, stopped, tmp_path):
    """By its size; the message names the file."""
    stopped()
    path = tmp_path / "text" / "part-1.jsonl"
    size = path.stat().st_size
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UserError, match=f"part-1.jsonl {size}, now it is {size + 1}"):
        start()


def test_options_may_change_where_nothing_is_done(start, tmp_path, monkeypatch):
    """Nothing of a run that failed in its first element is worth keeping."""
    (tmp_path / "text" / "part-0.jsonl").write_text("{")
    with pytest.raises(UserError, match=r"part-0\.jsonl:1: not valid JSON"):
        start()
    assert not (tmp_path / "out.partial").exists()
    start(on_error="skip", min_sentences=2)


def test_an_unreadable_file(start, tmp_path, capsys):
    """It stops the run, or is skipped, named and counted; a stopped run may go on skipping."""
    (tmp_path / "text" / "part-3.jsonl").write_text("{")
    with pytest.raises(UserError, match=r"part-3\.jsonl:1: not valid JSON"):
        start()
    assert start(on_error="skip") == cli.EXIT_SKIPPED
    assert load_manifest(tmp_path / "out").counters["read/unreadable_file"] == 1
    shown = capsys.readouterr()
    assert "1 of 6 file(s) skipped" in shown.out
    assert "warning: skipped: " in shown.err and "part-3.jsonl:1" in shown.err


def test_a_fault_behind_some_text(start, tmp_path):
    """Of the only file: what stands before it is written, and the exit status tells."""
    path = tmp_path / "text" / "part-3.jsonl"
    path.write_text(path.read_text() + "{")
    assert start(input=path, on_error="skip") == cli.EXIT_SKIPPED
    assert start(input=path.with_name("part-2.jsonl"), overwrite=True) == 0


def test_no_file_can_be_read(start, tmp_path):
    for path in (tmp_path / "text").iterdir():
        path.write_text("{")
    with pytest.raises(UserError, match=r"none of 6 file\(s\) could be read to its end"):
        start(on_error="skip")
    assert not (tmp_path / "out.partial").exists()


def test_a_full_disk(start, stopped, tmp_path):
    """One line says what to do; with room again the run goes on."""
    start(output_dir=tmp_path / "whole")
    text = stopped(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert "out.partial: the disk is full; make room and give the same command again" in text
    start()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_an_interrupted_file_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), written(tmp_path / "file") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
