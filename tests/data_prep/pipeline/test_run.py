"""Runs that are stopped, resumed, disturbed, or asked for something else."""

import contextlib
import errno
import json
import os
import re

import pytest

from data_prep.output.folder import filled_folder, locked_output
from data_prep.pipeline import run as pipeline
from data_prep.pipeline.plan import Plan
from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.pipeline.runs import contents


def test_killed_while_the_plan_was_written(start, stopped, tmp_path, monkeypatch):
    """Its leftover does not reach the output; an unchanged plan is not written again."""
    stopped()
    (tmp_path / "out.partial" / "prepare.json.7-ab.tmp").write_text("{")
    monkeypatch.setattr(Plan, "save", lambda *arguments: 1 / 0)
    start()
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_begun_by_another_release(start, stopped, tmp_path):
    """One line says so, whatever of the plan is of another form."""
    stopped()
    path = tmp_path / "out.partial" / "prepare.json"
    whole = path.read_text()
    for change in (
        lambda values: values["options"].update(abacus=1),
        lambda values: values.pop("vocabulary"),
        lambda values: values.pop("format"),
        lambda values: values.update(inputs=[1]),
        lambda values: values["options"].update(reading=None),
    ):
        values = json.loads(whole)
        change(values)
        path.write_text(json.dumps(values))
        with pytest.raises(UserError, match=r"json: is not of this release .*delete .*out\."):
            start()


def test_pairs_leave_an_unfinished_run_alone(stopped, start, tmp_path):
    """The command for pairs is refused."""
    stopped()
    before = contents(tmp_path / "out.partial" / "work")
    with pytest.raises(UserError, match=r"out\.partial: holds an unfinished run of data_prep"):
        with filled_folder(tmp_path / "out", overwrite=False):
            pass
    assert contents(tmp_path / "out.partial" / "work") == before
    start()


def test_an_output_within_the_input(start, stopped, tmp_path, monkeypatch):
    """Files that runs write there are not read, whole or not; the same command goes on."""
    start(output_dir=tmp_path / "whole")
    output = tmp_path / "text" / "records"
    stopped(output_dir=output)
    monkeypatch.chdir(tmp_path / "text")
    assert start(output_dir="records") == 0
    assert contents(output) == contents(tmp_path / "whole")
    start(output_dir=output, overwrite=True)
    assert contents(output) == contents(tmp_path / "whole")


def test_workers_that_start_elsewhere(start, tmp_path, monkeypatch):
    """Relative paths are those of the command; names of documents are as they were given."""
    monkeypatch.chdir(tmp_path)
    run_phase = pipeline.run_phase

    def elsewhere(*arguments):
        with contextlib.chdir("/"):
            run_phase(*arguments)

    monkeypatch.setattr("data_prep.pipeline.run.run_phase", elsewhere)
    start(input="text")
    records = b"".join(path.read_bytes() for path in (tmp_path / "out").glob("*.tfrecord"))
    names = re.findall(rb"[^\n]{5}part-", records)
    assert names and set(names) == {b"text/part-"}


