"""Runs that are stopped, resumed, disturbed, or asked for something else."""

import contextlib
import re
from unittest import mock

import pytest

from data_prep.output.folder import fill_folder
from data_prep.pipeline import phases
from data_prep.pipeline import run as pipeline
from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.pipeline.runs import contents


@pytest.mark.parametrize("deduplicate", ["off", "near"])
def test_a_stopped_run_goes_on(start, stop, tmp_path, monkeypatch, deduplicate):
    """Parts that are done are not repeated, and the output is the same, byte by byte."""
    start(output_dir=tmp_path / "whole", deduplicate=deduplicate)
    stop(deduplicate=deduplicate)
    assert not (tmp_path / "out").exists()
    done = []
    for name, phase in phases.PHASES.items():

        def count(context, number, name=name, phase=phase):
            done.append((name, number))
            return phase(context, number)

        monkeypatch.setitem(phases.PHASES, name, count)
    start(deduplicate=deduplicate)
    assert done == [("write", number) for number in (2, 3, 4, 5)]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.long
def test_two_workers_write_the_same_bytes(start, tmp_path):
    values = {"deduplicate": "near", "deduplicate_paragraphs": "near"}
    start(**values)
    start(workers=2, output_dir=tmp_path / "two", **values)
    assert contents(tmp_path / "two") == contents(tmp_path / "out")


def test_an_element_may_be_computed_twice_at_once(start, tmp_path, monkeypatch):
    """A cluster may do so: one attempt begins and ends while the other one writes."""
    start(output_dir=tmp_path / "whole")
    make_records, write = phases.document_records, phases.write
    attempts = []

    def write_twice(context, element):
        def interrupt(*arguments):
            records = make_records(*arguments)
            yield next(records)
            monkeypatch.setattr(phases, "document_records", make_records)
            write(context, element)
            attempts.append(element)
            yield from records

        monkeypatch.setattr(phases, "document_records", interrupt)
        return write(context, element)

    monkeypatch.setitem(phases.PHASES, "write", write_twice)
    start()
    assert attempts == list(range(6))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_plan_is_refused(start, stop, tmp_path):
    """One line says what changed, an option or an input; the folder stays and can be finished."""
    stop()
    for values, message in (
        ({"min_sentences": 2}, "options.records.min_sentences 1, now it is 2"),
        ({"deduplicate": "near"}, 'options.duplicates.documents "normalised", now it is "near"'),
        ({"lower_case": False}, "vocabulary"),
    ):
        with pytest.raises(UserError, match=f"out.partial: was begun with {message}"):
            start(**values)
    path = tmp_path / "text" / "part-1.jsonl"
    text, size = path.read_text(), path.stat().st_size
    path.write_text(text + "\n")
    with pytest.raises(UserError, match=f"part-1.jsonl.size {size}, now it is {size + 1}"):
        start()
    path.write_text(text)
    start()
    assert (tmp_path / "out").exists()


def test_a_second_run_at_once_is_refused(start, tmp_path):
    """It names the folder, of pairs too; when the first one is gone, it may run."""
    with fill_folder(tmp_path / "other", overwrite=False):
        with pytest.raises(UserError, match="other: another run is writing it"):
            with fill_folder(tmp_path / "other", overwrite=True):
                pass
        with pytest.raises(UserError, match="other.partial: another run writes there"):
            start(output_dir=tmp_path / "other")
    start()
    assert not (tmp_path / "out.lock").exists()


def test_an_output_may_be_within_the_input(start, stop, tmp_path, monkeypatch):
    """Files that runs write there are not read, whole or not; the same command goes on."""
    start(output_dir=tmp_path / "whole")
    output = tmp_path / "text" / "records"
    stop(output_dir=output)
    monkeypatch.chdir(tmp_path / "text")
    assert start(output_dir="records") == 0
    assert contents(output) == contents(tmp_path / "whole")
    start(output_dir=output, overwrite=True)
    assert contents(output) == contents(tmp_path / "whole")


