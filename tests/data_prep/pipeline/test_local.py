"""Several workers: the bytes of one, none in the way of another, and one line when one dies."""

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest

from data_prep.pipeline import run as pipeline
from data_prep.pipeline.run import LocalRunner, Work
from official_cmlm.common.errors import UserError
from tests.data_prep.pipeline.runs import ROOT, contents


@pytest.mark.long
def test_two_workers(start, tmp_path):
    """The same bytes as of one."""
    values = {"deduplicate": "near", "deduplicate_paragraphs": "near"}
    start(**values)
    start(workers=2, output_dir=tmp_path / "two", **values)
    assert contents(tmp_path / "two") == contents(tmp_path / "out")


def test_an_element_is_computed_twice_at_once(start, tmp_path, monkeypatch):
    """A cluster may do so: one attempt begins and ends while the other one writes."""
    start(output_dir=tmp_path / "whole")
    records, write = pipeline.document_records, pipeline.write
    attempts = []

    def twice(context, element):
        def during(*arguments):
            found = records(*arguments)
            yield next(found)
            monkeypatch.setattr(pipeline, "document_records", records)
            write(context, element)
            attempts.append(element)
            yield from found

        monkeypatch.setattr(pipeline, "document_records", during)
        write(context, element)

    monkeypatch.setitem(pipeline.PHASES, "write", twice)
    start()
    assert attempts == list(range(6))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_others_end_before_a_fault_is_told(tmp_path, monkeypatch):
    """Files that they still write would be in the way of the clean-up."""
    both, ended = threading.Barrier(2), []

    def run_phase(work, number):
        both.wait()
        if number == 0:
            raise UserError("the fault")
        for at in range(500):
            (tmp_path / str(at)).write_text("x")
        ended.append(number)

    monkeypatch.setattr("data_prep.pipeline.run.run_phase", run_phase)
    with LocalRunner() as runner:
        with concurrent.futures.ThreadPoolExecutor(2) as runner._pool:
            with pytest.raises(UserError, match="the fault"):
                runner(Work("write", str(tmp_path), ""), [0, 1], lambda count: None)
            assert ended == [1]


def _die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_is_killed(tmp_path, monkeypatch):
    """One line says what to do."""
    monkeypatch.setattr("data_prep.pipeline.run.run_phase", _die)
    with LocalRunner() as runner:
        # Forked, as a new process would not know of `_die`.
        context = multiprocessing.get_context("fork")
        runner._pool = concurrent.futures.ProcessPoolExecutor(2, context)
        message = "a worker has died, perhaps out of memory; give the same command again"
        with pytest.raises(UserError, match=message):
            runner(Work("write", str(tmp_path), ""), [0, 1, 2], lambda count: None)


# A program with workers that is killed.
_KILLED = """
import os, signal, time
from data_prep.pipeline.run import LocalRunner
pool = LocalRunner(2)._pool
pool.submit(int).result()
pool.submit(time.sleep, 600)
print("started", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_the_program():
    """They end even if it is killed; else they would write beside the next run."""
    # Both share standard output, which so stays open as long as one of them lives.
    command = [sys.executable, "-c", _KILLED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300)
    assert done.stdout == b"started\n" and done.returncode == -signal.SIGKILL