@pytest.mark.parametrize("deduplicate", ["off", "near"])
def test_a_stopped_run_goes_on(start, stopped, tmp_path, monkeypatch, deduplicate):
    """Finished work is not repeated, and the output is the same, byte by byte."""
    start(output_dir=tmp_path / "whole", deduplicate=deduplicate)
    assert stopped(deduplicate=deduplicate) == "stop"
    assert not (tmp_path / "out").exists()
    done = []
    for name, phase in pipeline.PHASES.items():

        def counted(context, number, name=name, phase=phase):
            done.append((name, number))
            phase(context, number)

        monkeypatch.setitem(pipeline.PHASES, name, counted)
    start(deduplicate=deduplicate)
    assert done == [("write", number) for number in (2, 3, 4, 5)]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_stopped_before_the_last_rename(start, tmp_path, monkeypatch, capsys):
    """Only the final name is missing."""
    path = tmp_path / "text" / "part-3.jsonl"
    path.write_text(path.read_text() + "{")
    start(output_dir=tmp_path / "whole", on_error="skip")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("data_prep.pipeline.run.replace_folder", lambda *names: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            start(on_error="skip")
    # A script learns of the skipped file all the same; nobody is told how fast nothing was.
    assert start(on_error="skip") == cli.EXIT_SKIPPED
    shown = capsys.readouterr().out
    assert "some of the input skipped" in shown and "tokens/s" not in shown
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_records_of_before_stay_until_the_end(start, stopped, tmp_path):
    """A stopped run with --overwrite leaves them; a finished one replaces them."""
    start(output_dir=tmp_path / "new")
    start(max_sentences=2, shard_mb=0.0001)
    before = contents(tmp_path / "out")
    stopped(overwrite=True)
    assert contents(tmp_path / "out") == before
    with pytest.raises(UserError, match="holds records already; pass --overwrite"):
        start()
    start(overwrite=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    assert len(before) > len(contents(tmp_path / "out"))


def test_a_second_run_at_once_is_refused(start, tmp_path):
    """It names the folder, of pairs too; when the first one is gone, it may run."""
    with locked_output(tmp_path / "out"):
        with pytest.raises(UserError, match="out: another run is writing it"):
            start()
        with pytest.raises(UserError, match="out: another run is writing it"):
            with filled_folder(tmp_path / "out", overwrite=True):
                pass
    start()
    assert not (tmp_path / "out.lock").exists()


def test_another_plan_is_refused(start, stopped, tmp_path):
    """One line says what changed, an option or an input; the folder stays and can be finished."""
    stopped()
    for values, message in (
        ({"min_sentences": 2}, "begun with min_sentences 1, now it is 2"),
        ({"lines": "paragraphs"}, "begun with lines 'wrapped', now it is 'paragraphs'"),
        ({"deduplicate": "near"}, "begun with deduplicate 'normalised', now it is 'near'"),
        ({"lower_case": False}, "begun with vocabulary"),
    ):
        with pytest.raises(UserError, match=f"out.partial: was {message}"):
            start(**values)
    path = tmp_path / "text" / "part-1.jsonl"
    text, size = path.read_text(), path.stat().st_size
    path.write_text(text + "\n")
    with pytest.raises(UserError, match=f"part-1.jsonl {size}, now it is {size + 1}"):
        start()
    path.write_text(text)
    start()
    assert (tmp_path / "out").exists()


def test_an_unreadable_file(start, tmp_path, capsys):
    """It stops the run, or is skipped, named and counted; a stopped run may go on skipping."""
    path = tmp_path / "text" / "part-3.jsonl"
    path.write_text("{")
    with pytest.raises(UserError, match=r"part-3\.jsonl:1: not valid JSON"):
        start()
    assert start(on_error="skip") == cli.EXIT_SKIPPED
    assert load_manifest(tmp_path / "out").counters["read/unreadable_file"] == 1
    shown = capsys.readouterr()
    assert "1 of 6 file(s) skipped" in shown.out
    assert "warning: skipped: " in shown.err and "part-3.jsonl:1" in shown.err
    # Nothing of a run that failed in its first element is worth keeping, so its options may change.
    path.rename(tmp_path / "text" / "part-0.jsonl")
    with pytest.raises(UserError, match=r"part-0\.jsonl:1: not valid JSON"):
        start(output_dir=tmp_path / "again")
    assert not (tmp_path / "again.partial").exists()


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
    assert re.search(
        r"out\.partial, or .*: cannot be written \(No space.*; make room and give the same", text
    )
    start()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_progress_is_in_bytes_within_an_element(start, tmp_path, monkeypatch):
    """With one process the bar of a phase that reads moves within an element, and ends full."""
    shown = []

    class Bar:
        def __init__(self, total, unit, name, **others):
            shown.append([name, unit, total, others["initial"]])

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, amount):
            shown[-1].append(amount)

    monkeypatch.setattr("official_cmlm.common.progress.bar", Bar)
    start(element_mb=1, deduplicate="off")
    ((name, unit, total, initial, *steps),) = shown
    assert (name, unit, initial) == ("write", "B", 0)
    assert total == sum(path.stat().st_size for path in (tmp_path / "text").iterdir())
    assert sum(steps) == total and len(steps) > 6 and all(step >= 0 for step in steps)