def test_relative_paths_are_those_of_the_command_wherever_workers_start(
    start, tmp_path, monkeypatch
):
    """Names of documents are as they were given."""
    monkeypatch.chdir(tmp_path)
    run_phase = pipeline.run_phase

    def run_elsewhere(*arguments):
        with contextlib.chdir("/"):
            return run_phase(*arguments)

    monkeypatch.setattr(pipeline, "run_phase", run_elsewhere)
    start(input="text")
    records = b"".join(path.read_bytes() for path in (tmp_path / "out").glob("*.tfrecord"))
    names = re.findall(rb"[^\n]{5}part-", records)
    assert names and set(names) == {b"text/part-"}


def test_a_run_that_was_stopped_before_the_last_rename_is_finished(
    start, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "text" / "part-3.jsonl"
    path.write_text(path.read_text() + "{")
    start(output_dir=tmp_path / "whole", on_error="skip")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "replace_folder", lambda *names: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            start(on_error="skip")
    # A script learns of the skipped file all the same; nobody is told how fast nothing was.
    assert start(on_error="skip") == cli.EXIT_SKIPPED
    printed = capsys.readouterr().out
    assert "some of the input skipped" in printed and "tokens/s" not in printed
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_records_of_before_stay_until_the_end(start, stop, tmp_path):
    """Runs with --overwrite that fail or are stopped leave them; a finished one replaces them."""
    start(output_dir=tmp_path / "new")
    start(max_sentences=2, shard_mb=0.0001)
    before = contents(tmp_path / "out")
    with pytest.raises(UserError, match="no usable sentence"):
        start(overwrite=True, min_sentences=50)
    assert contents(tmp_path / "out") == before and not (tmp_path / "out.partial").exists()
    stop(overwrite=True)
    assert contents(tmp_path / "out") == before
    with pytest.raises(UserError, match="holds records already; pass --overwrite"):
        start()
    start(overwrite=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "new")
    assert len(before) > len(contents(tmp_path / "out"))


def test_an_unreadable_file_stops_the_run_or_is_skipped(start, tmp_path, capsys):
    """It is named and counted; a stopped run may go on skipping."""
    path = tmp_path / "text" / "part-3.jsonl"
    path.write_text("{")
    with pytest.raises(UserError, match=r"part-3\.jsonl:1: not valid JSON"):
        start()
    assert start(on_error="skip") == cli.EXIT_SKIPPED
    assert load_manifest(tmp_path / "out").counters["read/unreadable_file"] == 1
    printed = capsys.readouterr()
    assert "1 of 6 file(s) skipped" in printed.out
    assert "warning: skipped: " in printed.err and "part-3.jsonl:1" in printed.err
    # Nothing of a run that failed in its first element is worth keeping, so its options may change.
    path.rename(tmp_path / "text" / "part-0.jsonl")
    with pytest.raises(UserError, match=r"part-0\.jsonl:1: not valid JSON"):
        start(output_dir=tmp_path / "again")
    assert not (tmp_path / "again.partial").exists()


def test_an_input_of_which_no_file_can_be_read_leaves_nothing(start, tmp_path):
    for path in (tmp_path / "text").iterdir():
        path.write_text("{")
    with pytest.raises(UserError, match=r"none of 6 file\(s\) could be read to its end"):
        start(on_error="skip")
    assert not (tmp_path / "out.partial").exists()


def test_progress_is_in_bytes_within_an_element(start, tmp_path, monkeypatch):
    """With one process the bar of a phase that reads moves within an element, and ends full."""
    bars = []

    def make_bar(*arguments, **others):
        bar = mock.MagicMock(initial=0)
        bar.__enter__.return_value = bar
        bars.append((bar, *arguments))
        return bar

    monkeypatch.setattr("official_cmlm.common.progress.bar", make_bar)
    start(element_mb=1, deduplicate="off")
    ((bar, total, unit, name),) = bars
    assert (name, unit) == ("write", "B")
    assert total == sum(path.stat().st_size for path in (tmp_path / "text").iterdir())
    # The job takes back what the element has shown, and shows the whole element.
    *within, back, whole = (call.args[0] for call in bar.update.call_args_list)
    assert sum(within) == -back == whole == total and len(within) > 6 and min(within) >= 0
